//! Typed clients: what the macro's code is built from.

use std::{fmt, future::Future, num::NonZeroU32, panic::Location, sync::Arc};

use serde::{Serialize, de::DeserializeOwned};
use thalweg_transport::now;
use tracing::{Instrument, Span};

use super::{
    address::RpcAddress,
    call::{CallSink, GatewayCall, decode, encode},
    client_shared::ClientShared,
    config::Deadline,
    context::Context,
    endpoint::Endpoint,
    error::RpcError,
    link::Link,
    mailbox::NoSlot,
    responder::Responder,
    trace::call_span,
    wire::CallContext,
};
use crate::ids::FencingToken;

/// A gateway's client, as the [`gateway`](super::gateway) macro makes it.
pub trait Gateway: Clone + fmt::Debug + Send + Sync + 'static {
    /// The name in the handshake.
    const NAME: &'static str;
    /// Its methods, in the order of the declaration.
    const METHODS: &'static [Method];
    /// One call with its arguments.
    #[doc(hidden)]
    type Call: GatewayCall;
    #[doc(hidden)]
    fn from_ref(inner: GatewayRef<Self::Call>) -> Self;
}

/// Says that endpoint `E` serves this gateway. The [`gateway`](super::gateway) macro implements it for each `E` that
/// implements the server trait.
pub trait ServedBy<E: Endpoint>: Gateway {
    #[doc(hidden)]
    fn invoke(call: Self::Call, state: &mut E, cx: &mut Context<E>);
}

/// One method of a gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Method {
    /// The gateway's name.
    pub gateway: &'static str,
    /// The method's name.
    pub name: &'static str,
    /// FNV-1a of the name, 32 bits.
    pub id: u32,
    /// Roles that may call remotely; `*` stands for every role. Local callers are not asked.
    pub callers: &'static [&'static str],
    /// Its own deadline; `None` for the service's `ask_timeout`.
    pub timeout: Option<Deadline>,
    /// How often each peer may call it; `None` for as often as it likes. Local callers are not counted.
    pub max_per_second: Option<NonZeroU32>,
    /// Whether a call must carry the endpoint's fencing token.
    pub fenced: bool,
    /// Whether it answers; a method that does not is told, not asked.
    pub answers: bool,
}

impl Method {
    /// Whether a peer of this role may call it.
    #[must_use]
    pub fn may_be_called_by(&self, role: &str) -> bool {
        self.callers
            .iter()
            .any(|caller| *caller == "*" || *caller == role)
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.gateway, self.name)
    }
}

/// What a client holds.
pub struct GatewayRef<C> {
    target: Target<C>,
    fence: Fence,
    address: Arc<RpcAddress>,
    deadline: Option<Deadline>,
    shared: Arc<ClientShared>,
}

enum Target<C> {
    Local(Arc<dyn CallSink<C>>),
    Remote(Arc<Link>),
}

#[derive(Debug, Clone, Copy)]
enum Fence {
    /// The token that the client was made with.
    Fixed(Option<FencingToken>),
    /// The endpoint's own, whatever it is when a call is sent.
    Own,
}

impl<C: GatewayCall> GatewayRef<C> {
    pub(super) fn local(
        sink: Arc<dyn CallSink<C>>,
        token: Option<FencingToken>,
        address: Arc<RpcAddress>,
        shared: Arc<ClientShared>,
    ) -> Self {
        Self {
            target: Target::Local(sink),
            fence: Fence::Fixed(token),
            address,
            deadline: None,
            shared,
        }
    }

    pub(super) fn remote(
        link: Arc<Link>,
        token: Option<FencingToken>,
        address: Arc<RpcAddress>,
        shared: Arc<ClientShared>,
    ) -> Self {
        Self {
            target: Target::Remote(link),
            fence: Fence::Fixed(token),
            address,
            deadline: None,
            shared,
        }
    }

    pub(super) fn to_itself(
        sink: Arc<dyn CallSink<C>>,
        address: Arc<RpcAddress>,
        shared: Arc<ClientShared>,
    ) -> Self {
        Self {
            fence: Fence::Own,
            ..Self::local(sink, None, address, shared)
        }
    }

    /// The same with a deadline for every call.
    #[must_use]
    pub fn with_deadline(&self, deadline: Deadline) -> Self {
        Self {
            deadline: Some(deadline),
            ..self.clone()
        }
    }

    /// The endpoint's address.
    #[must_use]
    pub fn address(&self) -> &RpcAddress {
        &self.address
    }

    /// Why calls cannot succeed any more.
    #[must_use]
    pub fn closed(&self) -> Option<RpcError> {
        match &self.target {
            Target::Local(sink) => sink.is_closed().then(|| sink.unreachable()),
            Target::Remote(link) => link.ended(),
        }
    }

