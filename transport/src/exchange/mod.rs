//! Result partitions, input gates and the buffers between them.
//!
//! A producing task makes a [`ResultPartition`], registers it with the node's [`ResultPartitionManager`] and writes
//! through its [`PartitionWriter`]. A consuming task makes an [`InputGate`] with one channel per subpartition that it
//! reads, and takes buffers, or records with a [`RecordReader`]. Between nodes each channel is one stream to the
//! [`PartitionServer`] of the producer's node.
//!
//! # Memory
//!
//! All record data lies in buffers of the node's [`BufferPool`] from the writer to the socket and from the socket to the
//! consumer, so a node uses at most `transport.buffer_pool` bytes for it. Beside the pool there are
//!
//! - events, at most 64 KiB each: at the producer as many as its task sends ahead of its consumers, at the consumer some
//!   256 KiB in each remote channel, and what one more read of its stream gives;
//! - task events on their way back, some 256 KiB in each channel whose producer has not answered yet, and as much at the
//!   producer for each request that waits for its partition;
//! - per channel at the consumer, one record that spans buffers; per gate one buffer, from the first compressed one on;
//! - for blocking partitions: a quarter of the size of a writer's buffers, 32 bytes for each subpartition while it
//!   writes and 8 then, 16 for each region of a file (one for each 8 buffers or more), and 64 KiB and four buffers for
//!   each operation of the [`IoManager`] that may run;
//! - the transport's windows: on QUIC up to 16 MiB received and 8 MiB sent per connection (32 and 32 on the WAN profile),
//!   on TCP up to 16 KiB received per stream and `max_unread_bytes` (64 MiB) per connection, 256 KiB sent per stream, and
//!   some 320 KiB of read buffers per connection. A channel reads its stream at once, so that little of a window is ever
//!   used. A peer that is out to use memory up can make unread bytes on TCP cost 16 times as much: a piece of 4 KiB or
//!   more keeps the read buffer of 64 KiB in which it came.
//!
//! All of the last item counts for each of up to `max_connections` accepted connections, and for `connections_per_peer`
//! dialled ones to each peer, twice that while old ones are drained.

mod acknowledgement;
mod blocking;
mod buffer;
mod channel;
mod channel_queue;
mod client;
mod compression;
mod connection_manager;
mod credit_task;
mod debloat_task;
mod error;
mod event;
mod gate;
mod gate_core;
mod gate_handle;
mod gate_state;
mod gate_stats;
mod io_manager;
mod kind;
mod local_input;
mod local_pool;
mod manager;
mod node_exchange;
mod outbox;
mod partition;
mod pipelined_view;
mod pool;
mod producer_check;
mod record_reader;
mod remote;
mod requests;
mod server;
mod spill_dir;
mod spill_error;
mod subpartition;
mod task_events;
mod told;
mod view;
mod writer;

pub use blocking::{BlockingContext, READ_BUFFERS};
pub use buffer::BufferMut;
pub use channel::ChannelSource;
pub use client::PartitionRequestClient;
pub use connection_manager::{ConnectionManager, LocalConnectionManager, NetworkConnectionManager};
pub use error::{BufferError, ExchangeError};
pub use event::{BufferOrEvent, Event};
pub use gate::{GateContext, InputGate, READY_BUFFERS};
pub use gate_handle::GateHandle;
pub use gate_stats::GateStats;
pub use io_manager::{IoManager, IoStats};
pub use kind::{
    Consumption, EXTRA_BUFFERS, MAX_SORT_BUFFERS, MIN_SORT_BUFFERS, PartitionKind, PoolSize,
    ReleasedBy, SUBPARTITION_BUFFERS,
};
pub use local_pool::{LocalPool, OVERDRAFT_BUFFERS};
pub use manager::{ReleaseHook, ResultPartitionManager};
pub use node_exchange::NodeExchange;
pub use partition::{PartitionSource, PartitionStats, ResultPartition};
pub use pool::{BufferPool, LocalPoolStats, PoolStats};
pub use producer_check::{ProducerCheck, Verdict};
pub use record_reader::{Input, RecordReader};
pub use server::{PartitionServer, ServerStats};
pub use spill_error::SpillError;
pub use task_events::{TaskEvent, TaskEventDispatcher, TaskEventListener};
pub use view::{
    AvailabilityListener, Credit, Item, ResultPartitionProvider, SubpartitionRequest,
    SubpartitionView,
};
pub use writer::{MAX_RECORD_BYTES, PartitionWriter};

#[cfg(test)]
mod tests;
