//! Reads the blocks of one subpartition in order, region after region.

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;

use super::{
    block::{BLOCK_HEADER_BYTES, BlockHeader},
    file::{OpenFile, Place},
    index::{ENTRY_READ_BYTES, Stretch},
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
    /// Data blocks of the present region that were not read.
    left: u32,
    /// Data blocks that were read in all regions.
    read: u64,
}

impl Cursor {
    fn place(&self) -> Place {
        Place {
            region: self.next_region.saturating_sub(1),
            at: self.at,
        }
    }
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
                self.check_end(cursor)?;
                blocks.push_back(Block {
                    data_type: DataType::EndOfPartition,
                    payload: Bytes::new(),
                    compressed: false,
                    from,
                });
                return Ok((blocks, Next::Nothing));
            }
            let file = self.file()?;
            if cursor.at == cursor.end {
                self.enter_region(cursor, &file)?;
                continue;
            }
            let mut header = [0; BLOCK_HEADER_BYTES];
            file.read_at(&mut header, cursor.place())?;
            let damaged = |reason| file.damaged(cursor.place(), reason);
            let decoded = BlockHeader::decode(&header, self.subpartition, self.buffer_bytes)
                .map_err(damaged)?;
            let end = cursor.at + BLOCK_HEADER_BYTES as u64 + u64::from(decoded.length);
            if end > cursor.end {
                return Err(damaged("the block is longer than its region"));
            }
            let is_data = decoded.data_type.is_data();
            if is_data && cursor.left == 0 {
                return Err(damaged("there are more blocks than were written"));
            }
            let payload = if is_data {
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
            cursor.left -= u32::from(is_data);
            cursor.read += u64::from(is_data);
            blocks.push_back(Block {
                data_type: decoded.data_type,
                payload,
                compressed: decoded.compressed && self.keep_compressed,
                from,
            });
        }
    }

    /// The file, which is opened for the first block.
    fn file(&mut self) -> Result<Arc<OpenFile>, SpillError> {
        Ok(match &self.open {
            Some(file) => file.clone(),
            None => self.open.insert(self.layout.file.open()?).clone(),
        })
    }

    /// Finds the subpartition in the next region's index.
    fn enter_region(&self, cursor: &mut Cursor, file: &OpenFile) -> Result<(), SpillError> {
        check_region(cursor, file)?;
        let number = cursor.next_region;
        let region = self.layout.regions[number];
        let entry = if region.broadcast {
            0
        } else {
            self.subpartition
        };
        let place = Place {
            region: number,
            at: region.index + Stretch::offset(entry),
        };
        let mut bytes = [0; ENTRY_READ_BYTES];
        file.read_at(&mut bytes, place)?;
        let stretch =
            Stretch::decode(&bytes, number, entry).map_err(|reason| file.damaged(place, reason))?;
        if stretch.begin > stretch.end || stretch.end > region.index {
            return Err(file.damaged(place, "the index points behind its region"));
        }
        *cursor = Cursor {
            next_region: number + 1,
            at: stretch.begin,
            end: stretch.end,
            left: stretch.blocks,
            read: cursor.read,
        };
        Ok(())
    }

    /// Everything that was written has to be read before the end is told.
    fn check_end(&mut self, cursor: &Cursor) -> Result<(), SpillError> {
        let total = self.layout.totals[self.subpartition as usize];
        if cursor.left == 0 && cursor.read == total {
            return Ok(());
        }
        let file = self.file()?;
        check_region(cursor, &file)?;
        Err(file.damaged(cursor.place(), FEWER_BLOCKS))
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
                .ok_or_else(|| file.damaged(cursor.place(), "the block cannot be decompressed"))?;
            buffer.truncate(raw);
        } else {
            read_payload(file, cursor, header, buffer.space(length))?;
        }
        Ok(buffer.freeze())
    }
}

/// A region that is read has given as many blocks as were written to it.
fn check_region(cursor: &Cursor, file: &OpenFile) -> Result<(), SpillError> {
    if cursor.left == 0 {
        Ok(())
    } else {
        Err(file.damaged(cursor.place(), FEWER_BLOCKS))
    }
}

fn read_payload(
    file: &OpenFile,
    cursor: Cursor,
    header: &[u8; BLOCK_HEADER_BYTES],
    out: &mut [u8],
) -> Result<(), SpillError> {
    let mut place = cursor.place();
    place.at += BLOCK_HEADER_BYTES as u64;
    file.read_at(out, place)?;
    if BlockHeader::verify(header, out) {
        Ok(())
    } else {
        Err(file.damaged(cursor.place(), "the checksum is wrong"))
    }
}

const FEWER_BLOCKS: &str = "there are fewer blocks than were written";

/// Events that one read takes into memory beside the pool: four of the longest.
const MAX_EVENT_BYTES_READ: usize = 4 * crate::proto::MAX_EVENT_BYTES;

/// What an event costs without its payload.
const EVENT_OVERHEAD: usize = size_of::<Block>();
