//! How the command steers the server: one stream of a connection of its own, a line of JSON for each message.

use bytes::{Bytes, BytesMut};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use thalweg_transport::{
    BoxRecvStream, BoxSendStream, PeerStream, RecvStream, SendStream, StreamKind, chain,
};

use super::{machine::Machine, spec::Spec, usage::Usage};
use crate::cli::failure::Failure;

/// What the command asks for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Request {
    /// The first message.
    Hello { version: String },
    /// Be ready to produce.
    Prepare { spec: Spec },
    /// What was used so far; the peak of the memory starts anew if wished.
    Usage { reset_peak: bool },
    /// Stop producing and free everything.
    Finish,
}

/// What the server answers, to each request once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Response {
    Hello {
        machine: Machine,
    },
    /// Where the consumer is awaited, on the host of the control connection.
    Ready {
        port: u16,
    },
    Usage {
        usage: Usage,
    },
    Finished,
    /// It did not work; what there was is gone.
    Failed {
        reason: String,
    },
}

/// One end of a control stream.
#[derive(Debug)]
pub(crate) struct ControlStream {
    send: BoxSendStream,
    recv: BoxRecvStream,
    received: BytesMut,
}

impl ControlStream {
    pub(crate) fn new(stream: PeerStream) -> Self {
        Self {
            send: stream.send,
            recv: stream.recv,
            received: BytesMut::new(),
        }
    }

    /// # Cancel safety
    /// **Not** cancel-safe.
    pub(crate) async fn send<M: Serialize>(&mut self, message: &M) -> Result<(), Failure> {
        let mut line = serde_json::to_vec(message).map_err(|error| broken(&error))?;
        line.push(b'\n');
        let written = self.send.write(&mut [Bytes::from(line)]).await;
        written.map_err(|error| broken(&error))
    }

    /// The next message, or `None` if the other end has no more.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    pub(crate) async fn receive<M: DeserializeOwned>(&mut self) -> Result<Option<M>, Failure> {
        loop {
            if let Some(end) = self.received.iter().position(|byte| *byte == b'\n') {
                let line = self.received.split_to(end + 1);
                return serde_json::from_slice(&line)
                    .map(Some)
                    .map_err(|error| broken(&error));
            }
            if self.received.len() > MAX_LINE {
                return Err(Failure::failed(format!(
                    "the other end sent more than {MAX_LINE} bytes in one line of its control stream"
                )));
            }
            match self.recv.read(MAX_LINE).await {
                Ok(Some(chunk)) => self.received.extend_from_slice(&chunk),
                Ok(None) => return Ok(None),
                Err(error) => return Err(broken(&error)),
            }
        }
    }

    /// Says that nothing more comes.
    pub(crate) fn finish(&mut self) {
        // An error means that the other end is gone already.
        let _ = self.send.finish();
    }
}

fn broken(error: &(dyn std::error::Error + 'static)) -> Failure {
    Failure::failed(format!("the control stream failed: {}", chain(error)))
}

/// The streams of this kind.
pub(crate) const CONTROL: StreamKind = StreamKind(StreamKind::FIRST_CUSTOM);

/// What both ends must be equal in: the messages have no versions of their own.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Longest message; the largest one has some 300 bytes.
const MAX_LINE: usize = 16 * 1024;
