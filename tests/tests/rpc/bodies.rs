//! What travels in calls: sizes, values without encoding, values of another type.

use thalweg_runtime::rpc::{Answer, Context, Endpoint, RpcAddress, RpcError, RpcService, gateway};
use thalweg_tests::{
    conformance::Backend,
    harness::{MemBackend, QuicBackend, TcpBackend, in_time},
    on_backends,
};
use thalweg_transport::Profile;

use super::support::*;

async fn nothing_unit_and_raw_bytes_are_legal<B: Backend>(backend: B) {
    let pair = Pair::new(&backend).await;
    assert_eq!(in_time("call", pair.client.nothing()).await, Ok(None));
    for bytes in [vec![], vec![0], vec![0xff; 300_000]] {
        let back = in_time("call", pair.client.raw(bytes.clone())).await;
        assert_eq!(back, Ok(bytes));
    }
}

async fn an_answer_that_is_too_large_is_an_error_with_both_sizes<B: Backend>(backend: B) {
    let pair = Pair::with(&backend, small_frames()).await;
    for later in [false, true] {
        let error = in_time("call", pair.client.bytes(1100, later)).await;
        assert_eq!(
            error,
            Err(RpcError::TooLarge {
                what: "answer of Desk.bytes".to_owned(),
                size: 1102,
                limit: 1024
            })
        );
        let fits = in_time("call", pair.client.bytes(1000, later)).await;
        assert_eq!(fits, Ok(vec![7; 1000]));
    }
    let near: DeskClient = pair.desk.gateway();
    let near = in_time("local call", near.bytes(1_000_000, true)).await;
    assert_eq!(near.unwrap().len(), 1_000_000);
}

async fn a_request_that_is_too_large_fails_at_the_caller<B: Backend>(backend: B) {
    let pair = Pair::with(&backend, small_frames()).await;
    let error = in_time("call", pair.client.raw(vec![0; 2000])).await;
    assert_eq!(
        error,
        Err(RpcError::TooLarge {
            what: "request of Desk.raw".to_owned(),
            size: 2002,
            limit: 1024
        })
    );
    assert_eq!(in_time("call", pair.client.double(1)).await, Ok(2));
    assert_eq!(
        pair.callee.stats().calls_served,
        1,
        "nothing of it was sent"
    );
}

async fn values_without_encoding_fail_far_calls_only_and_at_once<B: Backend>(backend: B) {
    let pair = Pair::new(&backend).await;
    let near: DeskClient = pair.desk.gateway();
    assert_eq!(in_time("local call", near.measure(odd_path())).await, Ok(4));
    assert_eq!(in_time("local call", near.odd_path()).await, Ok(odd_path()));

    let request = in_time("call", pair.client.measure(odd_path())).await;
    let answer = in_time("call", pair.client.odd_path()).await;
    assert_eq!(
        pair.callee.stats().calls_served,
        1,
        "the request was not sent"
    );
    assert!(
        matches!(&request, Err(RpcError::Decode { what, .. }) if what == "request of Desk.measure")
    );
    assert!(matches!(answer, Err(RpcError::Decode { .. })), "{answer:?}");
    assert_eq!(in_time("call", pair.client.double(1)).await, Ok(2));
}

mod older {
    use super::*;

    #[gateway(name = "Store", callers = ["taskmanager"])]
    pub(super) trait StoreGateway {
        async fn read(&self) -> u32;
        async fn describe(&self) -> u32;
        async fn write(&self, value: u32) -> u32;
    }

    #[derive(Debug)]
    pub(super) struct Store;

    impl Endpoint for Store {}

    impl StoreGateway for Store {
        fn read(&mut self, _cx: &mut Context<Self>) -> Answer<u32> {
            Answer::ok(1)
        }
        fn describe(&mut self, _cx: &mut Context<Self>) -> Answer<u32> {
            Answer::ok(300)
        }
        fn write(&mut self, _cx: &mut Context<Self>, value: u32) -> Answer<u32> {
            Answer::ok(value)
        }
    }
}

/// One method more, and two of another type.
mod newer {
    use super::*;

