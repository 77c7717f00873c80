//! `certs issue`: makes the certificate of a node.

use thalweg_certs::{
    CA_CERTIFICATE_FILE, CERTIFICATE_FILE, CertificateAuthority, Identity, IssueRequest, KEY_FILE,
};

use crate::args::IssueArgs;
use crate::failure::Failure;
use crate::output::{self, Lines};
use crate::show;

pub(crate) fn run(args: &IssueArgs) -> Result<String, Failure> {
    let ca = CertificateAuthority::load(&args.dir)?;
    output::warn(ca.warnings());
    let identity = Identity::new(ca.cluster(), args.role.into(), &args.id)?;
    let out = args.out.clone().unwrap_or_else(|| args.dir.join(&args.id));
    let request = IssueRequest::new(identity.clone())
        .with_names(args.names.iter().cloned())
        .with_days(args.days);
    let node = ca.issue(&request)?;
    node.save(&out)?;

    let until = show::valid_until(node.info(), show::now());
    let until = match node.info().not_after == ca.info().not_after {
        true => format!("{until}, as long as the CA"),
        false => until,
    };
    let mut lines = Lines::default();
    lines.push("wrote", out.join(CERTIFICATE_FILE).display().to_string());
    lines.push("wrote", out.join(KEY_FILE).display().to_string());
    lines.push("wrote", out.join(CA_CERTIFICATE_FILE).display().to_string());
    lines.push("identity", identity.to_string());
    lines.push("valid until", until);
    lines.push("next", "give the node's configuration these lines");
    let folder = serde_json::Value::from(out.display().to_string());
    Ok(format!("{}\n[tls]\ndir = {folder}\n", lines.into_text()))
}
