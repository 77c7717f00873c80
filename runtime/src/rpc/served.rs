//! A gateway of an endpoint, seen from its callers.

use std::{
    any::Any,
    fmt,
    marker::PhantomData,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex},
};

use thalweg_transport::{BoxFuture, Peer, now};
use tracing::Span;

use super::{
    call::{CallSink, GatewayCall, Undecoded},
    context::Context,
    core::{Core, Message, Work},
    endpoint::Endpoint,
    error::RpcError,
    gateway::{Gateway, Method, ServedBy},
    mailbox::{NoSlot, Slot},
    method_metrics::{MethodMetrics, Side},
    rate::RateLimiter,
    responder::{BoxReply, panic_message},
    sync::lock,
    trace::serve_span,
    wire::CallContext,
};
use crate::ids::FencingToken;

/// Leads calls of gateway `G` to endpoint `E`.
pub(super) struct Served<E, G> {
    core: Arc<Core<E>>,
    rates: Mutex<RateLimiter>,
    gateway: PhantomData<fn() -> G>,
}

/// A gateway in the registry of a service.
#[derive(Clone)]
pub(super) struct ServedGateway {
    pub(super) methods: &'static [Method],
    pub(super) metrics: Arc<MethodMetrics>,
    /// An `Arc<dyn CallSink<G::Call>>`.
    local: Arc<dyn Any + Send + Sync>,
    remote: Arc<dyn RemoteTarget>,
}

/// Where calls of peers go.
pub(super) trait RemoteTarget: Send + Sync + fmt::Debug {
    /// Checks and queues a call; never waits.
    ///
    /// # Errors
    /// The refusal, if there is nobody to tell it to.
    fn dispatch(&self, call: RemoteCall<'_>) -> Result<(), RpcError>;
}

/// A call of a peer, not decoded.
#[derive(Debug)]
pub(super) struct RemoteCall<'a> {
    pub(super) peer: &'a Arc<Peer>,
    pub(super) method: u32,
    pub(super) context: CallContext,
    pub(super) body: &'a [u8],
    /// `None` for a tell.
    pub(super) reply: Option<BoxReply>,
}

impl<E: Endpoint, G: ServedBy<E>> Served<E, G> {
    pub(super) fn new(core: Arc<Core<E>>) -> Self {
        Self {
            core,
            rates: Mutex::default(),
            gateway: PhantomData,
        }
    }

    pub(super) fn register(core: &Arc<Core<E>>) -> ServedGateway {
        let served = Arc::new(Self::new(Arc::clone(core)));
        let sink: Arc<dyn CallSink<G::Call>> = Arc::clone(&served) as _;
        ServedGateway {
            methods: G::METHODS,
            metrics: Arc::new(MethodMetrics::new(Side::Server, G::METHODS)),
            local: Arc::new(sink),
            remote: served,
        }
    }
}

impl ServedGateway {
    /// The local way in, if the gateway is the very type of the caller.
    pub(super) fn sink<G: Gateway>(&self) -> Option<Arc<dyn CallSink<G::Call>>> {
        self.local
            .downcast_ref::<Arc<dyn CallSink<G::Call>>>()
            .cloned()
    }

    pub(super) fn remote(&self) -> &Arc<dyn RemoteTarget> {
        &self.remote
    }
}

impl fmt::Debug for ServedGateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ServedGateway").field(&self.remote).finish()
    }
}

impl<E: Endpoint, G: ServedBy<E>> CallSink<G::Call> for Served<E, G> {
    fn try_reserve(&self) -> Result<Slot, NoSlot> {
        self.core.mailbox.try_reserve()
    }

    fn reserve(&self) -> BoxFuture<'_, Option<Slot>> {
        Box::pin(self.core.mailbox.reserve())
    }

    fn send(&self, slot: Slot, call: G::Call, context: CallContext) -> Result<(), RpcError> {
        let work = Invocation::<G> {
            call,
            context,
            caller: None,
        };
        self.core
            .mailbox
            .push(Message::Work(Box::new(work)), Some(slot))
            .map_err(|_| self.core.unreachable())
    }

    fn own_token(&self) -> Option<FencingToken> {
        *lock(&self.core.token)
    }

    fn unreachable(&self) -> RpcError {
        self.core.unreachable()
    }

    fn overloaded(&self) -> RpcError {
        self.core.overloaded()
    }

    fn is_closed(&self) -> bool {
        self.core.mailbox.is_closed()
    }

    fn until_closed(&self) -> BoxFuture<'static, ()> {
        let mut outcome = self.core.outcome.clone();
        Box::pin(async move {
            // An endpoint whose task is gone without an outcome has ended, too.
            let _ = outcome.wait_for(Option::is_some).await;
        })
    }
}