    /// Waits until calls cannot succeed any more, and says why. Keeps neither the connection nor the endpoint alive.
    pub fn wait_closed(&self) -> impl Future<Output = RpcError> + Send + 'static + use<C> {
        match &self.target {
            Target::Local(sink) => {
                let (end, error) = (sink.until_closed(), sink.unreachable());
                Box::pin(async move {
                    end.await;
                    error
                })
            }
            Target::Remote(link) => link.until_ended(),
        }
    }

    /// Sends a call and waits for its answer.
    pub fn ask<A, T>(
        &self,
        method: &'static Method,
        caller: &'static Location<'static>,
        arguments: A,
        make: fn(A, Responder<T>) -> C,
    ) -> impl Future<Output = Result<T, RpcError>> + Send + 'static + use<A, T, C>
    where
        A: Serialize + Send + 'static,
        T: DeserializeOwned + Send + 'static,
    {
        let this = self.clone();
        // Now, while the caller's own span is the current one: the future may be polled elsewhere.
        let span = match &self.shared.tracer {
            Some(_) => call_span(method),
            None => Span::none(),
        };
        async move {
            let started = now();
            let result = this.ask_in_time(method, caller, arguments, make).await;
            let shared = &this.shared;
            let error = result.as_ref().err();
            shared
                .metrics
                .ended(method.id, now().duration_since(started), error);
            result
        }
        .instrument(span)
    }

    async fn ask_in_time<A, T>(
        &self,
        method: &'static Method,
        caller: &'static Location<'static>,
        arguments: A,
        make: fn(A, Responder<T>) -> C,
    ) -> Result<T, RpcError>
    where
        A: Serialize,
        T: DeserializeOwned + Send + 'static,
    {
        let config = &self.shared.config;
        let deadline = self
            .deadline
            .or(method.timeout)
            .unwrap_or(Deadline::After(config.ask_timeout));
        let answer = self.ask_within(method, deadline, arguments, make);
        match deadline {
            Deadline::Never => answer.await,
            Deadline::After(after) => {
                tokio::time::timeout(after, answer)
                    .await
                    .unwrap_or_else(|_| {
                        Err(RpcError::TimedOut {
                            method: method.to_string(),
                            address: self.address.to_string(),
                            after,
                            caller: config.capture_caller.then(|| caller.to_string()),
                        })
                    })
            }
        }
    }

    async fn ask_within<A, T>(
        &self,
        method: &'static Method,
        deadline: Deadline,
        arguments: A,
        make: fn(A, Responder<T>) -> C,
    ) -> Result<T, RpcError>
    where
        A: Serialize,
        T: DeserializeOwned + Send + 'static,
    {
        let sink = match &self.target {
            Target::Local(sink) => sink,
            Target::Remote(link) => {
                let body = encode(method, &arguments)?;
                drop(arguments);
                let deadline = match deadline {
                    Deadline::After(after) => Some(after),
                    Deadline::Never => None,
                };
                let link = Arc::clone(link);
                let answer = link.ask(method, self.context(), deadline, body).await?;
                return decode(&answer).map_err(|reason| RpcError::Decode {
                    what: format!("answer of {method}"),
                    reason,
                });
            }
        };
        let slot = match sink.try_reserve() {
            Ok(slot) => Some(slot),
            Err(NoSlot::Closed) => None,
            Err(NoSlot::Full) => sink.reserve().await,
        };
        let slot = slot.ok_or_else(|| sink.unreachable())?;
        let (responder, answer) = Responder::local();
        sink.send(slot, make(arguments, responder), self.context())?;
        answer.await.unwrap_or_else(|_| Err(sink.unreachable()))
    }

    /// Sends a call that is not answered.
    ///
    /// # Errors
    /// What is known at once.
    pub fn tell<A: Serialize>(
        &self,
        method: &'static Method,
        arguments: A,
        make: fn(A) -> C,
    ) -> Result<(), RpcError> {
        match &self.target {
            Target::Local(sink) => {
                let slot = sink.try_reserve().map_err(|reason| match reason {
                    NoSlot::Full => sink.overloaded(),
                    NoSlot::Closed => sink.unreachable(),
                })?;
                sink.send(slot, make(arguments), self.context())
            }
            Target::Remote(link) => link.tell(method, self.context(), encode(method, &arguments)?),
        }
    }

    fn context(&self) -> CallContext {
        let tracer = self.shared.tracer.as_ref();
        CallContext {
            token: self.token(),
            trace: tracer.and_then(|tracer| tracer.context(&Span::current())),
        }
    }

    fn token(&self) -> Option<FencingToken> {
        match (self.fence, &self.target) {
            (Fence::Fixed(token), _) => token,
            (Fence::Own, Target::Local(sink)) => sink.own_token(),
            (Fence::Own, Target::Remote(_)) => None,
        }
    }
}

impl<C> Clone for Target<C> {
    fn clone(&self) -> Self {
        match self {
            Self::Local(sink) => Self::Local(Arc::clone(sink)),
            Self::Remote(link) => Self::Remote(Arc::clone(link)),
        }
    }
}

impl<C> Clone for GatewayRef<C> {
    fn clone(&self) -> Self {
        Self {
            target: self.target.clone(),
            fence: self.fence,
            address: Arc::clone(&self.address),
            deadline: self.deadline,
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<C> fmt::Debug for GatewayRef<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gateway({})", self.address)
    }
}
