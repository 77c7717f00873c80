//! The yardsticks: what lies below our transports, used directly and as well as its settings allow.
//!
//! Each end has one thread with everything on it, the fastest placement that was found. The producer sends one block
//! again and again, the consumer lands it in buffers as large and as many as those of our gate.

mod buffers;
mod framed;
mod framed_server;
mod header;
mod landing;
mod quic;
mod quic_server;
mod vectored;

pub(crate) use framed::FramedConsumer;
pub(crate) use framed_server::FramedProducer;
pub(crate) use quic::QuicConsumer;
pub(crate) use quic_server::QuicProducer;
