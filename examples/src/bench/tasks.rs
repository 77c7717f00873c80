//! Where tasks of a measurement run, and who ends them.

use std::{future::Future, thread, time::Duration};

use thalweg_transport::{Connections, Node, Shutdown};
use tokio::runtime::{Builder, Handle};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::cli::failure::Failure;

/// Tasks on one thread. Dropping it ends them.
#[derive(Debug)]
pub(crate) struct Tasks {
    runtime: Handle,
    owner: Shutdown,
    _end: DropGuard,
}

impl Tasks {
    /// On the network thread of a node.
    pub(crate) fn on_network(node: &Node) -> Self {
        let owner = node.tasks().child();
        Self {
            runtime: node.runtime().clone(),
            _end: owner.token().clone().drop_guard(),
            owner,
        }
    }

    /// On a new thread with a current-thread runtime; it ends with them.
    pub(crate) fn on_thread(name: &str) -> Result<Self, Failure> {
        let failed =
            |error: std::io::Error| Failure::failed(format!("cannot start thread {name}: {error}"));
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(failed)?;
        let handle = runtime.handle().clone();
        let owner = Shutdown::new();
        let ended = owner.token().clone();
        let run = move || {
            runtime.block_on(ended.cancelled());
            // The tasks see the same token; what they leave is dropped with the runtime.
            runtime.shutdown_timeout(GRACE);
        };
        let thread = thread::Builder::new().name(name.to_owned());
        // It ends by the token, which blocks nobody as a join would.
        drop(thread.spawn(run).map_err(failed)?);
        Ok(Self {
            runtime: handle,
            _end: owner.token().clone().drop_guard(),
            owner,
        })
    }

    /// Where they run.
    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// For tasks that spawn tasks.
    pub(crate) fn spawner(&self) -> Spawner {
        Spawner {
            runtime: self.runtime.clone(),
            owner: self.owner.clone(),
        }
    }

    /// Runs a task until it ends, or all are ended.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.spawner().spawn(task);
    }

    /// Runs something there and waits for it; `None` if it was ended before.
    pub(crate) async fn run<R: Send + 'static>(
        &self,
        task: impl Future<Output = R> + Send + 'static,
    ) -> Option<R> {
        let token = self.owner.token().clone();
        let task = async move { token.run_until_cancelled(task).await };
        let running = self.owner.spawn_on(task, &self.runtime);
        running.await.ok().flatten()
    }

    /// Ends the tasks and waits until they are gone.
    pub(crate) async fn end(self) {
        if let Err(left) = self.owner.finish(GRACE).await {
            tracing::warn!(left, "tasks of a measurement do not end");
        }
    }
}

/// Spawns tasks beside those of [`Tasks`] without keeping them alive.
#[derive(Debug, Clone)]
pub(crate) struct Spawner {
    runtime: Handle,
    owner: Shutdown,
}

impl Spawner {
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let token: CancellationToken = self.owner.token().clone();
        let task = async move {
            token.run_until_cancelled(task).await;
        };
        drop(self.owner.spawn_on(task, &self.runtime));
    }
}

/// Tasks are dropped at their next wait, which is soon.
const GRACE: Duration = Duration::from_secs(2);
