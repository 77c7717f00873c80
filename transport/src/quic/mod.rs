//! QUIC by quinn: one UDP socket for a node, TLS 1.3 with certificates on both sides, one stream per exchange.
//!
//! The settings that depend on the network path are chosen together by [`Profile`](crate::Profile); `profile` says why
//! each has its value. What the peer can make us hold is bounded there and in the listener.

mod congestion;
mod connection;
mod error;
mod handshake;
mod listener;
mod profile;
mod socket;
mod stream;
mod transport;

pub use connection::QuicConnection;
pub use listener::QuicListener;
pub use stream::{QuicRecvStream, QuicSendStream};
pub use transport::QuicTransport;
