//! Events that consumers send back to the tasks that produce their input.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;

use super::error::ExchangeError;
use crate::proto::{ExecutionAttemptId, PartitionId};

/// An event from a consumer to the producer of its partition. Its bytes mean something to the embedding engine only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskEvent(pub Bytes);

/// Hears the task events of a partition, in the thread of the publisher, under no lock.
pub trait TaskEventListener: fmt::Debug + Send + Sync {
    /// A consumer sent this. Must not block.
    fn on_task_event(&self, event: &TaskEvent);
}

/// Delivers task events to the producers of this node. Share it in an `Arc`.
///
/// As with partitions, what one attempt of a task produces is not what another one does: an event for an attempt that is
/// gone does not reach the next one.
#[derive(Debug, Default)]
pub struct TaskEventDispatcher {
    listeners: Mutex<Listeners>,
}

type Listeners = HashMap<(PartitionId, ExecutionAttemptId), Vec<Arc<dyn TaskEventListener>>>;

impl TaskEventDispatcher {
    /// Without partitions.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes a partition of an attempt known.
    ///
    /// # Errors
    /// [`ExchangeError::AlreadyRegistered`].
    pub fn register(
        &self,
        partition: PartitionId,
        producer: ExecutionAttemptId,
    ) -> Result<(), ExchangeError> {
        let mut listeners = self.lock();
        if listeners.contains_key(&(partition, producer)) {
            return Err(ExchangeError::AlreadyRegistered { partition });
        }
        listeners.insert((partition, producer), Vec::new());
        Ok(())
    }

    /// Forgets a partition of an attempt and its listeners. An unknown one is ignored.
    pub fn unregister(&self, partition: PartitionId, producer: ExecutionAttemptId) {
        let gone = self.lock().remove(&(partition, producer));
        drop(gone);
    }

    /// Adds a listener.
    ///
    /// # Errors
    /// [`ExchangeError::InvalidState`] if the partition is not registered.
    pub fn subscribe(
        &self,
        partition: PartitionId,
        producer: ExecutionAttemptId,
        listener: Arc<dyn TaskEventListener>,
    ) -> Result<(), ExchangeError> {
        match self.lock().get_mut(&(partition, producer)) {
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

    /// Delivers an event; `false` if the partition of this attempt is not registered here.
    #[must_use]
    pub fn publish(
        &self,
        partition: PartitionId,
        producer: ExecutionAttemptId,
        event: &TaskEvent,
    ) -> bool {
        let Some(listeners) = self.lock().get(&(partition, producer)).cloned() else {
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

    fn lock(&self) -> MutexGuard<'_, Listeners> {
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
        let producer = ExecutionAttemptId(1);
        let publish = || dispatcher.publish(partition, producer, &EVENT);
        let subscribe = || dispatcher.subscribe(partition, producer, counter.clone());
        assert!(!publish());
        assert!(subscribe().is_err());
        dispatcher.register(partition, producer).unwrap();
        assert!(dispatcher.register(partition, producer).is_err());
        subscribe().unwrap();
        assert!(publish());
        dispatcher.unregister(partition, producer);
        dispatcher.unregister(partition, producer);
        assert!(!publish());
        dispatcher.register(partition, producer).unwrap();
        dispatcher.clear_all();
        assert!(!publish());
        assert_eq!(counter.0.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn attempts_of_one_producer_do_not_hear_each_others_events() {
        let dispatcher = TaskEventDispatcher::new();
        let partition = PartitionId::new(1, 0);
        let counters = [1, 2].map(|attempt| {
            let (producer, counter) = (ExecutionAttemptId(attempt), Arc::new(Counter::default()));
            dispatcher.register(partition, producer).unwrap();
            dispatcher
                .subscribe(partition, producer, counter.clone())
                .unwrap();
            counter
        });
        let heard = || counters.each_ref().map(|c| c.0.load(Ordering::Relaxed));
        assert!(dispatcher.publish(partition, ExecutionAttemptId(1), &EVENT));
        assert_eq!(heard(), [1, 0]);
        dispatcher.unregister(partition, ExecutionAttemptId(1));
        assert!(!dispatcher.publish(partition, ExecutionAttemptId(1), &EVENT));
        assert!(dispatcher.publish(partition, ExecutionAttemptId(2), &EVENT));
        assert_eq!(heard(), [1, 1]);
    }

    const EVENT: TaskEvent = TaskEvent(Bytes::from_static(b"go"));
}
