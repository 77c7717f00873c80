//! What a job consists of: vertices with parallel subtasks, and the edges that data takes between them.

use std::time::Duration;

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use thiserror::Error;

use crate::ids::VertexId;

/// A job as a client submits it: vertices (a registered task by name, parallelism, configuration bytes) and edges.
///
/// Built with [`JobGraph::new`], [`vertex`](Self::vertex) and [`connect`](Self::connect); checked by
/// [`validate`](Self::validate), which both the client and the Dispatcher call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobGraph {
    /// The job's name, for people.
    pub name: String,
    /// Vertices; a [`VertexId`] is a position in this list.
    pub vertices: Vec<Vertex>,
    /// Edges; the order of a vertex's edges is the order of its inputs and outputs.
    pub edges: Vec<Edge>,
    /// How slots are chosen.
    pub placement: Placement,
    /// What happens after a failure, or `None` for the cluster's default.
    pub restart: Option<RestartStrategy>,
}

/// One operator with its parallel subtasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vertex {
    /// The name, for people.
    pub name: String,
    /// The registered task type that its subtasks run.
    pub task: String,
    /// Number of parallel subtasks.
    pub parallelism: u32,
    /// Configuration of the task type, in its own encoding; see [`VertexBuilder::config`].
    pub config: Vec<u8>,
    /// Vertices with the same group share slots: one slot holds one subtask of each of them.
    pub slot_group: u32,
}

/// One data path between two vertices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edge {
    /// The producing vertex.
    pub from: VertexId,
    /// The consuming vertex.
    pub to: VertexId,
    /// Which consumer gets which record.
    pub distribution: Distribution,
    /// How the data is kept between producer and consumer.
    pub exchange: ExchangeMode,
}

/// Which consumer subtask gets which record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Distribution {
    /// Subtask i to subtask i; both sides have the same parallelism.
    Forward,
    /// Round robin over all consumers.
    Rebalance,
    /// By the hash of the record's key: records with equal keys meet at the same consumer.
    Hash,
    /// Each record to every consumer.
    Broadcast,
}

/// How data is kept between producer and consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExchangeMode {
    /// Consumed while it is produced, never stored.
    Pipelined,
    /// Stored at the producer, consumed after it has finished.
    Blocking,
}

/// How slots are chosen for a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Placement {
    /// Spread over the TaskManagers, the emptiest first.
    #[default]
    Spread,
    /// No two slot groups on the same TaskManager, so that all data between groups crosses the network.
    SeparateGroups,
}

/// What happens to a job after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RestartStrategy {
    /// The job fails.
    None,
    /// It starts again after a pause, so many times.
    FixedDelay {
        /// Restarts before the job fails.
        attempts: u32,
        /// The pause.
        delay: Duration,
    },
    /// It starts again after a pause that doubles, so many times.
    Exponential {
        /// Restarts before the job fails.
        attempts: u32,
        /// The first pause.
        initial: Duration,
        /// The longest pause.
        max: Duration,
    },
}

