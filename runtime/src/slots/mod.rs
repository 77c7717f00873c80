//! What a TaskExecutor knows about its slots and its jobs.
//!
//! Pure: time is an argument, and what is to be done outside comes back as [`SlotAction`]s. One task owns a
//! [`SlotTable`] and a [`JobTable`]: the TaskExecutor's main thread.

mod budget;
mod error;
mod jobs;
mod report;
mod request;
mod slot;
mod table;
mod timers;

pub use budget::{MemoryBudget, OverBudget};
pub use error::SlotError;
pub use jobs::{ClosedJob, Job, JobTable, JobTableError};
pub use report::{ResourceProfile, SlotId, SlotReport, SlotState, SlotStatus};
pub use request::{Allocated, SlotAction, SlotRequest, SlotTableConfig};
pub use table::SlotTable;
pub use timers::{Ticket, TimerTable};
