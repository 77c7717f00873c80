//! Settings of the RPC layer.

use std::time::Duration;

use thalweg_transport::ConfigError;

/// Settings of an [`RpcService`](super::RpcService): section `rpc` of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RpcConfig {
    /// Deadline of a call that has no other. Default 10 s.
    pub ask_timeout: Duration,
    /// Most bytes of an encoded argument list or answer; the smaller value of both peers counts. Default 10 MiB.
    pub max_frame_size: u32,
    /// Most calls under way to one peer, and most that are served for one peer. Default 10,000.
    pub max_pending_calls: u32,
    /// Most bytes of arguments under way to one peer, most that are served for one peer, and most bytes that wait on
    /// one stream to be written. Default 64 MiB.
    pub max_pending_bytes: u64,
    /// Whether a time-out error names the source location of the call. Default true.
    pub capture_caller: bool,
    /// Most messages that wait in the mailbox of one endpoint. Default 10,000.
    pub mailbox_capacity: u32,
}

impl Default for RpcConfig {
    fn default() -> Self {
        Self {
            ask_timeout: Duration::from_secs(10),
            max_frame_size: 10 * 1024 * 1024,
            max_pending_calls: 10_000,
            max_pending_bytes: 64 * 1024 * 1024,
            capture_caller: true,
            mailbox_capacity: 10_000,
        }
    }
}

impl RpcConfig {
    /// Checks each value and the rules between them.
    ///
    /// # Errors
    /// [`ConfigError`] naming the first bad key, its value, and what is allowed.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let check = |good: bool, key, value: String, allowed| {
            if good {
                Ok(())
            } else {
                Err(ConfigError {
                    key,
                    value,
                    allowed,
                })
            }
        };
        check(
            (Duration::from_millis(1)..=MAX_DURATION).contains(&self.ask_timeout),
            "ask_timeout",
            format!("{:?}", self.ask_timeout),
            "1ms to 30 days",
        )?;
        check(
            (1024..=1024 * 1024 * 1024).contains(&self.max_frame_size),
            "max_frame_size",
            format!("{} bytes", self.max_frame_size),
            "1KiB to 1GiB",
        )?;
        check(
            (1..=1_000_000).contains(&self.max_pending_calls),
            "max_pending_calls",
            self.max_pending_calls.to_string(),
            "1 to 1000000",
        )?;
        check(
            self.max_pending_bytes >= u64::from(self.max_frame_size),
            "max_pending_bytes",
            format!("{} bytes", self.max_pending_bytes),
            "at least max_frame_size",
        )?;
        check(
            (1..=1_000_000).contains(&self.mailbox_capacity),
            "mailbox_capacity",
            self.mailbox_capacity.to_string(),
            "1 to 1000000",
        )
    }
}

/// How long a caller waits for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deadline {
    /// For so long from the call on.
    After(Duration),
    /// Until the answer or the connection's end.
    Never,
}

/// A longer time-out is a typing mistake, and some timers overflow on it.
const MAX_DURATION: Duration = Duration::from_secs(30 * 24 * 3600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_valid_and_bad_values_are_named() {
        RpcConfig::default().validate().unwrap();
        let config = RpcConfig {
            max_pending_bytes: 1,
            ..RpcConfig::default()
        };
        assert_eq!(
            config.validate().unwrap_err().to_string(),
            "max_pending_bytes = 1 bytes is not allowed: at least max_frame_size"
        );
    }
}
