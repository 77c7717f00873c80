//! A small call beside the data, on a stream kind of our own.

use std::sync::Arc;

use bytes::Bytes;
use thalweg_transport::{
    BoxFuture, PeerStream, RecvStream, SendStream, StreamError, StreamHandler, StreamKind, now,
};

use crate::bench::{counters::Counters, spec::MAX_PAYLOAD};

/// Answers with what it gets.
#[derive(Debug)]
pub(super) struct Echo;

impl StreamHandler for Echo {
    fn handle(&self, mut stream: PeerStream) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            stream.send.set_priority(PRIORITY);
            while let Ok(Some(chunk)) = stream.recv.read(MAX_PAYLOAD as usize).await {
                if stream.send.write(&mut [chunk]).await.is_err() {
                    return;
                }
            }
        })
    }
}

/// Calls again and again, one outstanding, until the stream ends.
pub(super) async fn call(
    stream: &mut PeerStream,
    payload: usize,
    counters: &Arc<Counters>,
) -> Result<(), StreamError> {
    stream.send.set_priority(PRIORITY);
    let message = Bytes::from(vec![0; payload]);
    loop {
        let sent = now();
        stream.send.write(&mut [message.clone()]).await?;
        let mut missing = payload;
        while missing > 0 {
            match stream.recv.read(missing).await? {
                Some(chunk) => missing -= chunk.len(),
                None => return Ok(()),
            }
        }
        counters.add_call(now().saturating_duration_since(sent));
    }
}

/// The streams of this kind.
pub(super) const PING: StreamKind = StreamKind(StreamKind::FIRST_CUSTOM + 1);

/// Above partition data, whose streams have 0; the same as that of gateways.
const PRIORITY: i32 = 10;
