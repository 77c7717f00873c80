//! One dial: attempts, pauses, hello, all within one budget.

use std::{
    fmt,
    net::SocketAddr,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use thiserror::Error;
use tokio::time::{sleep, timeout};

use super::{
    Local,
    introduce::{IntroduceError, introduce_dialled},
    live::{Live, LiveConnection},
};
use crate::{
    addr::{ConnectionId, resolve},
    clock::now,
    error::{Cause, ConnectError, ConnectionError, ErrorCode, StreamError},
    handler::chain,
    proto::backoff::Backoff,
    stream::BoxFuture,
    system,
    transport::{Connection, Transport},
};

/// Dials with a backend, without its type.
pub(crate) trait Dial: Send + Sync {
    /// Dials a peer; the whole dial takes at most `connect_timeout`. Runs on the network runtime.
    fn dial(
        &self,
        to: ConnectionId,
    ) -> BoxFuture<'static, Result<Arc<dyn LiveConnection>, ConnectError>>;
}

/// Dials with one backend.
pub(crate) struct Dialler<T> {
    transport: Arc<T>,
    local: Arc<Local>,
}

impl<T: Transport> Dialler<T> {
    pub(crate) fn new(transport: Arc<T>, local: Arc<Local>) -> Self {
        Self { transport, local }
    }
}

impl<T> fmt::Debug for Dialler<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Dialler")
    }
}

impl<T: Transport> Dial for Dialler<T> {
    fn dial(
        &self,
        to: ConnectionId,
    ) -> BoxFuture<'static, Result<Arc<dyn LiveConnection>, ConnectError>> {
        let (transport, local) = (Arc::clone(&self.transport), Arc::clone(&self.local));
        Box::pin(async move {
            let progress = Progress::default();
            let budget = local.config.connect_timeout;
            let mut dial = pin!(attempt_until_done(&*transport, &local, &to, &progress));
            let Ok(outcome) = timeout(budget, &mut dial).await else {
                let reason = progress.words(&*transport, &local);
                return Err(ConnectError::TimedOut {
                    address: to.address.clone(),
                    reason,
                });
            };
            let live: Arc<dyn LiveConnection> = Arc::new(outcome?);
            Ok(live)
        })
    }
}

/// How far a dial has come, for whom it takes too long.
#[derive(Debug, Default)]
struct Progress(Mutex<Reached>);

#[derive(Debug, Default)]
struct Reached {
    attempts: u32,
    address: Option<SocketAddr>,
    /// Why the attempt before this one failed.
    failure: Option<String>,
}

impl Progress {
    fn lock(&self) -> MutexGuard<'_, Reached> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn words<T: Transport>(&self, transport: &T, local: &Local) -> String {
        let reached = self.lock();
        let mut words = format!(
            "attempt {} of at most {} was under way after {} ms",
            reached.attempts,
            local.config.connect_retries + 1,
            local.config.connect_timeout.as_millis()
        );
        let unanswered = reached.address.and_then(|a| transport.unanswered(a));
        let failure = reached.failure.as_ref();
        let failure = failure.map(|failure| format!("the one before failed: {failure}"));
        for more in [unanswered, failure].into_iter().flatten() {
            words.push_str("; ");
            words.push_str(&more);
        }
        words
    }
}

async fn attempt_until_done<T: Transport>(
    transport: &T,
    local: &Local,
    to: &ConnectionId,
    progress: &Progress,
) -> Result<Live<T::Connection>, ConnectError> {
    let config = &local.config;
    let backoff = Backoff::new(config.connect_backoff, config.connect_backoff_max);
    let deadline = now() + config.connect_timeout;
    loop {
        let attempt = {
            let mut reached = progress.lock();
            reached.attempts += 1;
            reached.address = None;
            reached.attempts
        };
        let error = match attempt_once(transport, local, to, progress).await {
            Ok(live) => return Ok(live),
            Err(error) => error,
        };
        tracing::debug!(peer = %to, attempt, error = chain(&error), "dial attempt failed");
        progress.lock().failure = Some(chain(&error));
        let pause = backoff.pause(attempt, fastrand::f64());
        if !error.is_retryable() || attempt > config.connect_retries {
            return Err(with_attempts(error, attempt, None));
        }
        if now() + pause >= deadline {
            return Err(with_attempts(error, attempt, Some(config.connect_timeout)));
        }
        sleep(pause).await;
    }
}

async fn attempt_once<T: Transport>(
    transport: &T,
    local: &Local,
    to: &ConnectionId,
    progress: &Progress,
) -> Result<Live<T::Connection>, ConnectError> {
    let address = resolve(&to.address).await?;
    progress.lock().address = Some(address);
    let expected = to.peer.as_ref();
    let connection = transport.connect(address, expected).await?;
    match introduce_dialled(local, &connection, expected).await {
        Ok((peer, agreement)) => Ok(Live::new(connection, peer, agreement)),
        Err(error) => {
            connection.close(ErrorCode::PROTOCOL, "the hello failed");
            Err(from_introduce(&to.address, error))
        }
    }
}

