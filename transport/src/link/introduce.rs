//! The exchange of hellos on a connection's first stream.

use bytes::BytesMut;
use tokio::time::timeout;

use super::{
    HELLO_LIMIT, Local,
    stream::{STREAM_VERSION, header, priority, read_header},
};
use crate::{
    error::{ConnectionError, ErrorCode, StreamError},
    handler::{Peer, StreamKind},
    identity::{PeerIdentity, ResourceId},
    proto::hello::{Agreement, Hello, HelloError, MAX_HELLO_BYTES},
    transport::{Connection, RecvStream, SendStream},
};

/// Why two nodes did not get acquainted. The connection is closed with the same code, if it was not before.
#[derive(Debug)]
pub(super) enum IntroduceError {
    /// We refused the peer.
    Rejected { code: ErrorCode, reason: String },
    /// The stream or the connection ended first.
    Stream(StreamError),
}

impl From<StreamError> for IntroduceError {
    fn from(error: StreamError) -> Self {
        Self::Stream(error)
    }
}

impl From<ConnectionError> for IntroduceError {
    fn from(error: ConnectionError) -> Self {
        Self::Stream(error.into())
    }
}

impl From<HelloError> for IntroduceError {
    fn from(error: HelloError) -> Self {
        rejected(error.code(), error.to_string())
    }
}

/// Introduces the dialling side: writes our hello and reads the answer.
pub(super) async fn introduce_dialled<C: Connection>(
    local: &Local,
    connection: &C,
    expected: Option<&ResourceId>,
) -> Result<(Peer, Agreement), IntroduceError> {
    let exchange = async {
        let (mut send, mut recv) = connection.open().await?;
        send.set_priority(priority(StreamKind::HELLO));
        let mut chunks = [header(StreamKind::HELLO), local.hello_bytes.clone()];
        send.write(&mut chunks).await?;
        send.finish()?;
        let outcome = answer(local, connection, expected, &mut recv).await;
        close_if_rejected(connection, &outcome);
        outcome
    };
    within_limit(local, connection, exchange).await
}

/// Introduces the accepting side: reads the peer's hello from its first stream and answers with ours, unless `admit` says
/// why the peer gets no place. Gives the place, too.
pub(super) async fn introduce_accepted<C: Connection, P>(
    local: &Local,
    connection: &C,
    admit: impl FnOnce(&Peer) -> Result<P, String>,
) -> Result<(Peer, Agreement, P), IntroduceError> {
    let exchange = async {
        let (mut send, mut recv) = connection.accept().await?;
        send.set_priority(priority(StreamKind::HELLO));
        let outcome = async {
            let (kind, version) = read_header(&mut recv).await?.ok_or_else(ended_early)?;
            if kind != StreamKind::HELLO {
                let reason = format!("the first stream is not a hello but {kind}");
                return Err(rejected(ErrorCode::PROTOCOL, reason));
            }
            if version != STREAM_VERSION {
                let reason =
                    format!("stream version {version} of the hello, expected {STREAM_VERSION}");
                return Err(rejected(ErrorCode::VERSION_MISMATCH, reason));
            }
            let (peer, agreement) = answer(local, connection, None, &mut recv).await?;
            let place = admit(&peer).map_err(|why| rejected(ErrorCode::LIMIT_EXCEEDED, why))?;
            send.write(&mut [local.hello_bytes.clone()]).await?;
            send.finish()?;
            Ok((peer, agreement, place))
        }
        .await;
        close_if_rejected(connection, &outcome);
        outcome
    };
    within_limit(local, connection, exchange).await
}

async fn within_limit<C: Connection, T>(
    local: &Local,
    connection: &C,
    exchange: impl Future<Output = Result<T, IntroduceError>>,
) -> Result<T, IntroduceError> {
    let limit = local.config.handshake_timeout.min(HELLO_LIMIT);
    let Ok(outcome) = timeout(limit, exchange).await else {
        let reason = format!("no hello within {} ms", limit.as_millis());
        connection.close(ErrorCode::TIMED_OUT, &reason);
        return Err(rejected(ErrorCode::TIMED_OUT, reason));
    };
    outcome
}

/// Reads and judges the peer's hello.
async fn answer<C: Connection>(
    local: &Local,
    connection: &C,
    expected: Option<&ResourceId>,
    recv: &mut C::Recv,
) -> Result<(Peer, Agreement), IntroduceError> {
    let theirs = read_hello(recv).await?;
    judge(local, connection.peer(), expected, &theirs)?;
    let agreement = local.hello.agree(&theirs)?;
    let peer = Peer {
        id: theirs.id,
        identity: connection.peer().clone(),
        address: connection.remote_addr(),
    };
    Ok((peer, agreement))
}

async fn read_hello<R: RecvStream>(recv: &mut R) -> Result<Hello, IntroduceError> {
    let mut bytes = BytesMut::new();
    let (hello, used) = loop {
        if let Some(complete) = Hello::decode(&bytes)? {
            break complete;
        }
        // A hello that fits is complete before the room is used up.
        let room = (MAX_HELLO_BYTES - bytes.len()).max(1);
        let chunk = recv.read(room).await?.ok_or_else(ended_early)?;
        bytes.extend_from_slice(&chunk);
    };
    // The end is awaited, too: a half that is dropped before its end is stopped, and the peer's `finish` would fail.
    if used < bytes.len() || recv.read(1).await?.is_some() {
        let reason = "bytes after the hello".to_owned();
        return Err(rejected(ErrorCode::PROTOCOL, reason));
    }
    Ok(hello)
}

/// Compares what the peer claims with what its certificate proves, and with whom we wanted.
fn judge(
    local: &Local,
    identity: &PeerIdentity,
    expected: Option<&ResourceId>,
    theirs: &Hello,
) -> Result<(), IntroduceError> {
    let claimed = &theirs.id;
    let mismatch = |reason| Err(rejected(ErrorCode::IDENTITY_MISMATCH, reason));
    if let PeerIdentity::Verified(proved) = identity
        && proved.id != *claimed
    {
        return mismatch(format!(
            "node {} was told the name {claimed}, but the certificate proves {}",
            local.id(),
            proved.uri
        ));
    }
    match expected {
        Some(expected) if expected != claimed => mismatch(format!(
            "node {} dialled {expected} and found {claimed}",
            local.id()
        )),
        _ => Ok(()),
    }
}

fn close_if_rejected<C: Connection, T>(connection: &C, outcome: &Result<T, IntroduceError>) {
    if let Err(IntroduceError::Rejected { code, reason }) = outcome {
        connection.close(*code, reason);
    }
}

fn rejected(code: ErrorCode, reason: String) -> IntroduceError {
    IntroduceError::Rejected { code, reason }
}

fn ended_early() -> IntroduceError {
    rejected(
        ErrorCode::PROTOCOL,
        "the first stream ended within the hello".to_owned(),
    )
}
