//! Shuffle: generated records through the exchange, each of them checked.

mod ends;
mod job;
mod record;
mod tasks;

pub use ends::{Sink, Source};
pub use job::{Pattern, SINK_TASK, SOURCE_TASK, Shuffle, ShuffleConfig, ShuffleReport};
pub use record::{Checker, Generator, HEADER_BYTES};
pub use tasks::{SinkTask, SourceTask};
