//! Who a node is: cluster, role and resource id, written as a URI in its certificate.

use std::fmt;
use std::str::FromStr;

use crate::error::{CertError, shortened};

/// The verified name of a node: `spiffe://<cluster-id>/<role>/<resource-id>`.
///
/// The form follows the SPIFFE ID standard: the cluster id is the trust domain, role and resource id are the path.
/// A value of this type is always well formed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity {
    cluster: String,
    role: Role,
    id: String,
}

impl Identity {
    /// Puts an identity together.
    ///
    /// # Errors
    ///
    /// [`CertError::InvalidIdentity`] unless the cluster id has 1 to 253 characters of `a-z 0-9 . _ -`, and the
    /// resource id 1 to 128 of `A-Z a-z 0-9 . _ -` and is neither `.` nor `..` (a URI path and a folder name cannot
    /// hold these).
    pub fn new(
        cluster: impl Into<String>,
        role: Role,
        id: impl Into<String>,
    ) -> Result<Self, CertError> {
        let (cluster, id) = (cluster.into(), id.into());
        check_cluster(&cluster)?;
        check_resource(&id)?;
        Ok(Self { cluster, role, id })
    }

    /// The cluster id, which is the trust domain.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// What the node does in the cluster.
    pub fn role(&self) -> Role {
        self.role
    }

    /// The resource id.
    pub fn id(&self) -> &str {
        &self.id
    }
}

/// What a node does in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// Submits jobs and asks for their state: `client`.
    Client,
    /// Coordinates: `jobmanager`.
    JobManager,
    /// Runs tasks: `taskmanager`.
    TaskManager,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 3] = [Self::JobManager, Self::TaskManager, Self::Client];

    /// The text form, as in URIs and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::JobManager => "jobmanager",
            Self::TaskManager => "taskmanager",
        }
    }
}

// === impl Identity ===

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}/{}", self.cluster, self.role, self.id)
    }
}

impl FromStr for Identity {
    type Err = CertError;

    fn from_str(uri: &str) -> Result<Self, CertError> {
        let invalid = || CertError::InvalidIdentity {
            what: "identity",
            value: shortened(uri),
            allowed: "spiffe://<cluster-id>/<role>/<resource-id> is required",
        };
        let path = uri.strip_prefix(SCHEME).ok_or_else(invalid)?;
        let mut parts = path.splitn(3, '/');
        match (parts.next(), parts.next(), parts.next()) {
            (Some(cluster), Some(role), Some(id)) => Self::new(cluster, role.parse()?, id),
            _ => Err(invalid()),
        }
    }
}

// === impl Role ===

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Role {
    type Err = CertError;

    fn from_str(text: &str) -> Result<Self, CertError> {
        Self::ALL
            .into_iter()
            .find(|role| role.as_str() == text)
            .ok_or_else(|| CertError::InvalidIdentity {
                what: "role",
                value: shortened(text),
                allowed: "jobmanager, taskmanager and client are allowed",
            })
    }
}

/// Start of every identity URI.
pub(crate) const SCHEME: &str = "spiffe://";

/// The URI of the cluster itself, which its CA certificates carry.
pub(crate) fn trust_domain_uri(cluster: &str) -> String {
    format!("{SCHEME}{cluster}")
}

/// The cluster id in the URI of a CA certificate, if it is one.
pub(crate) fn cluster_of_trust_domain(uri: &str) -> Option<&str> {
    let cluster = uri.strip_prefix(SCHEME)?;
    check_cluster(cluster).is_ok().then_some(cluster)
}

pub(crate) fn check_cluster(cluster: &str) -> Result<(), CertError> {
    let allowed = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || b"._-".contains(&c);
    if (1..=MAX_CLUSTER_CHARS).contains(&cluster.len()) && cluster.bytes().all(allowed) {
        return Ok(());
    }
    Err(CertError::InvalidIdentity {
        what: "cluster id",
        value: shortened(cluster),
        allowed: "1 to 253 characters of a-z 0-9 . _ - are allowed",
    })
}

