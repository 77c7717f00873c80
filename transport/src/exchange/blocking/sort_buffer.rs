//! What a writer has gathered and not yet written to disk, in the order of subpartitions.

use bytes::Bytes;

use crate::{exchange::buffer::BufferMut, proto::DataType};

/// Gathers the bytes of many subpartitions in a few buffers, in the order in which they come, with an entry for each
/// piece; the entries of one subpartition form a chain.
///
/// Pure: it is given its buffers. An entry takes 16 bytes beside them; [`MAX_ENTRIES_PER_BUFFER`] bounds how many there
/// are. Bytes that the writer owns already, and events, are kept as they are: they become blocks of their own.
#[derive(Debug)]
pub(super) struct SortBuffer {
    buffers: Vec<BufferMut>,
    pieces: Vec<Bytes>,
    entries: Vec<Entry>,
    chains: Box<[Chain]>,
    /// Everything is for every subpartition and stands in the first chain.
    broadcast: bool,
}

/// Whom something is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::exchange) enum Target {
    /// One subpartition.
    One(usize),
    /// All of them.
    All,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    /// The next one of its chain, or `NONE`.
    next: u32,
    /// A byte of the buffers, or a piece.
    at: u32,
    /// Bytes of records; for a piece its data type.
    length: u32,
    is_piece: bool,
}

#[derive(Debug, Clone, Copy)]
struct Chain {
    first: u32,
    last: u32,
}

/// A part of what one subpartition gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part<'a> {
    /// Goes on with the stream of records; may be cut anywhere.
    Records(&'a [u8]),
    /// A block of its own.
    Piece(DataType, &'a [u8]),
}

impl SortBuffer {
    pub(super) fn new(subpartitions: usize) -> Self {
        Self {
            buffers: Vec::new(),
            pieces: Vec::new(),
            entries: Vec::new(),
            chains: vec![EMPTY; subpartitions].into(),
            broadcast: false,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Buffers that it holds, pieces included.
    pub(super) fn held(&self) -> usize {
        self.buffers.len() + self.pieces.len()
    }

    pub(super) fn is_broadcast(&self) -> bool {
        self.broadcast
    }

    /// Whether so much was gathered that it should go, whoever is next.
    pub(super) fn has_entries_for(&self, buffers: usize) -> bool {
        self.entries.len() >= buffers.saturating_mul(MAX_ENTRIES_PER_BUFFER)
    }

    /// Whether something for `target` can stand beside what is there: in chains of one kind, and without making more
    /// than a quarter of the entries at once.
    pub(super) fn accepts(&self, target: Target, buffers: usize) -> bool {
        match target {
            _ if self.is_empty() => true,
            Target::One(_) => !self.broadcast,
            Target::All => {
                self.broadcast || self.chains.len() <= buffers * MAX_ENTRIES_PER_BUFFER / 4
            }
        }
    }

    /// Bytes that fit into the last buffer.
    pub(super) fn room(&self) -> usize {
        self.buffers.last().map_or(0, BufferMut::remaining)
    }

    /// Takes a buffer to fill, all of the same size, when there is no room left.
    pub(super) fn add_buffer(&mut self, buffer: BufferMut) {
        self.buffers.push(buffer);
    }

    /// Appends as much as fits into the last buffer, and says how much that was.
    pub(super) fn append(&mut self, target: Target, bytes: &[u8]) -> usize {
        let size = self.buffers.first().map_or(0, BufferMut::len);
        let full = size * self.buffers.len().saturating_sub(1);
        let Some(last) = self.buffers.last_mut() else {
            return 0;
        };
        let at = full + last.len();
        let taken = last.append(bytes);
        let (Ok(at), Ok(length)) = (u32::try_from(at), u32::try_from(taken)) else {
            return 0;
        };
        if taken > 0 {
            self.link(target, at, length, false);
        }
        taken
    }

    /// Appends a block of its own.
    pub(super) fn append_piece(&mut self, target: Target, data_type: DataType, bytes: Bytes) {
        let Ok(at) = u32::try_from(self.pieces.len()) else {
            return;
        };
        self.pieces.push(bytes);
        self.link(target, at, data_type as u32, true);
    }

    /// What one subpartition gets, in order.
    pub(super) fn parts(&self, subpartition: usize) -> Parts<'_> {
        Parts {
            sorted: self,
            next: self.chains.get(subpartition).map_or(NONE, |c| c.first),
            rest: (0, 0),
        }
    }

    /// The chains to walk: one if all is for everybody.
    pub(super) fn chains(&self) -> usize {
        if self.broadcast { 1 } else { self.chains.len() }
    }

    fn link(&mut self, target: Target, at: u32, length: u32, is_piece: bool) {
        if self.is_empty() {
            self.broadcast = target == Target::All;
        }
        let entry = Entry {
            next: NONE,
            at,
            length,
            is_piece,
        };
        match target {
            Target::One(index) => self.link_one(index, entry),
            Target::All if self.broadcast => self.link_one(0, entry),
            Target::All => {
                for index in 0..self.chains.len() {
                    self.link_one(index, entry);
                }
            }
        }
    }

    fn link_one(&mut self, index: usize, entry: Entry) {
        let chain = &mut self.chains[index];
        if let Some(last) = self.entries.get_mut(chain.last as usize) {
            let joins = !entry.is_piece && !last.is_piece && last.at + last.length == entry.at;
            if joins {
                last.length += entry.length;
                return;
            }
        }
        let number = u32::try_from(self.entries.len()).unwrap_or(NONE);
        if let Some(last) = self.entries.get_mut(chain.last as usize) {
            last.next = number;
        } else {
            chain.first = number;
        }
        chain.last = number;
        self.entries.push(entry);
    }
}

/// Walks a chain.
#[derive(Debug)]
pub(super) struct Parts<'a> {
    sorted: &'a SortBuffer,
    next: u32,
    /// Where records go on, and how many bytes of them are left.
    rest: (usize, usize),
}

impl<'a> Iterator for Parts<'a> {
    type Item = Part<'a>;

    fn next(&mut self) -> Option<Part<'a>> {
        if self.rest.1 == 0 {
            let entry = self.sorted.entries.get(self.next as usize)?;
            self.next = entry.next;
            if entry.is_piece {
                let bytes = self.sorted.pieces.get(entry.at as usize)?;
                let data_type = u8::try_from(entry.length).ok();
                return Some(Part::Piece(data_type.and_then(DataType::from_wire)?, bytes));
            }
            self.rest = (entry.at as usize, entry.length as usize);
        }
        let (at, left) = self.rest;
        // All buffers but the last are full, so that they have one length.
        let size = self.sorted.buffers.first()?.len();
        let buffer = self.sorted.buffers.get(at / size)?.as_ref();
        let bytes = &buffer[at % size..];
        let bytes = &bytes[..left.min(bytes.len())];
        self.rest = (at + bytes.len(), left - bytes.len());
        Some(Part::Records(bytes))
    }
}

