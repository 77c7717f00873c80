//! The producing end.

use std::net::SocketAddr;

use bytes::Bytes;
use thalweg_transport::{
    Connections,
    exchange::{ExchangeError, PartitionWriter, ResultPartition},
};

use super::{
    gateway::Rpc,
    node::{DataNode, PRODUCER, failed, partition_of},
};
use crate::{
    bench::{
        bulk::{YIELD_BYTES, block},
        fault::Fault,
        security::NodeCertificates,
        spec::Spec,
        tasks::Tasks,
    },
    cli::failure::Failure,
};

/// Writes as fast as it is consumed: one partition with a subpartition per channel by one task, or, where channels are
/// separate, a partition and a task for each. Answers calls, if there are any, through a gateway or on streams of their
/// own.
#[derive(Debug)]
pub(crate) struct Producer {
    node: DataNode,
    tasks: Tasks,
    rpc: Option<Rpc>,
}

impl Producer {
    pub(crate) async fn start(
        spec: &Spec,
        certificates: &NodeCertificates,
        bind: SocketAddr,
        fault: &Fault,
    ) -> Result<Self, Failure> {
        let node = DataNode::start(spec, certificates, bind).await?;
        let tasks = node.tasks(spec.placement, "bench-producer")?;
        let (partitions, subpartitions) = match spec.channels {
            0 => (0, 0),
            channels if spec.separate => (channels, 1),
            channels => (1, channels),
        };
        let payload = block(node.config.payload_size());
        for number in 0..partitions {
            let partition = ResultPartition::pipelined(
                partition_of(number),
                PRODUCER,
                subpartitions as usize,
                node.exchange.pool(),
            )
            .map_err(|error| failed(&error))?;
            node.exchange
                .partitions()
                .register(partition.clone())
                .map_err(|error| failed(&error))?;
            let writer = partition.writer().map_err(|error| failed(&error))?;
            let (payload, fault) = (payload.clone(), fault.clone());
            tasks.spawn(async move {
                if let Err(error) = produce(writer, payload).await {
                    fault.report("producing failed", error);
                }
            });
        }
        let gateway = spec.calls.is_some_and(|calls| calls.gateway);
        let rpc = gateway.then(|| Rpc::serve(&node, &tasks)).transpose()?;
        Ok(Self { node, tasks, rpc })
    }

    pub(crate) fn port(&self) -> u16 {
        self.node.node.local_addr().port()
    }

    pub(crate) async fn end(self) {
        if let Some(rpc) = self.rpc {
            rpc.end().await;
        }
        self.tasks.end().await;
        self.node.end().await;
    }
}

/// Slices of one block, as the yardsticks send them: what is measured is the exchange, not the filling of buffers.
async fn produce(mut writer: PartitionWriter, payload: Bytes) -> Result<(), ExchangeError> {
    let mut since_yield = 0;
    loop {
        for subpartition in 0..writer.partition().subpartition_count() {
            let mut block = payload.clone();
            if !writer.try_emit_bytes(subpartition, &mut block)? {
                writer.emit_bytes(subpartition, &mut block).await?;
            }
            since_yield += payload.len();
            if since_yield >= YIELD_BYTES {
                since_yield = 0;
                tokio::task::yield_now().await;
            }
        }
    }
}
