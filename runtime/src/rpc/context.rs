//! What an endpoint's code can do with its surroundings.

use std::{fmt, future::Future, sync::Arc, time::Duration};

use thalweg_transport::Peer;

use super::{
    address::RpcAddress,
    core::{Core, Message},
    endpoint::Endpoint,
    gateway::ServedBy,
    lifecycle::Control,
    main_thread::{MainThread, Run},
    scheduled::Scheduled,
    service::RpcService,
    sync::lock,
};
use crate::ids::FencingToken;

/// The surroundings of an endpoint, given to its code on the main thread.
pub struct Context<E> {
    core: Arc<Core<E>>,
    pub(super) caller: Option<Arc<Peer>>,
}

impl<E: Endpoint> Context<E> {
    pub(super) fn new(core: Arc<Core<E>>) -> Self {
        Self { core, caller: None }
    }

    pub(super) fn core(&self) -> &Arc<Core<E>> {
        &self.core
    }

    /// The endpoint's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.core.name
    }

    /// The endpoint's address.
    #[must_use]
    pub fn address(&self) -> &RpcAddress {
        &self.core.address
    }

    /// The service that the endpoint belongs to.
    #[must_use]
    pub fn service(&self) -> &RpcService {
        &self.core.service
    }

    /// The node that sent the message, or `None` for a local caller.
    #[must_use]
    pub fn caller(&self) -> Option<&Peer> {
        self.caller.as_deref()
    }

    /// The main thread, to come back to it from elsewhere.
    #[must_use]
    pub fn main_thread(&self) -> MainThread<E> {
        MainThread::new(Arc::clone(&self.core))
    }

    /// A client of this very endpoint, with the fencing token that it has when a call is sent.
    #[must_use]
    pub fn self_gateway<G: ServedBy<E>>(&self) -> G {
        self.core.self_gateway()
    }

    /// Sets, changes or takes away the token that fenced calls must carry. Counts for messages handled from now on.
    pub fn set_fencing_token(&mut self, token: Option<FencingToken>) {
        *lock(&self.core.token) = token;
    }

    /// The token that fenced calls must carry.
    #[must_use]
    pub fn fencing_token(&self) -> Option<FencingToken> {
        *lock(&self.core.token)
    }

    /// Whether the endpoint is started and not about to end.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.core.is_running()
    }

    /// Runs a future beside the main thread, and a function with its output on the main thread.
    ///
    /// The future is dropped when the endpoint ends. The function waits for a place in the mailbox, and is dropped
    /// while the endpoint is stopped.
    pub fn spawn<T: Send + 'static>(
        &mut self,
        future: impl Future<Output = T> + Send + 'static,
        then: impl FnOnce(&mut E, &mut Self, T) + Send + 'static,
    ) {
        let core = Arc::clone(&self.core);
        self.core.tasks.spawn_until_cancelled(async move {
            let output = future.await;
            let Some(slot) = core.mailbox.reserve().await else {
                return;
            };
            let run = Run(move |state: &mut E, cx: &mut Self| then(state, cx, output));
            let _ = core.mailbox.push(Message::Work(Box::new(run)), Some(slot));
        });
    }

    /// Runs a function on the main thread after a delay; see [`MainThread::schedule`].
    pub fn schedule(
        &mut self,
        delay: Duration,
        function: impl FnOnce(&mut E, &mut Self) + Send + 'static,
    ) -> Scheduled {
        self.main_thread().schedule(delay, function)
    }

    /// Ends the endpoint: [`on_stop`](Endpoint::on_stop) runs after the messages that wait now.
    pub fn terminate(&mut self) {
        self.core.control(Control::Terminate);
    }
}

impl<E> fmt::Debug for Context<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Context({})", self.core.name)
    }
}
