//! Whose fault a failed socket is.

use std::{io, net::SocketAddr, sync::Arc};

use crate::{
    error::{ConnectError, ConnectionError},
    system,
};

/// The end of a connection whose socket failed: lost if the peer or the way to it is the cause, a failure of this
/// machine otherwise.
pub(super) fn of_socket(error: io::Error) -> ConnectionError {
    if is_of_peer(&error) {
        ConnectionError::Lost {
            reason: error.to_string(),
        }
    } else {
        ConnectionError::Transport(Arc::new(error))
    }
}

/// The end of a handshake whose socket failed.
pub(super) fn of_handshake(address: SocketAddr, error: io::Error) -> ConnectError {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        ConnectError::Unreachable {
            address: address.to_string(),
            reason: "the peer ended the connection during the handshake".to_owned(),
        }
    } else if is_of_peer(&error) {
        ConnectError::Unreachable {
            address: address.to_string(),
            reason: error.to_string(),
        }
    } else {
        system::failed(address, Arc::new(error))
    }
}

fn is_of_peer(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    matches!(
        error.kind(),
        Kind::BrokenPipe
            | Kind::ConnectionAborted
            | Kind::ConnectionRefused
            | Kind::ConnectionReset
            | Kind::HostUnreachable
            | Kind::NetworkUnreachable
            | Kind::NotConnected
            | Kind::TimedOut
            | Kind::UnexpectedEof
            // What TLS says of bytes that no honest peer sends.
            | Kind::InvalidData
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ConnectionId, StreamError, TransportError};

    #[test]
    fn a_reset_is_the_peers_fault_and_other_failures_of_a_socket_are_ours() {
        let peer = ConnectionId::to_address("10.0.0.7:6121");
        for (error, remote) in [
            (io::ErrorKind::ConnectionReset.into(), true),
            (io::Error::from_raw_os_error(104), true),
            (io::Error::from_raw_os_error(32), true),
            (io::Error::new(io::ErrorKind::UnexpectedEof, ""), true),
            (io::Error::from_raw_os_error(105), false),
            (io::Error::other("out of luck"), false),
            (io::Error::other(""), false),
        ] {
            let words = error.to_string();
            let error = StreamError::Connection(of_socket(error));
            let error = TransportError::from_stream(&peer, &error);
            let is_remote = matches!(error, TransportError::Remote { .. });
            assert_eq!(is_remote, remote, "{error}");
            assert!(error.is_retryable(), "{error}");
            let text = error.to_string();
            assert!(
                text.contains("10.0.0.7:6121") && text.contains(&words),
                "{text}"
            );
        }
    }
}
