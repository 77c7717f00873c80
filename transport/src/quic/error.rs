//! quinn's errors as ours, and error codes to and from QUIC's.

use std::{net::SocketAddr, sync::Arc};

use quinn::{ConnectionError as QuinnError, TransportErrorCode, VarInt};

use crate::{
    alert,
    error::{ConnectError, ConnectionError, ErrorCode, sanitize},
};

/// Our 32 bits as QUIC's 62.
pub(super) fn to_quic(code: ErrorCode) -> VarInt {
    VarInt::from_u32(code.0)
}

/// QUIC's 62 bits as our 32; a larger number is [`ErrorCode::UNKNOWN`].
pub(super) fn from_quic(code: VarInt) -> ErrorCode {
    u32::try_from(code.into_inner()).map_or(ErrorCode::UNKNOWN, ErrorCode)
}

/// Why an established connection ended. `local` is what this side gave as reason if it closed the connection.
pub(super) fn connection_error(error: &QuinnError, local: (ErrorCode, &str)) -> ConnectionError {
    match error {
        QuinnError::ApplicationClosed(close) => ConnectionError::ClosedByPeer {
            code: from_quic(close.error_code),
            reason: sanitize(&close.reason),
        },
        QuinnError::LocallyClosed => ConnectionError::ClosedLocally {
            code: local.0,
            reason: local.1.to_owned(),
        },
        QuinnError::TimedOut => ConnectionError::TimedOut {
            reason: "nothing was heard from the peer for the idle time-out".to_owned(),
        },
        QuinnError::Reset => ConnectionError::Lost {
            reason: "the peer does not know this connection (it was restarted)".to_owned(),
        },
        QuinnError::ConnectionClosed(close) => {
            ended_by_quic(close.error_code, &close.reason, Origin::Peer)
        }
        QuinnError::TransportError(error) => {
            ended_by_quic(error.code, error.reason.as_bytes(), Origin::Local)
        }
        QuinnError::VersionMismatch | QuinnError::CidsExhausted => {
            ConnectionError::Transport(Arc::new(error.clone()))
        }
    }
}

/// Why a dial, or the handshake of an accepted connection, failed.
pub(super) fn connect_error(error: &QuinnError, address: SocketAddr) -> ConnectError {
    let address = address.to_string();
    match error {
        QuinnError::ApplicationClosed(close) => ConnectError::Refused {
            address,
            code: from_quic(close.error_code),
            reason: sanitize(&close.reason),
        },
        QuinnError::LocallyClosed => ConnectError::Cancelled { address },
        QuinnError::TimedOut => ConnectError::TimedOut {
            address,
            reason: "the peer did not answer the handshake".to_owned(),
        },
        QuinnError::VersionMismatch => ConnectError::PeerRejected {
            address,
            code: ErrorCode::VERSION_MISMATCH,
            reason: "the peer knows no QUIC version in common with us".to_owned(),
        },
        QuinnError::Reset => ConnectError::Unreachable {
            address,
            reason: "the peer does not know this connection (it was restarted)".to_owned(),
        },
        QuinnError::ConnectionClosed(close) => handshake_ended(
            address,
            close.error_code,
            &close.reason,
            Origin::Peer,
            error,
        ),
        QuinnError::TransportError(failure) => {
            let reason = failure.reason.as_bytes();
            handshake_ended(address, failure.code, reason, Origin::Local, error)
        }
        QuinnError::CidsExhausted => ConnectError::Transport {
            address,
            source: Arc::new(error.clone()),
        },
    }
}

/// What happened before quinn had anything to send.
pub(super) fn dial_error(error: quinn::ConnectError, address: SocketAddr) -> ConnectError {
    let text = address.to_string();
    match error {
        quinn::ConnectError::InvalidRemoteAddress(_) => ConnectError::Address {
            address: text,
            reason: "it cannot be reached from the local address".to_owned(),
        },
        quinn::ConnectError::EndpointStopping => ConnectError::Cancelled { address: text },
        other => ConnectError::Local {
            address: text,
            source: Arc::new(other),
        },
    }
}

/// Which side found the fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    Local,
    Peer,
}

fn ended_by_quic(code: TransportErrorCode, words: &[u8], origin: Origin) -> ConnectionError {
    if let Some(alert) = tls_alert(code) {
        let reason = tls_reason(alert, words, origin);
        return ConnectionError::Protocol {
            reason: format!("TLS handshake failed: {reason}"),
        };
    }
    let reason = quic_reason(code, words, origin);
    match code {
        // INTERNAL_ERROR is also how quinn ends a healthy connection that lost too much ("too many gaps in stream
        // buffer") and one whose endpoint is gone: a new connection helps.
        TransportErrorCode::NO_ERROR
        | TransportErrorCode::INTERNAL_ERROR
        | TransportErrorCode::NO_VIABLE_PATH
        | TransportErrorCode::AEAD_LIMIT_REACHED => ConnectionError::Lost { reason },
        _ => ConnectionError::Protocol { reason },
    }
}

