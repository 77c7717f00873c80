//! The writing part of a partition stream's task at the producer.

use std::{
    collections::VecDeque,
    sync::{Arc, atomic::Ordering},
};

use bytes::{Bytes, BytesMut};

use super::{Counters, End, Limits, YIELD_BYTES, control::TaskEvents, inbox::Shared};
use crate::{
    error::StreamError,
    exchange::{
        error::ExchangeError,
        view::{Credit, Item, ResultPartitionProvider, SubpartitionRequest, SubpartitionView},
    },
    proto::{CreditViolation, DataType, FRAME_HEADER_BYTES, Frame, PartitionRequest},
    stream::BoxSendStream,
    transport::SendStream,
};

/// Writes what credit allows.
pub(super) struct Producer<'a> {
    pub(super) shared: Arc<Shared>,
    pub(super) send: &'a mut BoxSendStream,
    pub(super) events: TaskEvents<'a>,
    pub(super) counters: &'a Counters,
    pub(super) limits: Limits,
    /// The consumer takes compressed buffers.
    pub(super) decompresses: bool,
}

impl Producer<'_> {
    pub(super) async fn run(
        &mut self,
        provider: &dyn ResultPartitionProvider,
        request: PartitionRequest,
    ) -> Result<(), End> {
        let wanted = SubpartitionRequest {
            partition: request.partition,
            producer: request.producer,
            subpartition: request.subpartition,
        };
        let opening = provider.create_subpartition_view(wanted, self.shared.clone());
        let opened = tokio::select! {
            biased;
            opened = opening => opened,
            end = stop_of(self.send) => return Err(end),
        };
        let failed = match opened {
            Ok(mut view) => {
                if self.decompresses {
                    view.accept_compressed(request.buffer_size as usize);
                }
                self.open();
                self.send_all(view, request.buffer_size as usize).await?
            }
            Err(error) => Some(error),
        };
        if let Some(error) = failed {
            self.send_error(&error).await?;
        }
        self.send.finish()?;
        // What was written is the transport's to deliver; the wait only keeps the stream accounted meanwhile.
        let _ = tokio::time::timeout(self.limits.finish, self.send.stopped()).await;
        Ok(())
    }

    /// Delivers the task events that came before the view. Between its two steps none is received: that happens in
    /// this task.
    fn open(&self) {
        let held = self.shared.lock().open();
        for event in held {
            self.events.publish(&event, &self.shared);
        }
    }

    /// Sends the subpartition to its end, or to the error that it gives.
    async fn send_all(
        &mut self,
        mut view: Box<dyn SubpartitionView>,
        buffer_size: usize,
    ) -> Result<Option<ExchangeError>, End> {
        let mut taken = Vec::with_capacity(BATCH_FRAMES);
        let mut pending = VecDeque::with_capacity(BATCH_FRAMES);
        let mut chunks = Vec::with_capacity(BATCH_FRAMES * 2);
        let mut since_yield = 0;
        loop {
            let (credit, blocked, orders) = {
                let mut inbox = self.shared.lock();
                let (credit, orders) = (inbox.credit.available(), inbox.take_orders());
                (credit, inbox.credit.is_blocked(), orders)
            };
            if let Some(orders) = orders {
                if orders.confirm {
                    self.send.write(&mut [Frame::Opened.to_bytes()]).await?;
                }
                if let Some(bytes) = orders.buffer_size {
                    view.announce_buffer_size(bytes);
                }
                if orders.acknowledged {
                    view.acknowledge_all_records();
                }
                if orders.failure.is_some() {
                    return Ok(orders.failure);
                }
            }
            if !blocked {
                let overtakes = pending
                    .front()
                    .map(|item: &Item| item.data_type.has_priority());
                let result = match overtakes {
                    None => view.take(Credit::Buffers(credit), BATCH_FRAMES, &mut taken),
                    Some(false) => view.take_priority(&mut taken),
                    // Those that came first go first.
                    Some(true) => Ok(()),
                };
                if let Err(error) = result {
                    return Ok(Some(error));
                }
                let behind = parts_of(&pending, buffer_size);
                for item in &mut taken {
                    item.backlog = item.backlog.saturating_add(behind);
                }
                // What is pending is data without credit, which priority events overtake.
                let overtaken = pending.len();
                pending.extend(taken.drain(..));
                pending.rotate_left(overtaken);
            }
            let batch = self.batch(&mut pending, buffer_size, &mut chunks)?;
            if batch.ended {
                self.send.write(&mut chunks).await?;
                return Ok(None);
            }
            if chunks.is_empty() {
                let backlog = view
                    .backlog()
                    .saturating_add(parts_of(&pending, buffer_size));
                let announcement = self.shared.lock().credit.poll_announcement(backlog);
                match announcement {
                    Some(backlog) => {
                        let frame = Frame::BacklogAnnouncement { backlog };
                        self.send.write(&mut [frame.to_bytes()]).await?;
                    }
                    None => tokio::select! {
                        biased;
                        // One turn of the thread lets the writer, or more credit, add to the batch (5 to 8 % of CPU
                        // time per byte on QUIC); on an idle thread it is a microsecond.
                        () = self.shared.wake.notified() => tokio::task::yield_now().await,
                        end = stop_of(self.send) => return Err(end),
                    },
                }
                continue;
            }
            self.send.write(&mut chunks).await?;
            chunks.clear();
            since_yield += batch.bytes;
            if since_yield >= YIELD_BYTES {
                since_yield = 0;
                tokio::task::yield_now().await;
            }
        }
    }

    /// Frames of what may be sent now, header and payload as chunks of their own.
    fn batch(
        &self,
        pending: &mut VecDeque<Item>,
        buffer_size: usize,
        chunks: &mut Vec<Bytes>,
    ) -> Result<Batch, CreditViolation> {
        let mut batch = Batch::default();
        let mut headers = BytesMut::new();
        let credit = &mut self.shared.lock().credit;
        while let Some(item) = pending.front() {
            if credit.is_blocked()
                || chunks.len() >= BATCH_FRAMES * 2
                || (item.data_type.is_data() && credit.available() == 0)
            {
                break;
            }
            let sequence = credit.on_sent(item.data_type)?;
            let Some(item) = pop_part(pending, buffer_size) else {
                break;
            };
            if headers.capacity() < FRAME_HEADER_BYTES {
                headers.reserve(FRAME_HEADER_BYTES * BATCH_FRAMES);
            }
            let length = u32::try_from(item.payload.len()).unwrap_or(u32::MAX);
            let backlog = credit.reported_backlog(item.backlog);
            let frame = if item.compressed {
                Frame::CompressedBuffer {
                    length,
                    sequence,
                    backlog,
                }
            } else {
                Frame::Buffer {
                    data_type: item.data_type,
                    length,
                    sequence,
                    backlog,
                }
            };
            frame.encode(&mut headers);
            chunks.push(headers.split().freeze());
            batch.bytes += FRAME_HEADER_BYTES + item.payload.len();
            if item.data_type.is_data() {
                self.counters.buffers.fetch_add(1, Ordering::Relaxed);
                self.counters
                    .bytes
                    .fetch_add(item.payload.len() as u64, Ordering::Relaxed);
            }
            if !item.payload.is_empty() {
                chunks.push(item.payload);
            }
            batch.ended |= item.data_type == DataType::EndOfPartition;
        }
        Ok(batch)
    }

    async fn send_error(&mut self, error: &ExchangeError) -> Result<(), End> {
        let (kind, text) = error.to_wire();
        let text = Bytes::from(text);
        let frame = Frame::Error {
            kind,
            length: u32::try_from(text.len()).unwrap_or(u32::MAX),
        };
        let mut chunks = vec![frame.to_bytes()];
        if !text.is_empty() {
            chunks.push(text);
        }
        Ok(self.send.write(&mut chunks).await?)
    }
}

