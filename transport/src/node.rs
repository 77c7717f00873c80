//! A node: one identity, one port.
