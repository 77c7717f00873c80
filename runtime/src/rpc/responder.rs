//! Brings an answer to its caller, local or remote.

use std::{
    fmt,
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    time::Instant,
};

use serde::Serialize;
use thalweg_transport::now;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::{
    answer::{Answer, Kind},
    context::Context,
    endpoint::Endpoint,
    error::{HandlerError, RpcError},
};

/// Where the answer of one call goes. Dropped without an answer, the caller hears that its recipient is unreachable.
pub struct Responder<T>(Port<T>);

enum Port<T> {
    Local(oneshot::Sender<Result<T, RpcError>>),
    Remote(BoxReply, fn(&T) -> Result<Vec<u8>, postcard::Error>),
    /// The peer told instead of asking.
    Nobody,
}

/// A call of a peer that waits for its answer. Dropping it answers [`RpcError::RecipientUnreachable`].
pub type BoxReply = Box<dyn ReplyPort>;

/// The way back to a peer.
pub trait ReplyPort: Send + Sync + fmt::Debug {
    /// Sends the encoded answer or the error; an answer that is too large becomes an error.
    fn answer(self: Box<Self>, result: Result<Vec<u8>, RpcError>);
    /// Cancelled when the caller gives up or its connection ends.
    fn cancelled(&self) -> &CancellationToken;
    /// When the caller stops waiting.
    fn deadline(&self) -> Option<Instant>;
}

impl<T: Send + 'static> Responder<T> {
    pub(super) fn local() -> (Self, oneshot::Receiver<Result<T, RpcError>>) {
        let (sender, receiver) = oneshot::channel();
        (Self(Port::Local(sender)), receiver)
    }

    pub(super) fn remote(reply: Option<BoxReply>) -> Self
    where
        T: Serialize,
    {
        Self(reply.map_or(Port::Nobody, |reply| {
            Port::Remote(reply, |value| postcard::to_stdvec(value))
        }))
    }

    /// Sends the result; one that nobody waits for any more is dropped.
    pub fn send(self, result: Result<T, RpcError>) {
        match self.0 {
            Port::Local(sender) => {
                let _ = sender.send(result);
            }
            Port::Remote(reply, encode) => {
                let encoded = result.and_then(|value| {
                    encode(&value).map_err(|error| RpcError::Decode {
                        what: "answer".to_owned(),
                        reason: error.to_string(),
                    })
                });
                reply.answer(encoded);
            }
            Port::Nobody => {}
        }
    }

    /// Whether the caller has given up.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        match &self.0 {
            Port::Local(sender) => sender.is_closed(),
            Port::Remote(reply, _) => {
                reply.cancelled().is_cancelled()
                    || reply.deadline().is_some_and(|deadline| deadline <= now())
            }
            Port::Nobody => false,
        }
    }

    async fn cancelled(&mut self) {
        match &mut self.0 {
            Port::Local(sender) => sender.closed().await,
            Port::Remote(reply, _) => {
                let cancelled = reply.cancelled().cancelled();
                match reply.deadline() {
                    Some(deadline) => {
                        let _ = tokio::time::timeout_at(deadline.into(), cancelled).await;
                    }
                    None => cancelled.await,
                }
            }
            Port::Nobody => std::future::pending().await,
        }
    }

    /// Sends what the endpoint's method gave back, now or when it is there.
    pub fn settle<E: Endpoint>(mut self, answer: Answer<T>, cx: &mut Context<E>) {
        if let Kind::Ready(result) = answer.0 {
            return self.send(result.map_err(RpcError::Handler));
        }
        let future = contain(answer.into_future());
        let tasks = cx.core().tasks.clone();
        let answer = async move {
            let result = tokio::select! {
                // The end of the endpoint goes first: it drops its replies, which is no answer.
                biased;
                () = tasks.cancelled() => return,
                () = self.cancelled() => return,
                result = future => result,
            };
            self.send(result.map_err(RpcError::Handler));
        };
        cx.core().tasks.spawn(answer.in_current_span());
    }
}

impl<T> fmt::Debug for Responder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            Port::Local(_) => "Responder(local)",
            Port::Remote(..) => "Responder(remote)",
            Port::Nobody => "Responder(nobody)",
        })
    }
}

/// Turns a panic of a future into a failed answer: it runs beside the endpoint and cannot have harmed its state.
pub(super) async fn contain<T>(
    mut future: std::pin::Pin<Box<dyn Future<Output = Result<T, HandlerError>> + Send>>,
) -> Result<T, HandlerError> {
    poll_fn(move |task| {
        catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(task))).unwrap_or_else(|panic| {
            let message = panic_message(&*panic);
            tracing::error!(panic = message, "answer future panicked");
            std::task::Poll::Ready(Err(HandlerError::new("rpc.panic", message)))
        })
    })
    .await
}

/// The words of a panic.
pub(super) fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "panic without a message".to_owned())
}
