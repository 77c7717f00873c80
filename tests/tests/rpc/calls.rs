//! Calls, their failures, and recipients that are not there.

use thalweg_runtime::{
    ids::FencingToken,
    rpc::{Answer, Context, Deadline, Endpoint, RpcAddress, RpcConfig, RpcError, gateway},
};
use thalweg_tests::{
    conformance::Backend,
    harness::{MemBackend, QuicBackend, TcpBackend, in_time},
    on_backends,
};
use thalweg_transport::{Connections as _, Profile, now};

use super::support::*;

async fn an_address_leads_to_its_endpoint_or_to_an_error_at_once<B: Backend>(backend: B) {
    let pair = Pair::new(&backend).await;
    assert_eq!(pair.client.address(), pair.desk.address());
    let begin = now();
    let nobody = pair.desk.address().with_endpoint("nobody").unwrap();
    let error = in_time("connect", pair.caller.connect::<DeskClient>(&nobody, None))
        .await
        .unwrap_err();
    assert!(
        matches!(error, RpcError::RecipientUnreachable { .. }),
        "{error}"
    );
    let wrong = format!("thalweg://other@{}/desk", pair.nodes[1].advertised());
    let wrong: RpcAddress = wrong.parse().unwrap();
    let error = in_time("connect", pair.caller.connect::<DeskClient>(&wrong, None))
        .await
        .unwrap_err();
    assert!(
        matches!(
            error,
            RpcError::Connection {
                retryable: false,
                ..
            }
        ),
        "{error}"
    );
    assert!(now() - begin < RpcConfig::default().ask_timeout);
}

async fn a_wildcard_finds_the_live_endpoint<B: Backend>(backend: B) {
    let (caller, _here) = service(&backend, "caller").await;
    let (callee, _there) = service(&backend, "callee").await;
    let old = desk(&callee, &callee.unique_name("desk"));
    let to_old: DeskClient = in_time("connect", caller.connect(old.address(), None))
        .await
        .unwrap();
    in_time("end", old.terminate()).await.unwrap();
    let live = desk(&callee, &callee.unique_name("desk"));
    let wildcard = live.address().with_endpoint("desk_*").unwrap();
    let client: DeskClient = in_time("connect", caller.connect(&wildcard, None))
        .await
        .unwrap();
    assert_eq!(client.address(), live.address());
    assert_eq!(in_time("call", client.double(2)).await, Ok(4));
    // The successor gets nothing that was meant for the one before.
    assert!(in_time("call", to_old.double(2)).await.is_err());
}

async fn calls_before_the_start_are_refused_and_tells_dropped<B: Backend>(backend: B) {
    let (caller, _here) = service(&backend, "caller").await;
    let (callee, _there) = service(&backend, "callee").await;
    let desk = callee
        .endpoint("desk", Desk::default())
        .serve::<DeskClient>()
        .spawn()
        .unwrap();
    let client: DeskClient = in_time("connect", caller.connect(desk.address(), None))
        .await
        .unwrap();
    client.note(1).unwrap();
    let error = in_time("call", client.double(1)).await.unwrap_err();
    assert!(
        matches!(error, RpcError::EndpointNotStarted { .. }),
        "{error}"
    );
    assert!(error.is_retryable());
    desk.start();
    client.note(2).unwrap();
    assert_eq!(in_time("call", client.notes()).await, Ok(vec![2]));
}

async fn failures_of_handlers_reach_the_caller_now_or_later<B: Backend>(backend: B) {
    let pair = Pair::new(&backend).await;
    for later in [false, true] {
        let error = in_time("call", pair.client.fail(later)).await.unwrap_err();
        assert_eq!(error.kind(), "desk.closed");
        assert_eq!(error.to_string(), "come back later");
        assert!(error.is_retryable());
    }
}

async fn a_time_out_names_call_address_deadline_and_source_line<B: Backend>(backend: B) {
    let pair = Pair::new(&backend).await;
    let after = std::time::Duration::from_millis(50);
    let brief = pair.client.with_deadline(Deadline::After(after));
    let line = line!() + 1;
    let error = in_time("call", brief.hang()).await.unwrap_err();
    let RpcError::TimedOut {
        method,
        address,
        after: said,
        caller,
    } = error
    else {
        panic!("{error}");
    };
    assert_eq!((method.as_str(), said), ("Desk.hang", after));
    assert_eq!(address, pair.desk.address().to_string());
    let caller = caller.unwrap();
    assert!(
        caller.contains(&format!("rpc/calls.rs:{line}:")),
        "{caller}"
    );
}