/// Waits until the consumer stops the stream. While there is nothing to write, no write would tell.
async fn stop_of(send: &mut BoxSendStream) -> End {
    End::Stream(match send.stopped().await {
        Ok(Some(code)) => StreamError::Stopped { code },
        Ok(None) => StreamError::Closed,
        Err(error) => error,
    })
}

#[derive(Debug, Default)]
struct Batch {
    bytes: usize,
    ended: bool,
}

/// Takes the next item, or its first part if it is data that is longer than the consumer's buffers: each part costs
/// credit and counts in the backlog. A compressed buffer fits as it is, or the view would have decompressed it. Cut as it is sent, so that a consumer with tiny buffers costs no memory ahead.
fn pop_part(pending: &mut VecDeque<Item>, buffer_size: usize) -> Option<Item> {
    let item = pending.front_mut()?;
    if !item.data_type.is_data() || item.compressed || item.payload.len() <= buffer_size {
        return pending.pop_front();
    }
    let payload = item.payload.split_to(buffer_size);
    Some(Item {
        data_type: item.data_type,
        payload,
        compressed: false,
        backlog: item.backlog.saturating_add(parts(item, buffer_size)),
    })
}

/// Buffers of the consumer that an item takes.
fn parts(item: &Item, buffer_size: usize) -> u32 {
    if !item.data_type.is_data() {
        return 0;
    }
    u32::try_from(item.payload.len().div_ceil(buffer_size).max(1)).unwrap_or(u32::MAX)
}

fn parts_of(items: &VecDeque<Item>, buffer_size: usize) -> u32 {
    items.iter().fold(0, |sum: u32, item| {
        sum.saturating_add(parts(item, buffer_size))
    })
}

/// Frames per write. On QUIC one call of the stream takes them all; more gained nothing.
const BATCH_FRAMES: usize = 8;
