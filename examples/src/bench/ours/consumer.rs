//! The consuming end.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
};

use thalweg_transport::{
    ConnectionId, Connections, TransportError,
    exchange::{BufferOrEvent, ChannelSource, ExchangeError, InputGate, SubpartitionRequest},
    proto::SubpartitionIndex,
};

use super::{
    gateway::Rpc,
    node::{CONSUMER, DataNode, FIRST, PRODUCER, failed, partition_of},
    ping::{PING, call},
};
use crate::{
    bench::{
        counters::Counters, fault::Fault, peer::Peer, security::NodeCertificates, spec::Spec,
        tasks::Tasks,
    },
    cli::failure::Failure,
};

/// Reads and drops: one gate with all channels by one task, or, where channels are separate, a gate and a task for each.
/// Makes calls, if there are any, through a gateway or on a stream of their own.
#[derive(Debug)]
pub(crate) struct Consumer {
    node: DataNode,
    tasks: Tasks,
    rpc: Option<Rpc>,
}

impl Consumer {
    /// The last `stopped` channels read one buffer and then no more; they have to be separate.
    pub(crate) async fn start(
        spec: &Spec,
        certificates: &NodeCertificates,
        peer: &Peer,
        stopped: u32,
        counters: &Arc<Counters>,
        fault: &Fault,
    ) -> Result<Self, Failure> {
        let bind = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let node = DataNode::start(spec, certificates, bind).await?;
        let tasks = node.tasks(spec.placement, "bench-consumer")?;
        let connection = ConnectionId::new(peer.id.clone(), peer.address.to_string());
        let gates = if spec.separate {
            spec.channels
        } else {
            spec.channels.min(1)
        };
        for number in 0..gates {
            let source = |channel: u32| ChannelSource::Remote {
                connection: connection.clone(),
                request: SubpartitionRequest {
                    partition: partition_of(if spec.separate { channel } else { 0 }),
                    producer: PRODUCER,
                    subpartition: if spec.separate {
                        FIRST
                    } else {
                        SubpartitionIndex(channel)
                    },
                },
            };
            let channels = if spec.separate {
                vec![source(number)]
            } else {
                (0..spec.channels).map(source).collect()
            };
            let gate = node
                .exchange
                .gate(format!("gate {number}"), CONSUMER, channels)
                .await
                .map_err(|error| failed(&error))?;
            let stops = number >= gates - stopped.min(gates);
            let (counters, fault) = (counters.clone(), fault.clone());
            tasks.spawn(async move {
                match consume(gate, number as usize, stops, &counters).await {
                    Ok(()) => fault.report("consuming failed", "the partition has ended"),
                    Err(error) => fault.report("consuming failed", error),
                }
            });
        }
        let rpc = match spec.calls {
            Some(calls) if calls.gateway => {
                Some(Rpc::call(&node, &tasks, peer, calls, counters, fault)?)
            }
            Some(calls) => {
                let payload = calls.payload as usize;
                let calling = ping(&node, connection, payload, counters.clone());
                let fault = fault.clone();
                tasks.spawn(async move {
                    if let Err(error) = calling.await {
                        fault.report("calling failed", error);
                    }
                });
                None
            }
            None => None,
        };
        Ok(Self { node, tasks, rpc })
    }

    pub(crate) async fn end(self) {
        self.tasks.end().await;
        if let Some(rpc) = self.rpc {
            rpc.end().await;
        }
        self.node.end().await;
    }
}

/// Until the partition ends. `first` is the number of the gate's first channel.
async fn consume(
    mut gate: InputGate,
    first: usize,
    stops: bool,
    counters: &Counters,
) -> Result<(), ExchangeError> {
    while let Some((channel, item)) = gate.next().await? {
        if let BufferOrEvent::Buffer(buffer) = item {
            counters.add(first + channel, buffer.len());
        }
        if stops {
            std::future::pending::<()>().await;
        }
    }
    Ok(())
}

/// Calls on the connection that carries the data.
fn ping(
    node: &DataNode,
    connection: ConnectionId,
    payload: usize,
    counters: Arc<Counters>,
) -> impl Future<Output = Result<(), TransportError>> + Send + 'static {
    let lease = node.node.acquire(connection.clone());
    async move {
        let lease = lease.await?;
        let mut stream = lease.open(PING).await?;
        call(&mut stream, payload, &counters)
            .await
            .map_err(|error| TransportError::from_stream(&connection, &error))
    }
}
