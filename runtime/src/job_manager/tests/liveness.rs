//! When a TaskManager counts as lost, and when not.

use thalweg_transport::{
    BindAddr, Listener, Transport,
    mem::{MemListener, MemTransport},
};

use super::{network::Network, *};
use crate::rpc::RpcAddress;

#[tokio::test(start_paused = true)]
async fn a_silent_peer_is_noticed_within_timeout_and_interval() {
    let network = Network::start().await;
    let (_good_node, good) = network
        .task_manager("tm-1", 1, always(Behaviour::Run))
        .await;
    let (_silent_node, silent) = network
        .task_manager("tm-2", 1, always(Behaviour::Run))
        .await;
    // Between two heartbeats, so that the last one it answers lies before this.
    tokio::time::sleep(Duration::from_secs(25)).await;
    *silent.shared.silent.lock().unwrap() = true;
    let since = thalweg_transport::now();
    network.cluster.until_registered(1).await;
    let config = JobManagerConfig::default();
    let after = thalweg_transport::now() - since;
    let (interval, timeout) = (config.heartbeat_interval, config.heartbeat.timeout);
    assert!(after >= timeout - interval, "{after:?}");
    assert!(after <= timeout + interval, "{after:?}");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(silent.shared.saw("disconnected: HeartbeatTimeout"), 1);
    assert_eq!(good.shared.saw("disconnected"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_silent_peer_that_answers_again_registers_anew() {
    let network = Network::start().await;
    let (_node, fake) = network
        .task_manager("tm-1", 1, always(Behaviour::Run))
        .await;
    let before = accepted(fake.register().await);
    *fake.shared.silent.lock().unwrap() = true;
    network.cluster.until_registered(0).await;
    *fake.shared.silent.lock().unwrap() = false;
    assert_ne!(fake.come().await, before);
    tokio::time::sleep(Duration::from_secs(200)).await;
    assert_eq!(network.cluster.free_slots().await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_task_manager_that_started_again_before_its_loss_was_noticed_is_used() {
    let script = first(Behaviour::Run, Behaviour::Finish);
    let (cluster, [_good, lost]) = Cluster::of([1, 1], script.clone()).await;
    let job = cluster.submit(graph(2)).await;
    cluster.running(job).await;
    tokio::time::sleep(Duration::from_secs(15)).await;
    *lost.shared.silent.lock().unwrap() = true;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let _again = cluster.replacement("tm-2", "tm-2b", 1, script).await;
    assert_eq!(cluster.status(job).await.restarts, 0, "not noticed yet");
    let status = cluster.end(job).await;
    assert_eq!(
        (status.state, status.restarts),
        (JobState::Finished, 1),
        "{:?}",
        status.failure
    );
}

/// An address of a node where connections are never made, until the listener is dropped.
async fn limbo(network: &Network, name: &str) -> (RpcAddress, MemListener) {
    let transport = MemTransport::new(network.network.clone(), None);
    let bind = BindAddr::single("127.0.0.1:0".parse().unwrap());
    let listener = transport.listen(&bind).await.unwrap();
    let address = listener.local_addr().to_string();
    let address = RpcAddress::remote(Some(id(name)), &address, "taskexecutor").unwrap();
    (address, listener)
}

#[tokio::test(start_paused = true)]
async fn only_the_latest_connection_to_one_who_registers_counts() {
    let network = Network::start().await;
    let (_node, fake) = network
        .task_manager("tm-1", 1, always(Behaviour::Run))
        .await;
    let (_other, service) = network.service("tm-1").await;
    let manager = network.resource_manager(&service).await;
    let (address, listener) = limbo(&network, "tm-1").await;
    let early = TaskExecutorRegistration {
        address,
        session: SessionId::random(),
        ..fake.registration()
    };
    let early = tokio::spawn(manager.register_task_executor(early));
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert!(!early.is_finished(), "it is being called back");
    let late = TaskExecutorRegistration {
        session: SessionId::random(),
        ..fake.registration()
    };
    let instance = accepted(manager.register_task_executor(late).await.unwrap());
    drop(listener);
    let answer = early.await.unwrap().unwrap();
    let RegistrationResponse::Refused { reason } = answer else {
        panic!("{answer:?}");
    };
    assert!(reason.contains("a later registration of tm-1"), "{reason}");
    let report = fake.report().await;
    manager.report_slots(instance, report).await.unwrap();
    assert_eq!(network.cluster.free_slots().await, 1);
}

#[tokio::test(start_paused = true)]
async fn only_the_latest_connection_of_a_job_master_counts() {
    let network = Network::start().await;
    let (_node, fake) = network
        .task_manager("tm-1", 1, always(Behaviour::Run))
        .await;
    let job = network.cluster.submit(graph(1)).await;
    network.cluster.running(job).await;
    let master = fake.job_master().await;
    let (address, listener) = limbo(&network, "tm-1").await;
    let registration = |address: RpcAddress| TaskManagerRegistration {
        job,
        id: fake.id.clone(),
        session: SessionId::random(),
        address,
        data_address: "tm-1:1".to_owned(),
    };
    let early = tokio::spawn(master.register_task_manager(registration(address)));
    tokio::time::sleep(Duration::from_millis(10)).await;
    let late = registration(fake.handle.address().clone());
    let answer = master.register_task_manager(late).await.unwrap();
    assert!(matches!(answer, RegistrationResponse::Accepted(_)));
    drop(listener);
    let answer = early.await.unwrap().unwrap();
    let RegistrationResponse::Refused { reason } = answer else {
        panic!("{answer:?}");
    };
    assert!(reason.contains("a later registration of tm-1"), "{reason}");
}
