//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};
use thalweg_certs::{DEFAULT_CA_DAYS, DEFAULT_NODE_DAYS, Role, SubjectAltName};

/// The certificates of a Thalweg cluster: one private authority, one certificate for each node
#[derive(Debug, Parser)]
#[command(name = "certs", version, after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Init(InitArgs),
    Issue(IssueArgs),
    Show(ShowArgs),
}

/// Make the authority of a cluster: DIR/ca.pem and DIR/ca.key
///
/// The key (mode 0600) stays where it is: whoever has it can make nodes of the cluster. Existing files are never
/// overwritten.
#[derive(Debug, clap::Args)]
#[command(after_help = INIT_EXAMPLES)]
pub(crate) struct InitArgs {
    /// Folder of the authority; made if it does not exist
    pub(crate) dir: PathBuf,

    /// Name of the cluster in every identity: 1 to 253 characters of a-z 0-9 . _ -
    #[arg(long, value_name = "ID")]
    pub(crate) cluster_id: String,

    /// Validity in days
    #[arg(long, value_name = "N", default_value_t = DEFAULT_CA_DAYS)]
    pub(crate) days: u32,
}

/// Issue the certificate of a node: PATH/cert.pem, PATH/key.pem and PATH/ca.pem
///
/// It carries the identity spiffe://CLUSTER/ROLE/ID, by which the other nodes know this one, and is good for
/// dialling and for being dialled. It never outlives the authority. Existing files are never overwritten.
#[derive(Debug, clap::Args)]
#[command(after_help = ISSUE_EXAMPLES)]
pub(crate) struct IssueArgs {
    /// Folder of the authority, as made by `certs init`
    pub(crate) dir: PathBuf,

    /// What the node does in the cluster
    #[arg(long, value_enum)]
    pub(crate) role: RoleArg,

    /// Resource id of the node: 1 to 128 characters of A-Z a-z 0-9 . _ -
    #[arg(long)]
    pub(crate) id: String,

    /// DNS name or address for other tools (nodes go by identity): dns:NAME or ip:ADDR; may be repeated
    #[arg(long = "san", value_name = "dns:NAME|ip:ADDR")]
    pub(crate) names: Vec<SubjectAltName>,

    /// Validity in days
    #[arg(long, value_name = "N", default_value_t = DEFAULT_NODE_DAYS)]
    pub(crate) days: u32,

    /// Folder for the files; made if it does not exist [default: DIR/ID]
    #[arg(long, value_name = "PATH")]
    pub(crate) out: Option<PathBuf>,
}

/// Show what a certificate says: identity, names, validity, issuer, fingerprint
///
/// Nothing is verified. Of a file with several certificates all are shown.
#[derive(Debug, clap::Args)]
#[command(after_help = SHOW_EXAMPLES)]
pub(crate) struct ShowArgs {
    /// A PEM file, or a folder with cert.pem or ca.pem
    pub(crate) path: PathBuf,

    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// The roles as clap lists them.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum RoleArg {
    #[value(name = "jobmanager")]
    JobManager,
    #[value(name = "taskmanager")]
    TaskManager,
    #[value(name = "client")]
    Client,
}

impl From<RoleArg> for Role {
    fn from(role: RoleArg) -> Self {
        match role {
            RoleArg::Client => Self::Client,
            RoleArg::JobManager => Self::JobManager,
            RoleArg::TaskManager => Self::TaskManager,
        }
    }
}

const EXAMPLES: &str = "\
Examples:
  certs init certs --cluster-id demo
  certs issue certs --role jobmanager --id jm
  certs issue certs --role taskmanager --id tm-1
  certs show certs/tm-1

Exit codes: 0 success, 1 failure (paths), 2 wrong usage or unusable certificate or key files";

const INIT_EXAMPLES: &str = "\
Examples:
  certs init certs --cluster-id demo
  certs init /etc/thalweg/ca --cluster-id prod.eu --days 1825";

const ISSUE_EXAMPLES: &str = "\
Examples:
  certs issue certs --role jobmanager --id jm
  certs issue certs --role taskmanager --id tm-1 --san dns:tm-1.example --san ip:10.0.0.7
  certs issue certs --role client --id alice --days 7 --out ~/.thalweg";

const SHOW_EXAMPLES: &str = "\
Examples:
  certs show certs/tm-1
  certs show certs/ca.pem
  certs show certs/tm-1/cert.pem --json";
