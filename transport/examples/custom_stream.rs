//! A protocol of one's own on the connections that the exchange uses: a key-value store that is asked over streams.
//!
//! ```sh
//! cargo run --release --example custom_stream
//! ```

use std::{collections::HashMap, error::Error, sync::Arc, time::Duration};

use bytes::{Buf, Bytes, BytesMut};
use thalweg_transport::{
    BoxFuture, BoxRecvStream, ConnectionId, Connections, ErrorCode, Node, PeerStream, RecvStream,
    ResourceId, SendStream, StreamHandler, StreamKind, TransportConfig, tcp::TcpTransport,
};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Kinds from 64 on belong to the embedding engine.
const LOOKUP: StreamKind = StreamKind(StreamKind::FIRST_CUSTOM);

/// Longest key. Whatever a peer can send has a limit, which is checked before memory is taken.
const MAX_KEY_BYTES: usize = 1024;

/// Request: length of the key in 2 bytes, big endian, and the key. Answer: the value, empty if there is none. A stream
/// carries one request, and the end of the answer is the end of the stream.
#[derive(Debug)]
struct Lookup {
    values: Arc<HashMap<Bytes, Bytes>>,
}

impl StreamHandler for Lookup {
    fn handle(&self, mut stream: PeerStream) -> BoxFuture<'static, ()> {
        let values = Arc::clone(&self.values);
        Box::pin(async move {
            let Some(key) = read_key(&mut stream.recv).await else {
                // Ends this stream with a code; the connection and its other streams live.
                stream.send.reset(ErrorCode::STREAM_PROTOCOL);
                return;
            };
            let value = values.get(&key).cloned().unwrap_or_default();
            if stream.send.write(&mut [value]).await.is_ok() {
                let _ = stream.send.finish();
            }
        })
    }
}

/// The key, or `None` if the peer breaks the protocol or goes away.
async fn read_key(recv: &mut BoxRecvStream) -> Option<Bytes> {
    let mut read = BytesMut::new();
    loop {
        if read.len() >= 2 {
            let length = usize::from(u16::from_be_bytes([read[0], read[1]]));
            if length > MAX_KEY_BYTES {
                return None;
            }
            if read.len() == 2 + length {
                read.advance(2);
                return Some(read.freeze());
            }
        }
        read.extend_from_slice(&recv.read(2 + MAX_KEY_BYTES).await.ok()??);
        if read.len() > 2 + MAX_KEY_BYTES {
            return None;
        }
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    // Without TLS, for brevity: `exchange.rs` shows nodes with certificates.
    let config = TransportConfig::default();
    let start = async |name: &str| -> Result<Node> {
        let node = Node::builder(ResourceId::new(name)?, config.clone());
        Ok(node.start(TcpTransport::new(&config, None)).await?)
    };
    let (store, client) = (start("store").await?, start("client").await?);
    let values = HashMap::from([(Bytes::from_static(b"river"), Bytes::from_static(b"Inn"))]);
    let values = Arc::new(values);
    store.register(LOOKUP, Arc::new(Lookup { values }));

    let connection = ConnectionId::new(store.id().clone(), store.advertised());
    let lease = client.acquire(connection).await?;
    for key in ["river", "lake"] {
        let mut stream = lease.open(LOOKUP).await?;
        let mut request = BytesMut::from(&u16::try_from(key.len())?.to_be_bytes()[..]);
        request.extend_from_slice(key.as_bytes());
        stream.send.write(&mut [request.freeze()]).await?;
        stream.send.finish()?;
        let mut value = BytesMut::new();
        while let Some(bytes) = stream.recv.read(64 * 1024).await? {
            value.extend_from_slice(&bytes);
        }
        eprintln!("{key}: {:?}", String::from_utf8_lossy(&value));
    }
    drop(lease);
    client.shutdown(Duration::from_secs(2)).await?;
    store.shutdown(Duration::from_secs(2)).await?;
    Ok(())
}