fn check_resource(id: &str) -> Result<(), CertError> {
    let allowed = |c: u8| c.is_ascii_alphanumeric() || b"._-".contains(&c);
    if (1..=MAX_RESOURCE_CHARS).contains(&id.len())
        && id.bytes().all(allowed)
        && id != "."
        && id != ".."
    {
        return Ok(());
    }
    Err(CertError::InvalidIdentity {
        what: "resource id",
        value: shortened(id),
        allowed: "1 to 128 characters of A-Z a-z 0-9 . _ - are allowed, but not . or .. alone",
    })
}

/// The longest DNS name, which is what a trust domain may be.
const MAX_CLUSTER_CHARS: usize = 253;

/// Keeps a whole URI far below the 2,048 bytes that SPIFFE allows, and a folder name below 255.
const MAX_RESOURCE_CHARS: usize = 128;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_parses_prints_as_it_was_written(
            uri in prop_oneof![any::<String>(), "spiffe://[a-z.A/-]{0,9}/(client|jobmanager|x)/[A-Za-z0-9._/ -]{0,9}"],
        ) {
            if let Ok(identity) = uri.parse::<Identity>() {
                prop_assert_eq!(identity.to_string(), uri);
            }
        }

        #[test]
        fn every_allowed_id_is_taken(cluster in "[a-z0-9._-]{1,253}", id in "[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}") {
            let identity = Identity::new(cluster, Role::TaskManager, id).unwrap();
            prop_assert_eq!(identity.to_string().parse::<Identity>().unwrap(), identity);
        }
    }

    #[test]
    fn uri_form_survives_the_round_trip() {
        for role in Role::ALL {
            let identity = Identity::new("prod.eu_1-a", role, "TM.1_x-9").unwrap();
            let uri = identity.to_string();
            assert_eq!(uri, format!("spiffe://prod.eu_1-a/{role}/TM.1_x-9"));
            assert_eq!(uri.parse::<Identity>().unwrap(), identity);
        }
    }

    #[test]
    fn wrong_cluster_ids_are_refused_with_the_value_and_the_rule() {
        for cluster in ["", "Demo", "a b", "a/b", "ä", "a:1", &"x".repeat(254)] {
            let error = Identity::new(cluster, Role::Client, "c")
                .unwrap_err()
                .to_string();
            assert!(error.starts_with("cluster id \""), "{error}");
            assert!(error.contains("a-z 0-9 . _ -"), "{error}");
        }
        assert!(Identity::new("x".repeat(253), Role::Client, "c").is_ok());
    }

    #[test]
    fn wrong_resource_ids_are_refused_with_the_value_and_the_rule() {
        for id in [
            "",
            ".",
            "..",
            "tm 1",
            "tm/1",
            "../x",
            "tm\n1",
            "é",
            &"x".repeat(129),
        ] {
            let error = Identity::new("demo", Role::TaskManager, id)
                .unwrap_err()
                .to_string();
            assert!(error.starts_with("resource id \""), "{error}");
            assert!(error.contains("A-Z a-z 0-9 . _ -"), "{error}");
        }
        assert!(Identity::new("demo", Role::TaskManager, "x".repeat(128)).is_ok());
    }

    #[test]
    fn uris_of_another_form_are_refused() {
        for uri in [
            "",
            "spiffe:",
            "spiffe://",
            "spiffe://demo",
            "spiffe://demo/taskmanager",
            "spiffe://demo/taskmanager/",
            "spiffe://demo//tm-1",
            "spiffe://demo/taskmanager/tm-1/x",
            "spiffe://demo/taskmanager/tm-1?x",
            "spiffe://demo/worker/tm-1",
            "SPIFFE://demo/taskmanager/tm-1",
            "https://demo/taskmanager/tm-1",
            "spiffe://user@demo/taskmanager/tm-1",
        ] {
            assert!(uri.parse::<Identity>().is_err(), "{uri}");
        }
    }

    #[test]
    fn a_long_value_is_shortened_in_the_error() {
        let error = "ü"
            .repeat(5000)
            .parse::<Identity>()
            .unwrap_err()
            .to_string();
        assert!(error.chars().count() < 200, "{error}");
    }
}