impl JobGraph {
    /// An empty graph.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            vertices: Vec::new(),
            edges: Vec::new(),
            placement: Placement::Spread,
            restart: None,
        }
    }

    /// Adds a vertex that runs a registered task type, with parallelism 1 until the builder says otherwise.
    pub fn vertex(
        &mut self,
        name: impl Into<String>,
        task: impl Into<String>,
    ) -> VertexBuilder<'_> {
        let id = VertexId(u32::try_from(self.vertices.len()).unwrap_or(u32::MAX));
        self.vertices.push(Vertex {
            name: name.into(),
            task: task.into(),
            parallelism: 1,
            config: Vec::new(),
            slot_group: 0,
        });
        let index = self.vertices.len() - 1;
        VertexBuilder {
            id,
            vertex: &mut self.vertices[index],
        }
    }

    /// Adds a pipelined edge.
    pub fn connect(
        &mut self,
        from: VertexId,
        to: VertexId,
        distribution: Distribution,
    ) -> &mut Self {
        self.connect_with(from, to, distribution, ExchangeMode::Pipelined)
    }

    /// Adds an edge.
    pub fn connect_with(
        &mut self,
        from: VertexId,
        to: VertexId,
        distribution: Distribution,
        exchange: ExchangeMode,
    ) -> &mut Self {
        self.edges.push(Edge {
            from,
            to,
            distribution,
            exchange,
        });
        self
    }

    /// The vertex with this id, if the graph has it.
    #[must_use]
    pub fn get(&self, id: VertexId) -> Option<&Vertex> {
        self.vertices.get(id.0 as usize)
    }

    /// Edges into a vertex, in input order.
    pub fn inputs(&self, id: VertexId) -> impl Iterator<Item = (usize, &Edge)> {
        self.edges
            .iter()
            .enumerate()
            .filter(move |(_, edge)| edge.to == id)
    }

    /// Edges out of a vertex, in output order.
    pub fn outputs(&self, id: VertexId) -> impl Iterator<Item = (usize, &Edge)> {
        self.edges
            .iter()
            .enumerate()
            .filter(move |(_, edge)| edge.from == id)
    }

    /// Slots that the job needs: for each slot group, the largest parallelism in it.
    #[must_use]
    pub fn slots_by_group(&self) -> std::collections::BTreeMap<u32, u32> {
        let mut groups = std::collections::BTreeMap::new();
        for vertex in &self.vertices {
            let slots = groups.entry(vertex.slot_group).or_insert(0);
            *slots = vertex.parallelism.max(*slots);
        }
        groups
    }

    /// Checks what can be checked without a cluster.
    ///
    /// # Errors
    /// The first fault, naming vertex or edge.
    pub fn validate(&self) -> Result<(), JobGraphError> {
        if self.vertices.is_empty() {
            return Err(JobGraphError::Empty);
        }
        if self.vertices.len() > MAX_VERTICES || self.edges.len() > MAX_EDGES {
            return Err(JobGraphError::TooLarge {
                vertices: self.vertices.len(),
                edges: self.edges.len(),
            });
        }
        for vertex in &self.vertices {
            if !(1..=MAX_PARALLELISM).contains(&vertex.parallelism) {
                return Err(JobGraphError::Parallelism {
                    vertex: vertex.name.clone(),
                    parallelism: vertex.parallelism,
                });
            }
        }
        for edge in &self.edges {
            let (Some(from), Some(to)) = (self.get(edge.from), self.get(edge.to)) else {
                return Err(JobGraphError::UnknownVertex {
                    from: edge.from,
                    to: edge.to,
                });
            };
            if edge.distribution == Distribution::Forward && from.parallelism != to.parallelism {
                return Err(JobGraphError::Forward {
                    from: from.name.clone(),
                    from_parallelism: from.parallelism,
                    to: to.name.clone(),
                    to_parallelism: to.parallelism,
                });
            }
        }
        self.check_acyclic()
    }

    fn check_acyclic(&self) -> Result<(), JobGraphError> {
        let mut incoming: Vec<usize> = vec![0; self.vertices.len()];
        for edge in &self.edges {
            incoming[edge.to.0 as usize] += 1;
        }
        let mut ready: Vec<usize> = (0..incoming.len()).filter(|&v| incoming[v] == 0).collect();
        let mut seen = 0;
        while let Some(vertex) = ready.pop() {
            seen += 1;
            for edge in self
                .edges
                .iter()
                .filter(|edge| edge.from.0 as usize == vertex)
            {
                let to = edge.to.0 as usize;
                incoming[to] -= 1;
                if incoming[to] == 0 {
                    ready.push(to);
                }
            }
        }
        if seen == self.vertices.len() {
            return Ok(());
        }
        let name = incoming
            .iter()
            .position(|&count| count > 0)
            .map_or_else(String::new, |v| self.vertices[v].name.clone());
        Err(JobGraphError::Cycle { vertex: name })
    }
}

/// Sets the properties of a vertex just added.
#[derive(Debug)]
pub struct VertexBuilder<'a> {
    id: VertexId,
    vertex: &'a mut Vertex,
}

impl VertexBuilder<'_> {
    /// Number of parallel subtasks.
    #[must_use]
    pub fn parallelism(self, parallelism: u32) -> Self {
        self.vertex.parallelism = parallelism;
        self
    }

    /// The slot sharing group.
    #[must_use]
    pub fn slot_group(self, group: u32) -> Self {
        self.vertex.slot_group = group;
        self
    }

    /// The task's configuration, encoded with postcard; the task reads it with [`decode_config`].
    ///
    /// # Errors
    /// [`JobGraphError::Config`] if it cannot be encoded.
    pub fn config<C: Serialize>(self, config: &C) -> Result<Self, JobGraphError> {
        self.vertex.config =
            postcard::to_allocvec(config).map_err(|error| JobGraphError::Config {
                vertex: self.vertex.name.clone(),
                reason: error.to_string(),
            })?;
        Ok(self)
    }

    /// The vertex's id, for edges.
    #[must_use]
    pub fn id(self) -> VertexId {
        self.id
    }
}

/// Reads a task configuration that [`VertexBuilder::config`] wrote.
///
/// # Errors
/// What postcard says, and bytes left over.
pub fn decode_config<C: DeserializeOwned>(bytes: &[u8]) -> Result<C, String> {
    let (config, rest) = postcard::take_from_bytes(bytes).map_err(|error| error.to_string())?;
    if rest.is_empty() {
        Ok(config)
    } else {
        Err(format!("{} bytes are left over", rest.len()))
    }
}

