//! What all clients of one gateway share at their service.

use std::sync::Arc;

use super::{config::RpcConfig, method_metrics::MethodMetrics, trace::Tracer};

/// Settings and observers of a gateway's clients.
#[derive(Debug)]
pub(super) struct ClientShared {
    pub(super) config: Arc<RpcConfig>,
    pub(super) tracer: Option<Arc<dyn Tracer>>,
    pub(super) metrics: MethodMetrics,
}
