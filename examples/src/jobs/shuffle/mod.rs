//! Shuffle: generated records through the exchange, each of them checked.

mod record;
