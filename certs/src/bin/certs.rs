//! Placeholder.
#![allow(clippy::missing_docs_in_private_items, reason = "placeholder")]
fn main() {}
