//! The task of a remote channel: requests the subpartition and receives it into the channel's buffers.

use std::{
    future::poll_fn,
    sync::{Arc, Mutex, PoisonError},
    task::Poll,
};

use bytes::{Buf, Bytes};

use super::{
    channel::{Close, CreditBuffer},
    connection_manager::ConnectionManager,
    error::ExchangeError,
    gate_core::GateCore,
    requests::Requests,
    view::SubpartitionRequest,
};
use crate::{
    addr::ConnectionId,
    error::ErrorCode,
    handler::TransportError,
    landing::{Landed, Landing, SharedLanding},
    proto::{
        DataType, ErrorKind, ExecutionAttemptId, Frame, HeaderDecoder, PartitionId,
        PartitionRequest,
    },
    stream::BoxRecvStream,
    transport::RecvStream,
};

/// What a remote channel's task needs.
pub(super) struct RemoteChannel {
    pub(super) core: Arc<GateCore>,
    pub(super) index: usize,
    pub(super) connections: Arc<dyn ConnectionManager>,
    pub(super) requests: Requests,
    pub(super) connection: ConnectionId,
    pub(super) request: SubpartitionRequest,
    pub(super) consumer: ExecutionAttemptId,
    pub(super) initial_credit: u32,
}

impl RemoteChannel {
    /// Runs until the subpartition has ended, failed, or the gate is cancelled.
    pub(super) async fn run(mut self) {
        let cancel = self.core.cancel.clone();
        cancel.run_until_cancelled(self.receive()).await;
        self.core
            .detach_control(self.index, Close::Reset(ErrorCode::CANCELLED));
    }

    async fn receive(&mut self) {
        while let Err(error) = self.request_and_receive().await {
            // A producer that had the partition has released it: it does not come back, nor does what was received.
            let had_it = self.core.is_heard(self.index);
            if had_it || !self.requests.again(self.request, &error).await {
                self.core.fail(error);
                return;
            }
        }
    }

    async fn request_and_receive(&self) -> Result<(), ExchangeError> {
        let mut dial = CloseOnDrop {
            channel: self,
            pending: true,
        };
        let client = self
            .connections
            .create_partition_request_client(self.connection.clone())
            .await;
        dial.pending = false;
        let client = client?;
        let request = PartitionRequest {
            partition: self.request.partition,
            subpartition: self.request.subpartition,
            initial_credit: self.initial_credit,
            buffer_size: u32::try_from(self.core.pool.buffer_bytes()).unwrap_or(u32::MAX),
            producer: self.request.producer,
            consumer: self.consumer,
        };
        let stream = client.request_subpartition(&request).await?;
        let mut guard = StopOnDrop {
            recv: stream.recv,
            code: ErrorCode::CANCELLED,
        };
        self.core.attach_control(self.index, stream.send);
        let result = self.land(&mut guard.recv).await;
        let close = match &result {
            Ok(()) => Close::Finish,
            Err(error) => {
                guard.code = error.code();
                Close::Reset(error.code())
            }
        };
        self.core.detach_control(self.index, close);
        result
    }

    /// Receives until the partition has ended.
    async fn land(&self, recv: &mut BoxRecvStream) -> Result<(), ExchangeError> {
        let receiver = Arc::new(Mutex::new(Receiver::new(self)));
        let landing: SharedLanding = receiver.clone();
        let lock = || receiver.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let landed = recv.land(&landing).await;
            let (error, at_end) = {
                let mut receiver = lock();
                (receiver.error.take(), receiver.ended)
            };
            match (landed, error) {
                (_, Some(error)) => return Err(error),
                (Ok(Landed::Paused), None) => self.core.room_for_events(self.index).await,
                (Ok(Landed::End), None) if at_end && lock().decoder.is_empty() => return Ok(()),
                (Ok(Landed::End), None) => {
                    return Err(lock().protocol("the stream ends before the partition does"));
                }
                // All is here; how the stream goes away matters no more.
                (Err(_), None) if at_end => return Ok(()),
                (Err(error), None) => {
                    return Err(TransportError::from_stream(&self.connection, &error).into());
                }
            }
        }
    }
}

/// Gives the connection up if its channel is cancelled before it got its client. Later the connection is kept for the
/// next channel, however this one ends.
struct CloseOnDrop<'a> {
    channel: &'a RemoteChannel,
    pending: bool,
}

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        if self.pending {
            self.channel
                .connections
                .close_open_channel_connections(&self.channel.connection);
        }
    }
}

/// Stops the stream with a code of our choice, also where its task is dropped. After its end that does nothing.
struct StopOnDrop {
    recv: BoxRecvStream,
    code: ErrorCode,
}

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.recv.stop(self.code);
    }
}

/// Turns the bytes of a stream into items of the channel: one copy, into the buffer that the credit stood for.
struct Receiver {
    core: Arc<GateCore>,
    index: usize,
    partition: PartitionId,
    decoder: HeaderDecoder,
    body: Option<Body>,
    done: Vec<(DataType, Bytes)>,
    /// The producer has answered.
    heard: bool,
    ended: bool,
    error: Option<ExchangeError>,
}

impl Landing for Receiver {
    fn land(&mut self, bytes: &[u8]) {
        // What comes after an error is nobody's.
        if self.error.is_none() {
            self.error = self.on_bytes(bytes).err();
        }
    }

    fn hand_on(&mut self) -> bool {
        let has_room = self.done.is_empty() || self.core.deliver(self.index, &mut self.done);
        self.error.is_none() && (has_room || self.ended)
    }
}

