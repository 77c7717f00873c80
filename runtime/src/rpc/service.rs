//! The RPC service of a node.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use thalweg_transport::{Connections, ResourceId, Shutdown, StreamKind};
use tokio::{runtime::Handle, sync::watch, time::timeout};

use super::{
    address::RpcAddress,
    budget::{Budgets, PeerBudget},
    builder::EndpointBuilder,
    client_shared::ClientShared,
    config::RpcConfig,
    endpoint::Endpoint,
    error::RpcError,
    gateway::{Gateway, GatewayRef},
    link::Link,
    method_metrics::{MethodMetrics, Side},
    registry::{AnyEndpoint, Registry, SpawnError},
    serve::RpcHandler,
    service_builder::RpcServiceBuilder,
    stats::{Counters, RpcStats},
    sync::lock,
    termination::TerminationError,
    trace::Tracer,
};
use crate::ids::FencingToken;

/// Endpoints of one node, and the way to those of others. Cheap to clone.
///
/// Its endpoints live until they are terminated or the service is closed; dropping the last handle closes nothing.
#[derive(Clone)]
pub struct RpcService(Arc<Inner>);

struct Inner {
    id: ResourceId,
    config: Arc<RpcConfig>,
    runtime: Handle,
    connections: Option<Arc<dyn Connections>>,
    tracer: Option<Arc<dyn Tracer>>,
    clients: Mutex<HashMap<&'static str, Arc<ClientShared>>>,
    registry: Mutex<Registry>,
    outgoing: Budgets,
    incoming: Budgets,
    counters: Counters,
    counter: AtomicU64,
    tasks: Shutdown,
    failure: watch::Sender<Option<TerminationError>>,
}

impl RpcService {
    /// Begins a service for a node: a local one, or, with [`connections`](RpcServiceBuilder::connections), one that
    /// peers reach and that reaches peers. The [builder](RpcServiceBuilder) says where it listens and what peers dial.
    #[must_use]
    pub fn builder(id: ResourceId) -> RpcServiceBuilder {
        RpcServiceBuilder::new(id)
    }

    pub(super) fn new(
        id: ResourceId,
        config: RpcConfig,
        runtime: Handle,
        connections: Option<Arc<dyn Connections>>,
        tracer: Option<Arc<dyn Tracer>>,
    ) -> Self {
        let service = Self(Arc::new(Inner {
            id,
            config: Arc::new(config),
            runtime,
            connections,
            tracer,
            clients: Mutex::new(HashMap::new()),
            registry: Mutex::new(Registry::default()),
            outgoing: Budgets::default(),
            incoming: Budgets::default(),
            counters: Counters::default(),
            counter: AtomicU64::new(0),
            tasks: Shutdown::new(),
            failure: watch::Sender::new(None),
        }));
        if let Some(connections) = &service.0.connections {
            let handler = RpcHandler(WeakService(Arc::downgrade(&service.0)));
            connections.register(StreamKind::RPC, Arc::new(handler));
        }
        service
    }

    /// The node.
    #[must_use]
    pub fn id(&self) -> &ResourceId {
        &self.0.id
    }

    /// The settings.
    #[must_use]
    pub fn config(&self) -> &RpcConfig {
        &self.0.config
    }

    /// `host:port` where peers reach it, or `None` for a local service.
    #[must_use]
    pub fn address(&self) -> Option<String> {
        self.0.connections.as_ref().map(|c| c.advertised())
    }

