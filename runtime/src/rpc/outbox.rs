//! Frames that wait to be written on one stream.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use bytes::{Bytes, BytesMut};
use thalweg_transport::{BoxSendStream, SendStream, StreamError};
use tokio::sync::Notify;

use super::{budget::PeerBudget, sync::lock, wire::Head};

/// A bounded queue of frames with one writer. Small frames are joined, so that many calls need one write.
///
/// While nothing waits, the writer leaves its stream here: a frame that is alone then goes out in the task that has it,
/// without waking the writer for it.
#[derive(Debug)]
pub(super) struct Outbox {
    queue: Mutex<Queue>,
    ready: Notify,
    /// Of the peer: its bounds hold for all streams together.
    budget: Arc<PeerBudget>,
}

#[derive(Debug, Default)]
struct Queue {
    chunks: VecDeque<Bytes>,
    /// Small frames after the chunks.
    tail: BytesMut,
    bytes: usize,
    closed: bool,
    /// The stream of a writer that has nothing to do.
    idle: Option<BoxSendStream>,
}

/// Whether more frames are likely to come with this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Company {
    /// No other call is under way: there is nothing to join it with.
    Alone,
    Many,
}

impl Company {
    pub(super) fn of(is_alone: bool) -> Self {
        if is_alone { Self::Alone } else { Self::Many }
    }
}

/// Why a frame was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotQueued {
    /// The peer does not read as fast as frames come.
    Full,
    /// The stream is ending.
    Closed,
}

impl Outbox {
    pub(super) fn new(budget: &Arc<PeerBudget>) -> Self {
        Self {
            queue: Mutex::new(Queue::default()),
            ready: Notify::new(),
            budget: Arc::clone(budget),
        }
    }

    /// Queues a frame; never waits. One frame is taken at any size while nothing waits for this peer; errors, cancels
    /// and the two frames of a drain have some room left when nothing else has.
    pub(super) fn push(&self, head: Head, body: Vec<u8>) -> Result<(), NotQueued> {
        self.push_in(Company::Many, head, body)
    }

    /// The same; a frame that is alone is written now if it can be.
    pub(super) fn push_in(
        &self,
        company: Company,
        head: Head,
        body: Vec<u8>,
    ) -> Result<(), NotQueued> {
        let length = u32::try_from(body.len()).map_err(|_| NotQueued::Full)?;
        {
            let mut queue = lock(&self.queue);
            if queue.closed {
                return Err(NotQueued::Closed);
            }
            let before = queue.tail.len();
            head.encode(length, &mut queue.tail);
            let bytes = queue.tail.len() - before + body.len();
            let slack = match head {
                Head::Error { .. } | Head::Cancel { .. } | Head::Drain | Head::Drained => {
                    SLACK_BYTES
                }
                _ => 0,
            };
            if !self.budget.queue(bytes, slack) {
                queue.tail.truncate(before);
                return Err(NotQueued::Full);
            }
            queue.bytes += bytes;
            if body.len() <= JOIN_BYTES {
                queue.tail.extend_from_slice(&body);
            }
            if queue.tail.len() >= JOIN_BYTES || body.len() > JOIN_BYTES {
                let tail = queue.tail.split().freeze();
                queue.chunks.push_back(tail);
            }
            if body.len() > JOIN_BYTES {
                queue.chunks.push_back(body.into());
            }
            if company == Company::Alone && queue.bytes == bytes {
                let left = queue.write_now();
                self.budget.unqueue(bytes - left);
                queue.bytes = left;
                if left == 0 {
                    return Ok(());
                }
            }
        }
        self.ready.notify_one();
        Ok(())
    }

    /// Takes no more frames; the writer finishes the stream after those that wait.
    pub(super) fn close(&self) {
        lock(&self.queue).closed = true;
        self.ready.notify_one();
    }

    /// Writes frames until the outbox is closed, then finishes the stream. Not cancel-safe: after a drop the stream may
    /// only be reset.
    ///
    /// `stream` is empty while nothing waits; [`reclaim`](Self::reclaim) gives it back to one who drops the future.
    pub(super) async fn write_to(
        &self,
        stream: &mut Option<BoxSendStream>,
    ) -> Result<(), StreamError> {
        while let Some(mut batch) = self.batch(stream).await {
            let Some(stream) = stream else {
                return Err(StreamError::Closed);
            };
            stream.write(&mut batch).await?;
            // The bulk streams of the same thread must get their turn.
            tokio::task::coop::consume_budget().await;
        }
        match stream {
            Some(stream) => stream.finish(),
            None => Err(StreamError::Closed),
        }
    }

    /// Takes the stream back from a writer that does not go on.
    pub(super) fn reclaim(&self, stream: Option<BoxSendStream>) -> Option<BoxSendStream> {
        let mut queue = lock(&self.queue);
        queue.closed = true;
        stream.or_else(|| queue.idle.take())
    }

