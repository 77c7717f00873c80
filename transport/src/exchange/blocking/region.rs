//! Regions of a spilled file: what a writer gathered at one time, in the order of subpartitions.
//!
//! ```text
//! file    = region, region, …
//! region  = blocks of subpartition 0, of subpartition 1, …, index
//! ```
//!
//! A region in which everything is for every subpartition has its blocks once, and an [index](super::index) of one. What
//! stays in memory is [`Layout`]: 16 bytes for each region and 8 for each subpartition.

use std::sync::Arc;

use super::{
    block::{BLOCK_HEADER_BYTES, BlockHeader, EVERY_SUBPARTITION},
    file::{OpenFile, SpillFile},
    index::{self, Stretch},
    sort_buffer::{Part, SortBuffer},
};
use crate::{
    config::Compression,
    exchange::{compression::compress, io_manager::Scratch, spill_error::SpillError},
    proto::DataType,
};

/// Where things are in a finished file.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) file: Arc<SpillFile>,
    pub(super) regions: Vec<Region>,
    /// Data blocks of each subpartition.
    pub(super) totals: Box<[u64]>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Region {
    /// Where its index begins.
    pub(super) index: u64,
    pub(super) broadcast: bool,
}

/// Writes the regions of one file, one after the other. Every call blocks.
#[derive(Debug)]
pub(super) struct RegionWriter {
    layout: Layout,
    open: Option<OpenFile>,
    at: u64,
    block_bytes: usize,
    compression: Compression,
}

impl RegionWriter {
    pub(super) fn new(
        file: Arc<SpillFile>,
        subpartitions: usize,
        block_bytes: usize,
        compression: Compression,
    ) -> Self {
        Self {
            layout: Layout {
                file,
                regions: Vec::new(),
                totals: vec![0; subpartitions].into(),
            },
            open: None,
            at: 0,
            block_bytes,
            compression,
        }
    }

    /// Appends a region.
    pub(super) fn write(
        &mut self,
        sorted: &SortBuffer,
        scratch: &mut Scratch,
    ) -> Result<(), SpillError> {
        if self.open.is_none() {
            self.open = Some(self.layout.file.create()?);
        }
        let (chains, broadcast) = (sorted.chains(), sorted.is_broadcast());
        let mut stretches: Vec<Stretch> = Vec::with_capacity(chains);
        scratch.out.clear();
        for chain in 0..chains {
            let begin = self.at + scratch.out.len() as u64;
            let subpartition = if broadcast {
                EVERY_SUBPARTITION
            } else {
                u32::try_from(chain).unwrap_or(EVERY_SUBPARTITION)
            };
            let blocks = self.write_chain(sorted, chain, subpartition, scratch)?;
            if broadcast {
                self.layout.totals.iter_mut().for_each(|n| *n += blocks);
            } else {
                self.layout.totals[chain] += blocks;
            }
            stretches.push(Stretch {
                begin,
                end: self.at + scratch.out.len() as u64,
                blocks: u32::try_from(blocks).unwrap_or(u32::MAX),
            });
        }
        let index = self.at + scratch.out.len() as u64;
        index::encode(self.layout.regions.len(), &stretches, &mut scratch.out);
        self.flush(&mut scratch.out)?;
        self.layout.regions.push(Region { index, broadcast });
        Ok(())
    }

    /// Closes the file.
    pub(super) fn finish(self) -> Layout {
        self.layout
    }

    /// The blocks of one chain; says how many of them are data.
    fn write_chain(
        &mut self,
        sorted: &SortBuffer,
        chain: usize,
        subpartition: u32,
        scratch: &mut Scratch,
    ) -> Result<u64, SpillError> {
        let mut blocks = 0;
        scratch.block.clear();
        for part in sorted.parts(chain) {
            match part {
                Part::Records(mut bytes) => {
                    while !bytes.is_empty() {
                        let room = self.block_bytes - scratch.block.len();
                        let (taken, rest) = bytes.split_at(room.min(bytes.len()));
                        scratch.block.extend_from_slice(taken);
                        bytes = rest;
                        if scratch.block.len() == self.block_bytes {
                            blocks += self.write_records(subpartition, scratch)?;
                        }
                    }
                }
                Part::Piece(data_type, bytes) => {
                    blocks += self.write_records(subpartition, scratch)?;
                    self.write_block(data_type, subpartition, bytes, &mut scratch.out)?;
                    blocks += u64::from(data_type.is_data());
                }
            }
        }
        Ok(blocks + self.write_records(subpartition, scratch)?)
    }

    /// What was gathered of records, if there is something.
    fn write_records(
        &mut self,
        subpartition: u32,
        scratch: &mut Scratch,
    ) -> Result<u64, SpillError> {
        if scratch.block.is_empty() {
            return Ok(0);
        }
        let Scratch { block, out } = scratch;
        self.write_block(DataType::Data, subpartition, block, out)?;
        block.clear();
        Ok(1)
    }

    fn write_block(
        &mut self,
        data_type: DataType,
        subpartition: u32,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), SpillError> {
        let begin = out.len();
        let body = begin + BLOCK_HEADER_BYTES;
        out.resize(body, 0);
        let compressed = data_type.is_data() && compress(self.compression, payload, out);
        if !compressed {
            out.extend_from_slice(payload);
        }
        let header = BlockHeader {
            length: u32::try_from(out.len() - body).unwrap_or(u32::MAX),
            subpartition,
            data_type,
            compressed,
        };
        let header = header.encode(&out[body..]);
        out[begin..body].copy_from_slice(&header);
        if out.len() >= WRITE_BYTES {
            self.flush(out)?;
        }
        Ok(())
    }

    fn flush(&mut self, out: &mut Vec<u8>) -> Result<(), SpillError> {
        if let Some(open) = &self.open {
            open.write_at(out, self.at)?;
        }
        self.at += out.len() as u64;
        out.clear();
        Ok(())
    }
}

/// Bytes that are gathered for one call of the system: more gains nothing measurable, and the memory is not the pool's.
const WRITE_BYTES: usize = 64 * 1024;