/// Why a graph is no valid job.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum JobGraphError {
    /// There is no vertex.
    #[error("the job has no vertex")]
    Empty,
    /// More than the limits.
    #[error(
        "the job has {vertices} vertices and {edges} edges: at most {MAX_VERTICES} and {MAX_EDGES} are allowed"
    )]
    TooLarge {
        /// Vertices found.
        vertices: usize,
        /// Edges found.
        edges: usize,
    },
    /// Parallelism out of range.
    #[error("vertex {vertex:?} has parallelism {parallelism}: 1 to {MAX_PARALLELISM} is allowed")]
    Parallelism {
        /// The vertex's name.
        vertex: String,
        /// What was given.
        parallelism: u32,
    },
    /// An edge names a vertex that is not in the graph.
    #[error("an edge from {from} to {to} names a vertex that is not in the graph")]
    UnknownVertex {
        /// One end.
        from: VertexId,
        /// The other end.
        to: VertexId,
    },
    /// A forward edge between different parallelisms.
    #[error(
        "the forward edge from {from:?} ({from_parallelism} subtasks) to {to:?} ({to_parallelism}) needs the same \
         parallelism on both sides"
    )]
    Forward {
        /// The producing vertex.
        from: String,
        /// Its parallelism.
        from_parallelism: u32,
        /// The consuming vertex.
        to: String,
        /// Its parallelism.
        to_parallelism: u32,
    },
    /// The edges form a circle.
    #[error("the edges form a circle through vertex {vertex:?}")]
    Cycle {
        /// A vertex on it.
        vertex: String,
    },
    /// A configuration that cannot be encoded.
    #[error("the configuration of vertex {vertex:?} cannot be encoded: {reason}")]
    Config {
        /// The vertex's name.
        vertex: String,
        /// The encoder's reason.
        reason: String,
    },
}

/// More vertices than any real job has; bounds what a client can make the Dispatcher hold.
const MAX_VERTICES: usize = 1024;
/// As [`MAX_VERTICES`].
const MAX_EDGES: usize = 4096;
/// More subtasks than slots in any cluster of this kind.
const MAX_PARALLELISM: u32 = 16_384;

#[cfg(test)]
mod tests {
    use super::*;

    fn two(from: u32, to: u32, distribution: Distribution) -> JobGraph {
        let mut graph = JobGraph::new("j");
        let a = graph.vertex("a", "t").parallelism(from).id();
        let b = graph.vertex("b", "t").parallelism(to).id();
        graph.connect(a, b, distribution);
        graph
    }

    #[test]
    fn forward_needs_equal_parallelism() {
        two(2, 2, Distribution::Forward).validate().unwrap();
        two(2, 3, Distribution::Hash).validate().unwrap();
        let error = two(2, 3, Distribution::Forward)
            .validate()
            .unwrap_err()
            .to_string();
        assert!(error.contains("\"a\" (2 subtasks)"), "{error}");
    }

    #[test]
    fn circles_and_unknown_vertices_are_refused() {
        let mut graph = two(1, 1, Distribution::Hash);
        graph.connect(VertexId(1), VertexId(0), Distribution::Hash);
        assert!(matches!(graph.validate(), Err(JobGraphError::Cycle { .. })));
        let mut graph = two(1, 1, Distribution::Hash);
        graph.connect(VertexId(1), VertexId(9), Distribution::Hash);
        assert!(matches!(
            graph.validate(),
            Err(JobGraphError::UnknownVertex { .. })
        ));
        assert_eq!(JobGraph::new("x").validate(), Err(JobGraphError::Empty));
    }

    #[test]
    fn parallelism_zero_is_refused() {
        assert!(matches!(
            two(0, 1, Distribution::Hash).validate(),
            Err(JobGraphError::Parallelism { .. })
        ));
    }

    #[test]
    fn vertices_of_a_group_share_slots() {
        let mut graph = JobGraph::new("j");
        let _ = graph.vertex("a", "t").parallelism(4).id();
        let _ = graph.vertex("b", "t").parallelism(2).id();
        let _ = graph.vertex("c", "t").parallelism(3).slot_group(1).id();
        assert_eq!(
            graph.slots_by_group().into_iter().collect::<Vec<_>>(),
            [(0, 4), (1, 3)]
        );
    }

    #[test]
    fn configuration_round_trips_and_leftovers_are_refused() {
        let mut graph = JobGraph::new("j");
        let _ = graph.vertex("a", "t").config(&(7_u32, "x")).unwrap().id();
        assert_eq!(
            decode_config::<(u32, String)>(&graph.vertices[0].config),
            Ok((7, "x".to_owned()))
        );
        assert!(decode_config::<u8>(&[1, 2]).is_err());
    }
}
