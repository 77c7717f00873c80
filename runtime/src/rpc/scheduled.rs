//! Work that begins after a delay: on an endpoint's main thread, or beside all of them.

use std::{
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    task::Poll,
    time::Duration,
};

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{responder::panic_message, service::RpcService};

/// Something that was scheduled. Dropping it changes nothing.
#[derive(Debug, Clone, Default)]
pub struct Scheduled(CancellationToken);

impl Scheduled {
    /// It does not begin any more, and what waited for its time is dropped. A function on a main thread that has begun
    /// runs to its end; a future of [`RpcService::schedule`] is dropped where it waits.
    pub fn cancel(&self) {
        self.0.cancel();
    }

    /// Whether it was cancelled, or came too late to be scheduled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Drives the future until it is cancelled.
    pub(super) async fn drive(self, future: impl Future<Output = ()>) {
        self.0.run_until_cancelled(future).await;
    }
}

impl RpcService {
    /// Begins a future after a delay, on the service's runtime and on no main thread: for what needs no endpoint's
    /// state, or has to outlive its endpoint. What repeats is a future with a loop.
    ///
    /// It belongs to the service: [`close`](Self::close) drops it when the endpoints have ended, and nothing is
    /// scheduled any more then. A panic in it is logged and ends nothing else.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use thalweg_runtime::rpc::RpcService;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let service = RpcService::builder(thalweg_transport::ResourceId::new("node-1")?).build()?;
    /// let (ring, rung) = tokio::sync::oneshot::channel();
    /// service.schedule(Duration::from_millis(5), async move {
    ///     let _ = ring.send("time is up");
    /// });
    /// let hourly = service.schedule(Duration::from_secs(3600), async {});
    /// assert_eq!(rung.await?, "time is up");
    /// hourly.cancel();
    /// # Ok(())
    /// # }
    /// ```
    pub fn schedule(
        &self,
        delay: Duration,
        future: impl Future<Output = ()> + Send + 'static,
    ) -> Scheduled {
        let scheduled = Scheduled::default();
        let tasks = self.tasks();
        if tasks.is_cancelled() {
            tracing::debug!(service = %self.id(), "service is closed: nothing is scheduled");
            scheduled.cancel();
            return scheduled;
        }
        let work = async move {
            sleep(delay).await;
            contained(future).await;
        };
        let (token, work) = (tasks.token().clone(), scheduled.clone().drive(work));
        tasks.spawn_on(
            async move {
                token.run_until_cancelled(work).await;
            },
            self.runtime(),
        );
        scheduled
    }
}

/// Logs a panic of a future, and ends it there.
async fn contained(future: impl Future<Output = ()>) {
    let mut future = pin!(future);
    poll_fn(|task| {
        catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(task))).unwrap_or_else(|panic| {
            tracing::error!(panic = panic_message(&*panic), "scheduled work panicked");
            Poll::Ready(())
        })
    })
    .await;
}
