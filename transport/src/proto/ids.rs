//! Names of partitions, their parts, and the task attempts at both ends: small values that travel in requests.

use std::fmt;

/// A partition of a data set: the output of one producing task.
///
/// 20 bytes on the wire: the data set, then the number, both big endian (Flink's `IntermediateResultPartitionID`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartitionId {
    /// The data set, unique over all jobs and their attempts: the embedding engine draws it at random.
    pub dataset: u128,
    /// Which of the data set's partitions; usually the index of the producing subtask.
    pub number: u32,
}

impl PartitionId {
    /// Names a partition.
    #[must_use]
    pub const fn new(dataset: u128, number: u32) -> Self {
        Self { dataset, number }
    }
}

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", Short(self.dataset), self.number)
    }
}

impl fmt::Debug for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PartitionId({:032x}#{})", self.dataset, self.number)
    }
}

/// Which part of a partition: the slice for one consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SubpartitionIndex(pub u32);

impl fmt::Display for SubpartitionIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One attempt to execute a task. Unique; the embedding engine draws it at random.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExecutionAttemptId(pub u128);

impl fmt::Display for ExecutionAttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Short(self.0).fmt(f)
    }
}

impl fmt::Debug for ExecutionAttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ExecutionAttemptId({:032x})", self.0)
    }
}

/// The first 32 bits of a random number, as log lines show it.
struct Short(u128);

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0 >> 96)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_lines_show_the_short_form_and_debug_the_full_one() {
        let id = PartitionId::new(0xdead_beef_0000_0000_0000_0000_0000_0001, 7);
        assert_eq!(id.to_string(), "deadbeef#7");
        assert_eq!(
            format!("{id:?}"),
            "PartitionId(deadbeef000000000000000000000001#7)"
        );
    }
}