impl Receiver {
    fn new(channel: &RemoteChannel) -> Self {
        Self {
            core: channel.core.clone(),
            index: channel.index,
            partition: channel.request.partition,
            decoder: HeaderDecoder::default(),
            body: None,
            done: Vec::new(),
            heard: false,
            ended: false,
            error: None,
        }
    }

    fn on_bytes(&mut self, mut bytes: &[u8]) -> Result<(), ExchangeError> {
        while !bytes.is_empty() {
            if let Some(mut body) = self.body.take() {
                let take = bytes.len().min(body.missing);
                body.append(&bytes[..take]);
                body.missing -= take;
                bytes.advance(take);
                if body.missing > 0 {
                    self.body = Some(body);
                } else {
                    self.on_body(body.target)?;
                }
                continue;
            }
            let frame = self
                .decoder
                .decode(&mut bytes)
                .map_err(|error| self.protocol(error))?;
            if let Some(frame) = frame {
                self.on_frame(frame)?;
            }
        }
        Ok(())
    }

    fn on_frame(&mut self, frame: Frame) -> Result<(), ExchangeError> {
        if self.ended {
            return Err(self.protocol("a frame came after the end of the partition"));
        }
        if !self.heard && !matches!(frame, Frame::Error { .. }) {
            self.heard = true;
            self.core.on_heard(self.index);
        }
        let (target, length) = match frame {
            Frame::Buffer {
                data_type: DataType::Data,
                length,
                sequence,
                backlog,
            } => (
                Target::Data(self.buffer(length, sequence, backlog)?),
                length,
            ),
            Frame::CompressedBuffer {
                length,
                sequence,
                backlog,
            } => {
                let buffer = self.buffer(length, sequence, backlog)?;
                (Target::Compressed(buffer), length)
            }
            Frame::Buffer {
                data_type,
                length,
                sequence,
                backlog,
            } => {
                self.core
                    .on_event(self.index, self.partition, data_type, sequence, backlog)?;
                (Target::Event(data_type, Vec::new()), length)
            }
            Frame::BacklogAnnouncement { backlog } => {
                self.core.on_backlog(self.index, backlog);
                return Ok(());
            }
            Frame::Opened => return Ok(()),
            Frame::Error { kind, length } => (Target::Error(kind, Vec::new()), length),
            Frame::Request { .. }
            | Frame::AddCredit { .. }
            | Frame::ResumeConsumption
            | Frame::AllRecordsAcknowledged
            | Frame::NewBufferSize { .. }
            | Frame::TaskEvent { .. } => {
                return Err(self.protocol(format!("a producer may not send {frame:?}")));
            }
        };
        if length == 0 {
            return self.on_body(target);
        }
        self.body = Some(Body {
            target,
            missing: length as usize,
        });
        Ok(())
    }

    /// The buffer that a payload goes into.
    fn buffer(
        &self,
        length: u32,
        sequence: u32,
        backlog: u32,
    ) -> Result<CreditBuffer, ExchangeError> {
        let size = self.core.pool.buffer_bytes();
        if length as usize > size {
            return Err(self.protocol(format!(
                "a buffer of {length} bytes came, at most {size} bytes are allowed"
            )));
        }
        self.core
            .on_data(self.index, self.partition, sequence, backlog)
    }

    fn on_body(&mut self, target: Target) -> Result<(), ExchangeError> {
        match target {
            Target::Data(buffer) => {
                // An empty buffer costs credit like another; it goes straight back.
                if !buffer.as_ref().is_empty() {
                    self.done.push((DataType::Data, buffer.freeze()));
                }
            }
            Target::Compressed(mut buffer) => {
                if !buffer.decompress() {
                    return Err(self.protocol("a buffer came that cannot be decompressed"));
                }
                return self.on_body(Target::Data(buffer));
            }
            Target::Event(data_type, payload) => {
                self.ended = data_type == DataType::EndOfPartition;
                self.done.push((data_type, payload.into()));
            }
            Target::Error(kind, text) => {
                return Err(ExchangeError::from_wire(self.partition, kind, &text));
            }
        }
        Ok(())
    }

    fn protocol(&self, reason: impl ToString) -> ExchangeError {
        ExchangeError::protocol(self.partition, reason)
    }
}

impl GateCore {
    /// The producer has the partition, and what it was told.
    fn on_heard(&self, index: usize) {
        let told = self.lock().channels[index].told.on_heard();
        drop(told);
    }

    fn is_heard(&self, index: usize) -> bool {
        self.lock().channels[index].told.is_heard()
    }

    /// Waits until the consumer has taken events. They cost no credit: a producer that sends them faster is held back
    /// here, and by the window of its stream.
    async fn room_for_events(&self, index: usize) {
        poll_fn(|context| {
            let mut state = self.lock();
            let channel = &mut state.channels[index];
            if channel.queue.has_room() {
                return Poll::Ready(());
            }
            let replaced = channel.receiver.replace(context.waker().clone());
            drop(state);
            drop(replaced);
            Poll::Pending
        })
        .await;
    }
}

/// A payload on its way.
struct Body {
    target: Target,
    missing: usize,
}

impl Body {
    fn append(&mut self, bytes: &[u8]) {
        match &mut self.target {
            Target::Data(buffer) | Target::Compressed(buffer) => {
                buffer.append(bytes);
            }
            Target::Event(_, payload) | Target::Error(_, payload) => {
                payload.extend_from_slice(bytes);
            }
        }
    }
}

enum Target {
    Data(CreditBuffer),
    Compressed(CreditBuffer),
    Event(DataType, Vec<u8>),
    Error(ErrorKind, Vec<u8>),
}
