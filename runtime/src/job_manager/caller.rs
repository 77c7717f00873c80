//! Whether a caller may speak for a TaskManager.

use thalweg_transport::ResourceId;

use crate::rpc::{Context, Endpoint, HandlerError};

/// Checks that the certificate of the caller names this node. A caller of the same service, or one without a verified
/// identity, is believed.
///
/// # Errors
/// Both names.
pub(crate) fn check_caller<E: Endpoint>(
    cx: &Context<E>,
    id: &ResourceId,
) -> Result<(), HandlerError> {
    let Some(peer) = cx.caller().and_then(|peer| peer.identity.verified()) else {
        return Ok(());
    };
    if peer.id == *id {
        return Ok(());
    }
    Err(HandlerError::new(
        "caller.identity_mismatch",
        format!("{} cannot speak for {id}", peer.uri),
    ))
}
