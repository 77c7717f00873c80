//! Making an endpoint.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use thalweg_transport::Shutdown;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::{
    address::is_endpoint_name,
    core::Core,
    endpoint::Endpoint,
    gateway::ServedBy,
    handle::EndpointHandle,
    mailbox::Mailbox,
    registry::{Registered, SpawnError},
    runner::Runner,
    served::{Served, ServedGateway},
    service::RpcService,
};
use crate::ids::FencingToken;

/// An endpoint that is about to run.
#[must_use = "an endpoint runs when it is spawned"]
pub struct EndpointBuilder<E: Endpoint> {
    service: RpcService,
    name: String,
    state: E,
    token: Option<FencingToken>,
    gateways: Vec<(&'static str, Register<E>)>,
}

type Register<E> = fn(&Arc<Core<E>>) -> ServedGateway;

impl<E: Endpoint> EndpointBuilder<E> {
    pub(super) fn new(service: RpcService, name: String, state: E) -> Self {
        Self {
            service,
            name,
            state,
            token: None,
            gateways: Vec::new(),
        }
    }

    /// Lets callers reach the endpoint through this gateway. An endpoint may serve several.
    pub fn serve<G: ServedBy<E>>(mut self) -> Self {
        self.gateways.push((G::NAME, Served::<E, G>::register));
        self
    }

    /// The token that fenced calls must carry; see
    /// [`Context::set_fencing_token`](super::Context::set_fencing_token).
    pub fn fencing_token(mut self, token: FencingToken) -> Self {
        self.token = Some(token);
        self
    }

    /// Runs the endpoint's task. It has its address and can be connected to, but refuses calls until it is started.
    ///
    /// # Errors
    /// [`SpawnError`]: the name is taken or malformed, or the service is stopped.
    pub fn spawn(self) -> Result<EndpointHandle<E>, SpawnError> {
        if !is_endpoint_name(&self.name) {
            return Err(SpawnError::InvalidName { name: self.name });
        }
        let (announce, outcome) = watch::channel(None);
        let core = Arc::new(Core {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            address: Arc::new(self.service.endpoint_address(&self.name)),
            name: self.name.as_str().into(),
            mailbox: Mailbox::new(self.service.config().mailbox_capacity),
            token: Mutex::new(self.token),
            running: AtomicBool::new(false),
            timers: Shutdown::new(),
            tasks: Shutdown::new(),
            killed: CancellationToken::new(),
            kill_cause: OnceLock::new(),
            outcome,
            service: self.service.clone(),
        });
        let mut gateways = HashMap::new();
        for (gateway, register) in self.gateways {
            if gateways.insert(gateway, register(&core)).is_some() {
                return Err(SpawnError::DuplicateGateway {
                    name: self.name,
                    gateway: gateway.to_owned(),
                });
            }
        }
        self.service.register(Arc::new(Registered {
            core: Arc::clone(&core),
            gateways,
        }))?;
        let runner = Runner::new(self.state, Arc::clone(&core));
        // An endpoint that another one starts lives on its own: its log lines do not carry the other's name.
        let span = tracing::info_span!(parent: None, "endpoint", name = %core.name);
        self.service.tasks().spawn_on(
            runner.run(announce).instrument(span),
            self.service.runtime(),
        );
        Ok(EndpointHandle::new(core))
    }
}

impl<E: Endpoint> fmt::Debug for EndpointBuilder<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointBuilder")
            .field("name", &self.name)
            .field("gateways", &self.gateways.len())
            .finish_non_exhaustive()
    }
}

/// Endpoints are told apart by this number, also after a name is used again.
static NEXT_ID: AtomicU64 = AtomicU64::new(0);
