//! Blocking partitions: written to disk, read when they are finished, as often as somebody wants.
//!
//! The writer gathers records in the order in which they come and writes them in the order of subpartitions, a region
//! at a time, to one file. A reader walks the regions. However many subpartitions there are, the writer needs few
//! buffers; the more it gets, the longer the stretches that a reader finds.
//!
//! # Memory
//!
//! - A partition that is written: 16 to 512 buffers of the pool; beside it a quarter of their size for the entries
//!   ([`SortBuffer`](sort_buffer::SortBuffer)), 8 bytes for each subpartition and 24 more while a region goes to the
//!   disk, and the events of a region.
//! - A finished one: 16 bytes for each region and 8 for each subpartition ([`Layout`](region::Layout)). A region has at
//!   least eight buffers, but for the last one and where records for one and for all subpartitions alternate.
//! - Readers: together 16 buffers of the pool, and up to a quarter of it while others do not need them; each some 500
//!   bytes, and 256 KiB of events.

mod block;
mod context;
mod core;
mod file;
mod index;
mod read_pool;
mod reader;
mod region;
mod sort_buffer;
mod view;
mod writer;

pub use context::{BlockingContext, READ_BUFFERS};

pub(super) use self::{core::BlockingCore, sort_buffer::Target, writer::BlockingWriter};
