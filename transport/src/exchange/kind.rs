//! What kinds of result partitions there are, and what holds for each.

/// How a result partition keeps its data between producer and consumers.
///
/// | kind | read | by how many | its buffers | released by |
/// |---|---|---|---|---|
/// | pipelined | while it is written | one reader for each subpartition, once | any that the node has free | its users |
/// | pipelined, bounded | the same | the same | eight for each subpartition and [`EXTRA_BUFFERS`](super::EXTRA_BUFFERS) | its users |
/// | blocking | after `finish` | any number, any number of times | at most [`MAX_SORT_BUFFERS`](super::MAX_SORT_BUFFERS) | its owner |
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PartitionKind {
    /// In memory; a producer may run ahead of its consumers as far as the node has buffers.
    Pipelined,
    /// In memory; a producer may run ahead of its consumers a little.
    PipelinedBounded,
    /// On disk.
    Blocking,
}

impl PartitionKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Pipelined, Self::PipelinedBounded, Self::Blocking];

    /// Whether a subpartition may be read more than once, and by several readers at the same time.
    #[must_use]
    pub fn is_reconsumable(self) -> bool {
        self == Self::Blocking
    }

    /// Whether the partition has a cap of buffers below what the node has free.
    #[must_use]
    pub fn has_bounded_pool(self) -> bool {
        self != Self::Pipelined
    }

    /// When it may be read.
    #[must_use]
    pub fn consumption(self) -> Consumption {
        match self {
            Self::Pipelined | Self::PipelinedBounded => Consumption::WhileProduced,
            Self::Blocking => Consumption::AfterFinish,
        }
    }

    /// Who ends its life.
    #[must_use]
    pub fn released_by(self) -> ReleasedBy {
        match self {
            Self::Pipelined | Self::PipelinedBounded => ReleasedBy::Users,
            Self::Blocking => ReleasedBy::Owner,
        }
    }

    /// The buffers of a partition of this kind while it is written.
    #[must_use]
    pub fn pool_size(self, subpartitions: usize) -> PoolSize {
        let min = subpartitions.saturating_add(1);
        match self {
            Self::Pipelined => PoolSize {
                min,
                max: usize::MAX,
            },
            Self::PipelinedBounded => PoolSize {
                min,
                max: subpartitions
                    .saturating_mul(SUBPARTITION_BUFFERS)
                    .saturating_add(EXTRA_BUFFERS),
            },
            Self::Blocking => PoolSize {
                min: MIN_SORT_BUFFERS,
                max: MAX_SORT_BUFFERS,
            },
        }
    }
}

/// When a partition may be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Consumption {
    /// From its registration on.
    WhileProduced,
    /// When all of it is written; requests that come before wait as for a partition that is not registered.
    AfterFinish,
}

/// Who ends the life of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReleasedBy {
    /// Nobody in particular: it ends when its writer and every reader are gone.
    Users,
    /// Whoever made it, with [`release_partition`](super::ResultPartitionManager::release_partition).
    Owner,
}

/// Buffers of a partition's local pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PoolSize {
    /// Guaranteed.
    pub min: usize,
    /// At most.
    pub max: usize,
}

/// Buffers of a bounded partition for each subpartition: as many as a gate has for each of many channels. With two, as
/// Flink has, the buffers of a shuffle go to the network one by one.
pub const SUBPARTITION_BUFFERS: usize = 8;

/// Buffers that a bounded partition may use beyond those of its subpartitions: as many as a gate's floating ones, so that a
/// lone fast channel is not starved by the producer's side.
pub const EXTRA_BUFFERS: usize = 64;

/// Buffers that the writer of a blocking partition is guaranteed, however many subpartitions there are: half of them
/// are filled while the other half is written to disk.
pub const MIN_SORT_BUFFERS: usize = 16;

/// Buffers that the writer of a blocking partition uses at most. The more, the longer the stretches on disk that belong
/// to one subpartition; 16 MiB of default buffers (Flink's minimum for its sort shuffle).
pub const MAX_SORT_BUFFERS: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocking_partitions_are_read_after_their_end_many_times_until_their_owner_ends_them() {
        use PartitionKind::{Blocking, Pipelined, PipelinedBounded};
        let facts = |kind: PartitionKind| {
            (
                kind.is_reconsumable(),
                kind.has_bounded_pool(),
                kind.consumption(),
                kind.released_by(),
            )
        };
        let users = ReleasedBy::Users;
        assert_eq!(
            PartitionKind::ALL.map(facts),
            [
                (false, false, Consumption::WhileProduced, users),
                (false, true, Consumption::WhileProduced, users),
                (true, true, Consumption::AfterFinish, ReleasedBy::Owner),
            ]
        );
        let sizes = |kind: PartitionKind| {
            let size = kind.pool_size(1000);
            (size.min, size.max)
        };
        assert_eq!(sizes(Pipelined), (1001, usize::MAX));
        assert_eq!(sizes(PipelinedBounded), (1001, 8064));
        assert_eq!(sizes(Blocking), (MIN_SORT_BUFFERS, MAX_SORT_BUFFERS));
        assert_eq!(PipelinedBounded.pool_size(usize::MAX).max, usize::MAX);
    }
}
