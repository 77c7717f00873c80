//! What an endpoint's task shares with its handles.

use std::{
    fmt,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use thalweg_transport::Shutdown;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{
    address::RpcAddress,
    context::Context,
    endpoint::Endpoint,
    error::RpcError,
    gateway::{GatewayRef, ServedBy},
    lifecycle::Control,
    mailbox::Mailbox,
    served::Served,
    service::RpcService,
    termination::TerminationError,
};
use crate::ids::FencingToken;

/// One message in a mailbox.
pub(super) enum Message<E> {
    Control(Control),
    Work(Box<dyn Work<E>>),
}

/// Something to do on the main thread.
pub(super) trait Work<E>: Send {
    fn run(self: Box<Self>, state: &mut E, cx: &mut Context<E>);
    /// The endpoint does not take it.
    fn refuse(self: Box<Self>, error: RpcError);
}

/// Everything of an endpoint but its state.
pub(super) struct Core<E> {
    /// Unique in the process.
    pub(super) id: u64,
    pub(super) name: Arc<str>,
    pub(super) address: Arc<RpcAddress>,
    pub(super) service: RpcService,
    pub(super) mailbox: Mailbox<Message<E>>,
    pub(super) token: Mutex<Option<FencingToken>>,
    pub(super) running: AtomicBool,
    /// Pending timers; cancelled before `on_stop`.
    pub(super) timers: Shutdown,
    /// Answer futures and continuations; cancelled when the endpoint ends.
    pub(super) tasks: Shutdown,
    pub(super) killed: CancellationToken,
    pub(super) kill_cause: OnceLock<TerminationError>,
    pub(super) outcome: watch::Receiver<Option<Result<(), TerminationError>>>,
}

impl<E> Core<E> {
    pub(super) fn control(&self, control: Control) {
        let same = |last: &Message<E>| matches!(last, Message::Control(c) if *c == control);
        if self
            .mailbox
            .push_control(Message::Control(control), same)
            .is_err()
        {
            tracing::debug!(endpoint = %self.name, ?control, "endpoint has ended already");
        }
    }

    /// Ends the endpoint without `on_stop`, with this result.
    pub(super) fn kill(&self, cause: TerminationError) {
        let _ = self.kill_cause.set(cause);
        self.killed.cancel();
    }

    pub(super) fn is_running(&self) -> bool {
        self.running.load(Ordering::Acquire)
    }

    pub(super) fn unreachable(&self) -> RpcError {
        RpcError::RecipientUnreachable {
            address: self.address.to_string(),
            reason: "the endpoint has terminated".to_owned(),
        }
    }

    pub(super) fn not_started(&self) -> RpcError {
        RpcError::EndpointNotStarted {
            address: self.address.to_string(),
        }
    }

    pub(super) fn overloaded(&self) -> RpcError {
        RpcError::Overloaded {
            what: format!("mailbox of {}", self.address),
            limit: u64::from(self.mailbox.capacity()),
        }
    }
}

impl<E: Endpoint> Core<E> {
    pub(super) fn self_gateway<G: ServedBy<E>>(self: &Arc<Self>) -> G {
        G::from_ref(GatewayRef::to_itself(
            Arc::new(Served::<E, G>::new(Arc::clone(self))),
            Arc::clone(&self.address),
            self.service.client_shared::<G>(),
        ))
    }
}

impl<E> fmt::Debug for Core<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("name", &self.name)
            .field("mailbox", &self.mailbox)
            .finish_non_exhaustive()
    }
}
