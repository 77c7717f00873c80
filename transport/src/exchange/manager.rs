//! The partitions that this node produces, and the requests that came before their partition.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use tokio::sync::oneshot;

use super::{
    error::ExchangeError,
    partition::PartitionSource,
    view::{AvailabilityListener, ResultPartitionProvider, SubpartitionRequest, SubpartitionView},
};
use crate::{
    proto::{ExecutionAttemptId, MAX_ERROR_BYTES, PartitionId},
    stream::BoxFuture,
};

/// The registry of a node's result partitions. Cloning is cheap; clones share it.
///
/// A request for a partition that is not registered, or is a blocking one that is not finished, waits for it, at most
/// `partition_request_timeout`. Dropping the request's future ends its wait and forgets it. A request that comes after its producer has failed hears the cause at
/// once: the causes of the last 1,024 failures are kept, each until its partition is released by name.
#[derive(Debug, Clone)]
pub struct ResultPartitionManager {
    inner: Arc<ManagerInner>,
}

impl ResultPartitionManager {
    /// An empty registry in which requests wait so long.
    #[must_use]
    pub fn new(partition_request_timeout: Duration) -> Self {
        Self {
            inner: Arc::new(ManagerInner {
                timeout: partition_request_timeout,
                state: Mutex::default(),
            }),
        }
    }

    /// Makes a partition available and answers the requests that wait for it.
    ///
    /// # Errors
    /// [`ExchangeError::AlreadyRegistered`], and [`ExchangeError::Cancelled`] after `shutdown`.
    pub fn register(&self, partition: Arc<dyn PartitionSource>) -> Result<(), ExchangeError> {
        let key = (partition.id(), partition.producer());
        let consumable = partition.is_consumable();
        let mut state = self.inner.lock();
        if state.closed {
            return Err(ExchangeError::Cancelled {
                what: "the partition manager".to_owned(),
            });
        }
        if state.partitions.contains_key(&key) {
            return Err(ExchangeError::AlreadyRegistered { partition: key.0 });
        }
        state.failures.forget(&key);
        let registered = Registered {
            partition: partition.clone(),
            consumable,
        };
        state.partitions.insert(key, registered);
        let parked = if consumable {
            state.unpark(&key)
        } else {
            Vec::new()
        };
        drop(state);
        partition.on_registered(ReleaseHook {
            manager: Arc::downgrade(&self.inner),
            key,
        });
        for request in parked {
            // A requester that went away needs no answer.
            let _ = request.reply.send(Ok(partition.clone()));
        }
        Ok(())
    }

    /// Forgets the partition and frees what it holds. Its readers, and requests that wait for it, hear
    /// [`ExchangeError::PartitionNotFound`]. An unknown one is ignored; the cause of a failed one is forgotten.
    pub fn release_partition(&self, partition: PartitionId, producer: ExecutionAttemptId) {
        let (found, parked) = self.inner.remove(&(partition, producer), None);
        drop(parked);
        if let Some(found) = found {
            found.release(ExchangeError::PartitionNotFound { partition });
        }
    }

    /// Partitions that are registered.
    #[must_use]
    pub fn registered(&self) -> usize {
        self.inner.lock().partitions.len()
    }

    /// Requests that wait for their partition.
    #[must_use]
    pub fn parked(&self) -> usize {
        self.inner.lock().parked_count
    }

    /// Releases every partition and ends every wait; refuses what comes later.
    pub fn shutdown(&self) {
        let mut state = self.inner.lock();
        state.closed = true;
        let partitions = std::mem::take(&mut state.partitions);
        let parked = std::mem::take(&mut state.parked);
        state.parked_count = 0;
        state.failures = Failures::default();
        drop(state);
        drop(parked);
        for Registered { partition, .. } in partitions.into_values() {
            partition.release(ExchangeError::PartitionNotFound {
                partition: partition.id(),
            });
        }
    }
}

impl ResultPartitionProvider for ResultPartitionManager {
    fn create_subpartition_view(
        &self,
        request: SubpartitionRequest,
        listener: Arc<dyn AvailabilityListener>,
    ) -> BoxFuture<'static, Result<Box<dyn SubpartitionView>, ExchangeError>> {
        let inner = self.inner.clone();
        Box::pin(async move {
            let partition = inner.find(request).await?;
            partition.create_view(request.subpartition, listener)
        })
    }
}

/// How a partition tells the registry that it was put into what became of it.
#[derive(Debug, Clone)]
pub struct ReleaseHook {
    manager: Weak<ManagerInner>,
    key: Key,
}

impl ReleaseHook {
    /// The partition may be consumed from now on: answers the requests that wait for it.
    pub fn consumable(&self) {
        let Some(manager) = self.manager.upgrade() else {
            return;
        };
        let mut state = manager.lock();
        let Some(registered) = state.partitions.get_mut(&self.key) else {
            return;
        };
        registered.consumable = true;
        let partition = registered.partition.clone();
        let parked = state.unpark(&self.key);
        drop(state);
        for request in parked {
            // A requester that went away needs no answer.
            let _ = request.reply.send(Ok(partition.clone()));
        }
    }

    /// Forgets the partition. What it holds is its own to free.
    pub fn release(&self) {
        if let Some(manager) = self.manager.upgrade() {
            drop(manager.remove(&self.key, None));
        }
    }

