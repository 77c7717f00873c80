//! Channels and the connections that they share.

use super::*;
use crate::{BindAddr, Transport};

#[tokio::test(start_paused = true)]
async fn asking_for_the_partitions_twice_sends_one_request() {
    let (producer, consumer) = pair().await;
    let gate = consumer.consume(vec![producer.remote(0, 0)]).await;
    gate.request_partitions();
    settle().await;
    gate.request_partitions();
    settle().await;
    assert_eq!(producer.connections.server_stats().streams, 1);
    let writer = producer.produce(0, 1);
    tokio::join!(write(writer, 1, 0, 50), check(gate, &[0], 50));
    assert_eq!(consumer.connections.number_of_active_connections(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_channel_that_ends_before_it_has_its_client_gives_the_dial_up_whatever_its_index() {
    let network = MemNetwork::new();
    let consumer = Worker::start(&network, "consumer", small()).await;
    // Somebody who listens and takes nobody in.
    let silent = MemTransport::new(network.clone(), None);
    let any: BindAddr = "127.0.0.1:0".parse().unwrap();
    let listener = silent.listen(&any).await.unwrap();
    let address = crate::Listener::local_addr(&listener).to_string();
    for index in [0, 1, 77] {
        let channel = ChannelSource::Remote {
            connection: ConnectionId::to_address(address.clone()).with_index(index),
            request: request(0, 0),
        };
        let gate = consumer.consume(vec![channel]).await;
        settle().await;
        assert_eq!(consumer.connections.number_of_active_connections(), 1);
        drop(gate);
        settle().await;
        assert_eq!(consumer.connections.number_of_active_connections(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_serves_the_next_gate_and_a_failed_one_does_not() {
    let (producer, consumer) = pair().await;
    for number in 0..3 {
        let gate = consumer.consume(vec![producer.remote(number, 0)]).await;
        let writer = producer.produce(number, 1);
        tokio::join!(write(writer, 1, 0, 20), check(gate, &[0], 20));
        let stats = consumer.node.snapshot();
        assert_eq!(stats.len(), 1, "gate {number}");
        // One stream each, and that of the hello.
        assert_eq!(stats[0].stats.streams_total, u64::from(number) + 2);
    }
    let address = producer.node.local_addr();
    producer
        .node
        .shutdown(Duration::from_secs(5))
        .await
        .unwrap();
    until("the end is seen", || {
        consumer.connections.number_of_active_connections() == 0
    })
    .await;
    let client = consumer
        .connections
        .create_partition_request_client(ConnectionId::to_address(address.to_string()));
    let error = within("dial", client).await.unwrap_err();
    assert!(matches!(error, ExchangeError::Transport(_)), "{error:?}");
}
