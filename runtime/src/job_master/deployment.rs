//! From a graph and its slots to what each TaskExecutor gets. Pure.

use std::collections::BTreeMap;

use bytes::Bytes;
use thalweg_transport::ResourceId;

use super::slot_pool::HeldSlot;
use crate::{
    gateways::{
        ChannelDeployment, InputDeployment, OutputDeployment, PartitionKey, TaskDeployment,
    },
    ids::{ExecutionId, JobId, VertexId},
    job::{Distribution, Edge, JobGraph},
};

/// Describes every task of one attempt, vertex by vertex, each with the TaskManager that runs it.
///
/// Subtask i of each vertex of a slot group runs in slot i of the group. A Forward edge joins producer i and consumer i
/// by one subpartition; every other edge gives each producer one subpartition for each consumer, and consumer j reads
/// subpartition j of every producer.
///
/// `address` is the `host:port` of a TaskManager.
///
/// # Errors
/// The (slot group, index) that `slots` lacks, or whose TaskManager has no address.
pub(crate) fn deployments(
    job: JobId,
    attempt: u32,
    graph: &JobGraph,
    slots: &BTreeMap<(u32, u32), HeldSlot>,
    address: impl Fn(&ResourceId) -> Option<String>,
) -> Result<Vec<(ResourceId, TaskDeployment)>, (u32, u32)> {
    let plan = Plan {
        job,
        attempt,
        graph,
        slots,
        address,
    };
    let mut deployments = Vec::new();
    for (vertex, v) in (0_u32..).zip(&graph.vertices) {
        for subtask in 0..v.parallelism {
            deployments.push(plan.task(VertexId(vertex), subtask)?);
        }
    }
    Ok(deployments)
}

struct Plan<'a, A> {
    job: JobId,
    attempt: u32,
    graph: &'a JobGraph,
    slots: &'a BTreeMap<(u32, u32), HeldSlot>,
    address: A,
}

