//! What one endpoint's end means to others.

use super::*;

#[derive(Debug)]
struct Stubborn;

impl Endpoint for Stubborn {
    fn on_stop(&mut self, _cx: &mut Context<Self>) -> Answer<()> {
        Answer::future(std::future::pending())
    }
}

#[derive(Debug)]
struct BadEnd;

impl Endpoint for BadEnd {
    fn on_stop(&mut self, _cx: &mut Context<Self>) -> Answer<()> {
        Answer::err(HandlerError::new("bad", "end"))
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_ends_the_endpoint_and_its_siblings_with_the_cause() {
    let service = service();
    let bad = counter(&service, "bad");
    let sibling = counter(&service, "sibling");
    let held = tokio::spawn(sibling.gateway::<CounterClient>().hang());
    settle().await;
    let error = bad.gateway::<CounterClient>().crash().await.unwrap_err();
    assert!(
        matches!(error, RpcError::RecipientUnreachable { .. }),
        "{error}"
    );
    assert_eq!(
        bad.terminated().await,
        Err(TerminationError::Crashed {
            endpoint: "bad".to_owned(),
            cause: "counter exploded".to_owned()
        })
    );
    assert!(matches!(
        sibling.terminated().await,
        Err(TerminationError::SiblingCrashed { sibling, .. }) if sibling == "bad"
    ));
    assert!(held.await.unwrap().is_err());
    assert!(matches!(
        service.failed().await,
        TerminationError::Crashed { .. }
    ));
    let refused = service.endpoint("new", Counter::default()).spawn();
    assert!(matches!(refused, Err(SpawnError::Stopped { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_an_answer_future_fails_only_its_call() {
    #[derive(Debug)]
    struct Late;
    impl Endpoint for Late {}
    #[gateway(callers = [])]
    trait LateGateway {
        async fn explode(&self);
        async fn forget(&self);
    }
    impl LateGateway for Late {
        fn explode(&mut self, _cx: &mut Context<Self>) -> Answer<()> {
            Answer::future(async { panic!("later") })
        }
        fn forget(&mut self, _cx: &mut Context<Self>) -> Answer<()> {
            let (reply, answer) = Answer::deferred();
            drop(reply);
            answer
        }
    }
    let endpoint = serve::<LateClient, _>(&service(), "late", Late);
    let client: LateClient = endpoint.gateway();
    assert_eq!(client.explode().await.unwrap_err().kind(), "rpc.panic");
    assert_eq!(client.forget().await.unwrap_err().kind(), "rpc.no_answer");
}

#[tokio::test(start_paused = true)]
async fn one_endpoint_serves_several_gateways() {
    #[gateway(callers = ["client"])]
    trait AdminGateway {
        async fn value(&self) -> u64;
    }
    impl AdminGateway for Counter {
        fn value(&mut self, _cx: &mut Context<Self>) -> Answer<u64> {
            Answer::ok(self.value)
        }
    }
    let service = service();
    let twice = service
        .endpoint("twice", Counter::default())
        .serve::<AdminClient>()
        .serve::<AdminClient>()
        .spawn();
    assert!(matches!(twice, Err(SpawnError::DuplicateGateway { .. })));
    let endpoint = service
        .endpoint("counter", Counter::default())
        .serve::<CounterClient>()
        .serve::<AdminClient>()
        .spawn()
        .unwrap();
    endpoint.start();
    let counter: CounterClient = service.connect(endpoint.address(), None).await.unwrap();
    let admin: AdminClient = service.connect(endpoint.address(), None).await.unwrap();
    counter.add(4).await.unwrap();
    assert_eq!(admin.value().await, Ok(4));
    let invalid = service.endpoint("no name", Counter::default()).spawn();
    assert!(matches!(invalid, Err(SpawnError::InvalidName { .. })));
}

#[tokio::test(start_paused = true)]
async fn closing_a_service_ends_all_endpoints_and_reports_the_first_failure() {
    let service = service();
    let good = counter(&service, "a");
    let bad = service.endpoint("b", BadEnd).spawn().unwrap();
    bad.start();
    let other = counter(&service, "c");
    let error = service.close(Duration::from_secs(1)).await.unwrap_err();
    assert!(
        matches!(error, TerminationError::StopFailed { .. }),
        "{error}"
    );
    good.terminated().await.unwrap();
    other.terminated().await.unwrap();
    let error = service
        .connect::<CounterClient>(good.address(), None)
        .await
        .unwrap_err();
    assert!(matches!(error, RpcError::Stopped { .. }), "{error}");
    service.close(Duration::from_secs(1)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_does_not_stop_is_dropped_at_the_deadline() {
    let service = service();
    let stubborn = service.endpoint("stubborn", Stubborn).spawn().unwrap();
    stubborn.start();
    settle().await;
    let begin = thalweg_transport::now();
    let error = service.close(Duration::from_secs(3)).await.unwrap_err();
    assert!(
        matches!(error, TerminationError::NotStopped { .. }),
        "{error}"
    );
    assert!(thalweg_transport::now() - begin < Duration::from_secs(4));
}

#[test]
fn an_endpoint_that_blocks_its_thread_does_not_block_closing_for_ever() {
    let own = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let service = RpcService::builder(id("node-1"))
        .runtime(own.handle().clone())
        .build()
        .unwrap();
    // Nobody drives its runtime, which looks the same from here.
    let endpoint = counter(&service, "counter");
    let here = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    let closed = here.block_on(service.close(Duration::from_secs(1)));
    assert!(matches!(closed, Err(TerminationError::NotStopped { .. })));
    drop(own);
    assert!(here.block_on(endpoint.terminated()).is_err());
}

#[test]
fn an_endpoint_whose_runtime_ends_says_so_and_fails_its_callers() {
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let own = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let service = RpcService::builder(id("node-1"))
        .runtime(own.handle().clone())
        .build()
        .unwrap();
    let thread = std::thread::spawn(move || own.block_on(stopped));
    let endpoint = counter(&service, "counter");
    let client = endpoint
        .gateway::<CounterClient>()
        .with_deadline(Deadline::Never);
    let here = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    here.block_on(async {
        let call = tokio::spawn(client.hang());
        assert_eq!(client.add(1).await, Ok(1));
        drop(stop);
        assert!(thread.join().unwrap().is_err());
        let error = tokio::time::timeout(Duration::from_secs(10), call)
            .await
            .unwrap()
            .unwrap()
            .unwrap_err();
        assert!(
            matches!(error, RpcError::RecipientUnreachable { .. }),
            "{error}"
        );
        let end = endpoint.terminated().await;
        assert!(matches!(end, Err(TerminationError::NotStopped { .. })));
    });
}
