//! `certs show`: what certificates say.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use thalweg_certs::{CA_CERTIFICATE_FILE, CERTIFICATE_FILE, CertificateInfo};

use crate::args::ShowArgs;
use crate::failure::Failure;
use crate::output::Lines;

pub(crate) fn run(args: &ShowArgs) -> Result<String, Failure> {
    let certificates = CertificateInfo::from_file(file_of(&args.path))?;
    let now = now();
    if args.json {
        return Ok(format!("{}\n", json(&certificates, now)));
    }
    let texts: Vec<String> = certificates.iter().map(|info| text(info, now)).collect();
    Ok(texts.join("\n"))
}

/// The local time in seconds since 1970.
pub(crate) fn now() -> i64 {
    let elapsed = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |elapsed| elapsed.as_secs());
    i64::try_from(elapsed).unwrap_or(i64::MAX)
}

/// The end of validity, and how far it is away.
pub(crate) fn valid_until(info: &CertificateInfo, now: i64) -> String {
    let days = days_left(info, now);
    let distance = match days {
        _ if now < info.not_before => "not valid yet".to_owned(),
        ..0 => "expired".to_owned(),
        0 => "less than a day left".to_owned(),
        1 => "1 day left".to_owned(),
        _ => format!("{days} days left"),
    };
    format!("{} ({distance})", info.not_after_text())
}

fn file_of(path: &Path) -> PathBuf {
    if !path.is_dir() {
        return path.to_owned();
    }
    let (node, ca) = (path.join(CERTIFICATE_FILE), path.join(CA_CERTIFICATE_FILE));
    if !node.exists() && ca.exists() {
        ca
    } else {
        node
    }
}

/// Whole days; negative once the certificate has expired.
fn days_left(info: &CertificateInfo, now: i64) -> i64 {
    const DAY_SECONDS: i64 = 86_400;
    info.not_after.saturating_sub(now).div_euclid(DAY_SECONDS)
}

fn text(info: &CertificateInfo, now: i64) -> String {
    let mut lines = Lines::default();
    match (&info.identity, &info.cluster) {
        (Some(identity), _) => {
            lines.push("identity", identity.to_string());
            lines.push("role", identity.role().as_str());
        }
        (None, Some(cluster)) if info.is_ca => {
            lines.push("identity", format!("none: CA of cluster {cluster}"))
        }
        (None, _) => lines.push("identity", "none"),
    }
    let addresses = info.ip_addresses.iter().map(ToString::to_string);
    let names: Vec<String> = info.dns_names.iter().cloned().chain(addresses).collect();
    lines.push(
        "names",
        if names.is_empty() {
            "none".to_owned()
        } else {
            names.join(", ")
        },
    );
    lines.push("usage", usage(info).join(", "));
    lines.push("valid from", info.not_before_text());
    lines.push("valid until", valid_until(info, now));
    lines.push("subject", &info.subject);
    lines.push("issuer", &info.issuer);
    lines.push("serial", &info.serial);
    lines.push("fingerprint SHA-256", &info.fingerprint);
    lines.into_text()
}

fn usage(info: &CertificateInfo) -> Vec<&'static str> {
    let all = [
        (info.is_ca, "ca"),
        (info.server_usage, "server"),
        (info.client_usage, "client"),
    ];
    let named: Vec<&str> = all
        .into_iter()
        .filter_map(|(has, name)| has.then_some(name))
        .collect();
    if named.is_empty() {
        vec!["none"]
    } else {
        named
    }
}

/// The object of `--json`: the first certificate, and those after it in `chain`.
#[derive(Serialize)]
struct Report<'a> {
    identity: Option<String>,
    cluster: Option<&'a str>,
    role: Option<&'static str>,
    id: Option<&'a str>,
    dns_names: &'a [String],
    ip_addresses: &'a [std::net::IpAddr],
    ca: bool,
    server_usage: bool,
    client_usage: bool,
    not_before: String,
    not_after: String,
    not_before_unix: i64,
    not_after_unix: i64,
    days_left: i64,
    subject: &'a str,
    issuer: &'a str,
    serial: &'a str,
    fingerprint_sha256: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    chain: Vec<Self>,
}

impl<'a> Report<'a> {
    fn new(info: &'a CertificateInfo, now: i64) -> Self {
        let identity = info.identity.as_ref();
        Self {
            identity: identity.map(ToString::to_string),
            cluster: info.cluster.as_deref(),
            role: identity.map(|identity| identity.role().as_str()),
            id: identity.map(|identity| identity.id()),
            dns_names: &info.dns_names,
            ip_addresses: &info.ip_addresses,
            ca: info.is_ca,
            server_usage: info.server_usage,
            client_usage: info.client_usage,
            not_before: info.not_before_text(),
            not_after: info.not_after_text(),
            not_before_unix: info.not_before,
            not_after_unix: info.not_after,
            days_left: days_left(info, now),
            subject: &info.subject,
            issuer: &info.issuer,
            serial: &info.serial,
            fingerprint_sha256: &info.fingerprint,
            chain: Vec::new(),
        }
    }
}

fn json(certificates: &[CertificateInfo], now: i64) -> String {
    let mut reports = certificates.iter().map(|info| Report::new(info, now));
    let first = reports.next().map(|first| Report {
        chain: reports.collect(),
        ..first
    });
    serde_json::to_string(&first).expect("strings, numbers and lists of them always serialize")
}

#[cfg(test)]
mod tests {
    use thalweg_certs::{CertificateAuthority, Identity, IssueRequest, Role};

    use super::*;

    fn node() -> CertificateInfo {
        let ca = CertificateAuthority::generate("demo", 10).unwrap();
        let identity = Identity::new("demo", Role::TaskManager, "tm-1").unwrap();
        ca.issue(&IssueRequest::new(identity).with_days(5))
            .unwrap()
            .info()
            .clone()
    }

    #[test]
    fn the_time_left_is_told_for_every_age() {
        let info = node();
        for (now, told) in [
            (info.not_before - 1, "(not valid yet)"),
            (info.not_before, "(5 days left)"),
            (info.not_after - 86_400, "(1 day left)"),
            (info.not_after - 10, "(less than a day left)"),
            (info.not_after, "(less than a day left)"),
            (info.not_after + 1, "(expired)"),
        ] {
            let text = valid_until(&info, now);
            assert!(text.ends_with(told), "{text}");
        }
    }

    #[test]
    fn further_certificates_of_a_file_stand_in_the_chain() {
        let (a, b) = (node(), node());
        let object: serde_json::Value =
            serde_json::from_str(&json(&[a.clone(), b.clone()], 0)).unwrap();
        assert_eq!(object["fingerprint_sha256"], a.fingerprint);
        assert_eq!(object["chain"][0]["fingerprint_sha256"], b.fingerprint);
        let alone: serde_json::Value = serde_json::from_str(&json(&[a], 0)).unwrap();
        assert!(alone.get("chain").is_none());
    }
}
