//! Calls inside one service.

use std::{sync::Arc, time::Duration};

use super::*;

#[tokio::test(start_paused = true)]
async fn arc_arguments_keep_their_pointer() {
    let service = service();
    let endpoint = counter(&service, "counter");
    let client: CounterClient = service.connect(endpoint.address(), None).await.unwrap();
    let value = Arc::new(vec![1, 2, 3]);
    let back = client.echo(Arc::clone(&value)).await.unwrap();
    assert!(Arc::ptr_eq(&value, &back));
}

#[tokio::test(start_paused = true)]
async fn calls_and_tells_of_one_client_keep_their_order() {
    let service = service();
    let client: CounterClient = counter(&service, "counter").gateway();
    assert_eq!(client.add(2).await, Ok(2));
    client.bump(3).unwrap();
    assert_eq!(client.add(0).await, Ok(5));
    client.reset().await.unwrap();
    assert_eq!(client.caller().await.unwrap(), "local");
}

#[tokio::test(start_paused = true)]
async fn null_and_unit_are_legal_answers() {
    let client: CounterClient = counter(&service(), "counter").gateway();
    assert_eq!(client.nothing().await, Ok(None));
    assert_eq!(client.reset().await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn errors_of_a_handler_reach_the_caller_now_or_later() {
    let client: CounterClient = counter(&service(), "counter").gateway();
    for later in [false, true] {
        let error = client.fail(later).await.unwrap_err();
        let RpcError::Handler(handler) = &error else {
            panic!("{error}");
        };
        assert_eq!(handler.kind, "counter.broken");
        assert!(error.is_retryable());
    }
}

#[tokio::test(start_paused = true)]
async fn local_answers_have_any_size() {
    let service = RpcService::builder(id("node-1"))
        .config(RpcConfig {
            max_frame_size: 1024,
            ..RpcConfig::default()
        })
        .build()
        .unwrap();
    let client: CounterClient = counter(&service, "counter").gateway();
    assert_eq!(client.bytes(100_000, false).await.unwrap().len(), 100_000);
}

#[tokio::test(start_paused = true)]
async fn a_time_out_names_method_address_and_caller() {
    let service = service();
    let endpoint = counter(&service, "counter");
    let client: CounterClient = endpoint.gateway();
    let line = line!() + 1;
    let error = client.hang().await.unwrap_err();
    let RpcError::TimedOut {
        method,
        address,
        after,
        caller,
    } = error
    else {
        panic!("{error}");
    };
    assert_eq!(method, "Counter.hang");
    assert_eq!(address, "thalweg:///counter");
    assert_eq!(after, Duration::from_secs(2), "the method's own time-out");
    let caller = caller.unwrap();
    assert!(
        caller.contains(&format!("tests/local.rs:{line}:")),
        "{caller}"
    );
    let quick = client.with_deadline(Deadline::After(Duration::from_millis(5)));
    let error = quick.hang().await.unwrap_err();
    assert!(matches!(error, RpcError::TimedOut { after, .. } if after.as_millis() == 5));
}

#[tokio::test(start_paused = true)]
async fn a_time_out_names_no_caller_if_that_is_switched_off() {
    let service = RpcService::builder(id("node-1"))
        .config(RpcConfig {
            capture_caller: false,
            ..RpcConfig::default()
        })
        .build()
        .unwrap();
    let client: CounterClient = counter(&service, "counter").gateway();
    let error = client.hang().await.unwrap_err();
    assert!(
        matches!(error, RpcError::TimedOut { caller: None, .. }),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn without_a_deadline_a_call_waits_for_its_endpoint() {
    let service = service();
    let endpoint = counter(&service, "counter");
    let client = endpoint
        .gateway::<CounterClient>()
        .with_deadline(Deadline::Never);
    let call = tokio::spawn(client.hang());
    tokio::time::sleep(Duration::from_secs(1_000_000)).await;
    assert!(!call.is_finished());
    endpoint.terminate().await.unwrap();
    let error = call.await.unwrap().unwrap_err();
    assert!(
        matches!(error, RpcError::RecipientUnreachable { .. }),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn dropping_a_call_drops_its_answer_future() {
    let service = service();
    let client: CounterClient = counter(&service, "counter").gateway();
    let call = tokio::spawn(client.wait());
    settle().await;
    assert_eq!(client.waiting().await, Ok(1));
    call.abort();
    settle().await;
    assert_eq!(client.waiting().await, Ok(0));
}

#[tokio::test(start_paused = true)]
async fn a_full_mailbox_refuses_tells_and_lets_calls_wait() {
    let service = RpcService::builder(id("node-1"))
        .config(RpcConfig {
            mailbox_capacity: 2,
            ..RpcConfig::default()
        })
        .build()
        .unwrap();
    let endpoint = counter(&service, "counter");
    settle().await;
    let client: CounterClient = endpoint.gateway();
    // Nothing runs between these on a current-thread runtime.
    client.bump(1).unwrap();
    client.bump(1).unwrap();
    let error = client.bump(1).unwrap_err();
    assert!(
        matches!(error, RpcError::Overloaded { limit: 2, .. }),
        "{error}"
    );
    assert_eq!(client.add(0).await, Ok(2));
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_does_not_serve_the_gateway_refuses_the_handshake() {
    let service = service();
    let endpoint = service
        .endpoint("silent", Counter::default())
        .spawn()
        .unwrap();
    let error = service
        .connect::<CounterClient>(endpoint.address(), None)
        .await
        .unwrap_err();
    assert!(matches!(error, RpcError::Handshake { .. }), "{error}");
    let nobody = RpcAddress::local("nobody").unwrap();
    let error = service
        .connect::<CounterClient>(&nobody, None)
        .await
        .unwrap_err();
    assert!(
        matches!(error, RpcError::RecipientUnreachable { .. }),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_wildcard_finds_the_live_endpoint() {
    let service = service();
    let (first, second) = (
        service.unique_name("jobmaster"),
        service.unique_name("jobmaster"),
    );
    assert_ne!(first, second);
    let old = counter(&service, &first);
    old.terminate().await.unwrap();
    let new = counter(&service, &second);
    let wildcard = RpcAddress::local("jobmaster_*").unwrap();
    let client: CounterClient = service.connect(&wildcard, None).await.unwrap();
    assert_eq!(client.address(), new.address());
    assert_eq!(client.add(1).await, Ok(1));
}

#[test]
fn who_may_call_what_is_stated_in_one_table() {
    let table: Vec<_> = CounterClient::METHODS
        .iter()
        .map(|method| (method.name, method.callers, method.answers))
        .collect();
    assert!(table.contains(&("add", &["taskmanager", "client"][..], true)));
    assert!(table.contains(&("reset", &["client"][..], true)));
    assert!(table.contains(&("bump", &["taskmanager", "client"][..], false)));
    let reset = CounterClient::METHODS
        .iter()
        .find(|method| method.name == "reset")
        .unwrap();
    assert!(reset.may_be_called_by("client") && !reset.may_be_called_by("taskmanager"));
}
