//! The names of things in a cluster: small values that are sent, compared and logged.

use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        ///
        /// `Display` is the 8 first hex digits for logs, `Debug` and [`to_hex`](Self::to_hex) all 32.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub struct $name(Uuid);

        impl $name {
            /// A new random value.
            #[must_use]
            pub fn random() -> Self {
                Self(Uuid::new_v4())
            }

            /// A fixed value, for tests and for ids that derive from others.
            #[must_use]
            pub const fn from_u128(value: u128) -> Self {
                Self(Uuid::from_u128(value))
            }

            /// The value as a number.
            #[must_use]
            pub const fn as_u128(self) -> u128 {
                self.0.as_u128()
            }

            /// All 32 hex digits.
            #[must_use]
            pub fn to_hex(self) -> String {
                self.0.simple().to_string()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.to_hex()[..8])
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.to_hex())
            }
        }

        impl std::str::FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Uuid::try_parse(text)
                    .map(Self)
                    .map_err(|_| format!("{text:?} is no id: 32 hexadecimal digits are expected"))
            }
        }
    };
}

uuid_id! {
    /// One submitted job.
    JobId
}
uuid_id! {
    /// One slot given to one job; the same value at ResourceManager, TaskExecutor and JobMaster.
    AllocationId
}
uuid_id! {
    /// A leader's session: what a [fenced](crate::rpc) endpoint compares before it obeys.
    FencingToken
}
uuid_id! {
    /// One start of a TaskExecutor process: a restarted TaskManager has the same ResourceId and another session.
    SessionId
}
uuid_id! {
    /// One registration of a TaskExecutor at the ResourceManager.
    InstanceId
}

/// A vertex of a job graph: its position in the graph's list.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, Debug)]
pub struct VertexId(pub u32);

impl fmt::Display for VertexId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
    }
}

/// One attempt to run one subtask of one vertex.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, Debug)]
pub struct ExecutionId {
    /// The job.
    pub job: JobId,
    /// The vertex.
    pub vertex: VertexId,
    /// Which of the vertex's parallel subtasks, from 0.
    pub subtask: u32,
    /// Which attempt, from 0; a restarted job counts on.
    pub attempt: u32,
}

impl fmt::Display for ExecutionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}/{}.{}#{}",
            self.job, self.vertex, self.subtask, self.attempt
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_short_in_logs_and_whole_in_hex() {
        let id = JobId::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
        assert_eq!(id.to_string(), "01234567");
        assert_eq!(id.to_hex().parse::<JobId>(), Ok(id));
        assert!("xyz".parse::<JobId>().unwrap_err().contains("\"xyz\""));
    }
}
