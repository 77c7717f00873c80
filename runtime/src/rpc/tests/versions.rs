//! Peers that were built from different declarations.

use super::*;

mod older {
    use super::*;

    #[gateway(name = "Store", callers = ["*"])]
    pub(super) trait StoreGateway {
        async fn read(&self) -> u32;
        async fn write(&self, value: u32) -> u32;
    }

    #[derive(Debug)]
    pub(super) struct Store;

    impl Endpoint for Store {}

    impl StoreGateway for Store {
        fn read(&mut self, _cx: &mut Context<Self>) -> Answer<u32> {
            Answer::ok(1)
        }
        fn write(&mut self, _cx: &mut Context<Self>, value: u32) -> Answer<u32> {
            Answer::ok(value)
        }
    }
}

mod newer {
    use super::*;

    #[gateway(name = "Store", callers = ["*"])]
    pub(super) trait StoreGateway {
        async fn compact(&self) -> bool;
        async fn read(&self) -> u32;
        async fn write(&self, value: String) -> u32;
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
        fn write(&mut self, _cx: &mut Context<Self>, value: String) -> Answer<u32> {
            Answer::ok(u32::try_from(value.len()).unwrap())
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_gateway_with_a_method_more_talks_to_one_with_a_method_less() {
    let (caller, callee) = pair(RpcConfig::default()).await;
    let old = serve::<older::StoreClient, _>(&callee, "old", older::Store);
    let new = serve::<newer::StoreClient, _>(&callee, "new", newer::Store);
    let client: newer::StoreClient = caller.connect(old.address(), None).await.unwrap();
    assert_eq!(client.read().await, Ok(1));
    let error = client.compact().await.unwrap_err();
    assert!(matches!(error, RpcError::UnknownMethod { .. }), "{error}");
    assert_eq!(client.read().await, Ok(1), "the stream goes on");
    let client: older::StoreClient = caller.connect(new.address(), None).await.unwrap();
    assert_eq!(client.read().await, Ok(2));
}

#[tokio::test(start_paused = true)]
async fn arguments_that_do_not_decode_are_an_error_and_not_a_hang() {
    let (caller, callee) = pair(RpcConfig::default()).await;
    let new = serve::<newer::StoreClient, _>(&callee, "new", newer::Store);
    let client: older::StoreClient = caller.connect(new.address(), None).await.unwrap();
    let error = client.write(77).await.unwrap_err();
    let RpcError::Decode { what, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(what, "request of Store.write");
    assert_eq!(client.read().await, Ok(2), "the stream goes on");
}

#[tokio::test(start_paused = true)]
async fn another_type_of_the_same_name_is_no_local_gateway() {
    let service = service();
    let old = serve::<older::StoreClient, _>(&service, "old", older::Store);
    let error = service
        .connect::<newer::StoreClient>(old.address(), None)
        .await
        .unwrap_err();
    assert!(matches!(error, RpcError::Handshake { .. }), "{error}");
}
