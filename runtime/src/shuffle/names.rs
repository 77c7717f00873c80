//! Names of the runtime as names of the exchange.

use thalweg_transport::proto::{ExecutionAttemptId, PartitionId};
use xxhash_rust::xxh3::xxh3_128;

use crate::{gateways::PartitionKey, ids::ExecutionId};

/// The exchange's name of a partition: producer and consumers derive the same one from the same key.
///
/// The data set is a hash of job, vertex, attempt and output; the number is the producing subtask.
#[must_use]
pub fn partition_id(key: PartitionKey) -> PartitionId {
    let producer = key.producer;
    let dataset = hash(&[
        &producer.job.as_u128().to_le_bytes(),
        &producer.vertex.0.to_le_bytes(),
        &producer.attempt.to_le_bytes(),
        &key.output.to_le_bytes(),
    ]);
    PartitionId::new(dataset, producer.subtask)
}

/// The exchange's name of an attempt: a hash of all its parts.
#[must_use]
pub fn attempt_id(execution: ExecutionId) -> ExecutionAttemptId {
    ExecutionAttemptId(hash(&[
        &execution.job.as_u128().to_le_bytes(),
        &execution.vertex.0.to_le_bytes(),
        &execution.subtask.to_le_bytes(),
        &execution.attempt.to_le_bytes(),
    ]))
}

/// The parts have fixed lengths, so no two lists of parts run together to the same bytes.
fn hash(parts: &[&[u8]]) -> u128 {
    xxh3_128(&parts.concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{JobId, VertexId};

    #[test]
    fn partitions_of_other_attempts_outputs_and_subtasks_are_others() {
        let execution = ExecutionId {
            job: JobId::from_u128(1),
            vertex: VertexId(2),
            subtask: 3,
            attempt: 4,
        };
        let key = PartitionKey {
            producer: execution,
            output: 0,
        };
        let other_attempt = ExecutionId {
            attempt: 5,
            ..execution
        };
        let other_subtask = ExecutionId {
            subtask: 4,
            ..execution
        };
        let of = |producer, output| partition_id(PartitionKey { producer, output });
        assert_eq!(partition_id(key), of(execution, 0));
        assert_eq!(partition_id(key).number, 3);
        let others = [of(execution, 1), of(other_attempt, 0), of(other_subtask, 0)];
        assert!(others.iter().all(|other| *other != partition_id(key)));
        assert_eq!(others[2].dataset, partition_id(key).dataset);
        assert_ne!(attempt_id(execution), attempt_id(other_subtask));
    }
}
