//! Start, stop and termination; the main thread.

use std::sync::Mutex;

use tokio::sync::Notify;

use super::*;

/// What a [`Probe`] has gone through, and how it behaves.
#[derive(Debug, Default)]
pub(super) struct Script {
    pub(super) log: Mutex<Vec<String>>,
    pub(super) fail_start: bool,
    pub(super) fail_stop: bool,
    /// `on_stop` waits for it.
    pub(super) gate: Option<Arc<Notify>>,
}

impl Script {
    pub(super) fn note(&self, text: impl Into<String>) {
        self.log.lock().unwrap().push(text.into());
    }

    pub(super) fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }
}

#[derive(Debug)]
pub(super) struct Probe(pub(super) Arc<Script>);

#[gateway(callers = ["*"], fenced)]
pub(super) trait ProbeGateway {
    async fn ping(&self) -> u32;
    #[rpc(unfenced)]
    async fn free(&self) -> u32;
    fn note(&self, text: String);
}

impl Endpoint for Probe {
    fn on_start(&mut self, cx: &mut Context<Self>) -> Result<(), HandlerError> {
        cx.main_thread().assert_current().unwrap();
        self.0.note("start");
        if self.0.fail_start {
            return Err(HandlerError::new("probe", "will not start"));
        }
        Ok(())
    }

    fn on_stop(&mut self, cx: &mut Context<Self>) -> Answer<()> {
        cx.main_thread().assert_current().unwrap();
        self.0.note(format!("stop, running {}", cx.is_running()));
        if self.0.fail_stop {
            return Answer::err(HandlerError::new("probe", "will not stop"));
        }
        match self.0.gate.clone() {
            Some(gate) => Answer::future(async move {
                gate.notified().await;
                Ok(())
            }),
            None => Answer::ok(()),
        }
    }
}

impl ProbeGateway for Probe {
    fn ping(&mut self, _cx: &mut Context<Self>) -> Answer<u32> {
        Answer::ok(1)
    }

    fn free(&mut self, _cx: &mut Context<Self>) -> Answer<u32> {
        Answer::ok(2)
    }

    fn note(&mut self, _cx: &mut Context<Self>, text: String) {
        self.0.note(text);
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.0.note("dropped");
    }
}

fn probe(script: Script) -> (EndpointHandle<Probe>, Arc<Script>, RpcService) {
    let service = service();
    let script = Arc::new(script);
    let endpoint = service
        .endpoint("probe", Probe(Arc::clone(&script)))
        .serve::<ProbeClient>()
        .fencing_token(crate::ids::FencingToken::from_u128(1))
        .spawn()
        .unwrap();
    (endpoint, script, service)
}