async fn an_endpoint_that_ends_fails_its_callers_at_once<B: Backend>(backend: B) {
    let pair = Pair::new(&backend).await;
    let forever = pair.client.with_deadline(Deadline::Never);
    let held = tokio::spawn(forever.hang());
    // What comes after it on the same stream was handed on after it.
    in_time("call", pair.client.double(1)).await.unwrap();
    in_time("end", pair.desk.terminate()).await.unwrap();
    for result in [
        in_time("held call", held).await.unwrap(),
        in_time("late call", forever.hang()).await,
    ] {
        let error = result.unwrap_err();
        assert!(
            matches!(error, RpcError::RecipientUnreachable { .. }),
            "{error}"
        );
    }
}

async fn a_service_that_is_closed_fails_its_callers_at_once<B: Backend>(backend: B) {
    let pair = Pair::new(&backend).await;
    let forever = pair.client.with_deadline(Deadline::Never);
    let held = tokio::spawn(forever.hang());
    in_time("call", pair.client.double(1)).await.unwrap();
    in_time("close", pair.callee.close(CLOSE)).await.unwrap();
    let error = in_time("held call", held).await.unwrap().unwrap_err();
    assert!(
        matches!(error, RpcError::RecipientUnreachable { .. }),
        "{error}"
    );
    assert!(in_time("late call", forever.hang()).await.is_err());
    let address = pair.desk.address();
    let error = in_time("connect", pair.caller.connect::<DeskClient>(address, None))
        .await
        .unwrap_err();
    assert!(
        matches!(error, RpcError::RecipientUnreachable { .. }),
        "{error}"
    );
}

async fn a_node_that_goes_away_fails_its_callers_at_once<B: Backend>(backend: B) {
    let Pair {
        client,
        caller,
        callee,
        desk,
        nodes: [_here, there],
    } = Pair::new(&backend).await;
    let forever = client.with_deadline(Deadline::Never);
    let held = tokio::spawn(forever.hang());
    in_time("call", client.double(1)).await.unwrap();
    in_time("shutdown", there.shutdown(CLOSE)).await.unwrap();
    for result in [
        in_time("held call", held).await.unwrap(),
        in_time("late call", forever.hang()).await,
    ] {
        let error = result.unwrap_err();
        assert!(
            matches!(
                error,
                RpcError::Connection {
                    retryable: true,
                    ..
                }
            ),
            "{error}"
        );
    }
    let begin = now();
    let error = in_time(
        "connect",
        caller.connect::<DeskClient>(desk.address(), None),
    )
    .await
    .unwrap_err();
    assert!(
        matches!(
            error,
            RpcError::Connection { .. } | RpcError::TimedOut { .. }
        ),
        "{error}"
    );
    assert!(now() - begin <= RpcConfig::default().ask_timeout * 2);
    drop(callee);
}

/// A desk with a token.
#[gateway(callers = ["taskmanager"], fenced)]
trait SafeGateway {
    async fn open(&self) -> u32;
    #[rpc(unfenced)]
    async fn knock(&self) -> u32;
}

#[derive(Debug)]
struct Safe;

impl Endpoint for Safe {}

impl SafeGateway for Safe {
    fn open(&mut self, _cx: &mut Context<Self>) -> Answer<u32> {
        Answer::ok(1)
    }
    fn knock(&mut self, _cx: &mut Context<Self>) -> Answer<u32> {
        Answer::ok(2)
    }
}

async fn fenced_calls_need_the_endpoints_token<B: Backend>(backend: B) {
    let (caller, _here) = service(&backend, "caller").await;
    let (callee, _there) = service(&backend, "callee").await;
    let (right, wrong) = (FencingToken::from_u128(1), FencingToken::from_u128(2));
    let safe = callee
        .endpoint("safe", Safe)
        .serve::<SafeClient>()
        .fencing_token(right)
        .spawn()
        .unwrap();
    safe.start();
    for got in [Some(right), Some(wrong), None] {
        let client: SafeClient = in_time("connect", caller.connect(safe.address(), got))
            .await
            .unwrap();
        let expected = if got == Some(right) {
            Ok(1)
        } else {
            let expected = Some(right);
            Err(RpcError::Fenced { expected, got })
        };
        assert_eq!(in_time("call", client.open()).await, expected);
        assert_eq!(in_time("call", client.knock()).await, Ok(2));
    }
}

on_backends! {
    [
        an_address_leads_to_its_endpoint_or_to_an_error_at_once,
        a_wildcard_finds_the_live_endpoint,
        calls_before_the_start_are_refused_and_tells_dropped,
        failures_of_handlers_reach_the_caller_now_or_later,
        a_time_out_names_call_address_deadline_and_source_line,
        an_endpoint_that_ends_fails_its_callers_at_once,
        a_service_that_is_closed_fails_its_callers_at_once,
        a_node_that_goes_away_fails_its_callers_at_once,
        fenced_calls_need_the_endpoints_token,
    ]:
    mem = MemBackend::new(),
    quic = QuicBackend::new(Profile::Loopback),
    tcp = TcpBackend::plaintext(),
    tls = TcpBackend::tls(),
}
