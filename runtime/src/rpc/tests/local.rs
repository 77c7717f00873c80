//! Calls inside one service.

use std::sync::Arc;

use super::{
    super::{Deadline, RpcError, RpcService},
    Counter, CounterClient, id,
};

fn service() -> RpcService {
    RpcService::builder(id("node-1")).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_call_is_answered_and_an_arc_keeps_its_pointer() {
    let service = service();
    let endpoint = service
        .endpoint("counter", Counter::default())
        .serve::<CounterClient>()
        .spawn()
        .unwrap();
    endpoint.start();
    let client: CounterClient = service.connect(endpoint.address(), None).await.unwrap();
    assert_eq!(client.add(2).await, Ok(2));
    client.bump(3).unwrap();
    assert_eq!(client.add(0).await, Ok(5));
    let value = Arc::new(vec![1, 2, 3]);
    let back = client.echo(Arc::clone(&value)).await.unwrap();
    assert!(Arc::ptr_eq(&value, &back));
    assert_eq!(client.nothing().await, Ok(None));
}

#[tokio::test(start_paused = true)]
async fn a_time_out_names_method_address_and_caller() {
    let service = service();
    let endpoint = service
        .endpoint("counter", Counter::default())
        .serve::<CounterClient>()
        .spawn()
        .unwrap();
    endpoint.start();
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
    assert_eq!(after.as_secs(), 2);
    assert!(caller.unwrap().contains(&format!("tests/local.rs:{line}:")));
    let _ = Deadline::Never;
}
