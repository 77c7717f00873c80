//! What was received in a channel and not taken: in order, but priority events first.

use std::collections::VecDeque;

use bytes::Bytes;

use super::event::{BufferOrEvent, Event};
use crate::proto::DataType;

/// Priority events stand at the front, in their own order.
#[derive(Debug, Default)]
pub(super) struct ChannelQueue {
    entries: VecDeque<Entry>,
    /// How many of them stand at the front because of their priority.
    priority: usize,
    /// What the events cost, which have no credit to bound them.
    event_bytes: usize,
}

impl ChannelQueue {
    /// Adds an item. A barrier that may be overtaken announces itself in front.
    pub(super) fn push(&mut self, data_type: DataType, payload: Bytes) {
        if data_type.requires_announcement() {
            self.insert(Entry::Announcement(payload.clone()));
        }
        self.insert(Entry::Received(data_type, payload));
    }

    pub(super) fn pop(&mut self) -> Option<Entry> {
        let entry = self.entries.pop_front()?;
        self.priority -= usize::from(entry.has_priority());
        self.event_bytes -= entry.event_bytes();
        Some(entry)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the next item has overtaken others.
    pub(super) fn has_priority(&self) -> bool {
        self.priority > 0
    }

    /// Whether more may be received before the consumer has taken events.
    pub(super) fn has_room(&self) -> bool {
        self.event_bytes <= MAX_EVENT_QUEUE_BYTES
    }

    /// The data buffers, in order.
    pub(super) fn buffers(&self) -> impl Iterator<Item = &Bytes> {
        self.entries.iter().filter_map(|entry| match entry {
            Entry::Received(data_type, payload) if data_type.is_data() => Some(payload),
            _ => None,
        })
    }

    fn insert(&mut self, entry: Entry) {
        self.event_bytes += entry.event_bytes();
        if entry.has_priority() {
            self.entries.insert(self.priority, entry);
            self.priority += 1;
        } else {
            self.entries.push_back(entry);
        }
    }
}

/// One item of a channel.
#[derive(Debug)]
pub(super) enum Entry {
    /// As the producer sent it.
    Received(DataType, Bytes),
    /// Made here: the barrier with these bytes stands in the queue.
    Announcement(Bytes),
}

impl Entry {
    pub(super) fn is(&self, expected: DataType) -> bool {
        matches!(self, Self::Received(data_type, _) if *data_type == expected)
    }

    pub(super) fn is_blocking(&self) -> bool {
        matches!(self, Self::Received(data_type, _) if data_type.is_blocking())
    }

    pub(super) fn into_item(self) -> BufferOrEvent {
        let event = match self {
            Self::Announcement(payload) => Event::Announcement(payload),
            Self::Received(data_type, payload) => match data_type {
                DataType::Data => return BufferOrEvent::Buffer(payload),
                DataType::Event => Event::User(payload),
                DataType::PrioritizedEvent => Event::Priority(payload),
                DataType::AlignedBarrier => Event::Barrier(payload),
                DataType::TimeoutableBarrier => Event::TimeoutableBarrier(payload),
                DataType::RecoveryCompletion => Event::RecoveryCompletion,
                DataType::EndOfData => Event::EndOfData,
                DataType::EndOfPartition => Event::EndOfPartition,
            },
        };
        BufferOrEvent::Event(event)
    }

    fn has_priority(&self) -> bool {
        match self {
            Self::Received(data_type, _) => data_type.has_priority(),
            Self::Announcement(_) => true,
        }
    }

    fn event_bytes(&self) -> usize {
        match self {
            Self::Received(data_type, _) if data_type.is_data() => 0,
            Self::Received(_, payload) | Self::Announcement(payload) => {
                EVENT_OVERHEAD + payload.len()
            }
        }
    }
}

/// Events that wait in one channel: four of the longest, and what one read of the stream gives.
const MAX_EVENT_QUEUE_BYTES: usize = 256 * 1024;

/// What an event costs without its payload: its place in the queue, twice while that grows.
const EVENT_OVERHEAD: usize = 2 * size_of::<Entry>();

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(types: &[DataType]) -> ChannelQueue {
        let mut queue = ChannelQueue::default();
        for (number, &data_type) in (0u8..).zip(types) {
            queue.push(data_type, Bytes::copy_from_slice(&[number]));
        }
        queue
    }

    fn taken(queue: &mut ChannelQueue) -> Vec<BufferOrEvent> {
        std::iter::from_fn(|| queue.pop())
            .map(Entry::into_item)
            .collect()
    }

    fn bytes(number: u8) -> Bytes {
        Bytes::copy_from_slice(&[number])
    }

    #[test]
    fn priority_events_come_first_in_their_own_order() {
        use DataType as T;
        let types = [
            T::Data,
            T::PrioritizedEvent,
            T::Event,
            T::PrioritizedEvent,
            T::Data,
        ];
        let mut queue = queue(&types);
        assert!(queue.has_priority());
        assert_eq!(queue.buffers().collect::<Vec<_>>(), [&bytes(0), &bytes(4)]);
        let expected = [
            BufferOrEvent::Event(Event::Priority(bytes(1))),
            BufferOrEvent::Event(Event::Priority(bytes(3))),
            BufferOrEvent::Buffer(bytes(0)),
            BufferOrEvent::Event(Event::User(bytes(2))),
            BufferOrEvent::Buffer(bytes(4)),
        ];
        assert_eq!(taken(&mut queue), expected);
        assert!(!queue.has_priority() && queue.is_empty());
        assert_eq!(queue.event_bytes, 0);
    }

    #[test]
    fn a_barrier_that_may_be_overtaken_is_announced_before_and_stays_in_its_place() {
        let mut queue = queue(&[DataType::Data, DataType::TimeoutableBarrier]);
        assert_eq!(queue.len(), 3);
        let expected = [
            BufferOrEvent::Event(Event::Announcement(bytes(1))),
            BufferOrEvent::Buffer(bytes(0)),
            BufferOrEvent::Event(Event::TimeoutableBarrier(bytes(1))),
        ];
        assert_eq!(taken(&mut queue), expected);
    }

    #[test]
    fn events_alone_fill_the_queue() {
        let mut queue = queue(&[DataType::Data; 100]);
        queue.push(DataType::Data, vec![0; 1 << 20].into());
        assert!(queue.has_room());
        for _ in 0..5 {
            queue.push(DataType::Event, vec![0; 64 * 1024].into());
        }
        assert!(!queue.has_room());
        assert_eq!(taken(&mut queue).len(), 106);
        assert!(queue.has_room());
    }
}
