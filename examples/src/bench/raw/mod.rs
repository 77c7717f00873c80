//! The yardsticks: what lies below our transports, used directly and as well as its settings allow.
//!
//! Each end has one thread with everything on it, the fastest placement that was found. The producer sends one block
//! again and again, the consumer lands it in buffers as large and as many as those of our gate. Calls alone are frames on
//! one stream, matched by id, all of them by one task at each end.

mod answerer;
mod buffers;
mod caller;
mod framed;
mod framed_server;
mod frames;
mod header;
mod landing;
mod quic;
mod quic_server;
mod vectored;

pub(crate) use answerer::Answerer;
pub(crate) use caller::Caller;
pub(crate) use framed::FramedConsumer;
pub(crate) use framed_server::FramedProducer;
pub(crate) use quic::QuicConsumer;
pub(crate) use quic_server::QuicProducer;
