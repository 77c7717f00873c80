//! What others are told about slots.

use std::fmt;

use serde::{Deserialize, Serialize};
use thalweg_transport::ResourceId;

use crate::ids::{AllocationId, JobId};

/// What a slot has for its tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ResourceProfile {
    /// Bytes that the tasks of the slot may reserve together.
    pub memory_bytes: u64,
}

/// One slot of one node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SlotId {
    /// The TaskManager.
    pub taskmanager: ResourceId,
    /// Which of its slots.
    pub index: u32,
}

impl fmt::Display for SlotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.taskmanager, self.index)
    }
}

/// All slots of a TaskManager at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotReport {
    /// The fixed slots in order, free ones too; then the dynamic ones that exist.
    pub slots: Vec<SlotStatus>,
}

/// One slot in a [`SlotReport`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotStatus {
    /// Which slot.
    pub index: u32,
    /// Its state.
    pub state: SlotState,
    /// What it has; of a free slot, what it would have by default.
    pub profile: ResourceProfile,
    /// The job that has it and its allocation; `None` if it is free.
    pub allocation: Option<(JobId, AllocationId)>,
}

/// The life of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SlotState {
    /// Nobody has it.
    Free,
    /// A job has it but does not use it yet, or not any more; it times out.
    Allocated,
    /// A job uses it.
    Active,
    /// It is given back as soon as its tasks have ended.
    Releasing,
}

impl fmt::Display for SlotState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Free => "free",
            Self::Allocated => "allocated",
            Self::Active => "active",
            Self::Releasing => "releasing",
        })
    }
}

impl SlotReport {
    /// How many slots are free.
    #[must_use]
    pub fn free(&self) -> usize {
        self.slots
            .iter()
            .filter(|slot| slot.state == SlotState::Free)
            .count()
    }
}
