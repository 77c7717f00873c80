//! The cluster's certificate authority.

use std::fmt;
use std::path::Path;

use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PublicKeyData, SanType, SerialNumber,
};
use time::OffsetDateTime;

use crate::clock::{self, DAY_SECONDS};
use crate::error::{CertError, Origin, Warning};
use crate::files::{CA_CERTIFICATE_FILE, CA_KEY_FILE};
use crate::identity::{check_cluster, trust_domain_uri};
use crate::info::CertificateInfo;
use crate::names::SubjectAltName;
use crate::node_certificate::{IssueRequest, NodeCertificate};
use crate::store::{self, Access, NewFile};
use crate::{pem, verify};

/// A cluster's certificate authority: its certificate, its private key and the cluster id that it serves.
///
/// Keys are ECDSA P-256. The certificate carries the cluster id as a URI (`spiffe://<cluster-id>`) and may issue
/// certificates of nodes but no further authority (path length 0).
pub struct CertificateAuthority {
    cluster: String,
    issuer: Issuer<'static, KeyPair>,
    info: CertificateInfo,
    origin: Origin,
    /// Every CA certificate that nodes trust, as PEM; the issuing one is among them.
    certificates_pem: String,
    warnings: Vec<Warning>,
}

impl CertificateAuthority {
    /// Makes an authority in memory, valid from five minutes ago for `days`; nothing is written.
    ///
    /// # Errors
    ///
    /// [`CertError::InvalidIdentity`] for a wrong cluster id, [`CertError::InvalidValidity`] unless `days` is 1 to
    /// [`MAX_DAYS`], [`CertError::Sign`] if the cryptography fails.
    pub fn generate(cluster_id: &str, days: u32) -> Result<Self, CertError> {
        Self::generate_at(cluster_id, days, clock::now())
    }

    /// Reads `ca.pem` and `ca.key` of a folder.
    ///
    /// `ca.pem` may hold several CA certificates: the one that the key belongs to issues, nodes trust all of them.
    /// An expired authority loads, but does not issue.
    ///
    /// # Errors
    ///
    /// [`CertError::Io`], [`CertError::Parse`], [`CertError::InsecureKey`], [`CertError::KeyMismatch`] if no
    /// certificate belongs to the key, [`CertError::Usage`] if that certificate is not a CA's or names no cluster.
    pub fn load(dir: impl AsRef<Path>) -> Result<Self, CertError> {
        let certificate_path = dir.as_ref().join(CA_CERTIFICATE_FILE);
        let key_path = dir.as_ref().join(CA_KEY_FILE);
        let mut warnings = Vec::new();
        let text = store::read(&certificate_path)?;
        let secret = store::read_secret(&key_path, &mut warnings)?;
        let (origin, key_origin) = (Origin::File(certificate_path), Origin::File(key_path));
        if pem::holds_private_key(&text) {
            let reason = "holds a private key, but this file is copied to the nodes";
            return Err(CertError::parse(&origin, reason));
        }
        let certificates = pem::certificates(&text, &origin)?;
        let key = KeyPair::try_from(&pem::private_key(&secret, &key_origin)?).map_err(|error| {
            CertError::parse_with(
                &key_origin,
                "holds a private key of an unsupported kind",
                error,
            )
        })?;

        let public = key.subject_public_key_info();
        let mut issuing = None;
        for certificate in &certificates {
            let info = CertificateInfo::read(certificate, &origin)?;
            if !info.is_ca {
                let reason = "it holds a certificate that is not a CA's";
                return Err(CertError::Usage { origin, reason });
            }
            if crate::info::public_key(certificate, &origin)? == public {
                issuing = Some((certificate, info));
            }
        }
        let Some((certificate, info)) = issuing else {
            return Err(CertError::KeyMismatch {
                key: key_origin,
                certificate: origin,
            });
        };
        let Some(cluster) = info.cluster.clone() else {
            let reason = "the CA certificate names no cluster (URI name spiffe://<cluster-id>)";
            return Err(CertError::Usage { origin, reason });
        };
        let issuer = Issuer::from_ca_cert_der(certificate, key).map_err(|error| {
            CertError::parse_with(&origin, "holds an unusable CA certificate", error)
        })?;
        let certificates_pem = String::from_utf8_lossy(&text)
            .trim_start_matches('\u{feff}')
            .to_owned();
        Ok(Self {
            cluster,
            issuer,
            info,
            origin,
            certificates_pem,
            warnings,
        })
    }

