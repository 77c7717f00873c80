//! Who the peer is, once TLS has verified its certificate.

use quinn::rustls::pki_types::CertificateDer;

use super::error::to_quic;
use crate::{
    error::ErrorCode,
    identity::{Admission, Credentials, PeerIdentity, Refusal},
};

/// Reads the peer's identity and asks whether it may talk to us. Closes the connection if not.
///
/// # Errors
/// The refusal, which the peer was told.
pub(super) fn admit(
    credentials: &dyn Credentials,
    connection: &quinn::Connection,
    admission: Admission<'_>,
) -> Result<PeerIdentity, Refusal> {
    let admitted = identify(credentials, connection, admission);
    if let Err(refusal) = &admitted {
        connection.close(to_quic(refusal.code), refusal.reason.as_bytes());
    }
    admitted
}

fn identify(
    credentials: &dyn Credentials,
    connection: &quinn::Connection,
    admission: Admission<'_>,
) -> Result<PeerIdentity, Refusal> {
    let chain = connection
        .peer_identity()
        .and_then(|identity| identity.downcast::<Vec<CertificateDer<'static>>>().ok());
    let end_entity = chain
        .as_ref()
        .and_then(|chain| chain.first())
        .ok_or_else(|| Refusal {
            code: ErrorCode::UNIDENTIFIED,
            reason: "the peer presented no certificate".to_owned(),
        })?;
    let peer = credentials.identify(end_entity)?;
    credentials.admit(&peer, admission)?;
    Ok(PeerIdentity::Verified(peer))
}
