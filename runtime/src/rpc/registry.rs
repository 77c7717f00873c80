//! The endpoints of a service.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::Arc,
};

use thalweg_transport::BoxFuture;

use super::{
    address::RpcAddress,
    core::Core,
    endpoint::Endpoint,
    lifecycle::Control,
    served::ServedGateway,
    termination::{TerminationError, outcome},
};

/// Why an endpoint was not made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// An endpoint of this name lives.
    #[error("an endpoint named {name} is already running")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// The name has a character that is not allowed, or a wrong length.
    #[error("invalid endpoint name {name:?}: 1 to 128 characters of A-Z a-z 0-9 . _ - are allowed")]
    InvalidName {
        /// The name.
        name: String,
    },
    /// Two gateways of the endpoint have the same name.
    #[error("endpoint {name} serves two gateways named {gateway}")]
    DuplicateGateway {
        /// The endpoint's name.
        name: String,
        /// The gateways' name.
        gateway: String,
    },
    /// The service is closed or has failed.
    #[error("the rpc service is stopped: endpoint {name} was not started")]
    Stopped {
        /// The endpoint's name.
        name: String,
    },
}

/// An endpoint of any type.
pub(super) trait AnyEndpoint: Send + Sync + fmt::Debug {
    fn id(&self) -> u64;
    fn name(&self) -> &str;
    fn address(&self) -> &Arc<RpcAddress>;
    fn gateway(&self, name: &str) -> Option<&ServedGateway>;
    fn terminate(&self);
    fn kill(&self, cause: TerminationError);
    fn terminated(&self) -> BoxFuture<'static, Result<(), TerminationError>>;
}

/// An endpoint with the gateways that it serves.
pub(super) struct Registered<E> {
    pub(super) core: Arc<Core<E>>,
    pub(super) gateways: HashMap<&'static str, ServedGateway>,
}

impl<E: Endpoint> AnyEndpoint for Registered<E> {
    fn id(&self) -> u64 {
        self.core.id
    }

    fn name(&self) -> &str {
        &self.core.name
    }

    fn address(&self) -> &Arc<RpcAddress> {
        &self.core.address
    }

    fn gateway(&self, name: &str) -> Option<&ServedGateway> {
        self.gateways.get(name)
    }

    fn terminate(&self) {
        self.core.control(Control::Terminate);
    }

    fn kill(&self, cause: TerminationError) {
        self.core.kill(cause);
    }

    fn terminated(&self) -> BoxFuture<'static, Result<(), TerminationError>> {
        Box::pin(outcome(&self.core.name, self.core.outcome.clone()))
    }
}

impl<E> fmt::Debug for Registered<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.core.fmt(f)
    }
}

/// Names and their endpoints.
#[derive(Debug, Default)]
pub(super) struct Registry {
    endpoints: BTreeMap<String, Arc<dyn AnyEndpoint>>,
    stopped: bool,
}

impl Registry {
    pub(super) fn is_stopped(&self) -> bool {
        self.stopped
    }

    pub(super) fn insert(&mut self, endpoint: Arc<dyn AnyEndpoint>) -> Result<(), SpawnError> {
        let name = endpoint.name().to_owned();
        if self.stopped {
            return Err(SpawnError::Stopped { name });
        }
        if self.endpoints.contains_key(&name) {
            return Err(SpawnError::NameTaken { name });
        }
        self.endpoints.insert(name, endpoint);
        Ok(())
    }

    /// Finds an endpoint by its name, or the newest whose name begins with what stands before a `*`.
    pub(super) fn look_up(&self, name: &str) -> Option<Arc<dyn AnyEndpoint>> {
        let Some(prefix) = name.strip_suffix('*') else {
            return self.endpoints.get(name).cloned();
        };
        self.endpoints
            .range(prefix.to_owned()..)
            .take_while(|(name, _)| name.starts_with(prefix))
            .map(|(_, endpoint)| endpoint)
            .max_by_key(|endpoint| endpoint.id())
            .cloned()
    }

    pub(super) fn remove(&mut self, id: u64, name: &str) {
        if self.endpoints.get(name).is_some_and(|e| e.id() == id) {
            self.endpoints.remove(name);
        }
    }

    /// Takes no more endpoints; gives those that live.
    pub(super) fn stop(&mut self) -> Vec<Arc<dyn AnyEndpoint>> {
        self.stopped = true;
        self.endpoints.values().cloned().collect()
    }
}
