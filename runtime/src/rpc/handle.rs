//! What the owner of an endpoint holds.

use std::{fmt, future::Future, sync::Arc};

use super::{
    address::RpcAddress,
    core::Core,
    endpoint::Endpoint,
    gateway::ServedBy,
    lifecycle::Control,
    main_thread::MainThread,
    termination::{TerminationError, outcome},
};

/// An endpoint that runs in a service. Cheap to clone; dropping it ends nothing, the service keeps the endpoint.
pub struct EndpointHandle<E> {
    core: Arc<Core<E>>,
}

impl<E: Endpoint> EndpointHandle<E> {
    pub(super) fn new(core: Arc<Core<E>>) -> Self {
        Self { core }
    }

    /// The endpoint's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.core.name
    }

    /// The endpoint's address; known before it is started.
    #[must_use]
    pub fn address(&self) -> &RpcAddress {
        &self.core.address
    }

    /// Starts it: from then on it handles calls. Does not wait.
    pub fn start(&self) {
        self.core.control(Control::Start);
    }

    /// Stops it: calls are refused until it is started again. Does not wait.
    pub fn stop(&self) {
        self.core.control(Control::Stop);
    }

    /// Ends it after the messages that wait now, and gives the future of [`terminated`](Self::terminated); it ends
    /// also if that future is dropped.
    pub fn terminate(
        &self,
    ) -> impl Future<Output = Result<(), TerminationError>> + Send + 'static + use<E> {
        self.core.control(Control::Terminate);
        self.terminated()
    }

    /// Waits for the endpoint's end. Its name is free again then.
    ///
    /// # Errors
    /// How it failed; see [`TerminationError`].
    ///
    /// # Cancel safety
    /// Cancel-safe.
    pub fn terminated(
        &self,
    ) -> impl Future<Output = Result<(), TerminationError>> + Send + 'static + use<E> {
        outcome(&self.core.name, self.core.outcome.clone())
    }

    /// Whether it is started and not about to end.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.core.is_running()
    }

    /// A client of the endpoint, with the fencing token that it has when a call is sent.
    ///
    /// A gateway whose server trait the endpoint does not implement is an error of compilation:
    ///
    /// ```compile_fail,E0277
    /// use thalweg_runtime::rpc::{Endpoint, EndpointHandle, gateway};
    ///
    /// #[gateway(callers = [])]
    /// trait ShopGateway {}
    ///
    /// struct Other;
    /// impl Endpoint for Other {}
    ///
    /// fn wrong(other: &EndpointHandle<Other>) -> ShopClient {
    ///     other.gateway()
    /// }
    /// ```
    #[must_use]
    pub fn gateway<G: ServedBy<E>>(&self) -> G {
        self.core.self_gateway()
    }

    /// The endpoint's main thread.
    #[must_use]
    pub fn main_thread(&self) -> MainThread<E> {
        MainThread::new(Arc::clone(&self.core))
    }
}

impl<E> Clone for EndpointHandle<E> {
    fn clone(&self) -> Self {
        Self {
            core: Arc::clone(&self.core),
        }
    }
}

impl<E> fmt::Debug for EndpointHandle<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EndpointHandle").field(&self.core).finish()
    }
}
