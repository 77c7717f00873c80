//! Results of a job's tasks, kept until the job has finished. Pure.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use thiserror::Error;

use crate::{
    ids::{ExecutionId, VertexId},
    job::{FailureCause, FailureKind},
};

/// Collects the results of one job attempt, piece by piece.
///
/// Pieces of an earlier attempt are ignored, and nothing is visible before [`publish`](Self::publish): a restarted job
/// publishes each result once.
#[derive(Debug)]
pub(crate) struct Results {
    attempt: u32,
    max_bytes: u64,
    held_bytes: u64,
    tasks: BTreeMap<(VertexId, u32), TaskResult>,
}

#[derive(Debug, Default)]
struct TaskResult {
    next: u32,
    pieces: Vec<Bytes>,
}

impl Results {
    /// Results of attempt 0, none yet, with the default limit.
    #[must_use]
    pub(crate) fn new() -> Self {
        Self::with_limit(MAX_RESULT_BYTES)
    }

    fn with_limit(max_bytes: u64) -> Self {
        Self {
            attempt: 0,
            max_bytes,
            held_bytes: 0,
            tasks: BTreeMap::new(),
        }
    }

    /// Drops what earlier attempts left; from now on only this attempt counts.
    pub(crate) fn start_attempt(&mut self, attempt: u32) {
        self.attempt = attempt;
        self.held_bytes = 0;
        self.tasks.clear();
    }

    /// Takes a piece. A piece of another attempt or one that was taken before is ignored.
    ///
    /// # Errors
    /// [`ResultError::Gap`] if pieces before it are missing, [`ResultError::TooLarge`] if the job's results exceed the
    /// limit.
    pub(crate) fn add(
        &mut self,
        execution: ExecutionId,
        sequence: u32,
        bytes: Bytes,
    ) -> Result<(), ResultError> {
        if execution.attempt != self.attempt {
            return Ok(());
        }
        let task = self
            .tasks
            .entry((execution.vertex, execution.subtask))
            .or_default();
        if sequence < task.next {
            return Ok(());
        }
        if sequence > task.next {
            return Err(ResultError::Gap {
                execution,
                expected: task.next,
                sequence,
            });
        }
        let held = self
            .held_bytes
            .saturating_add(bytes.len() as u64)
            .saturating_add(PIECE_OVERHEAD_BYTES);
        if held > self.max_bytes {
            return Err(ResultError::TooLarge {
                max_bytes: self.max_bytes,
            });
        }
        self.held_bytes = held;
        task.next += 1;
        task.pieces.push(bytes);
        Ok(())
    }

    /// The results of all tasks, one after another: by vertex, then by subtask. Nothing is left here.
    #[must_use]
    pub(crate) fn publish(&mut self) -> PublishedResult {
        self.held_bytes = 0;
        let mut published = PublishedResult::default();
        for (_, task) in std::mem::take(&mut self.tasks) {
            for piece in task.pieces {
                published.push(piece);
            }
        }
        published
    }
}

impl Default for Results {
    fn default() -> Self {
        Self::new()
    }
}

/// The result of a finished job.
#[derive(Debug, Clone, Default)]
pub struct PublishedResult {
    /// Pieces with the offset of their first byte.
    pieces: Vec<(u64, Bytes)>,
    len: u64,
}

impl PublishedResult {
    fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.pieces.push((self.len, piece.clone()));
            self.len += piece.len() as u64;
        }
    }

    /// Number of bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there is no byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// At most `max` bytes from `offset`, never more than 1 MiB, and whether they reach the end. Past the end: nothing.
    /// A `max` of 0 is taken as 1, so that a reader always gets ahead.
    #[must_use]
    pub fn read(&self, offset: u64, max: u32) -> (Bytes, bool) {
        if offset >= self.len {
            return (Bytes::new(), true);
        }
        let want = u64::from(max.clamp(1, MAX_READ_BYTES)).min(self.len - offset);
        let end = offset + want;
        let first = self
            .pieces
            .partition_point(|(start, piece)| start + piece.len() as u64 <= offset);
        let mut chunk = BytesMut::new();
        for (start, piece) in &self.pieces[first..] {
            if *start >= end {
                break;
            }
            let from = within(offset.saturating_sub(*start), piece);
            let to = within(end - start, piece);
            if from == 0 && to as u64 == want && chunk.is_empty() {
                return (piece.slice(from..to), end == self.len);
            }
            chunk.extend_from_slice(&piece[from..to]);
        }
        (chunk.freeze(), end == self.len)
    }
}

/// A position in a piece, no further than its end.
fn within(position: u64, piece: &Bytes) -> usize {
    usize::try_from(position)
        .unwrap_or(usize::MAX)
        .min(piece.len())
}

