use std::{net::SocketAddr, time::Duration};

use bytes::Bytes;

use super::*;
use crate::{
    BindAddr, ConnectError, Connection, ConnectionError, ErrorCode, Listener, PeerIdentity,
    RecvStream, ResourceId, SendStream, Transport, VerifiedPeer,
};

fn identity(name: &str) -> VerifiedPeer {
    VerifiedPeer {
        id: ResourceId::new(name).unwrap(),
        role: "taskmanager".into(),
        uri: format!("spiffe://cluster/taskmanager/{name}").into(),
        expires_at: u64::MAX,
    }
}

fn any_port() -> BindAddr {
    "127.0.0.1:0".parse().unwrap()
}

async fn pair(window: usize) -> (MemConnection, MemConnection) {
    let network = MemNetwork::with_window(window);
    let server = MemTransport::new(network.clone(), Some(identity("server")));
    let client = MemTransport::new(network, Some(identity("client")));
    let mut listener = server.listen(&any_port()).await.unwrap();
    let dialled = client.connect(listener.local_addr(), None).await.unwrap();
    (dialled, listener.accept().await.unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_full_window_waits_for_the_reader() {
    let (a, b) = pair(4).await;
    let (mut send, _recv) = a.open().await.unwrap();
    let mut chunks = [Bytes::from_static(b"abcdef")];
    let waits = tokio::time::timeout(Duration::from_secs(1), send.write(&mut chunks)).await;
    assert!(waits.is_err());
    assert_eq!(chunks[0], "ef");
    let (_send, mut recv) = b.accept().await.unwrap();
    assert_eq!(recv.read(3).await.unwrap().unwrap(), "abc");
    send.write(&mut chunks).await.unwrap();
    assert_eq!(recv.read(9).await.unwrap().unwrap(), "d");
    assert_eq!(recv.read(9).await.unwrap().unwrap(), "ef");
}

#[tokio::test]
async fn both_sides_know_each_other() {
    let (a, b) = pair(4).await;
    assert_eq!(*a.peer(), PeerIdentity::Verified(identity("server")));
    assert_eq!(*b.peer(), PeerIdentity::Verified(identity("client")));
}

#[tokio::test]
async fn a_side_without_identity_makes_both_unverified() {
    let network = MemNetwork::new();
    let server = MemTransport::new(network.clone(), Some(identity("server")));
    let client = MemTransport::new(network, None);
    let mut listener = server.listen(&any_port()).await.unwrap();
    let dialled = client.connect(listener.local_addr(), None).await.unwrap();
    let accepted = listener.accept().await.unwrap();
    assert_eq!(*dialled.peer(), PeerIdentity::Unverified);
    assert_eq!(*accepted.peer(), PeerIdentity::Unverified);
}

#[tokio::test]
async fn severed_is_lost_on_both_sides() {
    let (a, b) = pair(4).await;
    a.sever();
    a.close(ErrorCode::CANCELLED, "too late");
    assert!(matches!(a.closed().await, ConnectionError::Lost { .. }));
    assert!(matches!(b.closed().await, ConnectionError::Lost { .. }));
}

#[tokio::test]
async fn a_wildcard_listener_is_found_and_its_address_freed() {
    let network = MemNetwork::new();
    let server = MemTransport::new(network.clone(), None);
    let client = MemTransport::new(network, None);
    let listener = server
        .listen(&"0.0.0.0:7000".parse().unwrap())
        .await
        .unwrap();
    let address: SocketAddr = "127.0.0.1:7000".parse().unwrap();
    let dialled = client.connect(address, None).await.unwrap();
    drop(listener);
    assert_eq!(dialled.closed().await.code(), ErrorCode::SHUTTING_DOWN);
    assert!(matches!(
        client.connect(address, None).await.unwrap_err(),
        ConnectError::Unreachable { .. }
    ));
}

#[test]
fn two_runtimes_wake_each_other() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap()
    };
    let (a, b) = runtime().block_on(pair(16));
    let echo = std::thread::spawn(move || {
        runtime().block_on(async move {
            let (mut send, mut recv) = b.accept().await.unwrap();
            while let Some(chunk) = recv.read(7).await.unwrap() {
                send.write(&mut [chunk]).await.unwrap();
            }
            send.finish().unwrap();
            send.stopped().await.unwrap();
        });
    });
    let read = runtime().block_on(async {
        let (mut send, mut recv) = a.open().await.unwrap();
        let write = async {
            for i in 0..200_u8 {
                send.write(&mut [Bytes::from(vec![i; 9])]).await.unwrap();
            }
            send.finish().unwrap();
        };
        let read = async {
            let mut all = Vec::new();
            while let Some(chunk) = recv.read(100).await.unwrap() {
                all.extend_from_slice(&chunk);
            }
            all
        };
        tokio::time::timeout(Duration::from_secs(10), async {
            tokio::join!(write, read).1
        })
        .await
        .unwrap()
    });
    echo.join().unwrap();
    let expected: Vec<u8> = (0..200_u8).flat_map(|i| [i; 9]).collect();
    assert_eq!(read, expected);
}

#[tokio::test]
async fn any_port_avoids_those_that_are_taken() {
    let network = MemNetwork::new();
    let mut held = Vec::new();
    for port in 49_152..49_155_u16 {
        let node = MemTransport::new(network.clone(), None);
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        held.push(node.listen(&BindAddr::single(address)).await.unwrap());
    }
    let node = MemTransport::new(network, None);
    let listener = node.listen(&any_port()).await.unwrap();
    assert_eq!(listener.local_addr().port(), 49_155);
}
