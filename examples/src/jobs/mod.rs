//! The jobs of the example cluster.

pub mod shuffle;
pub mod wordcount;
