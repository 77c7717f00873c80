//! Running code on an endpoint's main thread, from anywhere.

use std::{cell::Cell, fmt, future::Future, sync::Arc, time::Duration};

use tokio::sync::oneshot;

use super::{
    config::Deadline,
    context::Context,
    core::{Core, Message, Work},
    endpoint::Endpoint,
    error::RpcError,
    mailbox::NoSlot,
    scheduled::Scheduled,
};

/// A handle to an endpoint's main thread. Local by nature: functions do not travel.
///
/// Functions bypass the fencing check, so that an endpoint can be set up before it has a token. They are refused like
/// calls while the endpoint is not started. Holding one keeps neither the endpoint nor its state alive.
pub struct MainThread<E> {
    core: Arc<Core<E>>,
}

impl<E: Endpoint> MainThread<E> {
    pub(super) fn new(core: Arc<Core<E>>) -> Self {
        Self { core }
    }

    /// Queues a function.
    ///
    /// # Errors
    /// [`RpcError::RecipientUnreachable`] after the endpoint's end, [`RpcError::Overloaded`] if the mailbox is full. A
    /// function that is queued while the endpoint is not started is dropped.
    pub fn run_async(
        &self,
        function: impl FnOnce(&mut E, &mut Context<E>) + Send + 'static,
    ) -> Result<(), RpcError> {
        let slot = self
            .core
            .mailbox
            .try_reserve()
            .map_err(|reason| match reason {
                NoSlot::Full => self.core.overloaded(),
                NoSlot::Closed => self.core.unreachable(),
            })?;
        self.core
            .mailbox
            .push(Message::Work(Box::new(Run(function))), Some(slot))
            .map_err(|_| self.core.unreachable())
    }

    /// Queues a function, waiting for a place in the mailbox, and gives its result.
    ///
    /// # Errors
    /// [`RpcError::EndpointNotStarted`], [`RpcError::RecipientUnreachable`] if the endpoint ends before the function
    /// has run, [`RpcError::TimedOut`].
    ///
    /// # Cancel safety
    /// A function that has not begun when the future is dropped does not run.
    #[track_caller]
    pub fn call_async<T: Send + 'static>(
        &self,
        deadline: Deadline,
        function: impl FnOnce(&mut E, &mut Context<E>) -> T + Send + 'static,
    ) -> impl Future<Output = Result<T, RpcError>> + Send + 'static {
        let core = Arc::clone(&self.core);
        let caller = std::panic::Location::caller();
        async move {
            let call = async {
                let slot = core.mailbox.reserve().await;
                let slot = slot.ok_or_else(|| core.unreachable())?;
                let (reply, result) = oneshot::channel();
                core.mailbox
                    .push(
                        Message::Work(Box::new(Call { function, reply })),
                        Some(slot),
                    )
                    .map_err(|_| core.unreachable())?;
                result.await.unwrap_or_else(|_| Err(core.unreachable()))
            };
            match deadline {
                Deadline::Never => call.await,
                Deadline::After(after) => {
                    tokio::time::timeout(after, call).await.unwrap_or_else(|_| {
                        Err(RpcError::TimedOut {
                            method: "main-thread function".to_owned(),
                            address: core.address.to_string(),
                            after,
                            caller: core
                                .service
                                .config()
                                .capture_caller
                                .then(|| caller.to_string()),
                        })
                    })
                }
            }
        }
    }

    /// Queues a function after a delay. After [`on_stop`](Endpoint::on_stop) has begun nothing is scheduled any more.
    ///
    /// A function that comes due while the endpoint is stopped is dropped.
    pub fn schedule(
        &self,
        delay: Duration,
        function: impl FnOnce(&mut E, &mut Context<E>) + Send + 'static,
    ) -> Scheduled {
        let scheduled = Scheduled::default();
        if self.core.timers.is_cancelled() {
            tracing::debug!(endpoint = %self.core.name, "endpoint is ending: timer ignored");
            scheduled.cancel();
            return scheduled;
        }
        let (core, flag) = (Arc::clone(&self.core), scheduled.clone());
        let timers = self.core.timers.clone();
        let task = async move {
            tokio::time::sleep(delay).await;
            let Some(slot) = core.mailbox.reserve().await else {
                return;
            };
            let run = Run(move |state: &mut E, cx: &mut Context<E>| {
                if !flag.is_cancelled() {
                    function(state, cx);
                }
            });
            let _ = core.mailbox.push(Message::Work(Box::new(run)), Some(slot));
        };
        let (token, task) = (timers.token().clone(), scheduled.clone().drive(task));
        timers.spawn_on(
            async move {
                token.run_until_cancelled(task).await;
            },
            self.core.service.runtime(),
        );
        scheduled
    }

    /// Says whether the current code runs on this main thread. Checked in every build.
    ///
    /// # Errors
    /// [`RpcError::WrongThread`] elsewhere, also in futures that the endpoint has spawned.
    pub fn assert_current(&self) -> Result<(), RpcError> {
        if CURRENT.get() == Some(self.core.id) {
            Ok(())
        } else {
            Err(RpcError::WrongThread {
                endpoint: self.core.name.to_string(),
            })
        }
    }
}

impl<E> Clone for MainThread<E> {
    fn clone(&self) -> Self {
        Self {
            core: Arc::clone(&self.core),
        }
    }
}

impl<E> fmt::Debug for MainThread<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MainThread({})", self.core.name)
    }
}

/// Marks the current thread as the main thread of an endpoint until it is dropped.
pub(super) struct Entered(Option<u64>);

impl Entered {
    pub(super) fn new(endpoint: u64) -> Self {
        Self(CURRENT.replace(Some(endpoint)))
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}

/// A queued function.
pub(super) struct Run<F>(pub(super) F);

impl<E: Endpoint, F: FnOnce(&mut E, &mut Context<E>) + Send> Work<E> for Run<F> {
    fn run(self: Box<Self>, state: &mut E, cx: &mut Context<E>) {
        self.0(state, cx);
    }

    fn refuse(self: Box<Self>, error: RpcError) {
        tracing::debug!(%error, "main-thread function dropped");
    }
}

struct Call<F, T> {
    function: F,
    reply: oneshot::Sender<Result<T, RpcError>>,
}

impl<E, F, T> Work<E> for Call<F, T>
where
    E: Endpoint,
    F: FnOnce(&mut E, &mut Context<E>) -> T + Send,
    T: Send,
{
    fn run(self: Box<Self>, state: &mut E, cx: &mut Context<E>) {
        if !self.reply.is_closed() {
            let _ = self.reply.send(Ok((self.function)(state, cx)));
        }
    }

    fn refuse(self: Box<Self>, error: RpcError) {
        let _ = self.reply.send(Err(error));
    }
}

thread_local! {
    /// The endpoint whose message this thread handles just now.
    static CURRENT: Cell<Option<u64>> = const { Cell::new(None) };
}