impl<E: Endpoint, G: ServedBy<E>> RemoteTarget for Served<E, G> {
    fn dispatch(&self, call: RemoteCall<'_>) -> Result<(), RpcError> {
        let Some(method) = G::METHODS.iter().find(|method| method.id == call.method) else {
            return refuse(
                call.reply,
                RpcError::UnknownMethod {
                    gateway: G::NAME.to_owned(),
                    method: format!("{:#010x}", call.method),
                },
            );
        };
        // Without TLS nobody has a proved role, and whoever reaches the port may call.
        if let Some(verified) = call.peer.identity.verified()
            && !method.may_be_called_by(&verified.role)
        {
            tracing::warn!(caller = %verified.uri, %method, "refused a call that this role may not make");
            return refuse(
                call.reply,
                RpcError::NotAuthorized {
                    method: method.to_string(),
                    role: verified.role.to_string(),
                },
            );
        }
        // Before anything is decoded or queued: what comes too often costs next to nothing.
        if let Some(most) = method.max_per_second
            && !lock(&self.rates).allow(now(), (call.peer.id.as_str(), method.id), most)
        {
            self.core.service.counters().rate_limited.add();
            return refuse(
                call.reply,
                RpcError::Overloaded {
                    what: format!("calls of {method} by {} in a second", call.peer.id),
                    limit: u64::from(most.get()),
                },
            );
        }
        let slot = match self.core.mailbox.try_reserve() {
            Ok(slot) => slot,
            Err(NoSlot::Full) => return refuse(call.reply, self.core.overloaded()),
            Err(NoSlot::Closed) => return refuse(call.reply, self.core.unreachable()),
        };
        // Types of the endpoint's own run here, in the task that reads the connection.
        let decode = || G::Call::decode(call.method, call.body, call.reply);
        let decoded = match catch_unwind(AssertUnwindSafe(decode)) {
            Ok(Ok(decoded)) => decoded,
            // The way back has gone with it, and said that nobody answers.
            Err(panic) => {
                let panic = panic_message(&*panic);
                tracing::error!(%method, panic, "arguments panicked while they were decoded");
                return Ok(());
            }
            Ok(Err(Undecoded { reason, reply })) => {
                return refuse(
                    reply,
                    RpcError::Decode {
                        what: format!("request of {method}"),
                        reason,
                    },
                );
            }
        };
        let work = Invocation::<G> {
            call: decoded,
            context: call.context,
            caller: Some(Arc::clone(call.peer)),
        };
        // A message that comes too late is dropped with its way back, which answers.
        self.core
            .mailbox
            .push(Message::Work(Box::new(work)), Some(slot))
            .map_err(|_| self.core.unreachable())
    }
}

impl<E, G> fmt::Debug for Served<E, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Served").field(&self.core).finish()
    }
}

/// A call in the mailbox.
struct Invocation<G: Gateway> {
    call: G::Call,
    context: CallContext,
    caller: Option<Arc<Peer>>,
}

impl<E: Endpoint, G: ServedBy<E>> Work<E> for Invocation<G> {
    fn run(self: Box<Self>, state: &mut E, cx: &mut Context<E>) {
        let Self {
            call,
            context,
            caller,
        } = *self;
        if call.is_cancelled() {
            return;
        }
        let expected = cx.fencing_token();
        let got = context.token;
        if call.method().fenced && (expected.is_none() || expected != got) {
            tracing::debug!(endpoint = cx.name(), method = %call.method(), "call fenced off");
            return call.fail(RpcError::Fenced { expected, got });
        }
        let span = match (cx.service().tracer(), context.trace) {
            (Some(tracer), Some(parent)) => serve_span(tracer, call.method(), parent),
            _ => Span::none(),
        };
        cx.caller = caller;
        span.in_scope(|| G::invoke(call, state, cx));
        cx.caller = None;
    }

    fn refuse(self: Box<Self>, error: RpcError) {
        self.call.fail(error);
    }
}

fn refuse(reply: Option<BoxReply>, error: RpcError) -> Result<(), RpcError> {
    match reply {
        Some(reply) => {
            reply.answer(Err(error));
            Ok(())
        }
        None => Err(error),
    }
}
