//! The queue between one producer and one consumer.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
};

use bytes::Bytes;

use super::{
    error::ExchangeError,
    view::{AvailabilityListener, Credit, Item},
};
use crate::proto::DataType;

/// The items that a consumer has not taken. Data is bounded by the buffers of the partition's pool; events are as many as
/// the producing task has sent.
///
/// ```text
///   Unclaimed ──claim──► Claimed ──release──► Released
/// ```
#[derive(Debug, Default)]
pub(super) struct Subpartition {
    state: Mutex<State>,
    /// 0 until the reader has said.
    buffer_size: AtomicU32,
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
        if data_type.has_priority() {
            let listener = state.push_priority(data_type, payload);
            drop(state);
            notify_priority(listener);
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

    /// Adds a priority event and gives the data buffers that it has overtaken.
    pub(super) fn overtake(&self, payload: Bytes) -> Vec<Bytes> {
        let mut state = self.lock();
        if state.stage == Stage::Released || state.failed.is_some() {
            return Vec::new();
        }
        let overtaken = state.buffers();
        let listener = state.push_priority(DataType::PrioritizedEvent, payload);
        drop(state);
        notify_priority(listener);
        overtaken
    }

    /// The data buffers that wait, in order.
    pub(super) fn buffers(&self) -> Vec<Bytes> {
        self.lock().buffers()
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
        mut credit: Credit,
        max: usize,
        out: &mut Vec<Item>,
    ) -> Result<(), ExchangeError> {
        let mut state = self.lock();
        if let Some(error) = &state.failed {
            return Err(error.clone());
        }
        for _ in 0..max {
            let Some(&(data_type, _)) = state.queue.front() else {
                break;
            };
            if data_type.is_data() && !credit.spend() {
                break;
            }
            out.extend(state.pop());
            if data_type.is_blocking() {
                break;
            }
        }
        Ok(())
    }

    pub(super) fn take_priority(&self, out: &mut Vec<Item>) -> Result<(), ExchangeError> {
        let mut state = self.lock();
        if let Some(error) = &state.failed {
            return Err(error.clone());
        }
        while state.priority > 0 {
            out.extend(state.pop());
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

    /// The reader has processed every record, or is gone. Whether it was not so before.
    pub(super) fn acknowledge(&self) -> bool {
        !std::mem::replace(&mut self.lock().acknowledged, true)
    }

    /// The reader wants buffers of so many bytes.
    pub(super) fn announce_buffer_size(&self, bytes: u32) {
        self.buffer_size.store(bytes, Ordering::Relaxed);
    }

    /// The size that the reader wants buffers to have, if it has said so.
    pub(super) fn buffer_size(&self) -> Option<u32> {
        Some(self.buffer_size.load(Ordering::Relaxed)).filter(|&bytes| bytes > 0)
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
    /// Priority events first.
    queue: VecDeque<(DataType, Bytes)>,
    priority: usize,
    backlog: u32,
    stage: Stage,
    listener: Option<Arc<dyn AvailabilityListener>>,
    failed: Option<ExchangeError>,
    acknowledged: bool,
}

impl State {
    /// Behind earlier priority events. Gives whoever has to hear of it: of the first one only.
    fn push_priority(
        &mut self,
        data_type: DataType,
        payload: Bytes,
    ) -> Option<Arc<dyn AvailabilityListener>> {
        self.queue.insert(self.priority, (data_type, payload));
        self.priority += 1;
        self.listener.clone().filter(|_| self.priority == 1)
    }

    fn pop(&mut self) -> Option<Item> {
        let (data_type, payload) = self.queue.pop_front()?;
        self.priority -= usize::from(data_type.has_priority());
        self.backlog -= u32::from(data_type.is_data());
        Some(Item {
            data_type,
            payload,
            compressed: false,
            backlog: self.backlog,
        })
    }

    fn buffers(&self) -> Vec<Bytes> {
        let items = self.queue.iter();
        items
            .filter(|(data_type, _)| data_type.is_data())
            .map(|(_, payload)| payload.clone())
            .collect()
    }

    /// The queue, to be dropped outside the lock: buffers go back to a pool then.
    fn clear(&mut self) -> VecDeque<(DataType, Bytes)> {
        (self.backlog, self.priority) = (0, 0);
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

fn notify_priority(listener: Option<Arc<dyn AvailabilityListener>>) {
    if let Some(listener) = listener {
        listener.on_priority_available();
    }
}

fn notify(listener: Option<Arc<dyn AvailabilityListener>>) {
    if let Some(listener) = listener {
        listener.on_available();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use crate::proto::PartitionId;

    #[derive(Debug, Default)]
    struct Count(AtomicUsize);

    impl AvailabilityListener for Count {
        fn on_available(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn claimed() -> (Subpartition, Arc<Count>) {
        let (subpartition, count) = (Subpartition::default(), Arc::new(Count::default()));
        subpartition.claim(count.clone()).unwrap();
        (subpartition, count)
    }

    fn push(subpartition: &Subpartition, types: &[DataType]) {
        for &data_type in types {
            subpartition.push(data_type, Bytes::from_static(b"x"));
        }
    }

    fn take(subpartition: &Subpartition, credit: u32) -> Vec<(DataType, u32)> {
        let mut items = Vec::new();
        let credit = Credit::Buffers(credit);
        subpartition.take(credit, 8, &mut items).unwrap();
        items.iter().map(|i| (i.data_type, i.backlog)).collect()
    }

    #[test]
    fn the_reader_is_woken_only_when_the_queue_was_empty() {
        let (subpartition, count) = claimed();
        push(&subpartition, &[DataType::Data; 5]);
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        take(&subpartition, 4);
        push(&subpartition, &[DataType::Data]);
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        take(&subpartition, 2);
        push(&subpartition, &[DataType::Data]);
        assert_eq!(count.0.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn the_backlog_counts_data_behind_an_item_and_no_events() {
        let (subpartition, _) = claimed();
        push(
            &subpartition,
            &[
                DataType::Data,
                DataType::Event,
                DataType::Data,
                DataType::EndOfPartition,
            ],
        );
        assert_eq!(subpartition.backlog(), 2);
        assert_eq!(
            take(&subpartition, 9),
            [
                (DataType::Data, 1),
                (DataType::Event, 1),
                (DataType::Data, 0),
                (DataType::EndOfPartition, 0)
            ]
        );
    }

    #[test]
    fn without_credit_only_events_next_in_order_are_given() {
        let (subpartition, _) = claimed();
        push(
            &subpartition,
            &[DataType::Event, DataType::Data, DataType::Event],
        );
        assert_eq!(take(&subpartition, 0), [(DataType::Event, 1)]);
        assert_eq!(take(&subpartition, 0), []);
        assert_eq!(take(&subpartition, 1).len(), 2);
    }

    #[test]
    fn priority_events_come_first_and_wake_the_reader_once() {
        use DataType::{Data, Event, PrioritizedEvent};
        let (subpartition, count) = claimed();
        push(
            &subpartition,
            &[Data, Event, PrioritizedEvent, Data, PrioritizedEvent],
        );
        assert_eq!(count.0.load(Ordering::Relaxed), 2);
        assert_eq!(subpartition.buffers().len(), 2);
        let first = [(PrioritizedEvent, 2), (PrioritizedEvent, 2), (Data, 1)];
        let mut items = Vec::new();
        subpartition.take(Credit::Unlimited, 1, &mut items).unwrap();
        subpartition.take_priority(&mut items).unwrap();
        subpartition.take_priority(&mut items).unwrap();
        subpartition
            .take(Credit::Buffers(1), 1, &mut items)
            .unwrap();
        let got: Vec<_> = items.iter().map(|i| (i.data_type, i.backlog)).collect();
        assert_eq!(got, first);
        push(&subpartition, &[PrioritizedEvent]);
        assert_eq!(count.0.load(Ordering::Relaxed), 3);
        assert_eq!(take(&subpartition, 0), [(PrioritizedEvent, 1), (Event, 1)]);
    }

    #[test]
    fn an_overtaking_event_tells_what_it_has_overtaken() {
        use DataType::{Data, Event, PrioritizedEvent};
        let (subpartition, _) = claimed();
        push(&subpartition, &[Data, Event, Data]);
        assert_eq!(subpartition.overtake(Bytes::new()).len(), 2);
        assert_eq!(
            take(&subpartition, 1),
            [(PrioritizedEvent, 2), (Data, 1), (Event, 1)]
        );
        assert_eq!(subpartition.overtake(Bytes::new()).len(), 1);
        subpartition.release();
        assert!(subpartition.overtake(Bytes::new()).is_empty());
        assert!(subpartition.buffers().is_empty());
    }

    #[test]
    fn nothing_is_given_behind_a_blocking_event() {
        let (subpartition, _) = claimed();
        push(&subpartition, &[DataType::AlignedBarrier, DataType::Data]);
        assert_eq!(take(&subpartition, 9), [(DataType::AlignedBarrier, 1)]);
        assert_eq!(take(&subpartition, 9), [(DataType::Data, 0)]);
    }

    #[test]
    fn one_reader_ever_and_nothing_is_kept_after_it() {
        let (subpartition, count) = claimed();
        assert!(subpartition.claim(count.clone()).is_err());
        push(&subpartition, &[DataType::Data]);
        subpartition.release();
        push(&subpartition, &[DataType::Data]);
        assert_eq!(
            (subpartition.backlog(), take(&subpartition, 9).len()),
            (0, 0)
        );
        assert!(subpartition.claim(count).is_err());
    }

    #[test]
    fn a_reader_that_comes_late_hears_of_what_is_there() {
        let subpartition = Subpartition::default();
        push(&subpartition, &[DataType::Data]);
        let count = Arc::new(Count::default());
        subpartition.claim(count.clone()).unwrap();
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn the_first_failure_stays_and_wakes_the_reader() {
        let (subpartition, count) = claimed();
        let partition = PartitionId::new(1, 1);
        let cause = |cause: &str| ExchangeError::ProducerFailed {
            partition,
            cause: cause.to_owned(),
        };
        push(&subpartition, &[DataType::Data]);
        subpartition.fail(&cause("first"));
        subpartition.fail(&cause("second"));
        assert_eq!(count.0.load(Ordering::Relaxed), 2);
        let taken = subpartition.take(Credit::Unlimited, 9, &mut Vec::new());
        let error = taken.unwrap_err();
        assert_eq!(error.to_string(), cause("first").to_string());
    }
}
