//! Who shares which connection.

use tokio::task::JoinSet;

use super::*;
use crate::ErrorCode;

async fn many_acquires_share_one_connection<F: Fabric>(fabric: F) {
    let (a, b) = (start(&fabric, "a").await, start(&fabric, "b").await);
    let mut callers = JoinSet::new();
    for _ in 0..50 {
        callers.spawn(a.acquire(to(&b)));
    }
    let leases: Vec<_> = in_time("acquires", callers.join_all()).await;
    assert!(leases.iter().all(Result::is_ok));
    until("the peer sees it", || accepted(&b) == 1).await;
    assert_eq!((a.active(), a.snapshot().len()), (1, 1));
    assert_eq!(leases[0].as_ref().unwrap().peer().id, name("b"));
}

#[tokio::test(start_paused = true)]
async fn fifty_concurrent_acquires_share_one_connection() {
    many_acquires_share_one_connection(Mem::default()).await;
}

async fn two_nodes_have_a_connection_in_each_direction<F: Fabric>(fabric: F) {
    let (a, b) = (start(&fabric, "a").await, start(&fabric, "b").await);
    for node in [&a, &b] {
        node.register(StreamKind(64), Arc::new(Echo));
    }
    let (there, back) = (to(&b), to(&a));
    let (there, back) = tokio::join!(a.acquire(there), b.acquire(back));
    echoes(&there.unwrap(), StreamKind(64), "from a").await;
    echoes(&back.unwrap(), StreamKind(64), "from b").await;
    until("both accept", || accepted(&a) == 1 && accepted(&b) == 1).await;
    assert_eq!((a.snapshot().len(), b.snapshot().len()), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn both_directions_make_exactly_two_connections() {
    two_nodes_have_a_connection_in_each_direction(Mem::default()).await;
}

#[tokio::test(start_paused = true)]
async fn indexes_are_reduced_to_the_connections_of_a_peer() {
    for connections_per_peer in [1, 2, 5, 10] {
        let fabric = Mem::default();
        let config = TransportConfig {
            connections_per_peer,
            ..TransportConfig::default()
        };
        let a = builder("a", config)
            .start(fabric.transport("a"))
            .await
            .unwrap();
        let b = start(&fabric, "b").await;
        let mut leases = vec![];
        for index in (0..100).map(|i| i * 7919 + 3) {
            leases.push(a.acquire(to(&b).with_index(index)).await.unwrap());
        }
        assert_eq!(a.active(), connections_per_peer as usize);
        leases.clear();
        for index in 0..100 {
            a.close_unused(&to(&b).with_index(index));
        }
        assert_eq!(a.active(), 0, "close_unused reduces the index, too");
    }
}

#[tokio::test(start_paused = true)]
async fn two_failures_with_two_retries_succeed_for_all_callers() {
    let fabric = Mem::default();
    let script = Script::failing(2, unreachable());
    let config = TransportConfig {
        connect_retries: 2,
        ..TransportConfig::default()
    };
    let a = start_scripted(&fabric, "a", config, &script).await;
    let b = start(&fabric, "b").await;
    let callers: JoinSet<_> = (0..10).map(|_| a.acquire(to(&b))).collect();
    assert!(callers.join_all().await.iter().all(Result::is_ok));
    assert_eq!(script.attempts(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_told_to_every_waiter_and_not_remembered() {
    let fabric = Mem::default();
    let script = Script::failing(3, unreachable());
    let config = TransportConfig {
        connect_retries: 2,
        ..TransportConfig::default()
    };
    let a = start_scripted(&fabric, "a", config, &script).await;
    let b = start(&fabric, "b").await;
    let callers: JoinSet<_> = (0..10).map(|_| a.acquire(to(&b))).collect();
    for outcome in callers.join_all().await {
        let error = outcome.unwrap_err();
        assert!(error.is_retryable());
        let text = error.to_string();
        assert!(
            text.contains("after 3 attempts") && text.contains("b@"),
            "{text}"
        );
    }
    assert_eq!((script.attempts(), a.active()), (3, 0));
    a.acquire(to(&b)).await.unwrap();
    assert_eq!(script.attempts(), 4);
}

#[tokio::test(start_paused = true)]
async fn what_does_not_pass_is_not_retried() {
    let fabric = Mem::default();
    let failure = ConnectError::Tls {
        address: "there".to_owned(),
        reason: "unknown issuer".to_owned(),
    };
    let script = Script::failing(9, failure);
    let a = start_scripted(&fabric, "a", TransportConfig::default(), &script).await;
    let b = start(&fabric, "b").await;
    let error = a.acquire(to(&b)).await.unwrap_err();
    assert!(!error.is_retryable());
    assert!(error.to_string().contains("after 1 attempt"), "{error}");
    assert_eq!(script.attempts(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_budget_bounds_the_whole_dial() {
    let fabric = Mem::default();
    let b = start(&fabric, "b").await;
    let config = TransportConfig {
        connect_timeout: Duration::from_secs(3),
        connect_retries: 100,
        ..TransportConfig::default()
    };
    // Attempts that fail at once: the pauses use the budget up.
    let script = Script::failing(u32::MAX, unreachable());
    let a = start_scripted(&fabric, "a", config.clone(), &script).await;
    let begin = crate::now();
    let error = a.acquire(to(&b)).await.unwrap_err();
    assert!(crate::now() - begin <= config.connect_timeout);
    assert!(script.attempts() > 3);
    assert!(error.to_string().contains("no time left"), "{error}");
    // An attempt that hangs: it is cut off.
    let c = start_scripted(&fabric, "c", config.clone(), &Script::gated()).await;
    let begin = crate::now();
    let error = c.acquire(to(&b)).await.unwrap_err();
    assert_eq!(crate::now() - begin, config.connect_timeout);
    assert_eq!(error.code(), ErrorCode::TIMED_OUT);
    assert!(
        error.to_string().contains("attempt 1 of at most 101"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_caller_does_not_disturb_the_others() {
    let fabric = Mem::default();
    let script = Script::gated();
    let a = start_scripted(&fabric, "a", TransportConfig::default(), &script).await;
    let b = start(&fabric, "b").await;
    let first = tokio::spawn(a.acquire(to(&b)));
    until("the dial", || script.attempts() == 1).await;
    let second = tokio::spawn(a.acquire(to(&b)));
    tokio::task::yield_now().await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    script.open_gate();
    second.await.unwrap().unwrap();
    assert_eq!(script.attempts(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_caller_after_a_cancelled_one_connects_normally() {
    let fabric = Mem::default();
    let script = Script::gated();
    let a = start_scripted(&fabric, "a", TransportConfig::default(), &script).await;
    let b = start(&fabric, "b").await;
    let first = tokio::spawn(a.acquire(to(&b)));
    until("the dial", || script.attempts() == 1).await;
    first.abort();
    until("the dial is given up", || a.active() == 0).await;
    let second = tokio::spawn(a.acquire(to(&b)));
    until("another dial", || script.attempts() == 2).await;
    script.open_gate();
    second.await.unwrap().unwrap();
    until("one connection", || accepted(&b) == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_nobody_waits_for_any_more_is_not_kept() {
    let fabric = Mem::default();
    let script = Script::gated();
    let a = start_scripted(&fabric, "a", TransportConfig::default(), &script).await;
    let b = start(&fabric, "b").await;
    let caller = tokio::spawn(a.acquire(to(&b)));
    until("the dial", || script.attempts() == 1).await;
    a.close_unused(&to(&b));
    assert_eq!(a.active(), 1, "somebody waits for it");
    // The connection comes at the very moment that its caller leaves.
    script.open_gate();
    caller.abort();
    until("the caller is gone", || caller.is_finished()).await;
    a.close_unused(&to(&b));
    until("nothing is left", || a.active() == 0 && accepted(&b) == 0).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!((a.snapshot().len(), b.snapshot().len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_dead_cached_connection_is_replaced_before_anyone_gets_it() {
    let fabric = Mem::default();
    let a = start(&fabric, "a").await;
    let listener_config = TransportConfig::default();
    let b = start(&fabric, "b").await;
    let address = b.local_addr();
    let idle = a.acquire(to(&b)).await.unwrap();
    drop(idle);
    assert_eq!(a.active(), 1);
    let target = to(&b);
    b.shutdown(Duration::from_secs(1)).await.unwrap();
    until("the end of an idle connection is noticed", || {
        a.active() == 0
    })
    .await;
    let again = builder("b", listener_config)
        .bind(BindAddr::single(address))
        .start(fabric.transport("b"))
        .await
        .unwrap();
    again.register(StreamKind(64), Arc::new(Echo));
    let lease = a.acquire(target).await.unwrap();
    echoes(&lease, StreamKind(64), "fresh").await;
}

#[tokio::test(start_paused = true)]
async fn an_acquire_checks_the_cached_connection_itself() {
    let fabric = Mem::default();
    let a = start(&fabric, "a").await;
    let transport = fabric.transport("b");
    let bind = BindAddr::single("127.0.0.1:0".parse().unwrap());
    let mut listener = transport.listen(&bind).await.unwrap();
    let address = crate::Listener::local_addr(&listener);
    let target = ConnectionId::to_address(address.to_string());
    let mut ends = vec![];
    for round in 1..=2 {
        let (lease, connection) = tokio::join!(a.acquire(target.clone()), async {
            hello::accept_raw(&mut listener, "b").await
        });
        assert!(lease.unwrap().close_reason().is_none());
        // No task of the node runs between the end and the next acquire.
        connection.close(ErrorCode::NO_ERROR, "idle");
        ends.push(connection);
        assert_eq!((ends.len(), a.active()), (round, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn without_reuse_the_last_release_closes() {
    let fabric = Mem::default();
    let config = TransportConfig {
        reuse_connections: false,
        ..TransportConfig::default()
    };
    let a = builder("a", config)
        .start(fabric.transport("a"))
        .await
        .unwrap();
    let b = start(&fabric, "b").await;
    let first = a.acquire(to(&b)).await.unwrap();
    let second = a.acquire(to(&b)).await.unwrap();
    drop(first);
    assert!(second.close_reason().is_none());
    drop(second);
    assert_eq!(a.active(), 0);
    until("the peer sees the end", || accepted(&b) == 0).await;
}

#[tokio::test(start_paused = true)]
async fn an_address_and_a_name_at_it_share_one_connection() {
    let fabric = Mem::default();
    let (a, b) = (start(&fabric, "a").await, start(&fabric, "b").await);
    let by_address = ConnectionId::to_address(b.advertised());
    let (first, second) = tokio::join!(a.acquire(by_address.clone()), a.acquire(to(&b)));
    assert_eq!(first.unwrap().peer().id, second.unwrap().peer().id);
    assert_eq!(a.active(), 1);
    a.close_unused(&to(&b));
    assert_eq!(a.active(), 0);
    let (second, first) = tokio::join!(a.acquire(to(&b)), a.acquire(by_address));
    assert_eq!((first.is_ok(), second.is_ok(), a.active()), (true, true, 1));
}

#[tokio::test(start_paused = true)]
async fn a_connection_of_the_address_never_serves_another_name() {
    let fabric = Mem::default();
    let (a, b) = (start(&fabric, "a").await, start(&fabric, "b").await);
    let _lease = a
        .acquire(ConnectionId::to_address(b.advertised()))
        .await
        .unwrap();
    let wrong = ConnectionId::new(name("c"), b.advertised());
    let error = a.acquire(wrong).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::IDENTITY_MISMATCH);
}

#[tokio::test(start_paused = true)]
async fn a_wrong_name_does_not_keep_others_from_the_address() {
    let fabric = Mem::default();
    let (a, b) = (start(&fabric, "a").await, start(&fabric, "b").await);
    let wrong = ConnectionId::new(name("c"), b.advertised());
    let by_address = ConnectionId::to_address(b.advertised());
    let (wrong, right) = tokio::join!(a.acquire(wrong), a.acquire(by_address));
    assert_eq!(wrong.unwrap_err().code(), ErrorCode::IDENTITY_MISMATCH);
    assert_eq!(right.unwrap().peer().id, name("b"));
}
