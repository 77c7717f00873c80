//! The reading part of a partition stream's task at the producer.

use bytes::Bytes;

use super::{End, YIELD_BYTES, inbox::Shared};
use crate::{
    exchange::{
        error::ExchangeError,
        task_events::{TaskEvent, TaskEventDispatcher},
    },
    proto::{
        ExecutionAttemptId, Frame, HeaderDecoder, PartitionId, PartitionRequest, REQUEST_BODY_BYTES,
    },
    stream::BoxRecvStream,
    transport::RecvStream,
};

/// Reads what the consumer sends: the request, then credit, resumes and whatever else it may say.
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
        let mut body = [0; REQUEST_BODY_BYTES];
        body.copy_from_slice(&self.body(recv, REQUEST_BODY_BYTES).await?);
        Ok(PartitionRequest::decode(initial_credit, buffer_size, &body))
    }

    /// Never ends but by the consumer's fault or wish.
    pub(super) async fn run(
        &mut self,
        recv: &mut BoxRecvStream,
        shared: &Shared,
        events: TaskEvents<'_>,
    ) -> Result<(), End> {
        let mut since_yield = 0;
        loop {
            while let Some(frame) = self.next()? {
                match frame {
                    Frame::AddCredit { credit } => shared.lock().credit.on_add_credit(credit)?,
                    Frame::ResumeConsumption => shared.lock().credit.on_resume(),
                    Frame::AllRecordsAcknowledged => shared.lock().on_acknowledged()?,
                    Frame::NewBufferSize { bytes } => shared.lock().on_buffer_size(bytes),
                    Frame::TaskEvent { length } => {
                        let event = TaskEvent(self.body(recv, length as usize).await?.into());
                        since_yield += length as usize;
                        let due = shared.lock().on_task_event(event)?;
                        if let Some(event) = due {
                            events.publish(&event, shared);
                        }
                    }
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

    async fn body(&mut self, recv: &mut BoxRecvStream, length: usize) -> Result<Vec<u8>, End> {
        let mut body = Vec::new();
        while body.len() < length {
            self.fill(recv).await?;
            let take = self.unread.len().min(length - body.len());
            body.extend_from_slice(&self.unread.split_to(take));
        }
        Ok(body)
    }

    async fn fill(&mut self, recv: &mut BoxRecvStream) -> Result<(), End> {
        if self.unread.is_empty() {
            self.unread = recv
                .read(CONTROL_READ_BYTES)
                .await?
                .ok_or_else(|| End::Protocol("the stream ends inside a frame".to_owned()))?;
        }
        Ok(())
    }
}

/// Where the task events of one stream go.
#[derive(Debug, Clone, Copy)]
pub(super) struct TaskEvents<'a> {
    pub(super) dispatcher: &'a TaskEventDispatcher,
    pub(super) partition: PartitionId,
    pub(super) producer: ExecutionAttemptId,
}

impl TaskEvents<'_> {
    /// Delivers an event in the stream's task. Without a receiver the channel fails, and it alone.
    pub(super) fn publish(self, event: &TaskEvent, shared: &Shared) {
        let (partition, producer) = (self.partition, self.producer);
        if !self.dispatcher.publish(partition, producer, event) {
            shared.lock().fail(ExchangeError::Internal {
                partition,
                message: "task event receiver not found".to_owned(),
            });
        }
    }
}

/// Credit frames are small; one read takes many.
const CONTROL_READ_BYTES: usize = 4096;
