//! Whose fault a failed socket is.

use std::{io, sync::Arc};

use crate::error::ConnectionError;

/// The end of a connection whose socket failed: lost if the peer or the way to it is the cause, a failure of this
/// machine otherwise.
pub(super) fn of_socket(error: io::Error) -> ConnectionError {
    use io::ErrorKind as Kind;
    match error.kind() {
        Kind::BrokenPipe
        | Kind::ConnectionAborted
        | Kind::ConnectionReset
        | Kind::HostUnreachable
        | Kind::NetworkUnreachable
        | Kind::NotConnected
        | Kind::TimedOut
        | Kind::UnexpectedEof
        // What TLS says of bytes that no honest peer sends.
        | Kind::InvalidData => ConnectionError::Lost {
            reason: error.to_string(),
        },
        _ => ConnectionError::Transport(Arc::new(error)),
    }
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
            assert_eq!(error.is_retryable(), remote);
            let text = error.to_string();
            assert!(
                text.contains("10.0.0.7:6121") && text.contains(&words),
                "{text}"
            );
        }
    }
}
