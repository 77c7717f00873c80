//! The backend against peers that are written by hand, on real sockets. Plaintext, so that every byte can be chosen; what
//! needs certificates is tested in the `thalweg-tests` crate, and the contract in its conformance suite.

mod handshakes;
mod hostile;

use std::{io, time::Duration};

use bytes::{BufMut, Bytes, BytesMut};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
};

use super::*;
use crate::{
    BindAddr, Connection, ConnectionError, ErrorCode, Listener, RecvStream, SendStream,
    StreamError, Transport, TransportConfig,
    proto::mux::{Control, Decoder, Header, Kind, MAGIC, Piece, Settings},
};

/// Far above what anything here takes: only a failure waits for it.
const DEADLINE: Duration = Duration::from_secs(10);

async fn within<F: Future>(what: &str, future: F) -> F::Output {
    match tokio::time::timeout(DEADLINE, future).await {
        Ok(output) => output,
        Err(_) => panic!("{what}: nothing happened for {DEADLINE:?}"),
    }
}

fn loopback() -> BindAddr {
    "127.0.0.1:0".parse().unwrap()
}

fn quick(change: impl FnOnce(&mut TransportConfig)) -> TransportConfig {
    let mut config = TransportConfig::default();
    change(&mut config);
    config
}

async fn listen(config: &TransportConfig) -> TcpListener {
    let transport = TcpTransport::new(config, None);
    transport.listen(&loopback()).await.unwrap()
}

fn control(control: &Control) -> Vec<u8> {
    let mut out = BytesMut::new();
    control.encode(&mut out);
    out.to_vec()
}

fn data(stream: u32, length: usize, payload: &[u8], fin: bool) -> Vec<u8> {
    let header = Header {
        kind: if fin { Kind::DataFin } else { Kind::Data },
        length: u32::try_from(length).unwrap(),
        stream,
    };
    [&header.encode()[..], payload].concat()
}

fn preface(window: u32) -> Vec<u8> {
    let settings = Settings {
        window,
        streams: 100,
    };
    [&MAGIC[..], &control(&Control::Settings(settings))].concat()
}

/// A peer that writes what it is told.
struct RawPeer {
    socket: TcpStream,
    decoder: Decoder,
    unread: Bytes,
}

impl RawPeer {
    async fn dial(listener: &TcpListener) -> Self {
        let socket = TcpStream::connect(listener.local_addr()).await.unwrap();
        Self {
            socket,
            decoder: Decoder::new(),
            unread: Bytes::new(),
        }
    }

    /// A peer that went through the handshake, and the connection to it.
    async fn connected(listener: &mut TcpListener, window: u32) -> (Self, TcpConnection) {
        let mut peer = Self::dial(listener).await;
        peer.send(&preface(window)).await;
        let connection = within("accept", listener.accept()).await.unwrap();
        let mut answer = [0; 24];
        peer.socket.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer[..8], MAGIC);
        (peer, connection)
    }

    async fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).await.unwrap();
    }

    /// Reads frames until one is CLOSE; the number of pings before it.
    async fn read_close(&mut self) -> (ErrorCode, String, usize) {
        let mut pings = 0;
        loop {
            let unread = std::mem::take(&mut self.unread);
            let mut rest = &unread[..];
            let piece = self.decoder.piece(&mut rest).unwrap();
            self.unread = unread.slice_ref(rest);
            match piece {
                Some(Piece::Control(Control::Close { code, reason })) => {
                    return (code, String::from_utf8(reason.to_vec()).unwrap(), pings);
                }
                Some(Piece::Control(Control::Ping { .. })) => pings += 1,
                Some(_) => {}
                None => {
                    let mut bytes = BytesMut::new();
                    let read = within("a frame", self.socket.read_buf(&mut bytes)).await;
                    assert!(read.unwrap() > 0, "the connection ended without a close");
                    self.unread = bytes.freeze();
                }
            }
        }
    }

    /// Reads until the other side has ended the connection.
    async fn read_to_end(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        match within("the end", self.socket.read_to_end(&mut all)).await {
            Ok(_) => {}
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset),
        }
        all
    }

    /// Ends the connection with a reset.
    fn abort(self) {
        socket2::SockRef::from(&self.socket)
            .set_linger(Some(Duration::ZERO))
            .unwrap();
    }
}

