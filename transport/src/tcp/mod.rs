//! TCP with rustls, many streams on one connection.
//!
//! The multiplex is [`proto::mux`](crate::proto::mux), where the wire format stands. This module gives it a socket: a
//! TLS 1.3 handshake with identity check, a task that reads and one that writes, and the handles of
//! [`Transport`](crate::Transport).
//!
//! # Start of a connection
//!
//! The dialler sends its preface as soon as TLS stands; the acceptor answers with its own when it has admitted the peer,
//! or with CLOSE and the reason. [`connect`](crate::Transport::connect) waits for that answer: in TLS 1.3 a client has
//! finished its handshake before the server has looked at its certificate, and would take a refusal for a lost
//! connection. A side that meets the other mode (TLS against plaintext) recognises it by the first bytes and says so.
//!
//! # Limits of TCP
//!
//! All streams share one socket: a lost packet delays all of them, and what is in the kernel's buffers cannot be
//! overtaken. Priorities and fairness hold for what has not been handed to the socket, at most one batch (64 KiB with
//! TLS, 256 KiB without) before the kernel's buffers.

mod connection;
mod failure;
mod halves;
mod handshake;
mod listener;
mod preface;
mod reader;
mod shared;
mod stream;
mod transport;
mod writer;

#[cfg(test)]
mod tests;

pub use connection::TcpConnection;
pub use listener::TcpListener;
pub use stream::{TcpRecvStream, TcpSendStream};
pub use transport::TcpTransport;
