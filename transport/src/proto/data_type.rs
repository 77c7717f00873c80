//! What a frame of the partition protocol may carry.

/// What a buffer holds; its number is on the wire and equals Flink's ordinal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum DataType {
    /// Records. The only type that costs credit.
    Data = 1,
    /// An event of the embedding engine.
    Event = 2,
    /// An event that overtakes data.
    PrioritizedEvent = 3,
    /// An event after which the producer waits for a resume.
    AlignedBarrier = 4,
    /// A barrier that is announced to the consumer when it arrives.
    TimeoutableBarrier = 5,
    /// The end of recovered state; blocks as a barrier does.
    RecoveryCompletion = 6,
    /// No more records; events may follow.
    EndOfData = 9,
    /// The last item of a subpartition.
    EndOfPartition = 10,
}

impl DataType {
    /// Reads the number on the wire; `None` for one that is unknown.
    #[must_use]
    pub fn from_wire(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Data,
            2 => Self::Event,
            3 => Self::PrioritizedEvent,
            4 => Self::AlignedBarrier,
            5 => Self::TimeoutableBarrier,
            6 => Self::RecoveryCompletion,
            9 => Self::EndOfData,
            10 => Self::EndOfPartition,
            _ => return None,
        })
    }

    /// Whether it costs credit and counts in the backlog.
    #[must_use]
    pub fn is_data(self) -> bool {
        self == Self::Data
    }

    /// Whether it overtakes everything but its like.
    #[must_use]
    pub fn has_priority(self) -> bool {
        self == Self::PrioritizedEvent
    }

    /// Whether the receiving channel announces it to the consumer.
    #[must_use]
    pub fn requires_announcement(self) -> bool {
        self == Self::TimeoutableBarrier
    }

    /// Whether the producer waits for a resume after it.
    #[must_use]
    pub fn is_blocking(self) -> bool {
        matches!(
            self,
            Self::AlignedBarrier | Self::TimeoutableBarrier | Self::RecoveryCompletion
        )
    }
}
