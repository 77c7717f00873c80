//! Calls between two nodes over the in-memory network.

use super::*;

async fn connected(config: RpcConfig) -> (CounterClient, EndpointHandle<Counter>, [RpcService; 2]) {
    let (caller, callee) = pair(config).await;
    let endpoint = counter(&callee, "counter");
    let client = caller.connect(endpoint.address(), None).await.unwrap();
    (client, endpoint, [caller, callee])
}

fn small_frames() -> RpcConfig {
    RpcConfig {
        max_frame_size: 1024,
        ..RpcConfig::default()
    }
}

#[tokio::test(start_paused = true)]
async fn calls_tells_and_answers_cross_the_network_in_order() {
    let (client, endpoint, services) = connected(RpcConfig::default()).await;
    assert_eq!(client.address(), endpoint.address());
    assert_eq!(client.add(2).await, Ok(2));
    for _ in 0..100 {
        client.bump(1).unwrap();
    }
    assert_eq!(client.add(0).await, Ok(102));
    assert_eq!(client.nothing().await, Ok(None));
    assert_eq!(client.reset().await, Ok(()));
    assert_eq!(client.caller().await.unwrap(), "caller");
    let value = Arc::new(vec![9; 300_000]);
    assert_eq!(client.echo(Arc::clone(&value)).await.unwrap(), value);
    assert_eq!(services[1].stats().calls_served, 6);
}

