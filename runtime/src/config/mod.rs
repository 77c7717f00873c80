//! The configuration of a node: sections, sources, rules between values, and how it is printed.
//!
//! Sources, each overriding the one before: defaults, the [`Sources::presets`] of a command, a TOML file, environment
//! variables `THALWEG__<SECTION>__<KEY>`, flags. Nothing here reads the process by itself: [`environment`] and
//! [`Sources::read_file`] are called by the program.

mod address;
mod choices;
mod error;
mod load;
mod node;
mod print;
mod roles;
mod section;
#[cfg(test)]
mod tests;
mod units;
mod unsupported;
mod url;
mod validate;
mod value;

pub use choices::{Compression, RestartStrategy, TaskPlacement, TlsMode};
pub use error::{ConfigError, Origin, Problem, Problems};
pub use load::{ConfigFile, ENVIRONMENT_PREFIX, Sources, environment};
pub use node::{ClusterSection, NodeSection, TlsFiles, TlsSection, TransportSection};
pub use roles::{
    BlobSection, HaSection, HeartbeatSection, JobManagerSection, MetricsSection, RpcSection,
    TaskManagerSection, TaskSection,
};
pub use units::{ByteSize, format_duration, parse_duration};
pub use url::Url;
pub use validate::Known;

use section::Section;

/// Every setting of a node; the fields are the tables of the TOML file.
///
/// `Default` is a valid configuration of a node on one machine. Comes from [`Config::load`], or from `default()` and
/// assignments followed by [`validate`](Self::validate).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Config {
    /// What all nodes of a cluster share.
    pub cluster: ClusterSection,
    /// The process.
    pub node: NodeSection,
    /// Connections and the partition exchange.
    pub transport: TransportSection,
    /// Certificates.
    pub tls: TlsSection,
    /// The JobManager, and how others find it.
    pub jobmanager: JobManagerSection,
    /// The TaskManager.
    pub taskmanager: TaskManagerSection,
    /// Running tasks.
    pub task: TaskSection,
    /// Remote calls.
    pub rpc: RpcSection,
    /// Heartbeats between the components.
    pub heartbeat: HeartbeatSection,
    /// Leader services.
    pub ha: HaSection,
    /// Blob storage.
    pub blob: BlobSection,
    /// The metrics page.
    pub metrics: MetricsSection,
}

impl Config {
    /// All sections, in the order of the file.
    fn sections(&self) -> [&dyn Section; 12] {
        [
            &self.cluster,
            &self.node,
            &self.transport,
            &self.tls,
            &self.jobmanager,
            &self.taskmanager,
            &self.task,
            &self.rpc,
            &self.heartbeat,
            &self.ha,
            &self.blob,
            &self.metrics,
        ]
    }

    /// All sections, to be changed.
    fn sections_mut(&mut self) -> [&mut dyn Section; 12] {
        [
            &mut self.cluster,
            &mut self.node,
            &mut self.transport,
            &mut self.tls,
            &mut self.jobmanager,
            &mut self.taskmanager,
            &mut self.task,
            &mut self.rpc,
            &mut self.heartbeat,
            &mut self.ha,
            &mut self.blob,
            &mut self.metrics,
        ]
    }

    /// The value of a dotted key as it stands in TOML; `None` for an unset optional or an unknown key.
    fn literal(&self, dotted: &str) -> Option<String> {
        let (section, key) = dotted.split_once('.')?;
        let sections = self.sections();
        sections.iter().find(|s| s.name() == section)?.literal(key)
    }
}
