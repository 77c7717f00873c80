//! Records out of a gate's buffers.

use bytes::{Buf, Bytes};

use super::{
    error::ExchangeError,
    event::{BufferOrEvent, Event},
    gate::InputGate,
    writer::{LENGTH_BYTES, MAX_RECORD_BYTES},
};

/// Reads the records that [`PartitionWriter`](super::PartitionWriter)s wrote.
///
/// A record that lies in one buffer is a slice of it, without a copy, and keeps the buffer out of its channel's credit
/// until it is dropped; one that spans buffers is copied together as they come, so that it needs none of them. A priority
/// event comes after the records of the buffer that is being read, and before those of all others.
///
/// ```
/// # use std::sync::Arc;
/// use thalweg_transport::exchange::{Event, Input, RecordReader};
/// # use thalweg_transport::{
/// #     Node, ResourceId, TransportConfig,
/// #     exchange::{ChannelSource, NodeExchange, SubpartitionRequest},
/// #     mem::{MemNetwork, MemTransport},
/// #     proto::{ExecutionAttemptId, PartitionId, SubpartitionIndex},
/// # };
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// # let config = TransportConfig::default();
/// # let node = Node::builder(ResourceId::new("node")?, config.clone())
/// #     .start(MemTransport::new(MemNetwork::new(), None))
/// #     .await?;
/// # let exchange = NodeExchange::start(Arc::new(node), &config)?;
/// # let (partition, producer) = (PartitionId::new(1, 0), ExecutionAttemptId(1));
/// # let request = SubpartitionRequest { partition, producer, subpartition: SubpartitionIndex(0) };
/// let mut writer = exchange.publish(partition, producer, 1)?;
/// for record in ["one", "two"] {
///     writer.emit(0, record.as_bytes()).await?;
/// }
/// writer.broadcast_event(Event::EndOfData)?;
/// writer.finish()?;
///
/// let channels = vec![ChannelSource::Local(request)];
/// let gate = exchange.gate("sink", ExecutionAttemptId(2), channels).await?;
/// let (mut reader, mut records) = (RecordReader::new(gate), Vec::new());
/// while let Some((_channel, input)) = reader.next().await? {
///     match input {
///         Input::Record(bytes) => records.push(bytes),
///         Input::Event(Event::EndOfData) => assert_eq!(records, ["one", "two"]),
///         Input::Event(_) => {}
///     }
/// }
/// assert_eq!(records.len(), 2);
/// # Ok(())
/// # }
/// # tokio::runtime::Runtime::new().unwrap().block_on(run()).unwrap();
/// ```
#[derive(Debug)]
pub struct RecordReader {
    gate: InputGate,
    channels: Vec<Assembler>,
    current: usize,
    /// Why nothing more can be read.
    failed: Option<ExchangeError>,
}

impl RecordReader {
    /// Reads from a gate.
    #[must_use]
    pub fn new(gate: InputGate) -> Self {
        Self {
            gate,
            channels: Vec::new(),
            current: 0,
            failed: None,
        }
    }

    /// The gate.
    #[must_use]
    pub fn gate(&self) -> &InputGate {
        &self.gate
    }

    /// The gate.
    pub fn gate_mut(&mut self) -> &mut InputGate {
        &mut self.gate
    }

    /// The next record or event and the index of its channel; `None` when every channel has ended. The records of one
    /// buffer come together, the channels take turns buffer by buffer.
    ///
    /// # Errors
    /// As [`InputGate::next`]; [`ExchangeError::TooLarge`] for a record above [`MAX_RECORD_BYTES`] and
    /// [`ExchangeError::InvalidState`] for a channel that ends inside a record, every time.
    ///
    /// # Cancel safety
    /// Cancel-safe: nothing is lost.
    pub async fn next(&mut self) -> Result<Option<(usize, Input)>, ExchangeError> {
        loop {
            if let Some(channel) = self.channels.get_mut(self.current)
                && let Some(record) = channel.next_record()?
            {
                return Ok(Some((self.current, Input::Record(record))));
            }
            self.check()?;
            let Some((index, item)) = self.gate.next().await? else {
                return Ok(None);
            };
            if let Some(event) = self.on_item(index, item)? {
                return Ok(Some((index, Input::Event(event))));
            }
        }
    }

    /// As [`next`](Self::next) without waiting: the outer `None` says that nothing is there now.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub fn try_next(&mut self) -> Result<Option<Option<(usize, Input)>>, ExchangeError> {
        loop {
            if let Some(channel) = self.channels.get_mut(self.current)
                && let Some(record) = channel.next_record()?
            {
                return Ok(Some(Some((self.current, Input::Record(record)))));
            }
            self.check()?;
            let Some(item) = self.gate.try_next() else {
                return Ok(None);
            };
            let Some((index, item)) = item? else {
                return Ok(Some(None));
            };
            if let Some(event) = self.on_item(index, item)? {
                return Ok(Some(Some((index, Input::Event(event)))));
            }
        }
    }

    fn check(&self) -> Result<(), ExchangeError> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    fn on_item(
        &mut self,
        index: usize,
        item: BufferOrEvent,
    ) -> Result<Option<Event>, ExchangeError> {
        if index >= self.channels.len() {
            self.channels.resize_with(index + 1, Assembler::default);
        }
        let channel = &mut self.channels[index];
        match item {
            BufferOrEvent::Buffer(buffer) => {
                channel.buffer = buffer;
                self.current = index;
                Ok(None)
            }
            BufferOrEvent::Event(Event::EndOfPartition) if !channel.is_between_records() => {
                let error = ExchangeError::InvalidState {
                    what: format!("channel {index}"),
                    reason: "it ends inside a record",
                };
                Err(self.failed.insert(error).clone())
            }
            BufferOrEvent::Event(event) => Ok(Some(event)),
        }
    }
}

