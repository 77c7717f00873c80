//! A TaskManager on a node of its own, with a scripted ResourceManager on another.

use std::net::SocketAddr;

use thalweg_transport::mem::{MemNetwork, MemTransport};

use super::*;
use crate::{
    backend::Backend,
    gateways::{DisconnectReason, ResourceManagerClient, TaskExecutorRegistration},
    taskexecutor::tests::fakes::{FakeResourceManager, Seen, Told},
};

#[test]
fn temporary_folders_must_exist_and_be_folders() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, b"").unwrap();
    let check = |path: &Path| {
        let mut config = Config::default();
        config.taskmanager.temp_dirs = vec![dir.path().to_owned(), path.to_owned()];
        check_temp_dirs(&config).map_err(|error| error.to_string())
    };
    assert_eq!(check(dir.path()), Ok(()));
    assert_eq!(
        std::fs::read_dir(dir.path()).unwrap().count(),
        1,
        "no probe is left"
    );
    let missing = dir.path().join("missing");
    for bad in [&file, &missing] {
        let error = check(bad).unwrap_err();
        assert!(error.contains(&bad.display().to_string()), "{error}");
    }
}

#[test]
fn a_shutdown_takes_no_longer_than_it_may() {
    for drain in [
        Duration::ZERO,
        Duration::from_secs(1),
        Duration::from_secs(30),
    ] {
        let (tasks, rest) = split(drain);
        assert!(tasks + rest * 3 <= drain);
    }
}

/// A JobManager's node with a ResourceManager, and the settings with which a TaskManager finds it.
struct World {
    config: Config,
    backends: BackendRegistry,
    job_manager: ClusterNode,
    seen: tokio::sync::mpsc::Receiver<Seen>,
}

impl World {
    async fn start(script: Vec<Told>) -> Self {
        let network = MemNetwork::new();
        let mem: Backend = Arc::new(move |builder, _, _| {
            let transport = MemTransport::new(network.clone(), None);
            Box::pin(builder.start(transport))
        });
        let backends = BackendRegistry::empty().with("mem", mem);
        let mut config = Config::default();
        config.transport.backend = "mem".to_owned();
        config.tls.mode = TlsMode::Off;
        config.node.id = Some(ResourceId::new("jm").unwrap());
        let certificate = CertificateSource::Configured;
        let job_manager = ClusterNode::start(&config, Role::JobManager, certificate, &backends)
            .await
            .unwrap();
        let (state, seen) = FakeResourceManager::new(script);
        let endpoint = job_manager
            .rpc()
            .endpoint(RESOURCE_MANAGER, state)
            .serve::<ResourceManagerClient>();
        endpoint.spawn().unwrap().start();
        config.jobmanager.address = job_manager.node().advertised();
        config.node.id = Some(ResourceId::new("tm-1").unwrap());
        let dir = std::env::temp_dir();
        config.taskmanager.temp_dirs = vec![dir];
        Self {
            config,
            backends,
            job_manager,
            seen,
        }
    }

    async fn task_manager(&self) -> TaskManagerRunner {
        let registry = TaskRegistry::new();
        TaskManagerRunner::start(&self.config, registry, &self.backends)
            .await
            .unwrap()
    }

    async fn registration(&mut self) -> TaskExecutorRegistration {
        match within(self.seen.recv()).await {
            Some(Seen::TaskExecutor(registration)) => registration,
            other => panic!("a registration comes first, not {other:?}"),
        }
    }

    async fn left(&mut self) -> String {
        loop {
            match within(self.seen.recv()).await {
                Some(Seen::TaskExecutorLeft(reason)) => return reason,
                Some(_) => {}
                None => panic!("the ResourceManager lives"),
            }
        }
    }
}

/// Every wait of these tests ends; far above what a loaded machine needs.
async fn within<T>(future: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(100), future)
        .await
        .expect("in time")
}

#[tokio::test]
async fn it_registers_over_the_network_and_says_goodbye() {
    let mut world = World::start(Vec::new()).await;
    let runner = world.task_manager().await;
    let registration = world.registration().await;
    let ready = within(runner.registered()).await.unwrap();
    assert_eq!(registration.id, ready.id);
    assert_eq!(registration.data_address, ready.address);
    assert_eq!(registration.address.peer(), Some(&ready.id));
    assert_eq!(&*ready.transport, "mem");
    assert!(ready.address.parse::<SocketAddr>().is_ok());
    within(runner.shutdown(Duration::from_secs(10)))
        .await
        .unwrap();
    assert_eq!(within(runner.terminated()).await, Ok(()));
    let reason = world.left().await;
    assert!(reason.contains("tm-1 is shutting down"), "{reason}");
    world.job_manager.close(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_replaced_one_terminates_with_the_reason() {
    let mut world = World::start(Vec::new()).await;
    let runner = world.task_manager().await;
    let registration = world.registration().await;
    within(runner.registered()).await.unwrap();
    let connect = world.job_manager.rpc().connect(&registration.address, None);
    let gateway: TaskExecutorClient = within(connect).await.unwrap();
    let by = "10.0.0.9:1".to_owned();
    gateway
        .disconnect_resource_manager(registration.session, DisconnectReason::Replaced { by })
        .unwrap();
    let cause = within(runner.terminated()).await.unwrap_err();
    assert!(cause.message.contains("10.0.0.9:1"), "{cause}");
    within(runner.shutdown(Duration::from_secs(10)))
        .await
        .unwrap();
    world.job_manager.close(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_rejected_one_terminates_with_the_reason() {
    let world = World::start(vec![Told::Reject]).await;
    let runner = world.task_manager().await;
    let cause = within(runner.terminated()).await.unwrap_err();
    assert_eq!(within(runner.registered()).await, Err(cause.clone()));
    assert!(cause.message.contains("as the test wants"), "{cause}");
    within(runner.shutdown(Duration::from_secs(10)))
        .await
        .unwrap();
    world.job_manager.close(Duration::from_secs(5)).await;
}
