//! When a failed job starts again. Pure.

use std::time::Duration;

use crate::job::{FailureKind, RestartStrategy};

/// Counts the restarts of one job against its [`RestartStrategy`].
#[derive(Debug, Clone)]
pub(crate) struct RestartPolicy {
    strategy: RestartStrategy,
    restarts: u32,
}

impl RestartPolicy {
    /// A policy that has granted nothing yet.
    #[must_use]
    pub(crate) fn new(strategy: RestartStrategy) -> Self {
        Self {
            strategy,
            restarts: 0,
        }
    }

    /// Restarts granted so far.
    #[must_use]
    pub(crate) fn restarts(&self) -> u32 {
        self.restarts
    }

    /// Decides about a failure of this kind: the pause before the next attempt, which is counted, or `None` if the job
    /// fails.
    ///
    /// A failure that does not [allow](FailureKind::allows_restart) a restart is never granted one.
    pub(crate) fn on_failure(&mut self, kind: FailureKind) -> Option<Duration> {
        if !kind.allows_restart() {
            return None;
        }
        let (attempts, delay) = match self.strategy {
            RestartStrategy::None => return None,
            RestartStrategy::FixedDelay { attempts, delay } => (attempts, delay),
            RestartStrategy::Exponential {
                attempts,
                initial,
                max,
            } => {
                let factor = 1_u32.checked_shl(self.restarts).unwrap_or(u32::MAX);
                (attempts, initial.saturating_mul(factor).min(max))
            }
        };
        if self.restarts >= attempts {
            return None;
        }
        self.restarts += 1;
        Some(delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delays(strategy: RestartStrategy, failures: usize) -> Vec<Option<u64>> {
        let mut policy = RestartPolicy::new(strategy);
        (0..failures)
            .map(|_| policy.on_failure(FailureKind::User))
            .map(|delay| delay.map(|delay| delay.as_secs()))
            .collect()
    }

    #[test]
    fn no_strategy_never_restarts() {
        assert_eq!(delays(RestartStrategy::None, 2), [None, None]);
    }

    #[test]
    fn a_fixed_delay_is_granted_so_many_times() {
        let strategy = RestartStrategy::FixedDelay {
            attempts: 2,
            delay: Duration::from_secs(3),
        };
        assert_eq!(delays(strategy, 4), [Some(3), Some(3), None, None]);
    }

    #[test]
    fn an_exponential_delay_doubles_up_to_its_maximum() {
        let strategy = RestartStrategy::Exponential {
            attempts: 5,
            initial: Duration::from_secs(1),
            max: Duration::from_secs(5),
        };
        assert_eq!(
            delays(strategy, 6),
            [Some(1), Some(2), Some(4), Some(5), Some(5), None]
        );
    }

    #[test]
    fn an_exponential_delay_survives_many_restarts() {
        let mut policy = RestartPolicy::new(RestartStrategy::Exponential {
            attempts: u32::MAX,
            initial: Duration::from_secs(1),
            max: Duration::from_secs(60),
        });
        for _ in 0..100 {
            let _ = policy.on_failure(FailureKind::User);
        }
        assert_eq!(
            policy.on_failure(FailureKind::User),
            Some(Duration::from_secs(60))
        );
        assert_eq!(policy.restarts(), 101);
    }

    #[test]
    fn failures_that_would_come_again_are_final() {
        let mut policy = RestartPolicy::new(RestartStrategy::FixedDelay {
            attempts: 9,
            delay: Duration::ZERO,
        });
        for kind in [
            FailureKind::UserPermanent,
            FailureKind::InvalidJob,
            FailureKind::Limit,
            FailureKind::Cluster,
        ] {
            assert_eq!(policy.on_failure(kind), None);
        }
        assert_eq!(policy.restarts(), 0);
    }
}