    /// Forgets the partition, and remembers for requests that come later why its producer failed. The cause is cut to
    /// what the wire carries.
    pub fn fail(&self, cause: &str) {
        if let Some(manager) = self.manager.upgrade() {
            let (found, parked) = manager.remove(&self.key, Some(cause));
            drop(found);
            for request in parked {
                let failed = ExchangeError::ProducerFailed {
                    partition: self.key.0,
                    cause: cause.to_owned(),
                };
                let _ = request.reply.send(Err(failed));
            }
        }
    }
}

type Key = (PartitionId, ExecutionAttemptId);

#[derive(Debug)]
struct ManagerInner {
    timeout: Duration,
    state: Mutex<State>,
}

impl ManagerInner {
    async fn find(
        self: &Arc<Self>,
        request: SubpartitionRequest,
    ) -> Result<Arc<dyn PartitionSource>, ExchangeError> {
        let key = (request.partition, request.producer);
        let not_found = || ExchangeError::PartitionNotFound {
            partition: request.partition,
        };
        let (id, wait) = {
            let mut state = self.lock();
            if let Some(registered) = state.partitions.get(&key)
                && registered.consumable
            {
                return Ok(registered.partition.clone());
            }
            if let Some(cause) = state.failures.causes.get(&key) {
                return Err(ExchangeError::ProducerFailed {
                    partition: request.partition,
                    cause: cause.as_ref().to_owned(),
                });
            }
            if state.closed || state.parked_count >= MAX_PARKED {
                return Err(not_found());
            }
            state.park(key)
        };
        let _unpark = Unpark {
            manager: self,
            key,
            id,
        };
        match tokio::time::timeout(self.timeout, wait).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) | Err(_) => Err(not_found()),
        }
    }

    /// Takes a partition out, with the requests that wait for it; `failure` is what later requests hear.
    fn remove(
        &self,
        key: &Key,
        failure: Option<&str>,
    ) -> (Option<Arc<dyn PartitionSource>>, Vec<Parked>) {
        let mut state = self.lock();
        let found = state.partitions.remove(key);
        match failure {
            Some(_) if state.closed => {}
            Some(cause) => state.failures.remember(*key, cause),
            None => state.failures.forget(key),
        }
        (found.map(|found| found.partition), state.unpark(key))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Default)]
struct State {
    partitions: HashMap<Key, Registered>,
    parked: HashMap<Key, Vec<Parked>>,
    parked_count: usize,
    failures: Failures,
    next: u64,
    closed: bool,
}

#[derive(Debug)]
struct Registered {
    partition: Arc<dyn PartitionSource>,
    /// Requests wait until it is.
    consumable: bool,
}

impl State {
    fn park(&mut self, key: Key) -> (u64, oneshot::Receiver<Answer>) {
        let (reply, wait) = oneshot::channel();
        let id = self.next;
        self.next += 1;
        self.parked_count += 1;
        self.parked
            .entry(key)
            .or_default()
            .push(Parked { id, reply });
        (id, wait)
    }

    fn unpark(&mut self, key: &Key) -> Vec<Parked> {
        let parked = self.parked.remove(key).unwrap_or_default();
        self.parked_count -= parked.len();
        parked
    }
}

/// Why producers failed whose partitions are gone: a consumer that is deployed later than its producer fails would else
/// wait for a partition that never comes.
#[derive(Debug, Default)]
struct Failures {
    causes: HashMap<Key, Box<str>>,
    /// Oldest first.
    order: VecDeque<Key>,
}

impl Failures {
    /// The first cause stays.
    fn remember(&mut self, key: Key, cause: &str) {
        if self.causes.contains_key(&key) {
            return;
        }
        if self.order.len() >= MAX_FAILURES
            && let Some(oldest) = self.order.pop_front()
        {
            self.causes.remove(&oldest);
        }
        let cause = &cause[..cause.floor_char_boundary(MAX_ERROR_BYTES)];
        self.causes.insert(key, cause.into());
        self.order.push_back(key);
    }

    fn forget(&mut self, key: &Key) {
        if self.causes.remove(key).is_some() {
            self.order.retain(|other| other != key);
        }
    }
}

#[derive(Debug)]
struct Parked {
    id: u64,
    reply: oneshot::Sender<Answer>,
}

type Answer = Result<Arc<dyn PartitionSource>, ExchangeError>;

/// Forgets a request that was answered, timed out or dropped.
struct Unpark<'a> {
    manager: &'a ManagerInner,
    key: Key,
    id: u64,
}

impl Drop for Unpark<'_> {
    fn drop(&mut self) {
        let mut state = self.manager.lock();
        let Some(parked) = state.parked.get_mut(&self.key) else {
            return;
        };
        let Some(at) = parked.iter().position(|parked| parked.id == self.id) else {
            return;
        };
        let gone = parked.swap_remove(at);
        if parked.is_empty() {
            state.parked.remove(&self.key);
        }
        state.parked_count -= 1;
        drop(state);
        drop(gone);
    }
}

/// Requests that may wait in a node at the same time; each costs some hundred bytes. Beyond it a request is answered
/// as if its time were over.
const MAX_PARKED: usize = 65_536;

/// Failed producers whose cause is kept: more than the slots of a node, at most 1 MiB of text.
const MAX_FAILURES: usize = 1024;

#[cfg(test)]
mod tests;
