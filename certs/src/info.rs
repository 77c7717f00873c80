//! What a certificate says, read from its DER or PEM form.

use std::net::IpAddr;
use std::path::Path;
use std::time::SystemTime;

use rustls::pki_types::CertificateDer;
use sha2::{Digest, Sha256};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;

use crate::clock;
use crate::error::{CertError, Origin};
use crate::identity::{Identity, SCHEME, cluster_of_trust_domain};
use crate::{pem, store};

/// The readable content of one certificate. Nothing in it is verified: [`NodeCredentials`](crate::NodeCredentials)
/// and the TLS handshake do that.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CertificateInfo {
    /// Who it is for; `None` for a certificate without exactly one well-formed identity, such as a CA's.
    pub identity: Option<Identity>,
    /// The cluster id: of the identity, or of the CA.
    pub cluster: Option<String>,
    /// Whether it may issue certificates.
    pub is_ca: bool,
    /// Whether its extended key usage names servers.
    pub server_usage: bool,
    /// Whether its extended key usage names clients.
    pub client_usage: bool,
    /// DNS names.
    pub dns_names: Vec<String>,
    /// IP addresses.
    pub ip_addresses: Vec<IpAddr>,
    /// Start of validity, in seconds since 1970-01-01 UTC.
    pub not_before: i64,
    /// End of validity, in seconds since 1970-01-01 UTC.
    pub not_after: i64,
    /// Name of the issuer, such as `O=demo, CN=demo CA 1f2e3d4c`.
    pub issuer: String,
    /// Name of the holder.
    pub subject: String,
    /// Serial number, upper-case hexadecimal bytes with colons.
    pub serial: String,
    /// SHA-256 of the DER form, upper-case hexadecimal bytes with colons.
    pub fingerprint: String,
}

impl CertificateInfo {
    /// Reads a certificate in DER form.
    ///
    /// # Errors
    ///
    /// [`CertError::Parse`] if it is not one X.509 certificate.
    pub fn from_der(der: &[u8]) -> Result<Self, CertError> {
        Self::read(der, &Origin::Memory("the certificate"))
    }

    /// Reads every certificate of a PEM text, in its order.
    ///
    /// # Errors
    ///
    /// [`CertError::Parse`] if there is none, or one that is damaged.
    pub fn from_pem(text: &[u8]) -> Result<Vec<Self>, CertError> {
        Self::read_all(text, &Origin::Memory("the PEM text"))
    }

    /// Reads every certificate of a PEM file, in its order.
    ///
    /// # Errors
    ///
    /// [`CertError::Io`] if the file cannot be read, else as [`from_pem`](Self::from_pem).
    pub fn from_file(path: impl AsRef<Path>) -> Result<Vec<Self>, CertError> {
        let path = path.as_ref();
        Self::read_all(&store::read(path)?, &Origin::File(path.to_owned()))
    }

    /// When it stops being valid.
    pub fn expires_at(&self) -> SystemTime {
        clock::system_time(self.not_after)
    }

    /// Start of validity as text: `2026-11-30T04:10:03Z`.
    pub fn not_before_text(&self) -> String {
        clock::text(self.not_before)
    }

    /// End of validity as text: `2027-02-28T04:10:03Z`.
    pub fn not_after_text(&self) -> String {
        clock::text(self.not_after)
    }

    fn read_all(text: &[u8], origin: &Origin) -> Result<Vec<Self>, CertError> {
        pem::certificates(text, origin)?
            .iter()
            .map(|der| Self::read(der, origin))
            .collect()
    }

    pub(crate) fn read(der: &[u8], origin: &Origin) -> Result<Self, CertError> {
        let certificate = parse(der, origin)?;
        let names = Names::of(&certificate, origin)?;
        let identity = names.identity(origin).ok();
        let cluster = match &identity {
            Some(identity) => Some(identity.cluster().to_owned()),
            None => names
                .uris
                .iter()
                .find_map(|uri| cluster_of_trust_domain(uri))
                .map(str::to_owned),
        };
        let (server_usage, client_usage) = usages(&certificate);
        Ok(Self {
            identity,
            cluster,
            is_ca: certificate.is_ca(),
            server_usage,
            client_usage,
            dns_names: names.dns,
            ip_addresses: names.ip,
            not_before: certificate.validity().not_before.timestamp(),
            not_after: certificate.validity().not_after.timestamp(),
            issuer: certificate.issuer().to_string(),
            subject: certificate.subject().to_string(),
            serial: hex(certificate.raw_serial()),
            fingerprint: hex(&Sha256::digest(der)),
        })
    }

    /// Refuses a certificate that is not valid at `now` (seconds since 1970).
    pub(crate) fn check_dates(&self, origin: &Origin, now: i64) -> Result<(), CertError> {
        if now > self.not_after {
            return Err(CertError::Expired {
                origin: origin.clone(),
                not_after: self.not_after,
                now,
            });
        }
        if now < self.not_before {
            return Err(CertError::NotYetValid {
                origin: origin.clone(),
                not_before: self.not_before,
                now,
            });
        }
        Ok(())
    }
}

/// The identity in a certificate in DER form: for the peer's end-entity certificate, after a TLS handshake has
/// verified it.
///
/// # Errors
///
/// [`CertError::NoIdentity`] if there is no identity URI or more than one, [`CertError::InvalidIdentity`] if it is
/// malformed, [`CertError::Parse`] if this is not a certificate.
pub fn identity_of(der: &CertificateDer<'_>) -> Result<Identity, CertError> {
    identity_in(der, &Origin::Memory("the certificate"))
}

