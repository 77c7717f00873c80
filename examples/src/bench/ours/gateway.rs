//! Calls through a gateway, on the connection that carries the data if there is any.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use thalweg_runtime::rpc::{Answer, Context, Endpoint, RpcAddress, RpcError, RpcService, gateway};
use thalweg_transport::{Connections, now};
use tokio::runtime::Handle;

use super::node::{DataNode, failed};
use crate::{
    bench::{
        case::Calls,
        counters::Counters,
        fault::Fault,
        peer::Peer,
        tasks::{Spawner, Tasks},
    },
    cli::failure::Failure,
};

/// What is called.
#[gateway(name = "Echo", callers = ["taskmanager"])]
pub(crate) trait EchoGateway {
    /// Answers with what it gets.
    async fn echo(&self, payload: Bytes) -> Bytes;
}

/// Has no state: what is measured is the way there and back.
struct Echo;

impl Endpoint for Echo {}

impl EchoGateway for Echo {
    fn echo(&mut self, _cx: &mut Context<Self>, payload: Bytes) -> Answer<Bytes> {
        Answer::ok(payload)
    }
}

/// The RPC service of one end.
#[derive(Debug)]
pub(super) struct Rpc(RpcService);

impl Rpc {
    /// Serves the gateway, its endpoint where the tasks run.
    pub(super) fn serve(node: &DataNode, tasks: &Tasks) -> Result<Self, Failure> {
        let service = service(node, tasks.runtime())?;
        let endpoint = service
            .endpoint(ENDPOINT, Echo)
            .serve::<EchoClient>()
            .spawn()
            .map_err(|error| failed(&error))?;
        endpoint.start();
        Ok(Self(service))
    }

    /// Calls again and again, each of the outstanding calls by a task.
    pub(super) fn call(
        node: &DataNode,
        tasks: &Tasks,
        peer: &Peer,
        calls: Calls,
        counters: &Arc<Counters>,
        fault: &Fault,
    ) -> Result<Self, Failure> {
        let service = service(node, tasks.runtime())?;
        let (id, host_port) = (peer.id.clone(), peer.address.to_string());
        let address =
            RpcAddress::remote(Some(id), &host_port, ENDPOINT).map_err(|error| failed(&error))?;
        let (connecting, spawner) = (service.clone(), tasks.spawner());
        let (counters, fault) = (counters.clone(), fault.clone());
        tasks.spawn(async move {
            match connecting.connect::<EchoClient>(&address, None).await {
                Ok(client) => spawn_callers(&client, calls, &spawner, &counters, &fault),
                Err(error) => fault.report("connecting to the gateway failed", error),
            }
        });
        Ok(Self(service))
    }

    pub(super) async fn end(self) {
        if let Err(error) = self.0.close(GRACE).await {
            tracing::warn!(%error, "the RPC service of a measurement does not end");
        }
    }
}

fn service(node: &DataNode, runtime: &Handle) -> Result<RpcService, Failure> {
    RpcService::builder(node.node.id().clone())
        .connections(Arc::new(node.node.clone()))
        .runtime(runtime.clone())
        .build()
        .map_err(|error| failed(&error))
}

fn spawn_callers(
    client: &EchoClient,
    calls: Calls,
    spawner: &Spawner,
    counters: &Arc<Counters>,
    fault: &Fault,
) {
    for _ in 0..calls.outstanding {
        let (client, counters, fault) = (client.clone(), counters.clone(), fault.clone());
        spawner.spawn(async move {
            if let Err(error) = call(&client, calls.payload as usize, &counters).await {
                fault.report("a call failed", error);
            }
        });
    }
}

async fn call(client: &EchoClient, payload: usize, counters: &Counters) -> Result<(), RpcError> {
    let message = Bytes::from(vec![0; payload]);
    loop {
        let sent = now();
        client.echo(message.clone()).await?;
        counters.add_call(now().saturating_duration_since(sent));
    }
}

const ENDPOINT: &str = "echo";

/// For the endpoint to end: it has nothing to do.
const GRACE: Duration = Duration::from_secs(2);
