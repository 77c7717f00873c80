//! In one process, without a network.
