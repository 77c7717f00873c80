//! Where a node's connections live, and how they end.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
    time::timeout,
};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::NodeError;
use crate::{
    clock::now,
    identity::ResourceId,
    link::{Local, Pool},
    shutdown::Shutdown,
    transport::Transport,
};

/// On which tokio runtime a node's endpoint, connections, dials and handlers run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum NetworkRuntime {
    /// A thread of its own, named `net-<id>`, with a current-thread runtime: the fastest by measurement (a
    /// multi-threaded one left a quarter of the small-call speed, an endpoint away from its streams half of the bulk
    /// speed), and user code on other threads cannot stall keep-alives.
    #[default]
    Dedicated,
    /// The runtime that starts the node: for tests with paused time, and for embedders with their own threads.
    Current,
}

impl NetworkRuntime {
    /// The runtime, and the life of what will run on it. If the guard is dropped, nothing will, and the thread ends.
    pub(super) async fn begin(
        self,
        id: &ResourceId,
    ) -> Result<(Handle, Life, DropGuard), NodeError> {
        let life = Life::default();
        let unused = life.finished.clone().drop_guard();
        let runtime = match self {
            Self::Current => Handle::try_current().map_err(|error| NodeError::Runtime {
                reason: error.to_string(),
            })?,
            Self::Dedicated => start_thread(id, &life).await?,
        };
        Ok((runtime, life, unused))
    }
}

/// The phases of a node's end: asked to stop, finished on the network runtime, all gone.
#[derive(Debug, Clone, Default)]
pub(super) struct Life {
    stop: CancellationToken,
    /// The supervisor is done; the network thread may end.
    finished: CancellationToken,
    /// The end of the network thread; unset without one.
    thread_ended: Arc<OnceLock<CancellationToken>>,
    deadline: Arc<OnceLock<Duration>>,
    unfinished: Arc<AtomicUsize>,
}

impl Life {
    /// Asks for the end; the first deadline counts. Never blocks.
    pub(super) fn request_stop(&self, deadline: Duration) {
        self.deadline.get_or_init(|| deadline);
        self.stop.cancel();
    }

    /// Waits until everything is gone and gives the number of tasks that had to be left.
    pub(super) async fn ended(&self) -> usize {
        self.finished.cancelled().await;
        if let Some(thread) = self.thread_ended.get() {
            thread.cancelled().await;
        }
        self.unfinished.load(Ordering::Acquire)
    }
}

/// Waits for the order to stop and carries it out, on the network runtime.
pub(super) async fn supervise<T: Transport>(
    transport: Arc<T>,
    local: Arc<Local>,
    pool: Arc<Pool>,
    tasks: Shutdown,
    life: Life,
    finished: DropGuard,
) {
    life.stop.cancelled().await;
    tracing::debug!(node = %local.id(), "shutting down");
    let deadline = life.deadline.get().copied().unwrap_or_default();
    let begin = now();
    tasks.cancel();
    pool.shut_down();
    local.handlers.close();
    if let Err(unfinished) = tasks.finish(deadline).await {
        tracing::warn!(node = %local.id(), unfinished, "tasks outlast the shutdown");
        life.unfinished.store(unfinished, Ordering::Release);
    }
    let left = deadline.saturating_sub(now().saturating_duration_since(begin));
    if timeout(left, transport.drained()).await.is_err() {
        tracing::debug!(node = %local.id(), "some peers may not have heard of the shutdown");
    }
    drop(transport);
    drop(finished);
}

async fn start_thread(id: &ResourceId, life: &Life) -> Result<Handle, NodeError> {
    let (started, handle) = oneshot::channel();
    let (finished, ended) = (life.finished.clone(), CancellationToken::new());
    life.thread_ended.get_or_init(|| ended.clone());
    let thread = thread::Builder::new().name(format!("net-{id}"));
    let run = move || {
        let _ended = ended.drop_guard();
        let runtime = match Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return drop(started.send(Err(error))),
        };
        if started.send(Ok(runtime.handle().clone())).is_ok() {
            runtime.block_on(finished.cancelled());
        }
        // A name look-up that hangs in the system must not hold up the end.
        runtime.shutdown_background();
    };
    let failed = |error: std::io::Error| NodeError::Runtime {
        reason: error.to_string(),
    };
    // The thread ends by itself; its end is seen by the token, which blocks nobody as a join would.
    drop(thread.spawn(run).map_err(failed)?);
    match handle.await {
        Ok(handle) => handle.map_err(failed),
        Err(_) => Err(NodeError::Runtime {
            reason: "the network thread ended before it began".to_owned(),
        }),
    }
}
