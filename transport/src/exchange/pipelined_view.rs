//! Reads one subpartition of a pipelined partition.

use std::sync::Arc;

use super::{
    error::ExchangeError,
    partition::ResultPartition,
    view::{Credit, Item, SubpartitionView},
};

/// The one reader of a subpartition; dropping it gives the subpartition up.
#[derive(Debug)]
pub(super) struct PipelinedView {
    partition: Arc<ResultPartition>,
    index: usize,
}

impl PipelinedView {
    /// The subpartition exists and was claimed for this reader.
    pub(super) fn new(partition: Arc<ResultPartition>, index: usize) -> Self {
        Self { partition, index }
    }
}

impl SubpartitionView for PipelinedView {
    fn take(
        &mut self,
        credit: Credit,
        max: usize,
        out: &mut Vec<Item>,
    ) -> Result<(), ExchangeError> {
        self.partition.subpartitions()[self.index].take(credit, max, out)
    }

    fn backlog(&self) -> u32 {
        self.partition.subpartitions()[self.index].backlog()
    }

    fn take_priority(&mut self, out: &mut Vec<Item>) -> Result<(), ExchangeError> {
        self.partition.subpartitions()[self.index].take_priority(out)
    }

    fn acknowledge_all_records(&mut self) {
        if self.partition.subpartitions()[self.index].acknowledge() {
            self.partition.acknowledgement.on_subpartition();
        }
    }

    fn announce_buffer_size(&mut self, bytes: u32) {
        self.partition.subpartitions()[self.index].announce_buffer_size(bytes);
    }
}

impl Drop for PipelinedView {
    fn drop(&mut self) {
        self.partition.subpartitions()[self.index].release();
        self.acknowledge_all_records();
        self.partition.on_user_gone();
    }
}
