//! Names beside the identity in a certificate: for tools that check DNS names or addresses. Nodes do not.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use rustls::pki_types::DnsName;

use crate::error::{CertError, shortened};

/// A DNS name or an IP address in a certificate; text form `dns:NAME` or `ip:ADDR`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SubjectAltName {
    /// A DNS name, without wildcards.
    Dns(String),
    /// An IPv4 or IPv6 address.
    Ip(IpAddr),
}

impl SubjectAltName {
    /// A checked DNS name.
    ///
    /// # Errors
    ///
    /// [`CertError::InvalidName`] if it is not the syntax of a host name, or an address.
    pub fn dns(name: &str) -> Result<Self, CertError> {
        match DnsName::try_from(name) {
            Ok(_) if name.parse::<IpAddr>().is_err() => Ok(Self::Dns(name.to_owned())),
            _ => Err(invalid(
                name,
                "a host name such as tm-1.example is required (use ip:ADDR for an address)",
            )),
        }
    }
}

impl fmt::Display for SubjectAltName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dns(name) => write!(f, "dns:{name}"),
            Self::Ip(addr) => write!(f, "ip:{addr}"),
        }
    }
}

impl FromStr for SubjectAltName {
    type Err = CertError;

    fn from_str(text: &str) -> Result<Self, CertError> {
        match text.split_once(':') {
            Some(("dns", name)) => Self::dns(name),
            Some(("ip", addr)) => match addr.parse() {
                Ok(addr) => Ok(Self::Ip(addr)),
                Err(_) => Err(invalid(
                    addr,
                    "an IPv4 or IPv6 address is required after ip:",
                )),
            },
            _ => Err(invalid(text, "dns:NAME and ip:ADDR are allowed")),
        }
    }
}

fn invalid(value: &str, allowed: &'static str) -> CertError {
    CertError::InvalidName {
        value: shortened(value),
        allowed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_survive_the_round_trip() {
        for text in [
            "dns:tm-1.example",
            "dns:localhost",
            "ip:10.0.0.7",
            "ip:fd00::1",
        ] {
            assert_eq!(text.parse::<SubjectAltName>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn wrong_names_are_refused() {
        for text in [
            "",
            "tm-1.example",
            "dns:",
            "dns:a b",
            "dns:*.example",
            "dns:10.0.0.7",
            "ip:x",
            "ip:",
            "uri:spiffe://demo",
        ] {
            assert!(text.parse::<SubjectAltName>().is_err(), "{text}");
        }
    }
}