impl<A: Fn(&ResourceId) -> Option<String>> Plan<'_, A> {
    fn task(
        &self,
        vertex: VertexId,
        subtask: u32,
    ) -> Result<(ResourceId, TaskDeployment), (u32, u32)> {
        let slot = self.slot(vertex, subtask)?;
        let v = &self.graph.vertices[vertex.0 as usize];
        let inputs = self
            .graph
            .inputs(vertex)
            .map(|(index, edge)| self.input(index, edge, subtask))
            .collect::<Result<_, _>>()?;
        let outputs = (0_u32..)
            .zip(self.graph.outputs(vertex))
            .map(|(output, (_, edge))| self.output(output, edge, subtask))
            .collect();
        let deployment = TaskDeployment {
            execution: self.execution(vertex, subtask),
            allocation: slot.allocation,
            job_name: self.graph.name.clone(),
            vertex_name: v.name.clone(),
            task: v.task.clone(),
            config: Bytes::copy_from_slice(&v.config),
            parallelism: v.parallelism,
            inputs,
            outputs,
        };
        Ok((slot.task_manager.clone(), deployment))
    }

    fn input(
        &self,
        index: usize,
        edge: &Edge,
        consumer: u32,
    ) -> Result<InputDeployment, (u32, u32)> {
        let output = self.output_of(index, edge);
        let (producers, subpartition) = match edge.distribution {
            Distribution::Forward => (consumer..consumer + 1, 0),
            _ => (0..self.parallelism(edge.from), consumer),
        };
        let channels = producers
            .map(|producer| {
                let group = self.group(edge.from);
                let task_manager = self.slot(edge.from, producer)?.task_manager.clone();
                Ok(ChannelDeployment {
                    partition: PartitionKey {
                        producer: self.execution(edge.from, producer),
                        output,
                    },
                    subpartition,
                    address: (self.address)(&task_manager).ok_or((group, producer))?,
                    task_manager,
                })
            })
            .collect::<Result<_, (u32, u32)>>()?;
        Ok(InputDeployment {
            distribution: edge.distribution,
            channels,
        })
    }

    fn output(&self, output: u32, edge: &Edge, producer: u32) -> OutputDeployment {
        OutputDeployment {
            partition: PartitionKey {
                producer: self.execution(edge.from, producer),
                output,
            },
            subpartitions: match edge.distribution {
                Distribution::Forward => 1,
                _ => self.parallelism(edge.to),
            },
            distribution: edge.distribution,
            exchange: edge.exchange,
        }
    }

    /// Which of its producer's outputs an edge is.
    fn output_of(&self, index: usize, edge: &Edge) -> u32 {
        (0_u32..)
            .zip(self.graph.outputs(edge.from))
            .find(|(_, (candidate, _))| *candidate == index)
            .map_or(0, |(output, _)| output)
    }

    fn slot(&self, vertex: VertexId, subtask: u32) -> Result<&HeldSlot, (u32, u32)> {
        let key = (self.group(vertex), subtask);
        self.slots.get(&key).ok_or(key)
    }

    fn group(&self, vertex: VertexId) -> u32 {
        self.graph.get(vertex).map_or(0, |v| v.slot_group)
    }

    fn parallelism(&self, vertex: VertexId) -> u32 {
        self.graph.get(vertex).map_or(0, |v| v.parallelism)
    }

    fn execution(&self, vertex: VertexId, subtask: u32) -> ExecutionId {
        ExecutionId {
            job: self.job,
            vertex,
            subtask,
            attempt: self.attempt,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{ids::AllocationId, job::ExchangeMode};

    fn slots(graph: &JobGraph) -> BTreeMap<(u32, u32), HeldSlot> {
        let mut slots = BTreeMap::new();
        for (group, count) in graph.slots_by_group() {
            for index in 0..count {
                let held = HeldSlot {
                    allocation: AllocationId::from_u128(
                        u128::from(group) << 32 | u128::from(index),
                    ),
                    task_manager: ResourceId::new(&format!("tm-{group}-{index}")).unwrap(),
                };
                slots.insert((group, index), held);
            }
        }
        slots
    }

    fn deploy(graph: &JobGraph) -> Vec<(ResourceId, TaskDeployment)> {
        graph.validate().unwrap();
        let job = JobId::from_u128(1);
        deployments(job, 3, graph, &slots(graph), |id| Some(format!("{id}:1"))).unwrap()
    }

    #[test]
    fn forward_joins_equal_subtasks_of_shared_slots() {
        let mut graph = JobGraph::new("j");
        let a = graph.vertex("a", "ta").parallelism(2).id();
        let b = graph.vertex("b", "tb").parallelism(2).id();
        graph.connect(a, b, Distribution::Forward);
        let tasks = deploy(&graph);
        assert_eq!(tasks.len(), 4);
        let (place, consumer) = &tasks[3];
        assert_eq!(place.as_str(), "tm-0-1");
        assert_eq!(consumer.allocation, tasks[1].1.allocation);
        assert_eq!(consumer.execution.attempt, 3);
        assert_eq!((&*consumer.vertex_name, &*consumer.task), ("b", "tb"));
        let channel = &consumer.inputs[0].channels[..];
        assert_eq!(channel.len(), 1);
        assert_eq!(channel[0].partition, tasks[1].1.outputs[0].partition);
        assert_eq!(channel[0].subpartition, 0);
        assert_eq!(channel[0].address, "tm-0-1:1");
        assert_eq!(tasks[1].1.outputs[0].subpartitions, 1);
    }

    #[test]
    fn outputs_and_inputs_are_in_the_order_of_the_edges() {
        let mut graph = JobGraph::new("j");
        let a = graph.vertex("a", "t").id();
        let b = graph.vertex("b", "t").parallelism(2).id();
        graph.connect(a, b, Distribution::Hash);
        graph.connect_with(a, b, Distribution::Broadcast, ExchangeMode::Blocking);
        let tasks = deploy(&graph);
        let producer = &tasks[0].1;
        assert_eq!(producer.outputs[1].exchange, ExchangeMode::Blocking);
        assert_eq!(producer.outputs[1].partition.output, 1);
        let consumer = &tasks[2].1;
        assert_eq!(consumer.inputs[0].channels[0].partition.output, 0);
        assert_eq!(consumer.inputs[1].channels[0].partition.output, 1);
        assert_eq!(consumer.inputs[1].channels[0].subpartition, 1);
    }

    #[test]
    fn a_missing_slot_is_named() {
        let mut graph = JobGraph::new("j");
        let _ = graph.vertex("a", "t").parallelism(2).slot_group(5).id();
        let mut slots = slots(&graph);
        slots.remove(&(5, 1));
        let job = JobId::from_u128(1);
        let missing = deployments(job, 0, &graph, &slots, |_| None);
        assert_eq!(missing.unwrap_err(), (5, 1));
    }

    proptest! {
        #[test]
        fn every_subpartition_has_exactly_one_reader(
            parallelism in proptest::collection::vec(1_u32..5, 2..5),
            edges in proptest::collection::vec((0_usize..4, 0_usize..4, 0_usize..4), 0..6),
        ) {
            let mut graph = JobGraph::new("j");
            for (index, &p) in parallelism.iter().enumerate() {
                let group = u32::try_from(index % 2).unwrap();
                let _ = graph.vertex("v", "t").parallelism(p).slot_group(group).id();
            }
            for (from, to, distribution) in edges {
                let distribution = [
                    Distribution::Forward,
                    Distribution::Rebalance,
                    Distribution::Hash,
                    Distribution::Broadcast,
                ][distribution];
                let fits = from < to
                    && to < parallelism.len()
                    && (distribution != Distribution::Forward || parallelism[from] == parallelism[to]);
                if fits {
                    let id = |v: usize| VertexId(u32::try_from(v).unwrap());
                    graph.connect(id(from), id(to), distribution);
                }
            }
            let tasks = deploy(&graph);
            let mut written = BTreeMap::new();
            for (place, task) in &tasks {
                for output in &task.outputs {
                    for subpartition in 0..output.subpartitions {
                        written.insert((output.partition, subpartition), place.clone());
                    }
                }
            }
            for (_, task) in &tasks {
                for channel in task.inputs.iter().flat_map(|input| &input.channels) {
                    let place = written.remove(&(channel.partition, channel.subpartition));
                    prop_assert_eq!(place.as_ref(), Some(&channel.task_manager));
                }
            }
            prop_assert!(written.is_empty());
        }
    }
}
