//! What a channel has to tell its producer and has not told yet.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use super::task_events::TaskEvent;
use crate::proto::{FRAME_HEADER_BYTES, Frame, MAX_EVENT_BYTES};

/// Kept while the channel has no stream, or while the last message is being written. A newer credit, size or
/// acknowledgement joins the one that waits, so that only task events need a bound.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    pub(super) credit: u32,
    pub(super) resume: bool,
    pub(super) acknowledged: bool,
    pub(super) buffer_size: Option<u32>,
    events: VecDeque<TaskEvent>,
    event_bytes: usize,
}

impl Outbox {
    pub(super) fn is_empty(&self) -> bool {
        self.credit == 0
            && !self.resume
            && !self.acknowledged
            && self.buffer_size.is_none()
            && self.events.is_empty()
    }

    /// Whether there was room for it, beside others that cost so much.
    pub(super) fn add_event(&mut self, event: TaskEvent, others: usize) -> bool {
        let bytes = self.event_bytes + cost(&event);
        if bytes + others > MAX_UNSENT_EVENT_BYTES {
            return false;
        }
        self.event_bytes = bytes;
        self.events.push_back(event);
        true
    }

    pub(super) fn event_bytes(&self) -> usize {
        self.event_bytes
    }

    /// Adds the task events and the buffer size of another one.
    pub(super) fn append(&mut self, other: &Self) {
        self.events.extend(other.events.iter().cloned());
        self.event_bytes += other.event_bytes;
        self.buffer_size = other.buffer_size.or(self.buffer_size);
    }

    /// Moves its task events before those of another one. The buffer size of that one is newer.
    pub(super) fn move_before(&mut self, other: &mut Self) {
        while let Some(event) = self.events.pop_back() {
            other.event_bytes += cost(&event);
            other.events.push_front(event);
        }
        self.event_bytes = 0;
        let size = self.buffer_size.take();
        other.buffer_size = other.buffer_size.or(size);
    }

    pub(super) fn take_events(&mut self) -> VecDeque<TaskEvent> {
        self.event_bytes = 0;
        std::mem::take(&mut self.events)
    }

    /// Takes everything as frames. After a resume the producer forgets old credit, so the resume goes first.
    pub(super) fn take_frames(&mut self) -> Bytes {
        let mut frames = BytesMut::with_capacity(FRAME_HEADER_BYTES * 2);
        if std::mem::take(&mut self.resume) {
            Frame::ResumeConsumption.encode(&mut frames);
        }
        let credit = std::mem::take(&mut self.credit);
        if credit > 0 {
            Frame::AddCredit { credit }.encode(&mut frames);
        }
        if let Some(bytes) = self.buffer_size.take() {
            Frame::NewBufferSize { bytes }.encode(&mut frames);
        }
        for TaskEvent(event) in self.take_events() {
            let length = u32::try_from(event.len()).unwrap_or(u32::MAX);
            Frame::TaskEvent { length }.encode(&mut frames);
            frames.extend_from_slice(&event);
        }
        if std::mem::take(&mut self.acknowledged) {
            Frame::AllRecordsAcknowledged.encode(&mut frames);
        }
        frames.freeze()
    }
}

fn cost(event: &TaskEvent) -> usize {
    size_of::<TaskEvent>() + event.0.len()
}

/// Task events that wait in one channel, or that its producer may have to hold: four of the longest, or many small ones.
/// As many as a producer holds.
pub(super) const MAX_UNSENT_EVENT_BYTES: usize = 4 * (MAX_EVENT_BYTES + size_of::<TaskEvent>());

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::HeaderDecoder;

    #[test]
    fn everything_goes_in_one_message_with_the_resume_first() {
        let mut outbox = Outbox::default();
        assert!(outbox.is_empty());
        (outbox.credit, outbox.resume, outbox.acknowledged) = (3, true, true);
        outbox.buffer_size = Some(65);
        assert!(outbox.add_event(TaskEvent(Bytes::from_static(b"go")), 0));
        let (mut frames, mut got) = (outbox.take_frames(), Vec::new());
        while let Some(frame) = HeaderDecoder::default().decode(&mut frames).unwrap() {
            if let Frame::TaskEvent { length } = frame {
                assert_eq!(frames.split_to(length as usize).as_ref(), b"go");
            }
            got.push(frame);
        }
        let expected = [
            Frame::ResumeConsumption,
            Frame::AddCredit { credit: 3 },
            Frame::NewBufferSize { bytes: 65 },
            Frame::TaskEvent { length: 2 },
            Frame::AllRecordsAcknowledged,
        ];
        assert_eq!(got, expected);
        assert!(outbox.is_empty() && outbox.take_frames().is_empty());
    }

    #[test]
    fn unsent_events_have_a_bound() {
        let mut outbox = Outbox::default();
        let long = TaskEvent(vec![0; MAX_EVENT_BYTES].into());
        for _ in 0..4 {
            assert!(outbox.add_event(long.clone(), 0));
        }
        assert!(!outbox.add_event(TaskEvent(Bytes::new()), 0));
        assert_eq!(outbox.take_events().len(), 4);
        assert!(outbox.add_event(long.clone(), 3 * cost(&long)));
        assert!(!outbox.add_event(long.clone(), 3 * cost(&long)));
    }

    #[test]
    fn what_was_told_is_repeated_before_what_is_new() {
        let event = |n: u8| TaskEvent(Bytes::copy_from_slice(&[n]));
        let (mut told, mut message, mut next) =
            (Outbox::default(), Outbox::default(), Outbox::default());
        for n in [1, 2] {
            assert!(message.add_event(event(n), 0));
            message.buffer_size = Some(n.into());
            told.append(&message);
            message = Outbox::default();
        }
        assert!(next.add_event(event(3), told.event_bytes()));
        told.move_before(&mut next);
        assert!(told.is_empty() && told.event_bytes() == 0);
        assert_eq!(
            (next.buffer_size, next.event_bytes()),
            (Some(2), 3 * cost(&event(0)))
        );
        assert_eq!(next.take_events(), [1, 2, 3].map(event));
    }
}
