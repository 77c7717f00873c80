//! Reads the blocks of one subpartition in order, region after region.

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;

use super::{
    block::{BLOCK_HEADER_BYTES, BlockHeader},
    file::OpenFile,
    region::Layout,
};
use crate::{
    exchange::{
        buffer::BufferMut, compression::decompress, io_manager::Scratch, spill_error::SpillError,
    },
    proto::DataType,
};

/// A place between two blocks of a subpartition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Cursor {
    /// The region to look at when the present one is read.
    next_region: usize,
    at: u64,
    end: u64,
}

/// What was read, and where from.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) data_type: DataType,
    pub(super) payload: Bytes,
    pub(super) compressed: bool,
    /// Where to read it again.
    pub(super) from: Cursor,
}

/// What comes after the blocks that were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Unknown,
    Data,
    /// The end of the partition was read.
    Nothing,
}

/// Reads one subpartition. Every call blocks.
#[derive(Debug, Clone)]
pub(super) struct BlockReader {
    pub(super) layout: Arc<Layout>,
    pub(super) subpartition: u32,
    pub(super) buffer_bytes: usize,
    /// Whether compressed blocks are handed out as they are.
    pub(super) keep_compressed: bool,
    /// The file, from the first block on.
    pub(super) open: Option<Arc<OpenFile>>,
}

impl BlockReader {
    /// Reads from `cursor` on: data while there are buffers for it, and events up to a limit. The end of the partition
    /// is a block of its own.
    pub(super) fn read(
        &mut self,
        cursor: &mut Cursor,
        buffers: Vec<BufferMut>,
        scratch: &mut Scratch,
    ) -> Result<(VecDeque<Block>, Next), SpillError> {
        let mut blocks = VecDeque::new();
        let mut buffers = buffers.into_iter();
        let mut event_bytes = 0;
        loop {
            if event_bytes > MAX_EVENT_BYTES_READ {
                return Ok((blocks, Next::Unknown));
            }
            let from = *cursor;
            if cursor.at == cursor.end && cursor.next_region == self.layout.regions.len() {
                blocks.push_back(Block {
                    data_type: DataType::EndOfPartition,
                    payload: Bytes::new(),
                    compressed: false,
                    from,
                });
                return Ok((blocks, Next::Nothing));
            }
            let file = match &self.open {
                Some(file) => file.clone(),
                None => self.open.insert(self.layout.file.open()?).clone(),
            };
            if cursor.at == cursor.end {
                self.enter_region(cursor, &file)?;
                continue;
            }
            let mut header = [0; BLOCK_HEADER_BYTES];
            file.read_at(&mut header, cursor.at)?;
            let decoded = BlockHeader::decode(&header, self.subpartition, self.buffer_bytes)
                .map_err(|reason| file.damaged(cursor.at, reason))?;
            let end = cursor.at + BLOCK_HEADER_BYTES as u64 + u64::from(decoded.length);
            if end > cursor.end {
                return Err(file.damaged(cursor.at, "the block is longer than its region"));
            }
            let payload = if decoded.data_type.is_data() {
                let Some(buffer) = buffers.next() else {
                    return Ok((blocks, Next::Data));
                };
                self.read_data(&file, *cursor, &header, decoded, buffer, scratch)?
            } else {
                let mut payload = vec![0; decoded.length as usize];
                read_payload(&file, *cursor, &header, &mut payload)?;
                event_bytes += EVENT_OVERHEAD + payload.len();
                payload.into()
            };
            cursor.at = end;
            blocks.push_back(Block {
                data_type: decoded.data_type,
                payload,
                compressed: decoded.compressed && self.keep_compressed,
                from,
            });
        }
    }

    /// Finds the subpartition in the next region's index.
    fn enter_region(&self, cursor: &mut Cursor, file: &OpenFile) -> Result<(), SpillError> {
        let region = self.layout.regions[cursor.next_region];
        let place = if region.broadcast {
            0
        } else {
            u64::from(self.subpartition)
        };
        let at = region.index + place * 8;
        let mut entry = [0; 16];
        file.read_at(&mut entry, at)?;
        let (begin, end) = entry.split_at(8);
        let number = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_be_bytes);
        let (begin, end) = (number(begin), number(end));
        if begin > end || end > region.index {
            return Err(file.damaged(at, "the index points behind its region"));
        }
        *cursor = Cursor {
            next_region: cursor.next_region + 1,
            at: begin,
            end,
        };
        Ok(())
    }

    fn read_data(
        &self,
        file: &OpenFile,
        cursor: Cursor,
        header: &[u8; BLOCK_HEADER_BYTES],
        decoded: BlockHeader,
        mut buffer: BufferMut,
        scratch: &mut Scratch,
    ) -> Result<Bytes, SpillError> {
        let length = decoded.length as usize;
        if decoded.compressed && !self.keep_compressed {
            let compressed = &mut scratch.block;
            compressed.clear();
            compressed.resize(length, 0);
            read_payload(file, cursor, header, compressed)?;
            let raw = decompress(compressed, buffer.space(self.buffer_bytes))
                .ok_or_else(|| file.damaged(cursor.at, "the block cannot be decompressed"))?;
            buffer.truncate(raw);
        } else {
            read_payload(file, cursor, header, buffer.space(length))?;
        }
        Ok(buffer.freeze())
    }
}

fn read_payload(
    file: &OpenFile,
    cursor: Cursor,
    header: &[u8; BLOCK_HEADER_BYTES],
    out: &mut [u8],
) -> Result<(), SpillError> {
    file.read_at(out, cursor.at + BLOCK_HEADER_BYTES as u64)?;
    if BlockHeader::verify(header, out) {
        Ok(())
    } else {
        Err(file.damaged(cursor.at, "the checksum is wrong"))
    }
}

/// Events that one read takes into memory beside the pool: four of the longest.
const MAX_EVENT_BYTES_READ: usize = 4 * crate::proto::MAX_EVENT_BYTES;

/// What an event costs without its payload.
const EVENT_OVERHEAD: usize = size_of::<Block>();
