//! From a TCP connection to an admitted peer, on both sides.

use std::{io, net::SocketAddr, sync::Arc};

use rustls::{CommonState, InvalidMessage, ProtocolVersion, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::{
    connection::{Established, Socket},
    failure,
    preface::{self, PrefaceError, TLS_HANDSHAKE},
    reader::drain,
};
use crate::{
    alert,
    error::{ConnectError, ErrorCode},
    identity::{ALPN, Admission, Credentials, PeerIdentity, Refusal, ResourceId, SERVER_NAME},
    proto::mux::{MAGIC, Settings, Side},
};

/// Makes a dialled connection usable. The caller bounds the time.
pub(super) async fn dial(
    tcp: TcpStream,
    address: SocketAddr,
    expected: Option<&ResourceId>,
    credentials: Option<&Arc<dyn Credentials>>,
    local: Settings,
) -> Result<Established, ConnectError> {
    let (socket, remote, peer) = match credentials {
        None => {
            let mut tcp = tcp;
            let remote = dial_preface(&mut tcp, address, local).await?;
            (Socket::Plain(tcp), remote, PeerIdentity::Unverified)
        }
        Some(credentials) => {
            let name = ServerName::try_from(SERVER_NAME).expect("the constant is a DNS name");
            let mut tls = TlsConnector::from(credentials.client_config())
                .connect(name, tcp)
                .await
                .map_err(|error| io_error(address, error))?;
            let verified = verify(
                tls.get_ref().1,
                &**credentials,
                Admission::Dialled(expected),
            );
            let peer = match verified {
                Ok(peer) => peer,
                Err(refusal) => return Err(reject(&mut tls, address, refusal).await),
            };
            let remote = dial_preface(&mut tls, address, local).await?;
            (Socket::Tls(Box::new(tls.into())), remote, peer)
        }
    };
    Ok(Established {
        socket,
        side: Side::Dialler,
        local,
        remote,
        address,
        peer,
    })
}

/// Makes an accepted connection usable. The caller bounds the time.
pub(super) async fn accept(
    tcp: TcpStream,
    address: SocketAddr,
    credentials: Option<&Arc<dyn Credentials>>,
    local: Settings,
) -> Result<Established, ConnectError> {
    let (socket, remote, peer) = match credentials {
        None => {
            let mut tcp = tcp;
            let remote = accept_preface(&mut tcp, address, local).await?;
            (Socket::Plain(tcp), remote, PeerIdentity::Unverified)
        }
        Some(credentials) => {
            let (tcp, speaks_tls) = check_first_byte(tcp, address).await?;
            let accepting = TlsAcceptor::from(credentials.server_config())
                .accept(tcp)
                .into_fallible();
            let mut tls = match accepting.await {
                Ok(tls) => tls,
                Err((error, mut tcp)) => {
                    let error = if speaks_tls {
                        io_error(address, error)
                    } else {
                        tls_error(address, NO_TLS.to_owned())
                    };
                    // rustls has written its alert; without this a reset could overtake it.
                    if tcp.shutdown().await.is_ok() {
                        drain(&mut tcp).await;
                    }
                    return Err(error);
                }
            };
            let verified = verify(tls.get_ref().1, &**credentials, Admission::Accepted);
            let peer = match verified {
                Ok(peer) => peer,
                Err(refusal) => return Err(reject(&mut tls, address, refusal).await),
            };
            let remote = accept_preface(&mut tls, address, local).await?;
            (Socket::Tls(Box::new(tls.into())), remote, peer)
        }
    };
    Ok(Established {
        socket,
        side: Side::Acceptor,
        local,
        remote,
        address,
        peer,
    })
}

/// Sends ours, then waits for the peer's word that we are admitted.
async fn dial_preface<S: AsyncRead + AsyncWrite + Unpin>(
    socket: &mut S,
    address: SocketAddr,
    local: Settings,
) -> Result<Settings, ConnectError> {
    // A peer that refused us may be gone for writing and still have left its reason to read.
    let sent = preface::send(socket, local).await;
    match (preface::receive(socket).await, sent) {
        (Ok(remote), Ok(())) => Ok(remote),
        (Err(PrefaceError::Io(error)), Err(sent)) if !is_tls_error(&error) => {
            Err(io_error(address, sent))
        }
        (Ok(_), Err(error)) => Err(io_error(address, error)),
        (Err(error), _) => Err(preface_error(socket, address, error).await),
    }
}

/// Waits for the dialler's, then sends ours.
async fn accept_preface<S: AsyncRead + AsyncWrite + Unpin>(
    socket: &mut S,
    address: SocketAddr,
    local: Settings,
) -> Result<Settings, ConnectError> {
    let remote = match preface::receive(socket).await {
        Ok(remote) => remote,
        Err(error) => return Err(preface_error(socket, address, error).await),
    };
    preface::send(socket, local)
        .await
        .map_err(|error| io_error(address, error))?;
    Ok(remote)
}

/// Tells the peer what is wrong with its preface, and the caller too.
async fn preface_error<S: AsyncRead + AsyncWrite + Unpin>(
    socket: &mut S,
    address: SocketAddr,
    error: PrefaceError,
) -> ConnectError {
    let address_text = address.to_string();
    match error {
        PrefaceError::Io(error) => io_error(address, error),
        PrefaceError::Refused { code, reason } => ConnectError::Refused {
            address: address_text,
            code,
            reason,
        },
        error => {
            let reason = error.to_string();
            let code = error.code().unwrap_or(ErrorCode::PROTOCOL);
            preface::refuse(socket, code, &reason).await;
            ConnectError::PeerRejected {
                address: address_text,
                code,
                reason,
            }
        }
    }
}

/// Tells the peer that it is refused, and the caller too.
async fn reject<S: AsyncRead + AsyncWrite + Unpin>(
    socket: &mut S,
    address: SocketAddr,
    refusal: Refusal,
) -> ConnectError {
    preface::refuse(socket, refusal.code, &refusal.reason).await;
    ConnectError::PeerRejected {
        address: address.to_string(),
        code: refusal.code,
        reason: refusal.reason,
    }
}

/// Looks at the first byte and leaves it where it is. A dialler without TLS is told so in words that it understands;
/// anything else is for rustls, which answers with an alert.
async fn check_first_byte(
    tcp: TcpStream,
    address: SocketAddr,
) -> Result<(TcpStream, bool), ConnectError> {
    let mut first = [0; MAGIC.len()];
    let seen = tcp
        .peek(&mut first)
        .await
        .map_err(|error| io_error(address, error))?;
    let first = &first[..seen];
    if !first.is_empty() && MAGIC.starts_with(first) {
        let mut tcp = tcp;
        preface::refuse(
            &mut tcp,
            ErrorCode::PROTOCOL,
            "this port speaks TLS, the dialler plaintext",
        )
        .await;
        return Err(tls_error(address, "the peer speaks plaintext".to_owned()));
    }
    let speaks_tls = first.first().is_none_or(|byte| *byte == TLS_HANDSHAKE);
    Ok((tcp, speaks_tls))
}

/// Reads the peer's identity out of a finished handshake and asks whether it is admitted.
fn verify(
    session: &CommonState,
    credentials: &dyn Credentials,
    admission: Admission<'_>,
) -> Result<PeerIdentity, Refusal> {
    if session.protocol_version() != Some(ProtocolVersion::TLSv1_3) {
        return Err(Refusal {
            code: ErrorCode::VERSION_MISMATCH,
            reason: "the connection is not TLS 1.3".to_owned(),
        });
    }
    // A server of rustls goes on without a protocol if the client names none.
    if session.alpn_protocol() != Some(ALPN) {
        return Err(Refusal {
            code: ErrorCode::VERSION_MISMATCH,
            reason: format!(
                "the handshake did not agree on the protocol {}",
                ALPN.escape_ascii()
            ),
        });
    }
    let end_entity = session
        .peer_certificates()
        .and_then(<[_]>::first)
        .ok_or_else(|| Refusal {
            code: ErrorCode::UNIDENTIFIED,
            reason: "the peer presented no certificate".to_owned(),
        })?;
    let peer = credentials.identify(end_entity)?;
    credentials.admit(&peer, admission)?;
    Ok(PeerIdentity::Verified(peer))
}

fn io_error(address: SocketAddr, error: io::Error) -> ConnectError {
    if let Some(error) = as_tls_error(&error) {
        return tls_error(
            address,
            match error {
                rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
                    NO_TLS.to_owned()
                }
                rustls::Error::AlertReceived(received) => alert::words(u8::from(*received))
                    .map_or_else(|| error.to_string(), str::to_owned),
                error => error.to_string(),
            },
        );
    }
    failure::of_handshake(address, error)
}

fn tls_error(address: SocketAddr, reason: String) -> ConnectError {
    ConnectError::Tls {
        address: address.to_string(),
        reason,
    }
}

fn is_tls_error(error: &io::Error) -> bool {
    as_tls_error(error).is_some()
}

fn as_tls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

const NO_TLS: &str = "the peer speaks no TLS";
