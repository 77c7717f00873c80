//! What a failure of the exchange means for a task.

use thalweg_transport::{chain, exchange::ExchangeError};

use super::TaskError;
use crate::job::FailureKind;

/// Makes a task's failure of an exchange's. `whose` says which end: input or output, partition, TaskManager.
pub(crate) fn task_error(error: &ExchangeError, whose: &str) -> TaskError {
    TaskError::of_kind(kind(error), format!("{whose}: {}", chain(error)))
}

fn kind(error: &ExchangeError) -> FailureKind {
    match error {
        ExchangeError::Transport(_) | ExchangeError::NoNetwork { .. } => FailureKind::Transport,
        ExchangeError::Buffers(_) => FailureKind::Resources,
        ExchangeError::Cancelled { .. } => FailureKind::Cluster,
        // The same record comes again in another attempt.
        ExchangeError::TooLarge { .. } => FailureKind::UserPermanent,
        ExchangeError::InvalidState { .. } => FailureKind::Internal,
        _ => FailureKind::Partition,
    }
}

#[cfg(test)]
mod tests {
    use thalweg_transport::{exchange::BufferError, proto::PartitionId};

    use super::*;

    #[test]
    fn the_kind_tells_what_failed_and_the_text_where() {
        let partition = PartitionId::new(1, 2);
        let of = |error: ExchangeError| task_error(&error, "input 0").into_cause().unwrap();
        let lost = of(ExchangeError::PartitionNotFound { partition });
        assert_eq!(lost.kind, FailureKind::Partition);
        assert!(lost.message.starts_with("input 0: "), "{lost}");
        let short = of(BufferError::Closed.into());
        assert_eq!(short.kind, FailureKind::Resources);
        let none = of(ExchangeError::NoNetwork {
            connection: "tm-1".to_owned(),
            reason: "down",
        });
        assert_eq!(none.kind, FailureKind::Transport);
    }
}
