//! The first two frames of a gateway stream, from either side.

use std::time::Duration;

use bytes::BytesMut;
use thalweg_transport::{
    Lease, PeerStream, RecvStream, SendStream, StreamError, StreamKind, TransportError,
};

use super::{
    address::RpcAddress,
    call::decode,
    error::RpcError,
    served::ServedGateway,
    service::RpcService,
    wire::{self, Decoder, Frame, Head},
};

/// A stream that is welcome, before its task runs.
pub(super) struct Opened {
    pub(super) lease: Lease,
    pub(super) stream: PeerStream,
    pub(super) decoder: Decoder,
    pub(super) address: RpcAddress,
    pub(super) max_frame: u32,
}

/// Introduces a caller. Cancel-safe: a dropped handshake resets its stream.
pub(super) async fn shake_hands(
    service: &RpcService,
    lease: Lease,
    address: &RpcAddress,
    gateway: &str,
) -> Result<Opened, RpcError> {
    let failed = |error: &TransportError| RpcError::connection(address, error);
    let stream_failed =
        |error: &StreamError| failed(&TransportError::from_stream(lease.peer(), error));
    let broken = |reason: String| RpcError::Handshake {
        address: address.to_string(),
        reason,
    };
    let mut stream = lease.open(StreamKind::RPC).await.map_err(|e| failed(&e))?;
    // Calls go before partition data where streams compete.
    stream.send.set_priority(PRIORITY);
    let own_max = service.config().max_frame_size;
    let body = wire::encode_hello(gateway, address.endpoint());
    let head = Head::Hello {
        lowest: wire::LOWEST_VERSION,
        highest: wire::HIGHEST_VERSION,
        max_frame: own_max,
    };
    let length = u32::try_from(body.len()).expect("two names of at most 129 bytes");
    let mut hello = BytesMut::new();
    head.encode(length, &mut hello);
    hello.extend_from_slice(&body);
    stream
        .send
        .write(&mut [hello.freeze()])
        .await
        .map_err(|e| stream_failed(&e))?;
    let mut decoder = Decoder::new(own_max);
    let frame = loop {
        if let Some(frame) = decoder.next_frame().map_err(|e| broken(e.to_string()))? {
            break frame;
        }
        match stream.recv.read(READ_BYTES).await {
            Ok(Some(bytes)) => decoder.push(&bytes),
            Ok(None) => return Err(broken("the peer ended the stream".to_owned())),
            Err(error) => return Err(stream_failed(&error)),
        }
    };
    match frame.head {
        Head::Welcome { version, max_frame } if version == wire::HIGHEST_VERSION => {
            let name = std::str::from_utf8(&frame.body).unwrap_or_default();
            let address = address
                .with_endpoint(name)
                .map_err(|error| broken(error.to_string()))?;
            Ok(Opened {
                lease,
                stream,
                decoder,
                address,
                max_frame: max_frame.min(own_max),
            })
        }
        Head::Refuse => Err(refusal(address, &frame.body)),
        other => Err(broken(format!("unexpected frame {other:?}"))),
    }
}

/// The callee's refusal, with the address as the caller wrote it.
fn refusal(address: &RpcAddress, body: &[u8]) -> RpcError {
    let mut error = read_error(body);
    if let RpcError::Handshake { address: text, .. }
    | RpcError::RecipientUnreachable { address: text, .. } = &mut error
    {
        *text = address.to_string();
    }
    error
}

/// What a caller asked for, and gets.
pub(super) struct Welcome {
    pub(super) version: u8,
    pub(super) max_frame: u32,
    pub(super) name: String,
    pub(super) address: String,
    pub(super) gateway: ServedGateway,
}

/// What is said to a caller that gets nothing.
pub(super) enum Rejection {
    Protocol,
    Refused(RpcError),
}

/// Looks at a caller's hello.
pub(super) fn welcome(service: &RpcService, frame: &Frame) -> Result<Welcome, Rejection> {
    let Head::Hello {
        lowest,
        highest,
        max_frame,
    } = frame.head
    else {
        return Err(Rejection::Protocol);
    };
    let (gateway, name) = wire::decode_hello(&frame.body).map_err(|_| Rejection::Protocol)?;
    let handshake = |reason: String| {
        Rejection::Refused(RpcError::Handshake {
            address: name.to_owned(),
            reason,
        })
    };
    let version = wire::common_version(lowest, highest).ok_or_else(|| {
        handshake(format!(
            "no common protocol version: {lowest} to {highest} offered, {} to {} known",
            wire::LOWEST_VERSION,
            wire::HIGHEST_VERSION
        ))
    })?;
    if service.is_stopped() {
        return Err(Rejection::Refused(RpcError::RecipientUnreachable {
            address: name.to_owned(),
            reason: format!("the rpc service of node {} is stopped", service.id()),
        }));
    }
    let endpoint = service.look_up(name).ok_or_else(|| {
        Rejection::Refused(RpcError::RecipientUnreachable {
            address: name.to_owned(),
            reason: format!("node {} has no such endpoint", service.id()),
        })
    })?;
    let gateway = endpoint
        .gateway(gateway)
        .ok_or_else(|| handshake(format!("the endpoint does not serve gateway {gateway}")))?;
    Ok(Welcome {
        version,
        max_frame,
        name: endpoint.name().to_owned(),
        address: endpoint.address().to_string(),
        gateway: gateway.clone(),
    })
}

/// The error in a frame; one that this side does not know is an error, too.
pub(super) fn read_error(body: &[u8]) -> RpcError {
    decode::<RpcError>(body).map_or_else(
        |reason| RpcError::Decode {
            what: "error answer".to_owned(),
            reason,
        },
        RpcError::sanitized,
    )
}

/// The body of an error frame.
pub(super) fn encode_error(error: RpcError) -> Vec<u8> {
    postcard::to_stdvec(&error.sanitized()).expect("texts and numbers have an encoding")
}

/// Above partition data, which has 0.
pub(super) const PRIORITY: i32 = 10;

/// Fits a cache and a few TLS records.
pub(super) const READ_BYTES: usize = 64 * 1024;

/// A peer that reads at all reads within a second.
pub(super) const FLUSH: Duration = Duration::from_secs(1);