    /// The port where it listens, or `None` for a local service.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        self.0.connections.as_ref().map(|c| c.local_addr().port())
    }

    /// Counters since the start.
    #[must_use]
    pub fn stats(&self) -> RpcStats {
        self.0.counters.snapshot()
    }

    /// The runtime on which endpoints run. Work for it that is no main-thread work is
    /// [scheduled](Self::schedule), so that it ends with the service.
    #[must_use]
    pub fn runtime(&self) -> &Handle {
        &self.0.runtime
    }

    /// A name of the form `prefix_7` that this service has not given before, for endpoints that come and go: messages
    /// to an old one can never reach its successor. Callers find the live one with `prefix_*`.
    #[must_use]
    pub fn unique_name(&self, prefix: &str) -> String {
        format!(
            "{prefix}_{}",
            self.0.counter.fetch_add(1, Ordering::Relaxed)
        )
    }

    /// Begins an endpoint with this state.
    pub fn endpoint<E: Endpoint>(&self, name: impl Into<String>, state: E) -> EndpointBuilder<E> {
        EndpointBuilder::new(self.clone(), name.into(), state)
    }

    /// Connects to an endpoint's gateway; an endpoint of this service is reached without the network.
    ///
    /// The endpoint need not be started. A name with `*` at its end finds a live endpoint whose name begins so; the
    /// client's [`address`](GatewayRef::address) then has the whole name. Never retries by itself.
    ///
    /// # Errors
    /// [`RpcError::Connection`], [`RpcError::RecipientUnreachable`] if there is no such endpoint,
    /// [`RpcError::Handshake`] if it does not serve this gateway, [`RpcError::Stopped`], [`RpcError::TimedOut`] after
    /// `ask_timeout`.
    ///
    /// # Cancel safety
    /// Cancel-safe: a dropped connect leaves nothing behind.
    pub async fn connect<G: Gateway>(
        &self,
        address: &RpcAddress,
        token: Option<FencingToken>,
    ) -> Result<G, RpcError> {
        if self.is_stopped() {
            return Err(self.stopped());
        }
        if self.is_local(address) {
            return self.connect_locally(address, token);
        }
        let after = self.0.config.ask_timeout;
        let (link, address) = timeout(after, Link::open(self, address, G::NAME))
            .await
            .unwrap_or_else(|_| {
                Err(RpcError::TimedOut {
                    method: format!("connect to {}", G::NAME),
                    address: address.to_string(),
                    after,
                    caller: None,
                })
            })?;
        Ok(G::from_ref(GatewayRef::remote(
            Arc::new(link),
            token,
            address,
            self.client_shared::<G>(),
        )))
    }

    fn connect_locally<G: Gateway>(
        &self,
        address: &RpcAddress,
        token: Option<FencingToken>,
    ) -> Result<G, RpcError> {
        let endpoint =
            self.look_up(address.endpoint())
                .ok_or_else(|| RpcError::RecipientUnreachable {
                    address: address.to_string(),
                    reason: "no such endpoint".to_owned(),
                })?;
        let sink = endpoint
            .gateway(G::NAME)
            .and_then(|gateway| gateway.sink::<G>())
            .ok_or_else(|| RpcError::Handshake {
                address: address.to_string(),
                reason: format!("the endpoint does not serve gateway {}", G::NAME),
            })?;
        Ok(G::from_ref(GatewayRef::local(
            sink,
            token,
            Arc::clone(endpoint.address()),
            self.client_shared::<G>(),
        )))
    }

    /// Closes the service: terminates all endpoints, waits for them, and then ends the streams of its gateways and what
    /// is [scheduled](Self::schedule). Until then endpoints can use both to end well.
    ///
    /// Endpoints that have not ended at the deadline are dropped. Calling it again waits again.
    ///
    /// # Errors
    /// The failure of the first endpoint that did not end well; everything is closed nevertheless.
    ///
    /// # Cancel safety
    /// Endpoints go on ending; call it again to wait.
    pub async fn close(&self, deadline: Duration) -> Result<(), TerminationError> {
        let endpoints = lock(&self.0.registry).stop();
        for endpoint in &endpoints {
            endpoint.terminate();
        }
        let mut result = Ok(());
        let ends = async {
            for endpoint in &endpoints {
                result = result.clone().and(endpoint.terminated().await);
            }
        };
        if timeout(deadline, ends).await.is_err() {
            for endpoint in &endpoints {
                endpoint.kill(TerminationError::NotStopped {
                    endpoint: endpoint.name().to_owned(),
                });
            }
            for endpoint in &endpoints {
                // One that blocks its thread does not even hear that it is dropped.
                let end = timeout(CLOSE_TASKS, endpoint.terminated()).await;
                let end = end.unwrap_or_else(|_| {
                    Err(TerminationError::NotStopped {
                        endpoint: endpoint.name().to_owned(),
                    })
                });
                result = result.clone().and(end);
            }
        }
        if let Err(left) = self.0.tasks.finish(CLOSE_TASKS).await {
            tracing::warn!(left, "rpc tasks still run after closing");
        }
        result
    }

    /// Waits until an endpoint has crashed, and says which. The service is of no further use then: its other endpoints
    /// have ended.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    pub async fn failed(&self) -> TerminationError {
        let mut failure = self.0.failure.subscribe();
        let found = failure.wait_for(Option::is_some).await;
        match found.as_deref() {
            Ok(Some(failure)) => failure.clone(),
            // The sender lives in `self`.
            _ => std::future::pending().await,
        }
    }

    /// What all clients of a gateway share. Gateways of the same name are the same, see [`Gateway::NAME`].
    pub(super) fn client_shared<G: Gateway>(&self) -> Arc<ClientShared> {
        let mut clients = lock(&self.0.clients);
        let shared = clients.entry(G::NAME).or_insert_with(|| {
            Arc::new(ClientShared {
                config: Arc::clone(&self.0.config),
                tracer: self.0.tracer.clone(),
                metrics: MethodMetrics::new(Side::Client, G::METHODS),
            })
        });
        Arc::clone(shared)
    }

    pub(super) fn tracer(&self) -> Option<&dyn Tracer> {
        self.0.tracer.as_deref()
    }

    pub(super) fn connections(&self) -> Option<&Arc<dyn Connections>> {
        self.0.connections.as_ref()
    }

    pub(super) fn outgoing_budget(&self, peer: &str) -> Arc<PeerBudget> {
        self.0.outgoing.of(peer, &self.0.config)
    }

    pub(super) fn incoming_budget(&self, peer: &str) -> Arc<PeerBudget> {
        self.0.incoming.of(peer, &self.0.config)
    }

    pub(super) fn counters(&self) -> &Counters {
        &self.0.counters
    }

    pub(super) fn is_stopped(&self) -> bool {
        lock(&self.0.registry).is_stopped()
    }

    pub(super) fn tasks(&self) -> &Shutdown {
        &self.0.tasks
    }

    pub(super) fn endpoint_address(&self, name: &str) -> RpcAddress {
        let address = match &self.0.connections {
            Some(connections) => {
                RpcAddress::remote(Some(self.0.id.clone()), &connections.advertised(), name)
            }
            None => RpcAddress::local(name),
        };
        address.expect("the name was checked and the node advertises host:port")
    }

    pub(super) fn register(&self, endpoint: Arc<dyn AnyEndpoint>) -> Result<(), SpawnError> {
        lock(&self.0.registry).insert(endpoint)
    }

    pub(super) fn look_up(&self, name: &str) -> Option<Arc<dyn AnyEndpoint>> {
        lock(&self.0.registry).look_up(name)
    }

    /// An endpoint has ended: its name is free.
    pub(super) fn on_ended(&self, id: u64, name: &str) {
        lock(&self.0.registry).remove(id, name);
    }

    /// An endpoint has crashed: all others end.
    pub(super) fn fail(&self, sibling: &str, cause: &str) {
        let endpoints = lock(&self.0.registry).stop();
        for endpoint in endpoints {
            endpoint.kill(TerminationError::SiblingCrashed {
                endpoint: endpoint.name().to_owned(),
                sibling: sibling.to_owned(),
                cause: cause.to_owned(),
            });
        }
        self.0.failure.send_if_modified(|failure| {
            let first = failure.is_none();
            failure.get_or_insert_with(|| TerminationError::Crashed {
                endpoint: sibling.to_owned(),
                cause: cause.to_owned(),
            });
            first
        });
    }

    pub(super) fn stopped(&self) -> RpcError {
        RpcError::Stopped {
            node: self.0.id.to_string(),
        }
    }

    /// Whether an address means this node: by its own words, or without any.
    fn is_local(&self, address: &RpcAddress) -> bool {
        let Some(host_port) = address.host_port() else {
            return true;
        };
        let same_node = address.peer().is_none_or(|peer| *peer == self.0.id);
        same_node && self.address().is_some_and(|own| own == host_port)
    }
}

/// A service, for the handler that its own connections hold.
pub(super) struct WeakService(Weak<Inner>);

impl WeakService {
    pub(super) fn upgrade(&self) -> Option<RpcService> {
        self.0.upgrade().map(RpcService)
    }
}

impl fmt::Debug for WeakService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WeakService")
    }
}

impl fmt::Debug for RpcService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RpcService")
            .field("id", &self.0.id)
            .field("address", &self.address())
            .finish_non_exhaustive()
    }
}

/// Tasks see the cancellation at once; what is left then hangs, and is not worth waiting for.
const CLOSE_TASKS: Duration = Duration::from_secs(5);
