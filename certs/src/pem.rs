//! PEM text: certificates and private keys as tools of every kind write them.
//!
//! Accepted: text around the blocks, indentation, CRLF line ends, a byte order mark, and keys in PKCS#8, PKCS#1 (RSA)
//! and SEC1 (EC) form.

use rustls::pki_types::pem::{PemObject, SectionKind};
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer,
};

use crate::error::{CertError, Origin};

/// All certificates of a text, in its order; at least one.
pub(crate) fn certificates(
    text: &[u8],
    origin: &Origin,
) -> Result<Vec<CertificateDer<'static>>, CertError> {
    let mut found = Vec::new();
    for (kind, der) in sections(text, origin)? {
        if kind == SectionKind::Certificate {
            found.push(CertificateDer::from(der));
        }
    }
    if found.is_empty() {
        return Err(missing(
            text,
            origin,
            "no certificate (a PEM block CERTIFICATE)",
            "x509",
        ));
    }
    Ok(found)
}

/// The only private key of a text.
pub(crate) fn private_key(
    text: &[u8],
    origin: &Origin,
) -> Result<PrivateKeyDer<'static>, CertError> {
    if is_encrypted(text) {
        return Err(CertError::parse(
            origin,
            "the private key is encrypted, which is not supported (openssl pkey -in FILE -out FILE removes the password)",
        ));
    }
    let mut keys: Vec<PrivateKeyDer<'static>> = Vec::new();
    for (kind, der) in sections(text, origin)? {
        match kind {
            SectionKind::EcPrivateKey => keys.push(PrivateSec1KeyDer::from(der).into()),
            SectionKind::PrivateKey => keys.push(PrivatePkcs8KeyDer::from(der).into()),
            SectionKind::RsaPrivateKey => keys.push(PrivatePkcs1KeyDer::from(der).into()),
            _ => {}
        }
    }
    match (keys.pop(), keys.len()) {
        (Some(key), 0) => Ok(key),
        (Some(_), more) => Err(CertError::parse(
            origin,
            format!("holds {} private keys, exactly one is required", more + 1),
        )),
        (None, _) => Err(missing(
            text,
            origin,
            "no private key (a PEM block PRIVATE KEY, RSA PRIVATE KEY or EC PRIVATE KEY)",
            "pkey",
        )),
    }
}

/// Whether a text that should hold certificates alone holds a key too.
pub(crate) fn holds_private_key(text: &[u8]) -> bool {
    lines(text).any(|line| line.starts_with(b"-----BEGIN ") && line.ends_with(b"PRIVATE KEY-----"))
}

fn sections(text: &[u8], origin: &Origin) -> Result<Vec<(SectionKind, Vec<u8>)>, CertError> {
    let mut plain = Vec::with_capacity(text.len());
    for line in lines(text) {
        plain.extend_from_slice(line);
        plain.push(b'\n');
    }
    <(SectionKind, Vec<u8>)>::pem_slice_iter(&plain)
        .collect::<Result<_, _>>()
        .map_err(|error| CertError::parse_with(origin, "damaged PEM block", error))
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
    text.strip_prefix(BYTE_ORDER_MARK)
        .unwrap_or(text)
        .split(|byte| matches!(byte, b'\n' | b'\r'))
        .map(<[u8]>::trim_ascii)
}

/// PKCS#8 says it in the label, the older forms in a header line inside the block (RFC 1421).
fn is_encrypted(text: &[u8]) -> bool {
    lines(text).any(|line| {
        line == b"-----BEGIN ENCRYPTED PRIVATE KEY-----"
            || (line.starts_with(b"Proc-Type:") && line.ends_with(b"ENCRYPTED"))
    })
}

fn missing(text: &[u8], origin: &Origin, what: &str, command: &str) -> CertError {
    const DER_SEQUENCE: u8 = 0x30;
    if text.first() == Some(&DER_SEQUENCE) && std::str::from_utf8(text).is_err() {
        let reason = format!(
            "is DER, but PEM is required (openssl {command} -inform der -in FILE converts it)"
        );
        return CertError::parse(origin, reason);
    }
    CertError::parse(origin, format!("holds {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authority::CertificateAuthority;

    const ORIGIN: Origin = Origin::Memory("the text");

    fn pair() -> (String, String) {
        let ca = CertificateAuthority::generate("demo", 1).unwrap();
        (ca.certificates_pem().to_owned(), ca.key_pem())
    }

    #[test]
    fn text_crlf_indentation_and_byte_order_mark_do_not_matter() {
        let (cert, key) = pair();
        let plain = certificates(cert.as_bytes(), &ORIGIN).unwrap();
        let decorated = [
            format!("subject=demo\n{cert}trailing words\n"),
            cert.replace('\n', "\r\n"),
            format!("\u{feff}{cert}"),
            format!("  {}", cert.replace('\n', "  \n  ")),
            cert.trim_end().to_owned(),
        ];
        for text in decorated {
            assert_eq!(
                certificates(text.as_bytes(), &ORIGIN).unwrap(),
                plain,
                "{text:?}"
            );
        }
        assert!(
            private_key(
                format!("\u{feff}note\r\n{}", key.replace('\n', "\r\n")).as_bytes(),
                &ORIGIN
            )
            .is_ok()
        );
    }

    #[test]
    fn a_text_without_the_block_is_an_error_that_names_it() {
        let (cert, key) = pair();
        let error = certificates(key.as_bytes(), &ORIGIN)
            .unwrap_err()
            .to_string();
        assert_eq!(
            error,
            "the text: holds no certificate (a PEM block CERTIFICATE)"
        );
        let error = private_key(cert.as_bytes(), &ORIGIN)
            .unwrap_err()
            .to_string();
        assert!(
            error.starts_with("the text: holds no private key"),
            "{error}"
        );
        assert!(certificates(b"", &ORIGIN).is_err());
    }

    #[test]
    fn two_keys_are_refused() {
        let (_, key) = pair();
        let error = private_key(format!("{key}{key}").as_bytes(), &ORIGIN)
            .unwrap_err()
            .to_string();
        assert_eq!(
            error,
            "the text: holds 2 private keys, exactly one is required"
        );
    }

    #[test]
    fn encrypted_keys_are_recognised_in_both_forms() {
        for text in [
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
            "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\nAAAA\n-----END RSA PRIVATE KEY-----\n",
        ] {
            let error = private_key(text.as_bytes(), &ORIGIN)
                .unwrap_err()
                .to_string();
            assert!(error.contains("encrypted"), "{error}");
        }
    }

    #[test]
    fn damaged_blocks_and_der_are_refused() {
        let (cert, _) = pair();
        let cut = &cert[..cert.len() / 2];
        assert!(
            certificates(cut.as_bytes(), &ORIGIN)
                .unwrap_err()
                .to_string()
                .contains("damaged PEM block")
        );
        let bad = cert.replacen("MII", "M!I", 1);
        assert!(certificates(bad.as_bytes(), &ORIGIN).is_err());
        let der = certificates(cert.as_bytes(), &ORIGIN).unwrap().remove(0);
        assert!(
            certificates(&der, &ORIGIN)
                .unwrap_err()
                .to_string()
                .contains("is DER")
        );
    }
}
