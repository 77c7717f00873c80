//! The end of QUIC connections and sockets: whether the peer hears of it, and when the port is free.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

use std::{net::SocketAddr, sync::Arc, time::Duration};

use thalweg_tests::{
    conformance::run_check,
    harness::{TestAuthority, TestCredentials},
};
use thalweg_transport::{
    BindAddr, Connection, ConnectionError, ErrorCode, Listener, Transport, TransportConfig,
    quic::{QuicConnection, QuicTransport},
};

const DEADLINE: Duration = Duration::from_secs(20);

fn any_port() -> BindAddr {
    BindAddr::single(SocketAddr::from(([127, 0, 0, 1], 0)))
}

fn transport(credentials: TestCredentials) -> QuicTransport {
    QuicTransport::new(&TransportConfig::default(), Arc::new(credentials)).unwrap()
}

/// Runs one side of a connection on a runtime that is gone as soon as it is done.
fn on_a_thread<F: Future<Output = ()>>(side: impl FnOnce() -> F + Send + 'static) {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(side());
    });
}

async fn hears_of_the_end(connection: &QuicConnection) {
    let end = tokio::time::timeout(DEADLINE, connection.closed()).await;
    let ConnectionError::ClosedByPeer { code, reason } = end.unwrap() else {
        panic!("the peer did not hear of the end");
    };
    assert_eq!(
        (code, reason.as_str()),
        (ErrorCode::SHUTTING_DOWN, "good night")
    );
}

#[test]
fn a_close_goes_out_before_the_runtime_of_the_listener_ends() {
    run_check(async {
        let authority = TestAuthority::new("drained");
        let (server, client) = (
            transport(authority.node("jm")),
            transport(authority.node("tm")),
        );
        let (tell, address) = tokio::sync::oneshot::channel();
        on_a_thread(move || async move {
            let mut listener = server.listen(&any_port()).await.unwrap();
            tell.send(listener.local_addr()).unwrap();
            let connection = listener.accept().await.unwrap();
            drop(listener);
            connection.close(ErrorCode::SHUTTING_DOWN, "good night");
            server.drained().await;
        });
        let dialled = client.connect(address.await.unwrap(), None).await.unwrap();
        hears_of_the_end(&dialled).await;
    });
}

#[test]
fn a_close_goes_out_before_the_runtime_of_the_dialler_ends() {
    run_check(async {
        let authority = TestAuthority::new("drained");
        let (server, client) = (
            transport(authority.node("jm")),
            transport(authority.node("tm")),
        );
        let mut listener = server.listen(&any_port()).await.unwrap();
        let address = listener.local_addr();
        on_a_thread(move || async move {
            let connection = client.connect(address, None).await.unwrap();
            connection.close(ErrorCode::SHUTTING_DOWN, "good night");
            client.drained().await;
        });
        let accepted = tokio::time::timeout(DEADLINE, listener.accept()).await;
        hears_of_the_end(&accepted.unwrap().unwrap()).await;
    });
}

#[test]
fn the_port_is_free_when_listener_and_connections_are_gone() {
    run_check(async {
        let authority = TestAuthority::new("port");
        let server = transport(authority.node("jm"));
        let mut listener = server.listen(&any_port()).await.unwrap();
        let bind = BindAddr::single(listener.local_addr());
        let client = transport(authority.node("tm"));
        let address = listener.local_addr();
        let (dialled, accepted) = tokio::join!(client.connect(address, None), listener.accept());
        drop((listener, dialled, accepted));
        let bound = tokio::time::timeout(DEADLINE, async {
            while server.listen(&bind).await.is_err() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        bound.await.unwrap();
    });
}