    /// Writes `ca.pem` and `ca.key` (mode 0600) into a folder, which is made if it does not exist.
    ///
    /// # Errors
    ///
    /// [`CertError::AlreadyExists`] if one of the files exists (nothing is written then), [`CertError::Io`].
    pub fn save(&self, dir: impl AsRef<Path>) -> Result<(), CertError> {
        let (dir, key) = (dir.as_ref(), self.key_pem());
        store::write_new(&[
            NewFile {
                path: dir.join(CA_KEY_FILE),
                text: &key,
                access: Access::Secret,
            },
            NewFile {
                path: dir.join(CA_CERTIFICATE_FILE),
                text: &self.certificates_pem,
                access: Access::Public,
            },
        ])
    }

    /// Issues a certificate with a new key for a node of this cluster.
    ///
    /// It is valid from five minutes ago (for clocks that differ) for the days asked for, but never longer than the
    /// authority itself. Nothing is written. What is returned has been checked the way a node checks it.
    ///
    /// # Errors
    ///
    /// [`CertError::WrongCluster`] for an identity of another cluster, [`CertError::InvalidValidity`],
    /// [`CertError::InvalidName`], [`CertError::Expired`] or [`CertError::NotYetValid`] if the authority is,
    /// [`CertError::Sign`] if the cryptography fails.
    pub fn issue(&self, request: &IssueRequest) -> Result<NodeCertificate, CertError> {
        self.issue_at(request, clock::now())
    }

    /// The cluster that it serves.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// What the issuing certificate says.
    pub fn info(&self) -> &CertificateInfo {
        &self.info
    }

    /// Every CA certificate that nodes should trust, as PEM text.
    pub fn certificates_pem(&self) -> &str {
        &self.certificates_pem
    }

    /// What an operator should change about the files that this was loaded from.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }
}

// === impl CertificateAuthority ===

impl CertificateAuthority {
    pub(crate) fn generate_at(cluster_id: &str, days: u32, now: i64) -> Result<Self, CertError> {
        check_cluster(cluster_id)?;
        let serial = random_serial()?;
        let mut params = CertificateParams::default();
        params.not_before = date(now - BACKDATE_SECONDS)?;
        params.not_after = date(end_of(days, now)?)?;
        // Part of the serial number tells the authorities of one cluster apart by name.
        let [_, a, b, c, d, ..] = serial;
        let name = format!("{cluster_id} CA {a:02x}{b:02x}{c:02x}{d:02x}");
        params.distinguished_name = distinguished_name(cluster_id, &name);
        params.serial_number = Some(SerialNumber::from_slice(&serial));
        params.subject_alt_names = vec![uri(&trust_domain_uri(cluster_id))?];
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];

        let key = generate_key()?;
        let signed = params
            .self_signed(&key)
            .map_err(|error| CertError::sign("sign the CA certificate", error))?;
        let origin = Origin::Memory("the CA certificate");
        Ok(Self {
            cluster: cluster_id.to_owned(),
            info: CertificateInfo::read(signed.der(), &origin)?,
            certificates_pem: signed.pem(),
            issuer: Issuer::new(params, key),
            origin,
            warnings: Vec::new(),
        })
    }

    pub(crate) fn issue_at(
        &self,
        request: &IssueRequest,
        now: i64,
    ) -> Result<NodeCertificate, CertError> {
        let key = generate_key()?;
        let usages = [
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let certificate_pem = self.sign_leaf(request, &key, &usages, now)?;
        let issued = self.node_certificate(certificate_pem, key.serialize_pem())?;
        issued.credentials_at(now)?;
        Ok(issued)
    }

    /// Signs a certificate for a public key; returns it as PEM.
    pub(crate) fn sign_leaf(
        &self,
        request: &IssueRequest,
        key: &impl PublicKeyData,
        usages: &[ExtendedKeyUsagePurpose],
        now: i64,
    ) -> Result<String, CertError> {
        let identity = &request.identity;
        if identity.cluster() != self.cluster {
            return Err(CertError::WrongCluster {
                identity: identity.to_string(),
                cluster: self.cluster.clone(),
            });
        }
        self.info.check_dates(&self.origin, now)?;
        let mut params = CertificateParams::default();
        params.not_before = date(now - BACKDATE_SECONDS)?;
        params.not_after = date(end_of(request.days, now)?.min(self.info.not_after))?;
        params.distinguished_name = distinguished_name(
            &self.cluster,
            &format!("{} {}", identity.role(), identity.id()),
        );
        params.serial_number = Some(SerialNumber::from_slice(&random_serial()?));
        params.subject_alt_names = vec![uri(&identity.to_string())?];
        for name in &request.names {
            params.subject_alt_names.push(san(name)?);
        }
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = usages.to_vec();
        params.use_authority_key_identifier_extension = true;
        let signed = params
            .signed_by(key, &self.issuer)
            .map_err(|error| CertError::sign("sign the node's certificate", error))?;
        Ok(signed.pem())
    }

    pub(crate) fn node_certificate(
        &self,
        certificate_pem: String,
        key_pem: String,
    ) -> Result<NodeCertificate, CertError> {
        NodeCertificate::new(certificate_pem, key_pem, self.certificates_pem.clone())
    }

    pub(crate) fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }
}