#[tokio::test(start_paused = true)]
async fn calls_before_the_start_are_refused_and_tells_are_dropped() {
    let (endpoint, script, _) = probe(Script::default());
    let client: ProbeClient = endpoint.gateway();
    let error = client.ping().await.unwrap_err();
    assert!(
        matches!(error, RpcError::EndpointNotStarted { .. }),
        "{error}"
    );
    assert!(error.is_retryable());
    client.note("early".to_owned()).unwrap();
    endpoint.start();
    assert_eq!(client.ping().await, Ok(1));
    endpoint.stop();
    assert!(client.ping().await.is_err());
    endpoint.start();
    assert_eq!(client.ping().await, Ok(1));
    assert_eq!(script.log(), ["start", "start"]);
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_never_started_ends_without_on_stop() {
    let (endpoint, script, _) = probe(Script::default());
    endpoint.terminate().await.unwrap();
    assert_eq!(script.log(), ["dropped"]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_start_fails_the_termination() {
    let (endpoint, script, service) = probe(Script {
        fail_start: true,
        ..Script::default()
    });
    endpoint.start();
    let error = endpoint.terminated().await.unwrap_err();
    assert!(
        matches!(error, TerminationError::StartFailed { .. }),
        "{error}"
    );
    assert_eq!(script.log(), ["start", "dropped"]);
    // It failed by itself, its service did not.
    counter(&service, "other");
}

#[tokio::test(start_paused = true)]
async fn a_failed_stop_fails_the_termination() {
    let (endpoint, script, _) = probe(Script {
        fail_stop: true,
        ..Script::default()
    });
    endpoint.start();
    let error = endpoint.terminate().await.unwrap_err();
    assert!(
        matches!(error, TerminationError::StopFailed { .. }),
        "{error}"
    );
    assert_eq!(script.log(), ["start", "stop, running false", "dropped"]);
}

#[tokio::test(start_paused = true)]
async fn on_stop_runs_once_and_calls_are_served_until_it_is_done() {
    let gate = Arc::new(Notify::new());
    let (endpoint, script, _) = probe(Script {
        gate: Some(Arc::clone(&gate)),
        ..Script::default()
    });
    endpoint.start();
    let client: ProbeClient = endpoint.gateway();
    assert_eq!(client.ping().await, Ok(1));
    assert!(endpoint.is_running());
    let end = endpoint.terminate();
    let again = endpoint.terminate();
    endpoint.start();
    settle().await;
    assert!(!endpoint.is_running());
    assert_eq!(client.ping().await, Ok(1));
    let ran = endpoint
        .main_thread()
        .call_async(Deadline::Never, |_, cx| {
            cx.main_thread().assert_current().is_ok()
        })
        .await;
    assert_eq!(ran, Ok(true));
    gate.notify_one();
    end.await.unwrap();
    again.await.unwrap();
    assert_eq!(script.log(), ["start", "stop, running false", "dropped"]);
}

#[tokio::test(start_paused = true)]
async fn a_call_queued_behind_the_end_of_on_stop_is_unreachable() {
    let gate = Arc::new(Notify::new());
    let (endpoint, script, _) = probe(Script {
        gate: Some(Arc::clone(&gate)),
        ..Script::default()
    });
    endpoint.start();
    let end = endpoint.terminate();
    settle().await;
    let client: ProbeClient = endpoint.gateway();
    // On a runtime with one thread, all three are ready when the endpoint's task runs next: the end comes first.
    gate.notify_one();
    client.note("too late".to_owned()).unwrap();
    let error = client.ping().await.unwrap_err();
    assert!(
        matches!(error, RpcError::RecipientUnreachable { .. }),
        "{error}"
    );
    end.await.unwrap();
    assert!(client.closed().is_some());
    assert!(!script.log().contains(&"too late".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_name_is_free_again_after_termination() {
    let service = service();
    let first = counter(&service, "counter");
    let taken = service.endpoint("counter", Counter::default()).spawn();
    assert!(matches!(taken, Err(SpawnError::NameTaken { .. })));
    first.terminate().await.unwrap();
    let old: CounterClient = first.gateway();
    let second = counter(&service, "counter");
    assert_eq!(second.gateway::<CounterClient>().add(1).await, Ok(1));
    assert!(old.add(1).await.is_err(), "never reaches the new one");
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_can_be_made_in_the_continuation_of_anothers_end() {
    let service = service();
    let first = counter(&service, "counter");
    let end = first.terminate();
    let next = tokio::spawn(async move {
        end.await.unwrap();
        counter(&service, "counter")
            .gateway::<CounterClient>()
            .add(1)
            .await
    });
    assert_eq!(next.await.unwrap(), Ok(1));
}

#[tokio::test(start_paused = true)]
async fn timers_keep_their_delay_can_be_cancelled_and_die_with_the_endpoint() {
    let (endpoint, script, _) = probe(Script::default());
    endpoint.start();
    let main = endpoint.main_thread();
    let begin = thalweg_transport::now();
    let (fired, at) = tokio::sync::oneshot::channel();
    let delay = Duration::from_secs(5);
    main.schedule(delay, move |_: &mut Probe, _| {
        let _ = fired.send(thalweg_transport::now());
    });
    let cancelled = main.schedule(delay, |probe, _| probe.0.note("cancelled timer"));
    cancelled.cancel();
    assert!(at.await.unwrap() - begin >= delay);
    main.schedule(delay, |probe, _| probe.0.note("dead timer"));
    endpoint.terminate().await.unwrap();
    assert!(main.schedule(delay, |_, _| {}).is_cancelled());
    tokio::time::sleep(delay * 2).await;
    assert_eq!(script.log(), ["start", "stop, running false", "dropped"]);
}

#[tokio::test(start_paused = true)]
async fn main_thread_work_after_the_end_is_refused() {
    let (endpoint, _, _) = probe(Script::default());
    let main = endpoint.main_thread();
    let early = main.call_async(Deadline::Never, |_, _| ()).await;
    assert!(matches!(early, Err(RpcError::EndpointNotStarted { .. })));
    endpoint.start();
    endpoint.terminate().await.unwrap();
    let late = main.call_async(Deadline::Never, |_, _| ()).await;
    assert!(matches!(late, Err(RpcError::RecipientUnreachable { .. })));
    let late = main.run_async(|_, _| ());
    assert!(matches!(late, Err(RpcError::RecipientUnreachable { .. })));
}

#[tokio::test(start_paused = true)]
async fn main_thread_calls_time_out() {
    let (endpoint, _, _) = probe(Script::default());
    let main = endpoint.main_thread();
    endpoint.start();
    settle().await;
    // The runtime's only thread is here, so the function cannot run within no time.
    let error = main
        .call_async(Deadline::After(Duration::ZERO), |_, _| ())
        .await
        .unwrap_err();
    assert!(matches!(error, RpcError::TimedOut { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn code_outside_the_main_thread_is_told_so() {
    let (endpoint, _, service) = probe(Script::default());
    endpoint.start();
    let main = endpoint.main_thread();
    let error = main.assert_current().unwrap_err();
    assert_eq!(
        error.to_string(),
        "not on the main thread of endpoint probe"
    );
    let other = counter(&service, "other");
    let probe_main = main.clone();
    let elsewhere = other
        .main_thread()
        .call_async(Deadline::Never, move |_, _| probe_main.assert_current())
        .await
        .unwrap();
    assert!(elsewhere.is_err(), "another endpoint's main thread");
    let (sender, result) = tokio::sync::oneshot::channel();
    main.run_async(move |_, cx| {
        let (inside, main) = (cx.main_thread().assert_current(), cx.main_thread());
        cx.spawn(
            async move { main.assert_current() },
            move |_, cx, outside| {
                let _ = sender.send((inside, outside, cx.main_thread().assert_current()));
            },
        );
    })
    .unwrap();
    let (inside, in_future, in_continuation) = result.await.unwrap();
    assert!(inside.is_ok() && in_future.is_err() && in_continuation.is_ok());
}

#[tokio::test(start_paused = true)]
async fn fenced_methods_need_the_endpoints_token() {
    use crate::ids::FencingToken;
    let (endpoint, _, service) = probe(Script::default());
    endpoint.start();
    let (right, wrong) = (FencingToken::from_u128(1), FencingToken::from_u128(2));
    let address = endpoint.address();
    let leader: ProbeClient = service.connect(address, Some(right)).await.unwrap();
    let stale: ProbeClient = service.connect(address, Some(wrong)).await.unwrap();
    let unfenced: ProbeClient = service.connect(address, None).await.unwrap();
    let of_itself: ProbeClient = endpoint.gateway();
    assert_eq!(leader.ping().await, Ok(1));
    assert_eq!(
        stale.ping().await,
        Err(RpcError::Fenced {
            expected: Some(right),
            got: Some(wrong)
        })
    );
    assert_eq!(
        unfenced.ping().await,
        Err(RpcError::Fenced {
            expected: Some(right),
            got: None
        })
    );
    assert_eq!(unfenced.free().await, Ok(2));
    assert_eq!(of_itself.ping().await, Ok(1));
    // Leadership moves on: what was right is stale.
    let main = endpoint.main_thread();
    main.run_async(move |_, cx| cx.set_fencing_token(Some(wrong)))
        .unwrap();
    assert!(leader.ping().await.is_err());
    assert_eq!(stale.ping().await, Ok(1));
    main.run_async(|_, cx| cx.set_fencing_token(None)).unwrap();
    let error = stale.ping().await.unwrap_err();
    assert!(
        error.to_string().contains("endpoint has not set"),
        "{error}"
    );
    assert!(of_itself.ping().await.is_err());
}
