//! The example cluster: its jobs and its commands; and the benchmarks.

pub mod bench;
pub mod cli;
pub mod jobs;
