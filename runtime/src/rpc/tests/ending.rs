//! How a service ends with its endpoints, and what they can still do then.

use super::*;

/// Panics where it is told to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Panics {
    OnStart,
    OnStop,
    InFunction,
    InTimer,
    InContinuation,
    InDrop,
}

#[derive(Debug)]
struct Fragile(Panics);

impl Endpoint for Fragile {
    fn on_start(&mut self, cx: &mut Context<Self>) -> Result<(), HandlerError> {
        match self.0 {
            Panics::OnStart => panic!("exploded"),
            Panics::InTimer => {
                cx.schedule(Duration::from_secs(1), |_, _| panic!("exploded"));
            }
            Panics::InContinuation => cx.spawn(async {}, |_, _, ()| panic!("exploded")),
            Panics::OnStop | Panics::InFunction | Panics::InDrop => {}
        }
        Ok(())
    }

    fn on_stop(&mut self, _cx: &mut Context<Self>) -> Answer<()> {
        assert!(self.0 != Panics::OnStop, "exploded");
        Answer::ok(())
    }
}

impl Drop for Fragile {
    fn drop(&mut self) {
        assert!(self.0 != Panics::InDrop, "exploded");
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_anywhere_on_the_main_thread_is_a_crash_of_the_service() {
    for panics in [
        Panics::OnStart,
        Panics::OnStop,
        Panics::InFunction,
        Panics::InTimer,
        Panics::InContinuation,
        Panics::InDrop,
    ] {
        let service = service();
        let sibling = counter(&service, "sibling");
        let fragile = service
            .endpoint("fragile", Fragile(panics))
            .spawn()
            .unwrap();
        fragile.start();
        settle().await;
        match panics {
            Panics::InFunction => {
                let main = fragile.main_thread();
                main.run_async(|_, _| panic!("exploded")).unwrap();
            }
            Panics::OnStop | Panics::InDrop => drop(fragile.terminate()),
            Panics::OnStart | Panics::InTimer | Panics::InContinuation => {}
        }
        let crashed = TerminationError::Crashed {
            endpoint: "fragile".to_owned(),
            cause: "exploded".to_owned(),
        };
        assert_eq!(
            fragile.terminated().await,
            Err(crashed.clone()),
            "{panics:?}"
        );
        assert_eq!(service.failed().await, crashed, "{panics:?}");
        let of_sibling = sibling.terminated().await;
        assert!(
            matches!(of_sibling, Err(TerminationError::SiblingCrashed { .. })),
            "{panics:?}: {of_sibling:?}"
        );
    }
}

/// Tells another endpoint goodbye, and waits for its answer.
#[derive(Debug)]
struct Polite(CounterClient);

impl Endpoint for Polite {
    fn on_stop(&mut self, _cx: &mut Context<Self>) -> Answer<()> {
        let goodbye = self.0.add(7);
        Answer::future(async move {
            goodbye.await?;
            Ok(())
        })
    }
}

#[tokio::test(start_paused = true)]
async fn endpoints_can_say_goodbye_to_peers_while_their_service_closes() {
    let (caller, callee) = pair(RpcConfig::default()).await;
    let far = counter(&callee, "far");
    let client: CounterClient = caller.connect(far.address(), None).await.unwrap();
    let polite = caller
        .endpoint("polite", Polite(client.clone()))
        .spawn()
        .unwrap();
    polite.start();
    settle().await;
    caller.close(Duration::from_secs(5)).await.unwrap();
    polite.terminated().await.unwrap();
    assert_eq!(far.gateway::<CounterClient>().add(0).await, Ok(7));
    let late = client.add(1).await;
    assert!(matches!(late, Err(RpcError::Stopped { .. })), "{late:?}");
}

#[tokio::test(start_paused = true)]
async fn a_failure_passed_on_by_on_stop_is_the_services_result_and_keeps_its_kind() {
    let service = service();
    let near = counter(&service, "near");
    let client: CounterClient = near.gateway();
    let polite = service.endpoint("polite", Polite(client)).spawn().unwrap();
    polite.start();
    near.terminate().await.unwrap();
    let error = service.close(Duration::from_secs(5)).await.unwrap_err();
    let TerminationError::StopFailed { cause, .. } = error else {
        panic!("{error}");
    };
    assert_eq!(cause.kind, "rpc.recipient_unreachable");
}

#[tokio::test(start_paused = true)]
async fn ending_endpoints_of_a_closed_service_changes_nothing() {
    let service = service();
    let endpoint = counter(&service, "counter");
    service.close(Duration::from_secs(1)).await.unwrap();
    assert_eq!(endpoint.terminate().await, Ok(()));
    endpoint.start();
    assert!(!endpoint.is_running());
    let client: CounterClient = endpoint.gateway();
    let error = client.add(1).await.unwrap_err();
    assert!(
        matches!(error, RpcError::RecipientUnreachable { .. }),
        "{error}"
    );
    assert_eq!(service.close(Duration::from_secs(1)).await, Ok(()));
}

/// Counts down by calling itself.
#[derive(Debug, Default)]
struct Countdown {
    seen: Vec<u32>,
}

#[gateway(callers = [])]
trait CountdownGateway {
    async fn count(&self, from: u32) -> Vec<u32>;
    fn see(&self, number: u32);
}

impl Endpoint for Countdown {}

impl CountdownGateway for Countdown {
    fn count(&mut self, cx: &mut Context<Self>, from: u32) -> Answer<Vec<u32>> {
        let own: CountdownClient = cx.self_gateway();
        let Some(next) = from.checked_sub(1) else {
            return Answer::ok(self.seen.clone());
        };
        Answer::future(async move {
            own.see(from)?;
            Ok(own.count(next).await?)
        })
    }

    fn see(&mut self, _cx: &mut Context<Self>, number: u32) {
        self.seen.push(number);
    }
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_can_call_itself_through_its_own_gateway() {
    let endpoint = serve::<CountdownClient, _>(&service(), "countdown", Countdown::default());
    let client: CountdownClient = endpoint.gateway();
    assert_eq!(client.count(3).await, Ok(vec![3, 2, 1]));
}