impl fmt::Debug for CertificateAuthority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertificateAuthority")
            .field("cluster", &self.cluster)
            .field("info", &self.info)
            .finish_non_exhaustive()
    }
}

fn generate_key() -> Result<KeyPair, CertError> {
    KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256)
        .map_err(|error| CertError::sign("make a private key", error))
}

/// RFC 5280 section 4.1.2.2: positive, at most 20 bytes. The two top bits are set to 01, so that the number is
/// positive and always as long as it looks; 126 bits are random.
fn random_serial() -> Result<[u8; 16], CertError> {
    let mut serial = [0; 16];
    let filled = verify::provider().secure_random.fill(&mut serial);
    filled.map_err(|_| {
        CertError::sign("make a serial number", "the random number generator failed")
    })?;
    serial[0] = serial[0] & 0x3f | 0x40;
    Ok(serial)
}

fn end_of(days: u32, now: i64) -> Result<i64, CertError> {
    if !(1..=MAX_DAYS).contains(&days) {
        return Err(CertError::InvalidValidity {
            days,
            max: MAX_DAYS,
        });
    }
    Ok(now + i64::from(days) * DAY_SECONDS)
}

fn date(unix_seconds: i64) -> Result<OffsetDateTime, CertError> {
    OffsetDateTime::from_unix_timestamp(unix_seconds)
        .map_err(|error| CertError::sign("write the validity of the certificate", error))
}

fn distinguished_name(cluster: &str, common_name: &str) -> DistinguishedName {
    /// RFC 5280 appendix A.1: ub-organization-name, ub-common-name.
    const MAX_CHARS: usize = 64;
    let cut = |text: &str| text.chars().take(MAX_CHARS).collect::<String>();
    let mut name = DistinguishedName::new();
    name.push(DnType::OrganizationName, cut(cluster));
    name.push(DnType::CommonName, cut(common_name));
    name
}

fn uri(text: &str) -> Result<SanType, CertError> {
    ia5(text).map(SanType::URI)
}

fn san(name: &SubjectAltName) -> Result<SanType, CertError> {
    match name {
        SubjectAltName::Dns(name) => {
            // The variant is public: its text need not come from the checked constructor.
            SubjectAltName::dns(name)?;
            ia5(name).map(SanType::DnsName)
        }
        SubjectAltName::Ip(addr) => Ok(SanType::IpAddress(*addr)),
    }
}

fn ia5(text: &str) -> Result<Ia5String, CertError> {
    Ia5String::try_from(text)
        .map_err(|error| CertError::sign("write a name into the certificate", error))
}

/// Ten years: replacing the authority touches every node, so it is rare.
pub const DEFAULT_CA_DAYS: u32 = 3650;

/// A hundred years, far from the end of what a certificate date can say (year 9999).
pub const MAX_DAYS: u32 = 36_500;

/// Certificates are valid from five minutes before they are made, for nodes whose clock is behind.
const BACKDATE_SECONDS: i64 = 5 * 60;

#[cfg(test)]
mod tests;
