//! Heartbeats between endpoints.
