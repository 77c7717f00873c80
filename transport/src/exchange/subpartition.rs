//! The queue between one producer and one consumer.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;

use super::{
    error::ExchangeError,
    view::{AvailabilityListener, Item},
};
use crate::proto::DataType;

/// The items that a consumer has not taken. Bounded by the buffers of the partition's pool.
///
/// ```text
///   Unclaimed ──claim──► Claimed ──release──► Released
/// ```
#[derive(Debug, Default)]
pub(super) struct Subpartition {
    state: Mutex<State>,
}

impl Subpartition {
    /// Adds an item; dropped if nobody will read it any more.
    pub(super) fn push(&self, data_type: DataType, payload: Bytes) {
        let mut state = self.lock();
        if state.stage == Stage::Released || state.failed.is_some() {
            drop(state);
            drop(payload);
            return;
        }
        let was_empty = state.queue.is_empty();
        state.backlog += u32::from(data_type.is_data());
        state.queue.push_back((data_type, payload));
        let listener = if was_empty {
            state.listener.clone()
        } else {
            None
        };
        drop(state);
        notify(listener);
    }

    /// Takes the one right to read. The listener hears at once of what is there.
    pub(super) fn claim(
        &self,
        listener: Arc<dyn AvailabilityListener>,
    ) -> Result<(), &'static str> {
        let mut state = self.lock();
        match state.stage {
            Stage::Unclaimed => {}
            Stage::Claimed => return Err("it is being consumed already"),
            Stage::Released => return Err("it was consumed"),
        }
        state.stage = Stage::Claimed;
        state.listener = Some(listener.clone());
        let ready = !state.queue.is_empty() || state.failed.is_some();
        drop(state);
        notify(ready.then_some(listener));
        Ok(())
    }

    pub(super) fn take(
        &self,
        mut credit: u32,
        max: usize,
        out: &mut Vec<Item>,
    ) -> Result<(), ExchangeError> {
        let mut state = self.lock();
        if let Some(error) = &state.failed {
            return Err(error.clone());
        }
        for _ in 0..max {
            let Some((data_type, _)) = state.queue.front() else {
                break;
            };
            if data_type.is_data() {
                let Some(left) = credit.checked_sub(1) else {
                    break;
                };
                credit = left;
                state.backlog -= 1;
            }
            let Some((data_type, payload)) = state.queue.pop_front() else {
                break;
            };
            out.push(Item {
                data_type,
                payload,
                backlog: state.backlog,
            });
            if data_type.is_blocking() {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn backlog(&self) -> u32 {
        self.lock().backlog
    }

    /// The reader is gone: drops what is queued, and all that comes.
    pub(super) fn release(&self) {
        let mut state = self.lock();
        state.stage = Stage::Released;
        let queue = state.clear();
        let listener = state.listener.take();
        drop(state);
        drop((queue, listener));
    }

    /// Drops what is queued and tells the reader why. The first error stays.
    pub(super) fn fail(&self, error: &ExchangeError) {
        let mut state = self.lock();
        if state.failed.is_some() {
            return;
        }
        state.failed = Some(error.clone());
        let queue = state.clear();
        let listener = state.listener.clone();
        drop(state);
        drop(queue);
        notify(listener);
    }

    pub(super) fn is_released(&self) -> bool {
        self.lock().stage == Stage::Released
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<(DataType, Bytes)>,
    backlog: u32,
    stage: Stage,
    listener: Option<Arc<dyn AvailabilityListener>>,
    failed: Option<ExchangeError>,
}

impl State {
    /// The queue, to be dropped outside the lock: buffers go back to a pool then.
    fn clear(&mut self) -> VecDeque<(DataType, Bytes)> {
        self.backlog = 0;
        std::mem::take(&mut self.queue)
    }
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Stage {
    #[default]
    Unclaimed,
    Claimed,
    Released,
}

fn notify(listener: Option<Arc<dyn AvailabilityListener>>) {
    if let Some(listener) = listener {
        listener.on_available();
    }
}
