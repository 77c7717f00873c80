//! Remote procedure calls between endpoints.
