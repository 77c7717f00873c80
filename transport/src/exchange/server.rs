//! The producer's side of a partition stream: serves one subpartition to one consumer on another node.

mod control;

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use tokio::sync::Notify;

use self::control::ControlReader;

use super::{
    error::ExchangeError,
    view::{
        AvailabilityListener, Item, ResultPartitionProvider, SubpartitionRequest, SubpartitionView,
    },
};
use crate::{
    config::TransportConfig,
    error::{ErrorCode, StreamError},
    handler::{PeerStream, StreamHandler},
    proto::{CreditViolation, DataType, FRAME_HEADER_BYTES, Frame, PartitionRequest, SenderCredit},
    stream::{BoxFuture, BoxSendStream},
    transport::{RecvStream, SendStream},
};

/// Serves streams of [`StreamKind::PARTITION`](crate::StreamKind::PARTITION).
///
/// Each stream is one subpartition: a part that writes what credit allows, and a part that reads credit, in the one
/// task of the stream. Whatever ends the stream releases the view at once, and with it a request that still waits for
/// its partition.
#[derive(Debug)]
pub struct PartitionServer {
    provider: Arc<dyn ResultPartitionProvider>,
    limits: Limits,
    counters: Arc<Counters>,
}

impl PartitionServer {
    /// Serves the partitions of a provider.
    #[must_use]
    pub fn new(provider: Arc<dyn ResultPartitionProvider>, config: &TransportConfig) -> Self {
        Self {
            provider,
            limits: Limits {
                request: config.handshake_timeout,
                finish: config.write_timeout,
            },
            counters: Arc::default(),
        }
    }

    /// Counters so far.
    #[must_use]
    pub fn stats(&self) -> ServerStats {
        ServerStats {
            streams: self.counters.streams.load(Ordering::Relaxed),
            buffers: self.counters.buffers.load(Ordering::Relaxed),
            bytes: self.counters.bytes.load(Ordering::Relaxed),
        }
    }
}

impl StreamHandler for PartitionServer {
    fn handle(&self, stream: PeerStream) -> BoxFuture<'static, ()> {
        let (provider, limits) = (self.provider.clone(), self.limits);
        let counters = self.counters.clone();
        Box::pin(async move {
            counters.streams.fetch_add(1, Ordering::Relaxed);
            let _count = StreamCount(&counters);
            let peer = stream.peer.to_string();
            if let Err(end) = serve(&*provider, limits, &counters, stream).await {
                tracing::debug!(%peer, %end, "partition stream ended early");
            }
        })
    }
}

/// Counters of a [`PartitionServer`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ServerStats {
    /// Streams being served now, waiting requests included.
    pub streams: usize,
    /// Data buffers sent.
    pub buffers: u64,
    /// Bytes in them.
    pub bytes: u64,
}

#[derive(Debug, Clone, Copy)]
struct Limits {
    /// For the request, which comes with the first bytes of a stream.
    request: Duration,
    /// For the consumer to take the last bytes.
    finish: Duration,
}

#[derive(Debug, Default)]
struct Counters {
    streams: AtomicUsize,
    buffers: AtomicU64,
    bytes: AtomicU64,
}

struct StreamCount<'a>(&'a Counters);

