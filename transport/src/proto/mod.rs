//! The pure state machines: no clock, socket, task or random number.

pub mod backoff;
mod credit;
mod data_type;
pub mod debloat;
mod frame;
pub mod hello;
mod ids;
pub mod mux;
pub mod registry;

pub use credit::{CreditViolation, ReceiverCredit, Recycled, SenderCredit, floating_share};
pub use data_type::DataType;
pub use frame::{
    ErrorKind, FLAG_COMPRESSED, FRAME_HEADER_BYTES, Frame, FrameError, HeaderDecoder,
    MAX_ERROR_BYTES, MAX_EVENT_BYTES, PartitionRequest, REQUEST_BODY_BYTES,
};
pub use ids::{ExecutionAttemptId, PartitionId, SubpartitionIndex};
