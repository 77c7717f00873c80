//! Result partitions, input gates and the buffers between them.

mod buffer;
mod error;
mod event;
mod local_pool;
mod manager;
mod partition;
mod pool;
mod subpartition;
mod view;
mod writer;

pub use buffer::BufferMut;
pub use error::{BufferError, ExchangeError};
pub use event::{BufferOrEvent, Event};
pub use local_pool::LocalPool;
pub use manager::{ReleaseHook, ResultPartitionManager};
pub use partition::{EXTRA_BUFFERS, PartitionSource, PartitionStats, ResultPartition};
pub use pool::{BufferPool, PoolStats};
pub use view::{
    AvailabilityListener, Item, ResultPartitionProvider, SubpartitionRequest, SubpartitionView,
};
pub use writer::{MAX_RECORD_BYTES, PartitionWriter};
