//! Registrations between real nodes, each with its own network thread.

use std::sync::mpsc;

use thalweg_certs::Role;
use thalweg_transport::{Connections, Node, TransportConfig};

use super::*;
use crate::{
    heartbeat::HeartbeatConfig,
    rpc::{
        RpcConfig,
        tests::{
            networks::{Backend, Cluster as Network, soon},
            on,
        },
    },
};

struct World {
    network: Arc<Network>,
    node: Node,
    cluster: Cluster,
}

impl World {
    async fn start(backend: Backend, config: JobManagerConfig) -> Self {
        let network = Arc::new(Network::new(backend));
        let transport = TransportConfig::default();
        let node = soon(network.node_with("jm", Role::JobManager, transport)).await;
        let cluster = Cluster::with(on(&node, RpcConfig::default()), config);
        Self {
            network,
            node,
            cluster,
        }
    }

    async fn node(&self, name: &str) -> (Node, RpcService) {
        let config = TransportConfig::default();
        let node = self.network.node_with(name, Role::TaskManager, config);
        let node = soon(node).await;
        let service = on(&node, RpcConfig::default());
        (node, service)
    }

    async fn task_manager(&self, name: &str, slots: usize) -> (Node, Fake) {
        let (node, service) = self.node(name).await;
        let manager = self.manager(&service).await;
        let script = always(Behaviour::Run);
        let fake = Fake::start(&service, manager, (name, "tm"), slots, script);
        (node, soon(fake).await)
    }

    async fn manager(&self, service: &RpcService) -> ResourceManagerClient {
        let address = self.cluster.manager.resource_manager_address();
        soon(service.connect(address, None)).await.unwrap()
    }
}

/// Waits until the log of a fake has a line with these words.
async fn told(fake: &Fake, words: &str) {
    soon(async {
        while fake.shared.saw(words) == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

async fn registrations_work_over(backend: Backend) {
    let world = World::start(backend, JobManagerConfig::default()).await;

    // Twice in one session is once.
    let (first, old) = world.task_manager("tm-1", 3).await;
    let instance = accepted(soon(old.register()).await);
    assert_eq!(accepted(soon(old.register()).await), instance);
    assert_eq!(soon(world.cluster.free_slots()).await, 3);

    // Another host with the same id takes its place, and the old one is told.
    let (second, new) = world.task_manager("tm-1", 2).await;
    told(&old, "disconnected: Replaced").await;
    assert_eq!(soon(world.cluster.free_slots()).await, 2);
    soon(first.shutdown(Duration::from_secs(5))).await.unwrap();
    assert_eq!(soon(world.cluster.registered()).await, 1);

    // Only the node itself may register it, if nodes prove who they are; and only with an address where it is.
    let (thief_node, thief) = world.node("thief").await;
    let manager = world.manager(&thief).await;
    let stolen = manager.register_task_executor(new.registration());
    match (backend, soon(stolen).await.unwrap()) {
        (Backend::Tcp, RegistrationResponse::Accepted(_)) => {}
        (Backend::TcpTls | Backend::Quic, RegistrationResponse::Rejected { reason }) => {
            assert!(reason.contains("cannot speak for tm-1"), "{reason}");
        }
        (_, other) => panic!("{other:?}"),
    }
    let nowhere = TaskExecutorRegistration {
        id: id("thief"),
        ..new.registration()
    };
    let answer = soon(manager.register_task_executor(nowhere)).await.unwrap();
    assert!(
        matches!(&answer, RegistrationResponse::Rejected { reason } if reason.contains("is not an address of thief")),
        "{answer:?}"
    );

    // A job runs on the one that is left, and its loss is noticed without a heartbeat.
    let job = soon(world.cluster.submit(graph(2))).await;
    soon(world.cluster.running(job)).await;
    soon(second.shutdown(Duration::from_secs(5))).await.unwrap();
    soon(world.cluster.until_registered(0)).await;
    let (_third, last) = world.task_manager("tm-1", 2).await;
    soon(world.cluster.running(job)).await;
    assert_eq!(last.shared.saw("submit"), 4);
    drop(thief_node);
}

/// Heartbeats are answered on the main thread, so that an endpoint that does not get on looks as it is, whatever its
/// node's network thread says.
async fn a_blocked_endpoint_does_not_look_alive(backend: Backend) {
    let config = JobManagerConfig {
        heartbeat_interval: Duration::from_millis(100),
        heartbeat: HeartbeatConfig {
            timeout: Duration::from_secs(1),
            ..HeartbeatConfig::default()
        },
        ..JobManagerConfig::default()
    };
    let world = World::start(backend, config).await;
    let network = Arc::clone(&world.network);
    let address = world.cluster.manager.resource_manager_address().clone();
    let (release, blocked) = mpsc::channel::<()>();
    let life = move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let config = TransportConfig::default();
            let node = soon(network.node_with("tm-1", Role::TaskManager, config)).await;
            let service = on(&node, RpcConfig::default());
            let manager = soon(service.connect(&address, None)).await.unwrap();
            let script = always(Behaviour::Run);
            let fake = soon(Fake::start(&service, manager, ("tm-1", "tm"), 1, script)).await;
            let main = fake.handle.main_thread();
            main.run_async(move |_, _| blocked.recv().unwrap_or_default())
                .unwrap();
            told(&fake, "disconnected: HeartbeatTimeout").await;
        });
    };
    let thread = tokio::task::spawn_blocking(life);
    soon(world.cluster.until_registered(1)).await;
    soon(world.cluster.until_registered(0)).await;
    assert!(!world.node.snapshot().is_empty(), "the connection lives");
    drop(release);
    soon(thread).await.unwrap();
}

#[tokio::test]
async fn registrations_work_over_plain_tcp() {
    registrations_work_over(Backend::Tcp).await;
}

#[tokio::test]
async fn registrations_work_over_tcp_with_mutual_tls() {
    registrations_work_over(Backend::TcpTls).await;
}

#[tokio::test]
async fn registrations_work_over_quic() {
    registrations_work_over(Backend::Quic).await;
}

#[tokio::test]
async fn a_blocked_endpoint_does_not_look_alive_over_tcp() {
    a_blocked_endpoint_does_not_look_alive(Backend::TcpTls).await;
}

#[tokio::test]
async fn a_blocked_endpoint_does_not_look_alive_over_quic() {
    a_blocked_endpoint_does_not_look_alive(Backend::Quic).await;
}