    async fn batch(&self, stream: &mut Option<BoxSendStream>) -> Option<Vec<Bytes>> {
        loop {
            {
                let mut queue = lock(&self.queue);
                if stream.is_none() {
                    *stream = queue.idle.take();
                }
                let mut batch = Vec::new();
                let mut bytes = 0;
                while bytes < BATCH_BYTES {
                    let Some(chunk) = queue.chunks.pop_front() else {
                        break;
                    };
                    bytes += chunk.len();
                    batch.push(chunk);
                }
                if bytes < BATCH_BYTES && !queue.tail.is_empty() {
                    bytes += queue.tail.len();
                    batch.push(queue.tail.split().freeze());
                }
                queue.bytes -= bytes;
                self.budget.unqueue(bytes);
                if !batch.is_empty() {
                    return Some(batch);
                }
                if queue.closed {
                    return None;
                }
                queue.idle = stream.take();
            }
            self.ready.notified().await;
        }
    }
}

impl Queue {
    /// Tries to write all that waits. The bytes that are left wait for the writer, which meets an error again.
    fn write_now(&mut self) -> usize {
        if let Some(stream) = &mut self.idle {
            if !self.tail.is_empty() {
                let tail = self.tail.split().freeze();
                self.chunks.push_back(tail);
            }
            let _ = stream.try_write(self.chunks.make_contiguous());
            self.chunks.retain(|chunk| !chunk.is_empty());
        }
        self.chunks.iter().map(Bytes::len).sum::<usize>() + self.tail.len()
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        self.budget.unqueue(lock(&self.queue).bytes);
    }
}

/// Frames up to this size are copied together: one TLS record or a few packets.
const JOIN_BYTES: usize = 16 * 1024;

/// Most bytes that are handed over with one write.
const BATCH_BYTES: usize = 256 * 1024;

