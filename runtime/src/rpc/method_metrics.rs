//! What calls take and how they fail, per method, told through the `metrics` facade.

use std::time::Duration;

use metrics::{Histogram, counter, histogram};

use super::{error::RpcError, gateway::Method};

/// Which end of calls is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// From a call's first poll to its result, also for local calls. A call that its caller drops is not counted.
    Client,
    /// From a peer's request to the answer that is queued for it, or to its failure.
    Server,
}

/// The metrics of a gateway's methods at one end.
///
/// They belong to the recorder that is installed when the gateway's first client is made, or its endpoint.
#[derive(Debug)]
pub(super) struct MethodMetrics {
    side: Side,
    methods: &'static [Method],
    /// In the order of `methods`.
    seconds: Vec<Histogram>,
}

impl MethodMetrics {
    pub(super) fn new(side: Side, methods: &'static [Method]) -> Self {
        let name = match side {
            Side::Client => CLIENT_SECONDS,
            Side::Server => SERVER_SECONDS,
        };
        let seconds = methods
            .iter()
            .map(|method| histogram!(name, "gateway" => method.gateway, "method" => method.name))
            .collect();
        Self {
            side,
            methods,
            seconds,
        }
    }

    /// A call of the method with this id has ended.
    pub(super) fn ended(&self, method: u32, after: Duration, error: Option<&RpcError>) {
        let Some(at) = self.methods.iter().position(|known| known.id == method) else {
            return self.failed(None, error);
        };
        self.seconds[at].record(after);
        self.failed(Some(&self.methods[at]), error);
    }

    fn failed(&self, method: Option<&'static Method>, error: Option<&RpcError>) {
        let Some(error) = error else {
            return;
        };
        let name = match self.side {
            Side::Client => CLIENT_ERRORS,
            Side::Server => SERVER_ERRORS,
        };
        // Kinds that endpoints choose themselves are no labels: a peer could make any number of them.
        let kind = error.own_kind();
        let (gateway, method) =
            method.map_or(("", "unknown"), |method| (method.gateway, method.name));
        counter!(name, "gateway" => gateway, "method" => method, "kind" => kind).increment(1);
    }
}

const CLIENT_SECONDS: &str = "thalweg_rpc_client_seconds";
const SERVER_SECONDS: &str = "thalweg_rpc_server_seconds";
const CLIENT_ERRORS: &str = "thalweg_rpc_client_errors_total";
const SERVER_ERRORS: &str = "thalweg_rpc_server_errors_total";