#[tokio::test(start_paused = true)]
async fn many_calls_are_under_way_at_the_same_time() {
    let (client, _endpoint, _services) = connected(RpcConfig::default()).await;
    let hanging: Vec<_> = (0..50).map(|_| tokio::spawn(client.hang())).collect();
    let calls: Vec<_> = (0..500).map(|_| tokio::spawn(client.add(1))).collect();
    let mut values = Vec::new();
    for call in calls {
        values.push(call.await.unwrap().unwrap());
    }
    assert!(values.is_sorted(), "the order of sending is kept");
    assert_eq!(values.last(), Some(&500));
    for call in hanging {
        let error = call.await.unwrap().unwrap_err();
        assert!(matches!(error, RpcError::TimedOut { .. }), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn errors_keep_kind_and_retryability_on_the_wire() {
    let (client, _endpoint, _services) = connected(RpcConfig::default()).await;
    for later in [false, true] {
        let error = client.fail(later).await.unwrap_err();
        assert_eq!(error.kind(), "counter.broken");
        assert!(error.is_retryable());
    }
}

#[tokio::test(start_paused = true)]
async fn an_oversize_request_fails_at_the_caller_with_both_sizes() {
    let (client, _endpoint, services) = connected(small_frames()).await;
    let error = client.echo(Arc::new(vec![0; 2000])).await.unwrap_err();
    assert_eq!(
        error,
        RpcError::TooLarge {
            what: "request of Counter.echo".to_owned(),
            size: 2002,
            limit: 1024
        }
    );
    assert_eq!(services[1].stats().calls_served, 0, "nothing was sent");
    assert_eq!(client.add(1).await, Ok(1));
}

#[tokio::test(start_paused = true)]
async fn an_oversize_answer_is_an_error_with_both_sizes_now_or_later() {
    let (client, _endpoint, _services) = connected(small_frames()).await;
    for later in [false, true] {
        let error = client.bytes(1100, later).await.unwrap_err();
        assert_eq!(
            error,
            RpcError::TooLarge {
                what: "answer of Counter.bytes".to_owned(),
                size: 1102,
                limit: 1024
            }
        );
        assert_eq!(client.bytes(1000, later).await.unwrap().len(), 1000);
    }
}

#[tokio::test(start_paused = true)]
async fn the_smaller_frame_limit_of_both_sides_counts() {
    let network = MemNetwork::new();
    let (a, b) = (
        node(&network, "a", None).await,
        node(&network, "b", None).await,
    );
    let (caller, callee) = (on(&a, RpcConfig::default()), on(&b, small_frames()));
    let endpoint = counter(&callee, "counter");
    let client: CounterClient = caller.connect(endpoint.address(), None).await.unwrap();
    let error = client.echo(Arc::new(vec![0; 2000])).await.unwrap_err();
    assert!(
        matches!(error, RpcError::TooLarge { limit: 1024, .. }),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_terminated_recipient_fails_calls_at_once() {
    let (client, endpoint, services) = connected(RpcConfig::default()).await;
    let held = tokio::spawn(client.wait());
    settle().await;
    let begin = thalweg_transport::now();
    endpoint.terminate().await.unwrap();
    for error in [
        held.await.unwrap().unwrap_err(),
        client.add(1).await.unwrap_err(),
    ] {
        assert!(
            matches!(error, RpcError::RecipientUnreachable { .. }),
            "{error}"
        );
    }
    let error = services[0]
        .connect::<CounterClient>(endpoint.address(), None)
        .await
        .unwrap_err();
    assert!(
        matches!(error, RpcError::RecipientUnreachable { .. }),
        "{error}"
    );
    assert!(thalweg_transport::now() - begin < Duration::from_secs(1));
    // The name is used again: the old client does not reach the new endpoint.
    counter(&services[1], "counter");
    assert!(client.add(1).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_restarts_in_the_middle_of_a_call_fails_it_at_once() {
    let network = MemNetwork::new();
    let caller = on(&node(&network, "caller", None).await, RpcConfig::default());
    let old = node(&network, "callee", None).await;
    let endpoint = counter(&on(&old, RpcConfig::default()), "counter");
    let client: CounterClient = caller.connect(endpoint.address(), None).await.unwrap();
    let held = tokio::spawn(client.with_deadline(Deadline::Never).wait());
    settle().await;
    let begin = thalweg_transport::now();
    old.shutdown(Duration::from_secs(1)).await.unwrap();
    let error = held.await.unwrap().unwrap_err();
    assert!(matches!(error, RpcError::Connection { .. }), "{error}");
    assert!(thalweg_transport::now() - begin < Duration::from_secs(5));
    assert!(client.closed().is_some());
    let error = client.add(1).await.unwrap_err();
    assert!(matches!(error, RpcError::Connection { .. }), "{error}");
    assert!(client.bump(1).is_err());
    // The new instance is another one: connect again.
    let new = node(&network, "callee", None).await;
    let endpoint = counter(&on(&new, RpcConfig::default()), "counter");
    let client: CounterClient = caller.connect(endpoint.address(), None).await.unwrap();
    assert_eq!(client.add(1).await, Ok(1));
}

#[tokio::test(start_paused = true)]
async fn connecting_to_nobody_is_a_connection_error() {
    let (caller, _callee) = pair(RpcConfig::default()).await;
    let address = "thalweg://127.0.0.1:1/counter".parse().unwrap();
    let error = caller
        .connect::<CounterClient>(&address, None)
        .await
        .unwrap_err();
    assert!(matches!(error, RpcError::Connection { .. }), "{error}");
    let wrong_node = format!("thalweg://other@{}/x", _callee.address().unwrap());
    let error = caller
        .connect::<CounterClient>(&wrong_node.parse().unwrap(), None)
        .await
        .unwrap_err();
    assert!(matches!(error, RpcError::Connection { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn an_unserved_gateway_and_a_wildcard_are_settled_in_the_handshake() {
    let (caller, callee) = pair(RpcConfig::default()).await;
    let silent = callee
        .endpoint("silent", Counter::default())
        .spawn()
        .unwrap();
    let error = caller
        .connect::<CounterClient>(silent.address(), None)
        .await
        .unwrap_err();
    assert!(
        matches!(&error, RpcError::Handshake { address, .. } if *address == silent.address().to_string()),
        "{error}"
    );
    let endpoint = counter(&callee, &callee.unique_name("counter"));
    let wildcard = endpoint.address().with_endpoint("counter_*").unwrap();
    let client: CounterClient = caller.connect(&wildcard, None).await.unwrap();
    assert_eq!(client.address(), endpoint.address());
    let anonymous = format!("thalweg://{}/counter_*", callee.address().unwrap());
    let client: CounterClient = caller
        .connect(&anonymous.parse().unwrap(), None)
        .await
        .unwrap();
    assert_eq!(client.add(1).await, Ok(1));
}

#[tokio::test(start_paused = true)]
async fn one_can_connect_before_the_start_but_not_call() {
    let (caller, callee) = pair(RpcConfig::default()).await;
    let endpoint = callee
        .endpoint("counter", Counter::default())
        .serve::<CounterClient>()
        .spawn()
        .unwrap();
    let client: CounterClient = caller.connect(endpoint.address(), None).await.unwrap();
    let error = client.add(1).await.unwrap_err();
    assert!(
        matches!(error, RpcError::EndpointNotStarted { .. }),
        "{error}"
    );
    endpoint.start();
    assert_eq!(client.add(1).await, Ok(1));
}

#[tokio::test(start_paused = true)]
async fn an_address_of_the_node_itself_takes_no_network() {
    let (caller, _callee) = pair(RpcConfig::default()).await;
    let endpoint = counter(&caller, "counter");
    let text = format!("thalweg://{}/counter", caller.address().unwrap());
    for address in [endpoint.address().clone(), text.parse().unwrap()] {
        let client: CounterClient = caller.connect(&address, None).await.unwrap();
        assert_eq!(client.caller().await.unwrap(), "local");
    }
    assert_eq!(caller.connections().unwrap().active(), 0);
}

#[tokio::test(start_paused = true)]
async fn all_gateways_to_a_node_share_one_connection() {
    let (caller, callee) = pair(RpcConfig::default()).await;
    let mut clients = Vec::new();
    for name in ["a", "b", "c"] {
        let endpoint = counter(&callee, name);
        let client: CounterClient = caller.connect(endpoint.address(), None).await.unwrap();
        assert_eq!(client.add(1).await, Ok(1));
        clients.push(client);
    }
    assert_eq!(caller.connections().unwrap().active(), 1);
}

#[tokio::test(start_paused = true)]
async fn dropping_a_call_cancels_it_at_the_peer() {
    let (client, _endpoint, services) = connected(RpcConfig::default()).await;
    let call = tokio::spawn(client.wait());
    settle().await;
    assert_eq!(client.waiting().await, Ok(1));
    call.abort();
    settle().await;
    assert_eq!(client.waiting().await, Ok(0));
    // A time-out is a dropped call, too.
    let brief = client.with_deadline(Deadline::After(Duration::from_millis(50)));
    assert!(brief.wait().await.is_err());
    settle().await;
    assert_eq!(client.waiting().await, Ok(0));
    drop(services);
}

#[tokio::test(start_paused = true)]
async fn the_last_client_ends_the_stream_after_what_it_told() {
    let (client, endpoint, services) = connected(RpcConfig::default()).await;
    client.bump(5).unwrap();
    drop(client);
    settle().await;
    let own: CounterClient = endpoint.gateway();
    assert_eq!(own.add(0).await, Ok(5));
    let streams = |service: &RpcService| {
        let snapshot = service.connections().unwrap().snapshot();
        snapshot.iter().map(|c| c.stats.streams_open).sum::<u64>()
    };
    assert_eq!(streams(&services[0]), 0);
}

#[tokio::test(start_paused = true)]
async fn too_many_pending_calls_are_refused_at_once() {
    let (client, _endpoint, services) = connected(RpcConfig {
        max_pending_calls: 3,
        ..RpcConfig::default()
    })
    .await;
    let held: Vec<_> = (0..3).map(|_| tokio::spawn(client.wait())).collect();
    settle().await;
    let error = client.add(1).await.unwrap_err();
    assert!(
        matches!(error, RpcError::Overloaded { limit: 3, .. }),
        "{error}"
    );
    held.iter().for_each(tokio::task::JoinHandle::abort);
    settle().await;
    assert_eq!(client.add(1).await, Ok(1));
    let budget = services[0].outgoing_budget("callee");
    assert_eq!(budget.calls(), 0, "every share was given back");
}

#[tokio::test(start_paused = true)]
async fn too_many_pending_bytes_are_refused_at_once() {
    let (client, _endpoint, _services) = connected(RpcConfig {
        max_frame_size: 10_000,
        max_pending_bytes: 15_000,
        ..RpcConfig::default()
    })
    .await;
    // The first poll of each sends; the answers come later.
    let calls: Vec<_> = (0..2)
        .map(|_| tokio::spawn(client.echo(Arc::new(vec![0; 9000]))))
        .collect();
    let mut refused = 0;
    for call in calls {
        refused += usize::from(matches!(
            call.await.unwrap(),
            Err(RpcError::Overloaded { .. })
        ));
    }
    assert_eq!(refused, 1);
}

#[tokio::test(start_paused = true)]
async fn roles_may_call_what_the_declaration_says() {
    let network = MemNetwork::new();
    let callee = on(
        &node(&network, "jm", Some("jobmanager")).await,
        RpcConfig::default(),
    );
    let endpoint = counter(&callee, "counter");
    for (name, role, may_add, may_reset) in [
        ("tm", "taskmanager", true, false),
        ("cli", "client", true, true),
        ("jm2", "jobmanager", false, false),
    ] {
        let caller = on(
            &node(&network, name, Some(role)).await,
            RpcConfig::default(),
        );
        let client: CounterClient = caller.connect(endpoint.address(), None).await.unwrap();
        assert_eq!(client.add(1).await.is_ok(), may_add, "{role}");
        let reset = client.reset().await;
        assert_eq!(reset.is_ok(), may_reset, "{role}");
        if let Err(error) = reset {
            assert_eq!(
                error,
                RpcError::NotAuthorized {
                    method: "Counter.reset".to_owned(),
                    role: role.to_owned()
                }
            );
        }
        client.bump(1).unwrap();
        assert_eq!(client.caller().await.ok(), may_add.then(|| name.to_owned()));
    }
    assert_eq!(callee.stats().dropped_tells, 1);
}

#[tokio::test(start_paused = true)]
async fn closing_the_callers_service_fails_its_calls() {
    let (client, _endpoint, services) = connected(RpcConfig::default()).await;
    let held = tokio::spawn(client.wait());
    settle().await;
    services[0].close(Duration::from_secs(1)).await.unwrap();
    let error = held.await.unwrap().unwrap_err();
    assert!(matches!(error, RpcError::Stopped { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn closing_the_callees_service_answers_what_is_under_way() {
    let (client, _endpoint, services) = connected(RpcConfig::default()).await;
    let held = tokio::spawn(client.wait());
    settle().await;
    services[1].close(Duration::from_secs(1)).await.unwrap();
    let error = held.await.unwrap().unwrap_err();
    assert!(
        matches!(error, RpcError::RecipientUnreachable { .. }),
        "{error}"
    );
    assert!(client.add(1).await.is_err());
}