/// Room for errors and cancels in a full queue: it tells a slow peer from one that does not read at all.
const SLACK_BYTES: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use std::{future::Future, pin::Pin};

    use thalweg_transport::ErrorCode;

    use super::{
        super::{budget::Budgets, config::RpcConfig},
        *,
    };

    fn cancel(call: u64) -> Head {
        Head::Cancel { call }
    }

    fn budget(max_pending_bytes: u64) -> Arc<PeerBudget> {
        let config = RpcConfig {
            max_pending_bytes,
            ..RpcConfig::default()
        };
        Budgets::default().of("peer", &config)
    }

    #[tokio::test]
    async fn small_frames_are_joined_and_large_ones_keep_their_place() {
        let outbox = Outbox::new(&budget(1 << 20));
        outbox.push(cancel(1), Vec::new()).unwrap();
        outbox.push(cancel(2), Vec::new()).unwrap();
        let large = vec![7; JOIN_BYTES + 1];
        outbox.push(Head::Answer { call: 3 }, large).unwrap();
        outbox.push(cancel(4), Vec::new()).unwrap();
        outbox.close();
        let batch = outbox.batch(&mut None).await.unwrap();
        let sizes: Vec<_> = batch.iter().map(Bytes::len).collect();
        assert_eq!(sizes, [12 + 12 + 16, JOIN_BYTES + 1, 12]);
        assert!(outbox.batch(&mut None).await.is_none());
        assert_eq!(outbox.push(cancel(5), Vec::new()), Err(NotQueued::Closed));
    }

    /// Takes so many bytes now, and everything that is written.
    struct Window {
        room: usize,
        fails: bool,
        taken: Arc<Mutex<Vec<u8>>>,
    }

    impl SendStream for Window {
        async fn write(&mut self, chunks: &mut [Bytes]) -> Result<(), StreamError> {
            if self.fails {
                return Err(StreamError::Closed);
            }
            for chunk in chunks {
                lock(&self.taken).extend_from_slice(&std::mem::take(chunk));
            }
            Ok(())
        }

        fn try_write(&mut self, chunks: &mut [Bytes]) -> Result<bool, StreamError> {
            if self.fails {
                return Err(StreamError::Closed);
            }
            for chunk in chunks {
                let now = chunk.split_to(self.room.min(chunk.len()));
                self.room -= now.len();
                lock(&self.taken).extend_from_slice(&now);
                if !chunk.is_empty() {
                    return Ok(false);
                }
            }
            Ok(true)
        }

        fn finish(&mut self) -> Result<(), StreamError> {
            lock(&self.taken).push(b'.');
            Ok(())
        }

        fn reset(&mut self, _code: ErrorCode) {}
        fn set_priority(&mut self, _priority: i32) {}

        async fn stopped(&mut self) -> Result<Option<ErrorCode>, StreamError> {
            std::future::pending().await
        }
    }

    type Writer = Pin<Box<dyn Future<Output = (Result<(), StreamError>, Option<BoxSendStream>)>>>;

    /// An outbox whose writer has left it its stream, which has so much room, and what was written.
    async fn parked(
        budget: &Arc<PeerBudget>,
        room: usize,
        fails: bool,
    ) -> (Arc<Outbox>, Writer, Arc<Mutex<Vec<u8>>>) {
        let outbox = Arc::new(Outbox::new(budget));
        let taken = Arc::new(Mutex::new(Vec::new()));
        let stream = BoxSendStream::new(Window {
            room,
            fails,
            taken: Arc::clone(&taken),
        });
        let writing = Arc::clone(&outbox);
        let mut writer: Writer = Box::pin(async move {
            let mut stream = Some(stream);
            let written = writing.write_to(&mut stream).await;
            (written, stream)
        });
        tokio::select! {
            biased;
            _ = &mut writer => panic!("there is nothing to write"),
            () = std::future::ready(()) => {}
        }
        (outbox, writer, taken)
    }

    fn bytes_of(frames: &[Head]) -> Vec<u8> {
        let mut bytes = BytesMut::new();
        for head in frames {
            head.encode(0, &mut bytes);
        }
        bytes.to_vec()
    }

    #[tokio::test]
    async fn a_lone_frame_is_written_by_who_has_it_and_others_by_the_writer() {
        let budget = budget(1 << 20);
        let (outbox, writer, taken) = parked(&budget, 1 << 20, false).await;
        outbox
            .push_in(Company::Alone, cancel(1), Vec::new())
            .unwrap();
        assert_eq!(*lock(&taken), bytes_of(&[cancel(1)]));
        outbox.push(cancel(2), Vec::new()).unwrap();
        // It comes alone, but behind one that waits.
        outbox
            .push_in(Company::Alone, cancel(3), Vec::new())
            .unwrap();
        assert_eq!(*lock(&taken), bytes_of(&[cancel(1)]));
        outbox.close();
        let (written, stream) = writer.await;
        assert!(written.is_ok() && stream.is_some());
        let frames = [cancel(1), cancel(2), cancel(3)];
        assert_eq!(*lock(&taken), [&bytes_of(&frames)[..], b"."].concat());
        assert!(budget.queue(1 << 20, 0));
    }

    #[tokio::test]
    async fn what_a_full_stream_does_not_take_now_the_writer_sends_behind_it() {
        let budget = budget(1 << 20);
        let (outbox, writer, taken) = parked(&budget, 5, false).await;
        outbox
            .push_in(Company::Alone, cancel(1), Vec::new())
            .unwrap();
        assert_eq!(*lock(&taken), bytes_of(&[cancel(1)])[..5]);
        outbox
            .push_in(
                Company::Alone,
                Head::Answer { call: 2 },
                vec![7; JOIN_BYTES + 1],
            )
            .unwrap();
        outbox.close();
        assert!(writer.await.0.is_ok());
        let mut frames = BytesMut::new();
        cancel(1).encode(0, &mut frames);
        Head::Answer { call: 2 }.encode(u32::try_from(JOIN_BYTES + 1).unwrap(), &mut frames);
        frames.extend_from_slice(&vec![7; JOIN_BYTES + 1]);
        frames.extend_from_slice(b".");
        assert!(*lock(&taken) == frames);
        assert!(budget.queue(1 << 20, 0));
    }

    #[tokio::test]
    async fn a_stream_that_fails_is_the_writers_to_tell() {
        let budget = budget(1 << 20);
        let (outbox, writer, _taken) = parked(&budget, 0, true).await;
        outbox
            .push_in(Company::Alone, cancel(1), Vec::new())
            .unwrap();
        assert!(matches!(writer.await.0, Err(StreamError::Closed)));
    }

    #[tokio::test]
    async fn a_writer_that_is_dropped_leaves_a_stream_that_is_given_back_once() {
        let budget = budget(1 << 20);
        let (outbox, writer, taken) = parked(&budget, 1 << 20, false).await;
        drop(writer);
        assert!(outbox.reclaim(None).is_some());
        assert!(outbox.reclaim(None).is_none());
        let late = outbox.push_in(Company::Alone, cancel(1), Vec::new());
        assert_eq!(late, Err(NotQueued::Closed));
        assert!(lock(&taken).is_empty());
    }

    #[tokio::test]
    async fn a_peer_that_does_not_read_fills_the_queue_of_all_its_streams() {
        let budget = budget(1000);
        let (outbox, other) = (Outbox::new(&budget), Outbox::new(&budget));
        let answer = |call| Head::Answer { call };
        outbox.push(answer(1), vec![0; 5000]).unwrap();
        assert_eq!(outbox.push(answer(2), Vec::new()), Err(NotQueued::Full));
        assert_eq!(other.push(answer(1), Vec::new()), Err(NotQueued::Full));
        let error = || Head::Error { call: 2 };
        let mut errors = 0;
        while outbox.push(error(), vec![0; 984]).is_ok() {
            errors += 1;
        }
        assert_eq!(errors, (SLACK_BYTES + 1000 - 5016) / 1000);
        drop(outbox);
        other.push(answer(1), Vec::new()).unwrap();
        assert_eq!(other.batch(&mut None).await.unwrap().len(), 1);
        other.push(answer(2), vec![0; 2000]).unwrap();
    }
}
