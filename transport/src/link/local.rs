//! What the connections of a node know of the node itself.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use bytes::Bytes;

use crate::{
    config::TransportConfig,
    handler::{StreamHandler, StreamKind},
    identity::ResourceId,
    proto::hello::{Hello, HelloError},
    warnings::Warnings,
};

/// The node's own side: settings, hello, handlers.
#[derive(Debug)]
pub(crate) struct Local {
    pub(crate) config: TransportConfig,
    pub(crate) hello: Hello,
    /// The hello as it goes onto the wire.
    pub(crate) hello_bytes: Bytes,
    pub(crate) handlers: Handlers,
    pub(crate) warnings: Warnings,
}

impl Local {
    pub(crate) fn new(config: TransportConfig, hello: Hello) -> Result<Self, HelloError> {
        Ok(Self {
            config,
            hello_bytes: hello.encode()?,
            hello,
            handlers: Handlers::default(),
            warnings: Warnings::default(),
        })
    }

    pub(crate) fn id(&self) -> &ResourceId {
        &self.hello.id
    }

    /// What peers hear when the node stops.
    pub(crate) fn farewell(&self) -> String {
        format!("node {} is shutting down", self.id())
    }
}

/// The code that serves each kind of stream.
#[derive(Default)]
pub(crate) struct Handlers(RwLock<Table>);

#[derive(Default)]
struct Table {
    by_kind: HashMap<StreamKind, Arc<dyn StreamHandler>>,
    /// The node has shut down: whoever registers now would keep it, and never serve.
    closed: bool,
}

impl Handlers {
    pub(crate) fn register(&self, kind: StreamKind, handler: Arc<dyn StreamHandler>) {
        let mut table = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let dropped = if table.closed {
            Some(handler)
        } else {
            table.by_kind.insert(kind, handler)
        };
        drop(table);
        drop(dropped);
    }

    pub(crate) fn find(&self, kind: StreamKind) -> Option<Arc<dyn StreamHandler>> {
        let table = self.0.read().unwrap_or_else(PoisonError::into_inner);
        table.by_kind.get(&kind).cloned()
    }

    /// Lets go of all handlers, which may hold the node themselves, and takes no more.
    pub(crate) fn close(&self) {
        let mut table = self.0.write().unwrap_or_else(PoisonError::into_inner);
        table.closed = true;
        let handlers = std::mem::take(&mut table.by_kind);
        drop(table);
        drop(handlers);
    }
}

impl fmt::Debug for Handlers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = self.0.read().unwrap_or_else(PoisonError::into_inner);
        f.debug_set().entries(table.by_kind.keys()).finish()
    }
}
