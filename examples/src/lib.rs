//! The example cluster: its jobs and its commands.

pub mod cli;
pub mod jobs;