/// Entries for each buffer that a region may have: with default buffers one for 64 bytes, so that the entries take a
/// quarter of the buffers' memory at most.
pub(super) const MAX_ENTRIES_PER_BUFFER: usize = 512;

const NONE: u32 = u32::MAX;
const EMPTY: Chain = Chain {
    first: NONE,
    last: NONE,
};

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::exchange::{BufferPool, LocalPool};

    fn pool() -> LocalPool {
        let pool = BufferPool::with_buffers(64, 10, Duration::from_secs(1));
        pool.local(64, 64).unwrap()
    }

    fn write(sorted: &mut SortBuffer, pool: &LocalPool, target: Target, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if sorted.room() == 0 {
                sorted.add_buffer(pool.try_request().unwrap().unwrap());
            }
            bytes = &bytes[sorted.append(target, bytes)..];
        }
    }

    fn read(sorted: &SortBuffer, subpartition: usize) -> Vec<u8> {
        let mut all = Vec::new();
        for part in sorted.parts(subpartition) {
            match part {
                Part::Records(bytes) => all.extend_from_slice(bytes),
                Part::Piece(data_type, bytes) => {
                    all.push(b'0' + data_type as u8);
                    all.extend_from_slice(bytes);
                    all.push(b'|');
                }
            }
        }
        all
    }

    #[test]
    fn each_subpartition_gets_its_bytes_in_order() {
        let (pool, mut sorted) = (pool(), SortBuffer::new(3));
        for round in 0..5 {
            for target in [0, 2] {
                let record = [b'a' + round + u8::try_from(target).unwrap(); 7];
                write(&mut sorted, &pool, Target::One(target), &record);
            }
        }
        write(&mut sorted, &pool, Target::All, b"everybody");
        assert_eq!(
            read(&sorted, 0),
            b"aaaaaaabbbbbbbcccccccdddddddeeeeeeeeverybody"
        );
        assert_eq!(read(&sorted, 1), b"everybody");
        assert_eq!(
            read(&sorted, 2),
            b"cccccccdddddddeeeeeeefffffffgggggggeverybody"
        );
        assert_eq!((sorted.chains(), sorted.held()), (3, 8));
    }

    #[test]
    fn what_is_for_all_from_the_start_is_kept_once() {
        let (pool, mut sorted) = (pool(), SortBuffer::new(1000));
        write(&mut sorted, &pool, Target::All, b"a record and ");
        write(&mut sorted, &pool, Target::All, b"another");
        let event = Bytes::from_static(b"event");
        sorted.append_piece(Target::All, DataType::Event, event);
        assert!(sorted.is_broadcast() && sorted.chains() == 1);
        assert_eq!(read(&sorted, 0), b"a record and another2event|");
        assert!(!sorted.accepts(Target::One(0), 64) && sorted.accepts(Target::All, 1));
        assert_eq!(sorted.entries.len(), 2);
    }

    #[test]
    fn pieces_keep_their_bounds_and_their_place() {
        let (pool, mut sorted) = (pool(), SortBuffer::new(2));
        write(&mut sorted, &pool, Target::One(1), b"before");
        for piece in [&b"x"[..], b"y"] {
            sorted.append_piece(
                Target::One(1),
                DataType::Data,
                Bytes::copy_from_slice(piece),
            );
        }
        write(&mut sorted, &pool, Target::One(1), b"after");
        sorted.append_piece(Target::All, DataType::EndOfData, Bytes::new());
        assert_eq!(read(&sorted, 0), b"9|");
        assert_eq!(read(&sorted, 1), b"before1x|1y|after9|");
    }

    #[test]
    fn entries_are_bounded_by_the_buffers_that_there_may_be() {
        let (pool, mut sorted) = (pool(), SortBuffer::new(2));
        let mut count = 0;
        while !sorted.has_entries_for(1) {
            if sorted.room() == 0 {
                sorted.add_buffer(pool.try_request().unwrap().unwrap());
            }
            sorted.append(Target::One(count % 2), b"x");
            count += 1;
        }
        assert_eq!(count, MAX_ENTRIES_PER_BUFFER);
        let wide = SortBuffer::new(MAX_ENTRIES_PER_BUFFER);
        assert!(wide.accepts(Target::All, 1), "an empty one takes anything");
        let mut wide = wide;
        wide.append_piece(Target::One(0), DataType::Data, Bytes::new());
        assert!(!wide.accepts(Target::All, 3) && wide.accepts(Target::All, 4));
    }
}
