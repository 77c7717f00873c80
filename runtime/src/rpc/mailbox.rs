//! The queue in front of an endpoint.

use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex},
};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, TryAcquireError};

use super::sync::lock;

/// A bounded queue with one reader. Who holds a [`Slot`] can put one message in; control messages need none, because
/// an overloaded endpoint must still hear that it is to stop.
pub(super) struct Mailbox<T> {
    queue: Mutex<Queue<T>>,
    slots: Arc<Semaphore>,
    ready: Notify,
    capacity: u32,
}

/// The right to put one message in. Given back when the message is taken out, or when it is dropped.
#[derive(Debug)]
pub struct Slot(#[expect(dead_code, reason = "held for its drop")] OwnedSemaphorePermit);

/// Why no slot was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoSlot {
    /// As many messages wait as may.
    Full,
    /// The reader is gone.
    Closed,
}

struct Queue<T> {
    messages: VecDeque<(T, Option<Slot>)>,
    closed: bool,
}

impl<T> Mailbox<T> {
    pub(super) fn new(capacity: u32) -> Self {
        Self {
            queue: Mutex::new(Queue {
                messages: VecDeque::new(),
                closed: false,
            }),
            slots: Arc::new(Semaphore::new(capacity as usize)),
            ready: Notify::new(),
            capacity,
        }
    }

    pub(super) fn capacity(&self) -> u32 {
        self.capacity
    }

    pub(super) fn try_reserve(&self) -> Result<Slot, NoSlot> {
        match Arc::clone(&self.slots).try_acquire_owned() {
            Ok(permit) => Ok(Slot(permit)),
            Err(TryAcquireError::NoPermits) => Err(NoSlot::Full),
            Err(TryAcquireError::Closed) => Err(NoSlot::Closed),
        }
    }

    /// Waits for a slot, first come, first served. `None` when the mailbox is closed. Cancel-safe.
    pub(super) async fn reserve(&self) -> Option<Slot> {
        let permit = Arc::clone(&self.slots).acquire_owned().await.ok()?;
        Some(Slot(permit))
    }

    /// Gives the message back if the mailbox is closed.
    pub(super) fn push(&self, message: T, slot: Option<Slot>) -> Result<(), T> {
        {
            let mut queue = lock(&self.queue);
            if queue.closed {
                return Err(message);
            }
            queue.messages.push_back((message, slot));
        }
        self.ready.notify_one();
        Ok(())
    }

    /// Puts a control message in, unless the predicate finds that the last one in the queue says the same.
    pub(super) fn push_control(&self, message: T, same: impl Fn(&T) -> bool) -> Result<(), T> {
        {
            let mut queue = lock(&self.queue);
            if queue.closed {
                return Err(message);
            }
            if queue.messages.back().is_some_and(|(last, _)| same(last)) {
                return Ok(());
            }
            queue.messages.push_back((message, None));
        }
        self.ready.notify_one();
        Ok(())
    }

    /// The next message. Cancel-safe. For one reader only.
    pub(super) async fn recv(&self) -> T {
        loop {
            if let Some((message, _slot)) = lock(&self.queue).messages.pop_front() {
                return message;
            }
            self.ready.notified().await;
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        lock(&self.queue).closed
    }

    /// Refuses everything from now on, and gives back what waits.
    pub(super) fn close(&self) -> Vec<T> {
        self.slots.close();
        let mut queue = lock(&self.queue);
        queue.closed = true;
        std::mem::take(&mut queue.messages)
            .into_iter()
            .map(|(message, _)| message)
            .collect()
    }
}

impl<T> fmt::Debug for Mailbox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailbox")
            .field("waiting", &lock(&self.queue).messages.len())
            .field("capacity", &self.capacity)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_full_mailbox_still_takes_control_messages() {
        let mailbox = Mailbox::new(1);
        let slot = mailbox.try_reserve().unwrap();
        mailbox.push(1, Some(slot)).unwrap();
        assert_eq!(mailbox.try_reserve().unwrap_err(), NoSlot::Full);
        mailbox.push_control(9, |last| *last == 9).unwrap();
        mailbox.push_control(9, |last| *last == 9).unwrap();
        assert_eq!(mailbox.recv().await, 1);
        mailbox.try_reserve().unwrap();
        assert_eq!(mailbox.close(), [9]);
        assert_eq!(mailbox.push(2, None), Err(2));
        assert_eq!(mailbox.try_reserve().unwrap_err(), NoSlot::Closed);
        assert!(mailbox.reserve().await.is_none());
    }
}