impl Drop for StreamCount<'_> {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Why a stream ended before its end of partition was sent.
#[derive(Debug, thiserror::Error)]
enum End {
    #[error("no request came in time")]
    NoRequest,
    #[error(transparent)]
    Stream(#[from] StreamError),
    #[error("protocol violation: {0}")]
    Protocol(String),
    #[error(transparent)]
    Credit(#[from] CreditViolation),
}

impl End {
    fn code(&self) -> ErrorCode {
        match self {
            Self::NoRequest => ErrorCode::TIMED_OUT,
            Self::Stream(StreamError::Reset { code } | StreamError::Stopped { code }) => *code,
            Self::Stream(_) => ErrorCode::CANCELLED,
            Self::Protocol(_) => ErrorCode::STREAM_PROTOCOL,
            Self::Credit(_) => ErrorCode::CREDIT_VIOLATION,
        }
    }
}

async fn serve(
    provider: &dyn ResultPartitionProvider,
    limits: Limits,
    counters: &Counters,
    stream: PeerStream,
) -> Result<(), End> {
    let PeerStream {
        mut send, mut recv, ..
    } = stream;
    let mut control = ControlReader::default();
    let ended = async {
        let request = tokio::time::timeout(limits.request, control.request(&mut recv))
            .await
            .map_err(|_| End::NoRequest)??;
        let shared = Arc::new(Shared {
            credit: Mutex::new(SenderCredit::new(request.initial_credit)),
            wake: Notify::new(),
        });
        let mut producer = Producer {
            shared: shared.clone(),
            send: &mut send,
            counters,
            limits,
        };
        tokio::select! {
            biased;
            end = control.run(&mut recv, &shared) => end,
            end = producer.run(provider, request) => end,
        }
    }
    .await;
    if let Err(end) = &ended {
        recv.stop(end.code());
        send.reset(end.code());
    }
    ended
}

/// What the two parts of a stream's task, and the threads of the producer, share.
#[derive(Debug)]
struct Shared {
    credit: Mutex<SenderCredit>,
    wake: Notify,
}

impl Shared {
    fn credit(&self) -> MutexGuard<'_, SenderCredit> {
        self.credit.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AvailabilityListener for Shared {
    fn on_available(&self) {
        self.wake.notify_one();
    }
}

/// Writes what credit allows.
struct Producer<'a> {
    shared: Arc<Shared>,
    send: &'a mut BoxSendStream,
    counters: &'a Counters,
    limits: Limits,
}

impl Producer<'_> {
    async fn run(
        &mut self,
        provider: &dyn ResultPartitionProvider,
        request: PartitionRequest,
    ) -> Result<(), End> {
        let wanted = SubpartitionRequest {
            partition: request.partition,
            producer: request.producer,
            subpartition: request.subpartition,
        };
        let opened = provider
            .create_subpartition_view(wanted, self.shared.clone())
            .await;
        let failed = match opened {
            Ok(view) => self.send_all(view, request.buffer_size as usize).await?,
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
            let (credit, blocked) = {
                let credit = self.shared.credit();
                (credit.available(), credit.is_blocked())
            };
            if pending.is_empty() && !blocked {
                if let Err(error) = view.take(credit, BATCH_FRAMES, &mut taken) {
                    return Ok(Some(error));
                }
                pending.extend(taken.drain(..));
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
                let announcement = self.shared.credit().poll_announcement(backlog);
                match announcement {
                    Some(backlog) => {
                        let frame = Frame::BacklogAnnouncement { backlog };
                        self.send.write(&mut [frame.to_bytes()]).await?;
                    }
                    None => self.shared.wake.notified().await,
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
        let mut credit = self.shared.credit();
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
            Frame::Buffer {
                data_type: item.data_type,
                length: u32::try_from(item.payload.len()).unwrap_or(u32::MAX),
                sequence,
                backlog: credit.reported_backlog(item.backlog),
            }
            .encode(&mut headers);
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

#[derive(Debug, Default)]
struct Batch {
    bytes: usize,
    ended: bool,
}

/// Takes the next item, or its first part if it is data that is longer than the consumer's buffers: each part costs
/// credit and counts in the backlog. Cut as it is sent, so that a consumer with tiny buffers costs no memory ahead.
fn pop_part(pending: &mut VecDeque<Item>, buffer_size: usize) -> Option<Item> {
    let item = pending.front_mut()?;
    if !item.data_type.is_data() || item.payload.len() <= buffer_size {
        return pending.pop_front();
    }
    let payload = item.payload.split_to(buffer_size);
    Some(Item {
        data_type: item.data_type,
        payload,
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

/// Bulk gives way after so many bytes, for the calls beside it: without it they wait for milliseconds.
const YIELD_BYTES: usize = 128 * 1024;
