//! Events that consumers send back to the tasks that produce their input.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;

use super::error::ExchangeError;
use crate::proto::PartitionId;

/// An event from a consumer to the producer of its partition. Its bytes mean something to the embedding engine only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskEvent(pub Bytes);

/// Hears the task events of a partition, in the thread of the publisher, under no lock.
pub trait TaskEventListener: fmt::Debug + Send + Sync {
    /// A consumer sent this. Must not block.
    fn on_task_event(&self, event: &TaskEvent);
}

/// Delivers task events to the producers of this node. Share it in an `Arc`.
#[derive(Debug, Default)]
pub struct TaskEventDispatcher {
    listeners: Mutex<HashMap<PartitionId, Vec<Arc<dyn TaskEventListener>>>>,
}

impl TaskEventDispatcher {
    /// Without partitions.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes a partition known.
    ///
    /// # Errors
    /// [`ExchangeError::AlreadyRegistered`].
    pub fn register(&self, partition: PartitionId) -> Result<(), ExchangeError> {
        let mut listeners = self.lock();
        if listeners.contains_key(&partition) {
            return Err(ExchangeError::AlreadyRegistered { partition });
        }
        listeners.insert(partition, Vec::new());
        Ok(())
    }

    /// Forgets a partition and its listeners. An unknown one is ignored.
    pub fn unregister(&self, partition: PartitionId) {
        let gone = self.lock().remove(&partition);
        drop(gone);
    }

    /// Adds a listener.
    ///
    /// # Errors
    /// [`ExchangeError::InvalidState`] if the partition is not registered.
    pub fn subscribe(
        &self,
        partition: PartitionId,
        listener: Arc<dyn TaskEventListener>,
    ) -> Result<(), ExchangeError> {
        match self.lock().get_mut(&partition) {
            Some(listeners) => listeners.push(listener),
            None => {
                return Err(ExchangeError::InvalidState {
                    what: format!("task events of partition {partition}"),
                    reason: "the partition is not registered",
                });
            }
        }
        Ok(())
    }

    /// Delivers an event; `false` if the partition is not registered here.
    #[must_use]
    pub fn publish(&self, partition: PartitionId, event: &TaskEvent) -> bool {
        let Some(listeners) = self.lock().get(&partition).cloned() else {
            return false;
        };
        for listener in listeners {
            listener.on_task_event(event);
        }
        true
    }

    /// Forgets everything.
    pub fn clear_all(&self) {
        let gone = std::mem::take(&mut *self.lock());
        drop(gone);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PartitionId, Vec<Arc<dyn TaskEventListener>>>> {
        self.listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[derive(Debug, Default)]
    struct Counter(AtomicUsize);

    impl TaskEventListener for Counter {
        fn on_task_event(&self, _event: &TaskEvent) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn events_reach_the_subscribers_of_registered_partitions() {
        let dispatcher = TaskEventDispatcher::new();
        let (partition, counter) = (PartitionId::new(1, 0), Arc::new(Counter::default()));
        let event = TaskEvent(Bytes::from_static(b"go"));
        assert!(!dispatcher.publish(partition, &event));
        assert!(dispatcher.subscribe(partition, counter.clone()).is_err());
        dispatcher.register(partition).unwrap();
        assert!(dispatcher.register(partition).is_err());
        dispatcher.subscribe(partition, counter.clone()).unwrap();
        assert!(dispatcher.publish(partition, &event));
        dispatcher.unregister(partition);
        dispatcher.unregister(partition);
        assert!(!dispatcher.publish(partition, &event));
        dispatcher.register(partition).unwrap();
        dispatcher.clear_all();
        assert!(!dispatcher.publish(partition, &event));
        assert_eq!(counter.0.load(Ordering::Relaxed), 1);
    }
}
