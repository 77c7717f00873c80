//! The reading part of a partition stream's task at the producer.

use bytes::Bytes;

use super::{End, Shared, YIELD_BYTES};
use crate::{
    proto::{Frame, HeaderDecoder, PartitionRequest, REQUEST_BODY_BYTES},
    stream::BoxRecvStream,
    transport::RecvStream,
};

/// Reads what the consumer sends: the request, then credit and resumes.
#[derive(Debug, Default)]
pub(super) struct ControlReader {
    decoder: HeaderDecoder,
    unread: Bytes,
}

impl ControlReader {
    pub(super) async fn request(
        &mut self,
        recv: &mut BoxRecvStream,
    ) -> Result<PartitionRequest, End> {
        let frame = loop {
            self.fill(recv).await?;
            if let Some(frame) = self.next()? {
                break frame;
            }
        };
        let Frame::Request {
            initial_credit,
            buffer_size,
        } = frame
        else {
            return Err(End::Protocol("the first frame is no request".to_owned()));
        };
        if buffer_size == 0 {
            return Err(End::Protocol(
                "the request has buffers of 0 bytes".to_owned(),
            ));
        }
        let (mut body, mut filled) = ([0; REQUEST_BODY_BYTES], 0);
        while filled < body.len() {
            self.fill(recv).await?;
            let part = self
                .unread
                .split_to(self.unread.len().min(body.len() - filled));
            body[filled..filled + part.len()].copy_from_slice(&part);
            filled += part.len();
        }
        Ok(PartitionRequest::decode(initial_credit, buffer_size, &body))
    }

    /// Never ends but by the consumer's fault or wish.
    pub(super) async fn run(
        &mut self,
        recv: &mut BoxRecvStream,
        shared: &Shared,
    ) -> Result<(), End> {
        let mut since_yield = 0;
        loop {
            while let Some(frame) = self.next()? {
                match frame {
                    Frame::AddCredit { credit } => shared.credit().on_add_credit(credit)?,
                    Frame::ResumeConsumption => shared.credit().on_resume(),
                    other => {
                        return Err(End::Protocol(format!(
                            "a consumer may not send {other:?} here"
                        )));
                    }
                }
                shared.wake.notify_one();
            }
            if since_yield >= YIELD_BYTES {
                since_yield = 0;
                tokio::task::yield_now().await;
            }
            match recv.read(CONTROL_READ_BYTES).await? {
                Some(bytes) => {
                    since_yield += bytes.len();
                    self.unread = bytes;
                }
                None if self.decoder.is_empty() => break,
                None => return Err(End::Protocol("the stream ends inside a frame".to_owned())),
            }
        }
        // The consumer has no more to say; it may still want data for the credit that it gave.
        std::future::pending().await
    }

    fn next(&mut self) -> Result<Option<Frame>, End> {
        if self.unread.is_empty() {
            return Ok(None);
        }
        self.decoder
            .decode(&mut self.unread)
            .map_err(|error| End::Protocol(error.to_string()))
    }

    async fn fill(&mut self, recv: &mut BoxRecvStream) -> Result<(), End> {
        if self.unread.is_empty() {
            self.unread = recv
                .read(CONTROL_READ_BYTES)
                .await?
                .ok_or_else(|| End::Protocol("the stream ends inside the request".to_owned()))?;
        }
        Ok(())
    }
}

/// Credit frames are small; one read takes many.
const CONTROL_READ_BYTES: usize = 4096;
