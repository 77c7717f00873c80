//! What others use for the same work: unary calls of tonic, and `do_get` of Arrow Flight, on one channel.
//!
//! Each end has one thread with everything on it, as the raw transports have. TLS is that of our transports: the same
//! certificates, the same rustls configurations, with HTTP/2 in the place of our protocol's name.

mod client;
mod codec;
mod echo;
mod flight;
mod server;

pub(crate) use client::PeerClient;
pub(crate) use server::PeerServer;

/// Of ALPN.
const HTTP_2: &[u8] = b"h2";