fn handshake_ended(
    address: String,
    code: TransportErrorCode,
    words: &[u8],
    origin: Origin,
    error: &QuinnError,
) -> ConnectError {
    if let Some(alert) = tls_alert(code) {
        return ConnectError::Tls {
            address,
            reason: tls_reason(alert, words, origin),
        };
    }
    match code {
        TransportErrorCode::CONNECTION_REFUSED => ConnectError::Refused {
            address,
            code: ErrorCode::LIMIT_EXCEEDED,
            reason: "the listener takes no further connections now".to_owned(),
        },
        // quinn sends this in place of an application's code while the handshake is not confirmed.
        TransportErrorCode::APPLICATION_ERROR => ConnectError::Refused {
            address,
            code: ErrorCode::UNKNOWN,
            reason: "the peer closed the connection during the handshake".to_owned(),
        },
        _ => ConnectError::Transport {
            address,
            source: Arc::new(error.clone()),
        },
    }
}

/// CRYPTO_ERROR is 0x100 plus the alert (RFC 9001 section 4.8).
fn tls_alert(code: TransportErrorCode) -> Option<u8> {
    let code = u64::from(code);
    match code {
        0x100..=0x1ff => u8::try_from(code & 0xff).ok(),
        _ => None,
    }
}

/// Alerts by RFC 8446 section 6. What rustls found here is said in its words; of the peer we know the alert, and
/// its words if its QUIC stack sends them.
fn tls_reason(code: u8, words: &[u8], origin: Origin) -> String {
    let words = sanitize(words);
    match (alert::words(code), origin) {
        (Some(meaning), _) if code == alert::NO_APPLICATION_PROTOCOL => meaning.to_owned(),
        (_, Origin::Local) if words.is_empty() => format!("alert {code}"),
        (_, Origin::Local) => words,
        (Some(meaning), Origin::Peer) => with_words(meaning.to_owned(), &words),
        (None, Origin::Peer) => with_words(format!("the peer sent alert {code}"), &words),
    }
}

fn quic_reason(code: TransportErrorCode, words: &[u8], origin: Origin) -> String {
    let who = match origin {
        Origin::Local => "",
        Origin::Peer => "the peer reports: ",
    };
    with_words(format!("{who}{code}"), &sanitize(words))
}

fn with_words(what: String, words: &str) -> String {
    if words.is_empty() {
        what
    } else {
        format!("{what} ({words})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_above_32_bits_are_unknown() {
        assert_eq!(
            from_quic(to_quic(ErrorCode(u32::MAX - 1))),
            ErrorCode(u32::MAX - 1)
        );
        assert_eq!(from_quic(VarInt::MAX), ErrorCode::UNKNOWN);
    }

    #[test]
    fn a_refused_certificate_is_said_in_words() {
        let reason = tls_reason(48, b"invalid peer certificate: UnknownIssuer", Origin::Peer);
        assert_eq!(
            reason,
            "the peer refused our certificate: it does not trust the authority that signed it \
             (invalid peer certificate: UnknownIssuer)"
        );
        let error = ended_by_quic(TransportErrorCode::crypto(45), b"", Origin::Peer);
        assert_eq!(
            error.to_string(),
            "protocol violation: TLS handshake failed: the peer refused our certificate: \
             it has expired or is not valid yet"
        );
        assert!(!error.is_retryable());
    }

    #[test]
    fn what_fails_before_anything_is_sent_is_this_sides_failure() {
        let address = ([10, 0, 0, 7], 6121).into();
        let error = dial_error(quinn::ConnectError::CidsExhausted, address);
        assert!(matches!(error, ConnectError::Local { .. }), "{error:?}");
        assert!(error.is_retryable());
    }

    #[test]
    fn too_many_gaps_is_worth_a_new_connection() {
        let words = b"too many gaps in stream buffer";
        for origin in [Origin::Local, Origin::Peer] {
            let error = ended_by_quic(TransportErrorCode::INTERNAL_ERROR, words, origin);
            assert!(matches!(error, ConnectionError::Lost { .. }), "{error}");
            assert!(error.is_retryable());
        }
    }

    #[test]
    fn a_broken_protocol_is_not_retried() {
        let error = ended_by_quic(
            TransportErrorCode::FRAME_ENCODING_ERROR,
            b"x",
            Origin::Local,
        );
        assert!(!error.is_retryable());
    }
}