/// One item of a [`RecordReader`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// A record.
    Record(Bytes),
    /// An event, in order with the records.
    Event(Event),
}

/// Cuts the byte stream of one channel into records.
#[derive(Debug, Default)]
struct Assembler {
    buffer: Bytes,
    prefix: [u8; LENGTH_BYTES],
    prefix_filled: usize,
    /// A record that spans buffers, and its whole length.
    partial: Option<(Vec<u8>, usize)>,
}

impl Assembler {
    fn is_between_records(&self) -> bool {
        self.buffer.is_empty() && self.prefix_filled == 0 && self.partial.is_none()
    }

    fn next_record(&mut self) -> Result<Option<Bytes>, ExchangeError> {
        if let Some((record, length)) = &mut self.partial {
            let part = self
                .buffer
                .split_to(self.buffer.len().min(*length - record.len()));
            record.extend_from_slice(&part);
            if record.len() < *length {
                return Ok(None);
            }
            return Ok(self.partial.take().map(|(record, _)| record.into()));
        }
        let take = self.buffer.len().min(LENGTH_BYTES - self.prefix_filled);
        self.prefix[self.prefix_filled..self.prefix_filled + take]
            .copy_from_slice(&self.buffer[..take]);
        self.buffer.advance(take);
        self.prefix_filled += take;
        if self.prefix_filled < LENGTH_BYTES {
            self.buffer = Bytes::new();
            return Ok(None);
        }
        let length = u32::from_be_bytes(self.prefix) as usize;
        if length > MAX_RECORD_BYTES {
            // The length stays, and with it the error: what follows it is no length.
            return Err(ExchangeError::TooLarge {
                what: "record",
                bytes: length as u64,
                limit: MAX_RECORD_BYTES as u64,
            });
        }
        self.prefix_filled = 0;
        if self.buffer.len() >= length {
            let record = self.buffer.split_to(length);
            if self.buffer.is_empty() {
                // Nothing is left of it here: only its records keep the memory.
                self.buffer = Bytes::new();
            }
            return Ok(Some(record));
        }
        // Memory grows with what has come, not with what was announced.
        let mut record = Vec::with_capacity(length.min(FIRST_CAPACITY));
        record.extend_from_slice(&self.buffer);
        self.buffer = Bytes::new();
        self.partial = Some((record, length));
        Ok(None)
    }
}

/// What is reserved for a record that spans buffers before its bytes come.
const FIRST_CAPACITY: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cut(assembler: &mut Assembler, stream: &[u8], sizes: &[usize]) -> Vec<Bytes> {
        let (mut rest, mut records) = (Bytes::copy_from_slice(stream), Vec::new());
        let mut sizes = sizes.iter().cycle();
        while !rest.is_empty() {
            assembler.buffer = rest.split_to(rest.len().min(*sizes.next().unwrap()));
            while let Some(record) = assembler.next_record().unwrap() {
                records.push(record);
            }
        }
        records
    }

    proptest! {
        #[test]
        fn records_survive_any_cut_into_buffers(
            records in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..50), 0..20),
            sizes in proptest::collection::vec(1usize..30, 1..20),
        ) {
            let mut stream = Vec::new();
            for record in &records {
                stream.extend_from_slice(&u32::try_from(record.len()).unwrap().to_be_bytes());
                stream.extend_from_slice(record);
            }
            let mut assembler = Assembler::default();
            prop_assert_eq!(cut(&mut assembler, &stream, &sizes), records);
            prop_assert!(assembler.is_between_records());
        }
    }

    #[test]
    fn a_record_inside_one_buffer_is_not_copied() {
        let buffer = Bytes::from(vec![0, 0, 0, 2, 7, 8, 0, 0, 0, 1, 9]);
        let mut assembler = Assembler {
            buffer: buffer.clone(),
            ..Assembler::default()
        };
        let record = assembler.next_record().unwrap().unwrap();
        assert_eq!(record.as_ptr(), buffer[4..].as_ptr());
        assert_eq!(record.as_ref(), [7, 8]);
        assert_eq!(assembler.next_record().unwrap().unwrap().as_ref(), [9]);
    }

    #[test]
    fn a_length_above_the_limit_is_refused_before_memory_is_taken() {
        let mut assembler = Assembler {
            buffer: Bytes::from_static(&[0x80, 0, 0, 0, 0, 0, 0, 0, 1]),
            ..Assembler::default()
        };
        for _ in 0..3 {
            assert!(matches!(
                assembler.next_record(),
                Err(ExchangeError::TooLarge { .. })
            ));
        }
        let mut assembler = Assembler {
            buffer: Bytes::from_static(&[0x40, 0, 0, 0, 1]),
            ..Assembler::default()
        };
        assert_eq!(assembler.next_record().unwrap(), None);
        assert!(assembler.partial.unwrap().0.capacity() <= FIRST_CAPACITY);
    }
}