    #[gateway(name = "Store", callers = ["taskmanager"])]
    pub(super) trait StoreGateway {
        async fn compact(&self) -> bool;
        async fn read(&self) -> u32;
        async fn describe(&self) -> String;
        async fn write(&self, value: String) -> u32;
        fn forget(&self);
    }

    #[derive(Debug)]
    pub(super) struct Store;

    impl Endpoint for Store {}

    impl StoreGateway for Store {
        fn compact(&mut self, _cx: &mut Context<Self>) -> Answer<bool> {
            Answer::ok(true)
        }
        fn read(&mut self, _cx: &mut Context<Self>) -> Answer<u32> {
            Answer::ok(2)
        }
        fn describe(&mut self, _cx: &mut Context<Self>) -> Answer<String> {
            Answer::ok("store".to_owned())
        }
        fn write(&mut self, _cx: &mut Context<Self>, value: String) -> Answer<u32> {
            Answer::ok(u32::try_from(value.len()).unwrap())
        }
        fn forget(&mut self, _cx: &mut Context<Self>) {}
    }
}

struct Stores {
    caller: RpcService,
    callee: RpcService,
    old: RpcAddress,
    new: RpcAddress,
    _nodes: [thalweg_transport::Node; 2],
}

async fn stores<B: Backend>(backend: &B) -> Stores {
    let (caller, here) = service(backend, "caller").await;
    let (callee, there) = service(backend, "callee").await;
    let old = serve::<older::StoreClient, _>(&callee, "old", older::Store);
    let new = serve::<newer::StoreClient, _>(&callee, "new", newer::Store);
    Stores {
        old: old.address().clone(),
        new: new.address().clone(),
        caller,
        callee,
        _nodes: [here, there],
    }
}

async fn a_gateway_with_a_method_more_talks_to_one_with_a_method_less<B: Backend>(backend: B) {
    let stores = stores(&backend).await;
    let client: newer::StoreClient = in_time("connect", stores.caller.connect(&stores.old, None))
        .await
        .unwrap();
    let error = in_time("call", client.compact()).await.unwrap_err();
    assert!(matches!(error, RpcError::UnknownMethod { .. }), "{error}");
    client.forget().unwrap();
    assert_eq!(
        in_time("call", client.read()).await,
        Ok(1),
        "the stream goes on"
    );
    assert_eq!(stores.callee.stats().dropped_tells, 1);
    let client: older::StoreClient = in_time("connect", stores.caller.connect(&stores.new, None))
        .await
        .unwrap();
    assert_eq!(in_time("call", client.read()).await, Ok(2));
}

async fn what_does_not_decode_is_an_error_and_not_a_hang<B: Backend>(backend: B) {
    let stores = stores(&backend).await;
    let client: newer::StoreClient = in_time("connect", stores.caller.connect(&stores.old, None))
        .await
        .unwrap();
    let answer = in_time("call", client.describe()).await;
    assert!(
        matches!(&answer, Err(RpcError::Decode { what, .. }) if what == "answer of Store.describe")
    );
    let client: older::StoreClient = in_time("connect", stores.caller.connect(&stores.new, None))
        .await
        .unwrap();
    let request = in_time("call", client.write(77)).await;
    assert!(
        matches!(&request, Err(RpcError::Decode { what, .. }) if what == "request of Store.write")
    );
    assert_eq!(
        in_time("call", client.read()).await,
        Ok(2),
        "the stream goes on"
    );
}

on_backends! {
    [
        nothing_unit_and_raw_bytes_are_legal,
        an_answer_that_is_too_large_is_an_error_with_both_sizes,
        a_request_that_is_too_large_fails_at_the_caller,
        values_without_encoding_fail_far_calls_only_and_at_once,
        a_gateway_with_a_method_more_talks_to_one_with_a_method_less,
        what_does_not_decode_is_an_error_and_not_a_hang,
    ]:
    mem = MemBackend::new(),
    quic = QuicBackend::new(Profile::Loopback),
    tcp = TcpBackend::plaintext(),
    tls = TcpBackend::tls(),
}
