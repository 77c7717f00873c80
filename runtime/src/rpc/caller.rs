//! Whether a caller may speak for a node, and how it is called back.

use thalweg_transport::ResourceId;

use super::{Answer, Context, Endpoint, Gateway, HandlerError, RpcAddress, RpcError};

impl<E: Endpoint> Context<E> {
    /// Checks that the certificate of the caller names this node. A caller of the same service, or one without a
    /// verified identity, is believed.
    ///
    /// # Errors
    /// Both names.
    pub(crate) fn check_caller(&self, id: &ResourceId) -> Result<(), HandlerError> {
        let Some(peer) = self.caller().and_then(|peer| peer.identity.verified()) else {
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

    /// Checks the caller, and that the address where the node wants to be called back is one of its own: what is dialled
    /// there is then checked against the same name. An address that names no node could be that of another TaskManager,
    /// whose slots and tasks this one would then get into its hands. A caller of the same service may have a local
    /// address.
    ///
    /// # Errors
    /// As [`check_caller`](Self::check_caller); address and name.
    pub(crate) fn check_registration(
        &self,
        id: &ResourceId,
        address: &RpcAddress,
    ) -> Result<(), HandlerError> {
        self.check_caller(id)?;
        let is_own = match address.peer() {
            Some(peer) => peer == id,
            None => self.caller().is_none(),
        };
        if is_own {
            return Ok(());
        }
        Err(HandlerError::new(
            "caller.address_mismatch",
            format!("{address} is not an address of {id}"),
        ))
    }

    /// Connects to the gateway of one who registers, and answers with what `then` makes of it on the main thread.
    pub(crate) fn connect_back<G: Gateway, T: Send + 'static>(
        &mut self,
        address: &RpcAddress,
        then: impl FnOnce(&mut E, &mut Self, Result<G, RpcError>) -> T + Send + 'static,
    ) -> Answer<T> {
        let (reply, answer) = Answer::deferred();
        let (service, address) = (self.service().clone(), address.clone());
        let gateway = async move { service.connect(&address, None).await };
        self.spawn(gateway, move |this, cx, result| {
            reply.send(Ok(then(this, cx, result)));
        });
        answer
    }
}
