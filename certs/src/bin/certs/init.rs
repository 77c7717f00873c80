//! `certs init`: makes the authority.

use thalweg_certs::{CA_CERTIFICATE_FILE, CA_KEY_FILE, CertificateAuthority};

use crate::args::InitArgs;
use crate::failure::Failure;
use crate::output::{Lines, shell_word};
use crate::show;

pub(crate) fn run(args: &InitArgs) -> Result<String, Failure> {
    let ca = CertificateAuthority::generate(&args.cluster_id, args.days)?;
    ca.save(&args.dir)?;
    let mut lines = Lines::default();
    lines.push(
        "wrote",
        args.dir.join(CA_CERTIFICATE_FILE).display().to_string(),
    );
    lines.push(
        "wrote",
        format!("{} (keep it secret)", args.dir.join(CA_KEY_FILE).display()),
    );
    lines.push("cluster", ca.cluster());
    lines.push("valid until", show::valid_until(ca.info(), show::now()));
    lines.push(
        "next",
        format!(
            "certs issue {} --role jobmanager --id jm",
            shell_word(&args.dir)
        ),
    );
    Ok(lines.into_text())
}
