//! What an endpoint's method gives back.

use std::{fmt, future::Future};

use thalweg_transport::BoxFuture;
use tokio::sync::oneshot;

use super::error::HandlerError;

/// The answer of an endpoint's method: now, from a future, or later from somewhere else.
///
/// A future runs beside the main thread, not on it; what has to happen on the main thread afterwards is the business
/// of [`Context::spawn`](super::Context::spawn). It is dropped when the caller gives up or the endpoint ends.
pub struct Answer<T>(pub(super) Kind<T>);

pub(super) enum Kind<T> {
    Ready(Result<T, HandlerError>),
    Future(BoxFuture<'static, Result<T, HandlerError>>),
    Deferred(oneshot::Receiver<Result<T, HandlerError>>),
}

impl<T> Answer<T> {
    /// An answer that is known.
    #[must_use]
    pub fn ok(value: T) -> Self {
        Self(Kind::Ready(Ok(value)))
    }

    /// A failure.
    #[must_use]
    pub fn err(error: impl Into<HandlerError>) -> Self {
        Self(Kind::Ready(Err(error.into())))
    }

    /// The result of a future.
    pub fn future(future: impl Future<Output = Result<T, HandlerError>> + Send + 'static) -> Self {
        Self(Kind::Future(Box::pin(future)))
    }

    /// An answer that the [`Reply`] will give, from anywhere.
    #[must_use]
    pub fn deferred() -> (Reply<T>, Self) {
        let (reply, answer) = oneshot::channel();
        (Reply(reply), Self(Kind::Deferred(answer)))
    }
}

impl<T: Send + 'static> Answer<T> {
    /// Waits for the answer, wherever it comes from.
    pub(super) fn into_future(self) -> BoxFuture<'static, Result<T, HandlerError>> {
        match self.0 {
            Kind::Ready(result) => Box::pin(std::future::ready(result)),
            Kind::Future(future) => future,
            Kind::Deferred(answer) => {
                Box::pin(async move { answer.await.unwrap_or_else(|_| Err(no_answer())) })
            }
        }
    }
}

impl<T, E: Into<HandlerError>> From<Result<T, E>> for Answer<T> {
    fn from(result: Result<T, E>) -> Self {
        Self(Kind::Ready(result.map_err(Into::into)))
    }
}

impl<T> fmt::Debug for Answer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Kind::Ready(Ok(_)) => "Answer::Ok",
            Kind::Ready(Err(_)) => "Answer::Err",
            Kind::Future(_) => "Answer::Future",
            Kind::Deferred(_) => "Answer::Deferred",
        })
    }
}

/// The promise to answer a call. Dropping it fails the call with the kind `rpc.no_answer`.
#[derive(Debug)]
pub struct Reply<T>(oneshot::Sender<Result<T, HandlerError>>);

impl<T> Reply<T> {
    /// Answers. An answer that nobody waits for any more is dropped.
    pub fn send(self, result: Result<T, HandlerError>) {
        let _ = self.0.send(result);
    }

    /// Whether the caller has given up.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.is_closed()
    }
}

fn no_answer() -> HandlerError {
    HandlerError::new(
        "rpc.no_answer",
        "the endpoint dropped the call without an answer",
    )
}