pub(crate) fn identity_in(der: &[u8], origin: &Origin) -> Result<Identity, CertError> {
    Names::of(&parse(der, origin)?, origin)?.identity(origin)
}

/// Server and client usage of a certificate in DER form; a certificate without the extension has neither.
pub(crate) fn extended_usages(der: &[u8]) -> Result<(bool, bool), CertError> {
    Ok(usages(&parse(der, &Origin::Memory("the certificate"))?))
}

/// The SubjectPublicKeyInfo of a certificate, in DER form.
pub(crate) fn public_key(der: &[u8], origin: &Origin) -> Result<Vec<u8>, CertError> {
    Ok(parse(der, origin)?.public_key().raw.to_vec())
}

fn usages(certificate: &X509Certificate<'_>) -> (bool, bool) {
    match certificate.extended_key_usage() {
        Ok(Some(usage)) => (usage.value.server_auth, usage.value.client_auth),
        _ => (false, false),
    }
}

fn parse<'a>(der: &'a [u8], origin: &Origin) -> Result<X509Certificate<'a>, CertError> {
    match x509_parser::parse_x509_certificate(der) {
        Ok(([], certificate)) => Ok(certificate),
        Ok(_) => Err(CertError::parse(
            origin,
            "holds a certificate with bytes after its end",
        )),
        Err(error) => Err(CertError::parse_with(
            origin,
            "holds a certificate that cannot be decoded",
            error.to_string(),
        )),
    }
}

/// The subject alternative names that matter here.
struct Names {
    dns: Vec<String>,
    ip: Vec<IpAddr>,
    uris: Vec<String>,
}

impl Names {
    fn of(certificate: &X509Certificate<'_>, origin: &Origin) -> Result<Self, CertError> {
        let mut names = Self {
            dns: Vec::new(),
            ip: Vec::new(),
            uris: Vec::new(),
        };
        let extension = certificate.subject_alternative_name().map_err(|error| {
            CertError::parse_with(origin, "holds a certificate with undecodable names", error)
        })?;
        for name in extension
            .iter()
            .flat_map(|extension| &extension.value.general_names)
        {
            match name {
                GeneralName::DNSName(name) => names.dns.push((*name).to_owned()),
                GeneralName::IPAddress(bytes) => names.ip.extend(ip_address(bytes)),
                GeneralName::URI(uri) => names.uris.push((*uri).to_owned()),
                _ => {}
            }
        }
        Ok(names)
    }

    /// SPIFFE: exactly one such URI, or the certificate is for nobody.
    fn identity(&self, origin: &Origin) -> Result<Identity, CertError> {
        let mut uris = self.uris.iter().filter(|uri| uri.starts_with(SCHEME));
        match (uris.next(), uris.count()) {
            (Some(uri), 0) => uri.parse(),
            (first, more) => Err(CertError::NoIdentity {
                origin: origin.clone(),
                found: usize::from(first.is_some()) + more,
            }),
        }
    }
}

fn ip_address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
        _ => None,
    }
}

fn hex(bytes: &[u8]) -> String {
    let pairs: Vec<String> = bytes.iter().map(|byte| format!("{byte:02X}")).collect();
    pairs.join(":")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rcgen::{CertificateParams, KeyPair, SanType};

    use super::*;

    fn certificate(names: &[&str]) -> CertificateDer<'static> {
        let mut params = CertificateParams::default();
        params.subject_alt_names = names
            .iter()
            .map(|uri| SanType::URI((*uri).try_into().unwrap()))
            .collect();
        params
            .self_signed(&KeyPair::generate().unwrap())
            .unwrap()
            .into()
    }

    #[test]
    fn exactly_one_identity_is_required() {
        let one = "spiffe://demo/client/c";
        assert_eq!(
            identity_of(&certificate(&[one, "https://example.com"]))
                .unwrap()
                .to_string(),
            one
        );
        for (names, count) in [
            (&[][..], 0),
            (&["https://example.com"], 0),
            (&[one, one], 2),
            (&[one, "spiffe://demo/client/d", "spiffe://x"], 3),
        ] {
            let error = identity_of(&certificate(names)).unwrap_err();
            assert!(
                matches!(error, CertError::NoIdentity { found, .. } if found == count),
                "{error}"
            );
        }
    }

    #[test]
    fn a_malformed_identity_is_an_error_and_not_in_the_info() {
        let certificate = certificate(&["spiffe://demo/worker/w"]);
        assert!(matches!(
            identity_of(&certificate),
            Err(CertError::InvalidIdentity { what: "role", .. })
        ));
        assert!(
            CertificateInfo::from_der(&certificate)
                .unwrap()
                .identity
                .is_none()
        );
    }

    #[test]
    fn bytes_after_the_certificate_are_refused() {
        let mut der = certificate(&["spiffe://demo/client/c"]).to_vec();
        der.push(0);
        assert!(matches!(
            CertificateInfo::from_der(&der),
            Err(CertError::Parse { .. })
        ));
    }

    proptest! {
        #[test]
        fn damaged_certificates_never_panic(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
            let mut der = certificate(&["spiffe://demo/client/c"]).to_vec();
            for (place, byte) in changes {
                let place = place.index(der.len());
                der[place] = byte;
            }
            // Either outcome is right: a change may hit the signature or the key alone.
            let _ = CertificateInfo::from_der(&der);
        }
    }
}