/// Accepts in the background; gives the connections.
fn accept_all(mut listener: TcpListener) -> JoinSet<()> {
    let mut task = JoinSet::new();
    task.spawn(async move {
        let mut kept = Vec::new();
        while let Ok(connection) = listener.accept().await {
            kept.push(connection);
        }
    });
    task
}

#[tokio::test]
async fn the_first_bytes_are_those_of_the_documentation() {
    let mut listener = listen(&TransportConfig::default()).await;
    let mut peer = RawPeer::dial(&listener).await;
    let hello = [
        b'T', b'H', b'A', b'L', b'W', b'E', b'G', 1, // magic and version
        0x0a, 0, 0, 8, 0, 0, 0, 0, // SETTINGS, 8 bytes, no stream
        0, 0, 0x40, 0, // window: 16 KiB
        0, 0, 0, 100, // streams
    ];
    peer.send(&hello).await;
    let _connection = within("accept", listener.accept()).await.unwrap();
    let mut answer = [0; 24];
    peer.socket.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer, hello);
}

#[tokio::test]
async fn a_stream_of_a_peer_written_by_hand_is_read_and_acknowledged() {
    let mut listener = listen(&TransportConfig::default()).await;
    let (mut peer, connection) = RawPeer::connected(&mut listener, 1000).await;
    peer.send(&data(1, 5, b"hello", true)).await;
    let (mut send, mut recv) = within("accept", connection.accept()).await.unwrap();
    let chunk = within("read", recv.read(100)).await.unwrap();
    assert_eq!(chunk.as_deref(), Some(&b"hello"[..]));
    assert_eq!(within("read", recv.read(100)).await.unwrap(), None);
    send.write(&mut [Bytes::from_static(b"answer")])
        .await
        .unwrap();
    send.finish().unwrap();
    let mut expected = BytesMut::new();
    expected.put_slice(&control(&Control::Consumed { stream: 1 }));
    expected.put_slice(&data(1, 6, b"answer", true));
    let mut found = Vec::new();
    while !found.ends_with(&expected) {
        let read = within("the answer", peer.socket.read_buf(&mut found)).await;
        assert!(read.unwrap() > 0, "{found:?}");
    }
}

#[tokio::test]
async fn pings_keep_a_quiet_connection_alive_and_measure_it() {
    let config = quick(|config| {
        config.keep_alive = Duration::from_millis(30);
        config.idle_timeout = Duration::from_millis(300);
    });
    let mut listener = listen(&config).await;
    let client = TcpTransport::new(&config, None);
    let (dialled, accepted) = within("connecting", async {
        tokio::join!(
            client.connect(listener.local_addr(), None),
            listener.accept()
        )
    })
    .await;
    let (dialled, _accepted) = (dialled.unwrap(), accepted.unwrap());
    let quiet = tokio::time::timeout(config.idle_timeout * 3, dialled.closed()).await;
    assert!(quiet.is_err(), "{quiet:?}");
    assert!(dialled.stats().rtt.is_some());
}

#[test]
fn a_runtime_that_goes_away_leaves_nobody_waiting() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    let network = runtime();
    let (connection, _peer) = network.block_on(async {
        let mut listener = listen(&TransportConfig::default()).await;
        let (peer, connection) = RawPeer::connected(&mut listener, 1000).await;
        (connection, peer)
    });
    drop(network);
    let error = runtime().block_on(within("accept", connection.accept()));
    assert!(matches!(error, Err(ConnectionError::Lost { .. })));
}
