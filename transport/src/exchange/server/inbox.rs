//! What a consumer has sent that the writing part of its stream has to act on.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::End;
use crate::{
    exchange::{error::ExchangeError, task_events::TaskEvent, view::AvailabilityListener},
    proto::{MAX_EVENT_BYTES, SenderCredit},
};

/// What the two parts of a stream's task, and the threads of the producer, share.
#[derive(Debug)]
pub(super) struct Shared {
    inbox: Mutex<Inbox>,
    pub(super) wake: Notify,
}

impl Shared {
    pub(super) fn new(credit: SenderCredit) -> Self {
        Self {
            inbox: Mutex::new(Inbox {
                credit,
                opened: false,
                confirmed: false,
                held: Vec::new(),
                held_bytes: 0,
                orders: None,
            }),
            wake: Notify::new(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AvailabilityListener for Shared {
    fn on_available(&self) {
        self.wake.notify_one();
    }
}

#[derive(Debug)]
pub(super) struct Inbox {
    pub(super) credit: SenderCredit,
    /// The view is there.
    opened: bool,
    /// The consumer hears, or has heard, that task events were delivered.
    confirmed: bool,
    /// Events that came before it.
    held: Vec<TaskEvent>,
    held_bytes: usize,
    orders: Option<Orders>,
}

impl Inbox {
    /// The view is there: gives the events that waited for it.
    pub(super) fn open(&mut self) -> Vec<TaskEvent> {
        self.opened = true;
        let held = std::mem::take(&mut self.held);
        if !held.is_empty() {
            self.confirm();
        }
        held
    }

    /// Gives an event back if it can be delivered now. Before the view is there its producer may be deploying: the
    /// event waits for it.
    pub(super) fn on_task_event(&mut self, event: TaskEvent) -> Result<Option<TaskEvent>, End> {
        if self.opened {
            self.confirm();
            return Ok(Some(event));
        }
        self.held_bytes += size_of::<TaskEvent>() + event.0.len();
        if self.held_bytes > MAX_HELD_BYTES {
            return Err(End::Protocol(format!(
                "more than {MAX_HELD_BYTES} bytes of task events came before the partition"
            )));
        }
        self.held.push(event);
        Ok(None)
    }

    pub(super) fn on_acknowledged(&mut self) -> Result<(), End> {
        if !self.opened {
            return Err(End::Protocol(
                "all records were acknowledged before any was sent".to_owned(),
            ));
        }
        self.orders().acknowledged = true;
        Ok(())
    }

    /// The last one that came before the view is what it begins with.
    pub(super) fn on_buffer_size(&mut self, bytes: u32) {
        self.orders().buffer_size = Some(bytes);
    }

    /// Ends the stream with an error frame.
    pub(super) fn fail(&mut self, error: ExchangeError) {
        self.orders().failure.get_or_insert(error);
    }

    pub(super) fn take_orders(&mut self) -> Option<Orders> {
        self.orders.take()
    }

    fn confirm(&mut self) {
        if !std::mem::replace(&mut self.confirmed, true) {
            self.orders().confirm = true;
        }
    }

    fn orders(&mut self) -> &mut Orders {
        self.orders.get_or_insert_default()
    }
}

/// What the writing part has to do before it goes on.
#[derive(Debug, Default)]
pub(super) struct Orders {
    /// To tell the consumer that task events were delivered, before anything else.
    pub(super) confirm: bool,
    pub(super) acknowledged: bool,
    pub(super) buffer_size: Option<u32>,
    pub(super) failure: Option<ExchangeError>,
}

/// Task events that wait for one partition: four of the longest, or many small ones.
const MAX_HELD_BYTES: usize = 4 * (MAX_EVENT_BYTES + size_of::<TaskEvent>());
