//! Keys whose function this version does not have: setting one is an error, because a setting without an effect
//! misleads, and with a revocation list it would be dangerous.

use super::{Compression, Config, error::Problem};

impl Config {
    /// One problem for each of these keys that is set.
    pub(super) fn unsupported(&self, without: &[&str]) -> Vec<Problem> {
        let set = [
            ("tls.crl", self.tls.crl.is_some(), "revocation lists"),
            (
                "metrics.listen",
                self.metrics.listen.is_some(),
                "a metrics page",
            ),
            ("blob.store", self.blob.store.is_some(), "a blob store"),
            (
                "transport.blocking_compression",
                self.transport.blocking_compression != Compression::None,
                "jobs with blocking exchanges",
            ),
        ];
        set.into_iter()
            .filter(|(key, set, _)| *set && without.contains(key))
            .map(|(key, _, what)| {
                Problem::rule(
                    key,
                    format!("{key} is set, but this version does not have {what}"),
                )
            })
            .collect()
    }
}

/// What this version does not have.
pub(super) const UNSUPPORTED: &[&str] = &[
    "tls.crl",
    "metrics.listen",
    "blob.store",
    "transport.blocking_compression",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Known;

    #[test]
    fn a_setting_without_an_effect_is_refused() {
        let mut config = Config::default();
        config.validate(&Known::default()).unwrap();
        config.tls.crl = Some("crl.pem".into());
        config.tls.dir = Some("certs".into());
        config.metrics.listen = Some("127.0.0.1:0".parse().unwrap());
        let error = config.validate(&Known::default()).unwrap_err().to_string();
        assert!(
            error.contains("tls.crl is set, but this version does not have revocation lists"),
            "{error}"
        );
        assert!(error.contains("metrics.listen is set"), "{error}");
    }
}