fn from_introduce(address: &str, error: IntroduceError) -> ConnectError {
    let address = address.to_owned();
    match error {
        IntroduceError::Rejected {
            code: ErrorCode::TIMED_OUT,
            reason,
        } => ConnectError::TimedOut { address, reason },
        IntroduceError::Rejected { code, reason } => ConnectError::PeerRejected {
            address,
            code,
            reason,
        },
        IntroduceError::Stream(StreamError::Connection(ConnectionError::ClosedByPeer {
            code,
            reason,
        })) => ConnectError::Refused {
            address,
            code,
            reason,
        },
        IntroduceError::Stream(StreamError::Connection(ConnectionError::Lost { reason })) => {
            ConnectError::Unreachable { address, reason }
        }
        IntroduceError::Stream(StreamError::Connection(ConnectionError::TimedOut { reason })) => {
            ConnectError::TimedOut { address, reason }
        }
        IntroduceError::Stream(StreamError::Connection(ConnectionError::Transport(cause))) => {
            system::failed(address, cause)
        }
        IntroduceError::Stream(error) if is_of_this_side(&error) => ConnectError::Local {
            address,
            source: Arc::new(error),
        },
        IntroduceError::Stream(error) => ConnectError::Transport {
            address,
            source: Arc::new(error),
        },
    }
}

fn is_of_this_side(error: &StreamError) -> bool {
    match error {
        StreamError::Connection(error) => error.is_local(),
        error => matches!(error, StreamError::Closed),
    }
}

/// Says in the error's own words how often it was tried; kind and code stay.
fn with_attempts(mut error: ConnectError, attempts: u32, out_of: Option<Duration>) -> ConnectError {
    let tried = match (attempts, out_of) {
        (1, None) => "after 1 attempt".to_owned(),
        (_, None) => format!("after {attempts} attempts"),
        (_, Some(budget)) => format!(
            "after {attempts} attempts, with no time left of {} ms for another",
            budget.as_millis()
        ),
    };
    match &mut error {
        ConnectError::Refused { reason, .. }
        | ConnectError::PeerRejected { reason, .. }
        | ConnectError::Address { reason, .. }
        | ConnectError::Tls { reason, .. }
        | ConnectError::TimedOut { reason, .. }
        | ConnectError::Unreachable { reason, .. }
        | ConnectError::Exhausted { reason, .. }
        | ConnectError::Forbidden { reason, .. }
        | ConnectError::Bind { reason, .. } => {
            reason.push_str(" (");
            reason.push_str(&tried);
            reason.push(')');
        }
        ConnectError::Local { source, .. } | ConnectError::Transport { source, .. } => {
            *source = Arc::new(Tried {
                tried,
                source: Arc::clone(source),
            });
        }
        ConnectError::AddressInUse { .. } | ConnectError::Cancelled { .. } => {}
    }
    error
}

/// A backend's error, and how often it was tried.
#[derive(Debug, Error)]
#[error("{tried}")]
struct Tried {
    tried: String,
    #[source]
    source: Cause,
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::handler::TransportError;

    fn failed(error: ConnectionError) -> TransportError {
        let error = IntroduceError::Stream(error.into());
        let error = with_attempts(from_introduce("10.0.0.7:6121", error), 3, None);
        TransportError::from_connect(&ConnectionId::to_address("10.0.0.7:6121"), &error)
    }

    #[test]
    fn a_socket_that_fails_here_during_the_hello_is_this_sides_failure() {
        for (errno, passes) in [(24, true), (105, true), (1, false), (22, false)] {
            let cause = io::Error::from_raw_os_error(errno);
            let words = cause.to_string();
            let error = failed(ConnectionError::Transport(Arc::new(cause)));
            assert!(matches!(error, TransportError::Local { .. }), "{error:?}");
            assert_eq!(error.is_retryable(), passes, "{error}");
            let text = error.to_string();
            for words in [&*words, "10.0.0.7:6121", "after 3 attempts"] {
                assert!(text.contains(words), "{words:?} is not in {text}");
            }
        }
        let closed = failed(ConnectionError::ClosedLocally {
            code: ErrorCode::REPLACED,
            reason: String::new(),
        });
        assert!(matches!(closed, TransportError::Local { .. }), "{closed:?}");
    }

    #[test]
    fn what_the_peer_does_during_the_hello_is_not_this_sides_failure() {
        for error in [
            ConnectionError::Lost {
                reason: "reset".to_owned(),
            },
            ConnectionError::Protocol {
                reason: "a bad frame".to_owned(),
            },
        ] {
            let error = failed(error);
            assert!(matches!(error, TransportError::Remote { .. }), "{error:?}");
        }
    }
}
