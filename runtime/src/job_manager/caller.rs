//! Whether a caller may speak for a TaskManager, and where it may be called back.

use thalweg_transport::ResourceId;

use crate::rpc::{Context, Endpoint, HandlerError, RpcAddress};

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

/// Checks that the address where a TaskManager wants to be called back is one of its own node: what is dialled there is
/// then checked against the same name. An address that names no node could be that of another TaskManager, whose slots
/// and tasks this one would then get into its hands. A caller of the same service may have a local address.
///
/// # Errors
/// Address and name.
pub(crate) fn check_address<E: Endpoint>(
    cx: &Context<E>,
    address: &RpcAddress,
    id: &ResourceId,
) -> Result<(), HandlerError> {
    let is_own = match address.peer() {
        Some(peer) => peer == id,
        None => cx.caller().is_none(),
    };
    if is_own {
        return Ok(());
    }
    Err(HandlerError::new(
        "caller.address_mismatch",
        format!("{address} is not an address of {id}"),
    ))
}
