//! The producer's side of a partition stream: serves one subpartition to one consumer on another node.

mod control;
mod inbox;
mod producer;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use self::{
    control::{ControlReader, TaskEvents},
    inbox::Shared,
    producer::Producer,
};
use super::{task_events::TaskEventDispatcher, view::ResultPartitionProvider};
use crate::{
    config::TransportConfig,
    error::{ErrorCode, StreamError},
    handler::{PeerStream, StreamHandler},
    proto::{CreditViolation, SenderCredit, hello::FEATURE_LZ4},
    stream::BoxFuture,
    transport::{RecvStream, SendStream},
};

/// Serves streams of [`StreamKind::PARTITION`](crate::StreamKind::PARTITION).
///
/// Each stream is one subpartition: a part that writes what credit allows, and a part that reads credit and delivers
/// task events, in the one task of the stream. Whatever ends the stream releases the view at once, and with it a request that still waits for
/// its partition.
#[derive(Debug)]
pub struct PartitionServer {
    provider: Arc<dyn ResultPartitionProvider>,
    dispatcher: Arc<TaskEventDispatcher>,
    limits: Limits,
    counters: Arc<Counters>,
}

impl PartitionServer {
    /// Serves the partitions of a provider, and delivers the task events of their consumers.
    #[must_use]
    pub fn new(
        provider: Arc<dyn ResultPartitionProvider>,
        dispatcher: Arc<TaskEventDispatcher>,
        config: &TransportConfig,
    ) -> Self {
        Self {
            provider,
            dispatcher,
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
        let (dispatcher, counters) = (self.dispatcher.clone(), self.counters.clone());
        Box::pin(async move {
            counters.streams.fetch_add(1, Ordering::Relaxed);
            let _count = StreamCount(&counters);
            let peer = stream.peer.to_string();
            if let Err(end) = serve(&*provider, &dispatcher, limits, &counters, stream).await {
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
    dispatcher: &TaskEventDispatcher,
    limits: Limits,
    counters: &Counters,
    stream: PeerStream,
) -> Result<(), End> {
    let PeerStream {
        mut send,
        mut recv,
        features,
        ..
    } = stream;
    let mut control = ControlReader::default();
    let ended = async {
        let request = tokio::time::timeout(limits.request, control.request(&mut recv))
            .await
            .map_err(|_| End::NoRequest)??;
        let shared = Arc::new(Shared::new(SenderCredit::new(request.initial_credit)));
        let events = TaskEvents {
            dispatcher,
            partition: request.partition,
            producer: request.producer,
        };
        let mut producer = Producer {
            shared: shared.clone(),
            send: &mut send,
            events,
            counters,
            limits,
            decompresses: features & FEATURE_LZ4 != 0,
        };
        tokio::select! {
            biased;
            end = control.run(&mut recv, &shared, events) => end,
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

/// Bulk gives way after so many bytes, for the calls beside it: without it they wait for milliseconds.
const YIELD_BYTES: usize = 128 * 1024;
