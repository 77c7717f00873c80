//! The example cluster: its jobs and its commands.

pub mod jobs;