/// Why a piece of a result is not taken.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub(crate) enum ResultError {
    /// Pieces are missing before it.
    #[error(
        "piece {sequence} of the result of task {execution} came where piece {expected} was expected"
    )]
    Gap {
        /// The task.
        execution: ExecutionId,
        /// The next piece in order.
        expected: u32,
        /// The piece that came.
        sequence: u32,
    },
    /// The job's results are too large.
    #[error("the results of the job exceed {max_bytes} bytes")]
    TooLarge {
        /// The limit.
        max_bytes: u64,
    },
}

impl ResultError {
    /// What the job fails with.
    #[must_use]
    pub(crate) fn cause(&self) -> FailureCause {
        let kind = match self {
            Self::Gap { .. } => FailureKind::Internal,
            Self::TooLarge { .. } => FailureKind::Limit,
        };
        FailureCause::new(kind, self.to_string())
    }
}

/// Results are kept in the memory of the JobManager: a job that returns more than 1 GiB has to write it somewhere.
const MAX_RESULT_BYTES: u64 = 1 << 30;
/// Counted for each piece beside its bytes, so that many tiny pieces are bounded too: handle, position and allocation.
const PIECE_OVERHEAD_BYTES: u64 = 64;
/// Longest piece of a published result in one answer: well below the default frame limit of 10 MiB.
const MAX_READ_BYTES: u32 = 1 << 20;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ids::JobId;

    fn task(vertex: u32, subtask: u32, attempt: u32) -> ExecutionId {
        ExecutionId {
            job: JobId::from_u128(1),
            vertex: VertexId(vertex),
            subtask,
            attempt,
        }
    }

    fn text(result: &PublishedResult) -> String {
        let (bytes, end) = result.read(0, u32::MAX);
        assert!(end);
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    #[test]
    fn results_are_ordered_by_vertex_then_subtask() {
        let mut results = Results::new();
        for (vertex, subtask, word) in [(1, 0, "c"), (0, 1, "b"), (0, 0, "a"), (1, 1, "d")] {
            let bytes = Bytes::from_static(word.as_bytes());
            results.add(task(vertex, subtask, 0), 0, bytes).unwrap();
        }
        assert_eq!(text(&results.publish()), "abcd");
        assert!(results.publish().is_empty());
    }

    #[test]
    fn duplicates_are_ignored_and_gaps_refused() {
        let mut results = Results::new();
        results
            .add(task(0, 0, 0), 0, Bytes::from_static(b"a"))
            .unwrap();
        results
            .add(task(0, 0, 0), 0, Bytes::from_static(b"a"))
            .unwrap();
        let error = results
            .add(task(0, 0, 0), 2, Bytes::from_static(b"c"))
            .unwrap_err();
        assert!(error.to_string().contains("piece 2"), "{error}");
        assert!(error.to_string().contains("piece 1"), "{error}");
        results
            .add(task(0, 0, 0), 1, Bytes::from_static(b"b"))
            .unwrap();
        assert_eq!(text(&results.publish()), "ab");
    }

    #[test]
    fn only_the_current_attempt_counts() {
        let mut results = Results::new();
        results
            .add(task(0, 0, 0), 0, Bytes::from_static(b"old"))
            .unwrap();
        results.start_attempt(1);
        results
            .add(task(0, 0, 0), 1, Bytes::from_static(b"late"))
            .unwrap();
        results
            .add(task(0, 0, 1), 0, Bytes::from_static(b"new"))
            .unwrap();
        assert_eq!(text(&results.publish()), "new");
    }

    #[test]
    fn results_are_bounded_in_total() {
        let mut results = Results::with_limit(200);
        results
            .add(task(0, 0, 0), 0, Bytes::from_static(b"x"))
            .unwrap();
        results
            .add(task(0, 1, 0), 0, Bytes::from_static(b"x"))
            .unwrap();
        results
            .add(task(0, 1, 0), 1, Bytes::from_static(b"x"))
            .unwrap();
        let error = results.add(task(0, 2, 0), 0, Bytes::new()).unwrap_err();
        assert_eq!(error.cause().kind, FailureKind::Limit);
        assert!(error.to_string().contains("200 bytes"), "{error}");
    }

    #[test]
    fn reading_past_the_end_gives_nothing() {
        let result = PublishedResult::default();
        assert_eq!(result.read(0, 10), (Bytes::new(), true));
        assert_eq!(result.read(u64::MAX, u32::MAX), (Bytes::new(), true));
    }

    proptest! {
        #[test]
        fn reading_in_any_steps_gives_the_whole(
            pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..12),
            step in 0_u32..50,
        ) {
            let mut result = PublishedResult::default();
            for piece in &pieces {
                result.push(Bytes::copy_from_slice(piece));
            }
            let mut read = Vec::new();
            loop {
                let (bytes, end) = result.read(read.len() as u64, step);
                prop_assert!(bytes.len() <= step.max(1) as usize);
                read.extend_from_slice(&bytes);
                if end {
                    break;
                }
                prop_assert!(!bytes.is_empty());
            }
            prop_assert_eq!(read, pieces.concat());
        }
    }
}
