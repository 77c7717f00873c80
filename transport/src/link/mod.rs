//! One connection per ConnectionId, shared and counted: dials, hellos, and the streams of a connection.
//!
//! Generic over the backend inside, without a type parameter at the edge: [`pool::Pool`] hands out what
//! [`live::LiveConnection`] describes. Everything runs on the network runtime.

mod accept;
mod dial;
mod introduce;
mod lease;
mod live;
mod local;
mod pool;
mod shares;
mod stream;

pub(crate) use accept::{Accepted, accept_connections};
pub(crate) use dial::Dialler;
pub(crate) use local::Local;
pub(crate) use pool::Pool;
pub use stream::STREAM_VERSION;

use std::time::Duration;

/// How long a connection whose handshake is done may stay without its hello, and a stream without the bytes that name
/// its kind: either is one small packet that the peer sends at once, so 5 s cover a few losses on a slow path, and a
/// silent peer holds a task no longer.
const HELLO_LIMIT: Duration = Duration::from_secs(5);
