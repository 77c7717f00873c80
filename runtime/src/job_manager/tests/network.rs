//! The same over a network, between nodes whose certificates say who they are.

use thalweg_transport::{Node, mem::MemNetwork};

use super::*;
use crate::rpc::{RpcAddress, RpcConfig, tests as rpc};

pub(super) struct Network {
    pub(super) network: MemNetwork,
    pub(super) cluster: Cluster,
}

impl Network {
    pub(super) async fn start() -> Self {
        let network = MemNetwork::new();
        let node = rpc::node(&network, "jm", Some("jobmanager")).await;
        let cluster = Cluster::on(rpc::on(&node, RpcConfig::default()));
        Self { network, cluster }
    }

    pub(super) async fn service(&self, name: &str) -> (Node, RpcService) {
        self.service_of(name, "taskmanager").await
    }

    pub(super) async fn service_of(&self, name: &str, role: &str) -> (Node, RpcService) {
        let node = rpc::node(&self.network, name, Some(role)).await;
        let service = rpc::on(&node, RpcConfig::default());
        (node, service)
    }

    pub(super) async fn resource_manager(&self, service: &RpcService) -> ResourceManagerClient {
        let address = self.cluster.manager.resource_manager_address();
        service.connect(address, None).await.unwrap()
    }

    pub(super) async fn task_manager(
        &self,
        name: &str,
        slots: usize,
        script: Script,
    ) -> (Node, Fake) {
        let (node, service) = self.service(name).await;
        let manager = self.resource_manager(&service).await;
        let fake = Fake::start(&service, manager, (name, "taskexecutor"), slots, script).await;
        (node, fake)
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_runs_on_several_nodes() {
    let network = Network::start().await;
    let _a = network
        .task_manager("tm-1", 2, always(Behaviour::Finish))
        .await;
    let _b = network
        .task_manager("tm-2", 2, always(Behaviour::Finish))
        .await;
    let job = network.cluster.submit(graph(4)).await;
    let status = network.cluster.end(job).await;
    assert_eq!(status.state, JobState::Finished, "{:?}", status.failure);
    let result = network.cluster.result(job).await;
    assert!(
        result.starts_with("source0 source1 source2 source3 sink0 "),
        "{result}"
    );
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(network.cluster.free_slots().await, 4);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_ends_is_lost_at_once_and_not_only_by_heartbeats() {
    let network = Network::start().await;
    let script = first(Behaviour::Run, Behaviour::Finish);
    let _a = network.task_manager("tm-1", 2, Arc::clone(&script)).await;
    let (node, _b) = network.task_manager("tm-2", 2, script).await;
    let job = network.cluster.submit(graph(2)).await;
    network.cluster.running(job).await;
    let start = thalweg_transport::now();
    node.shutdown(Duration::from_secs(1)).await.unwrap();
    let status = network.cluster.end(job).await;
    assert_eq!((status.state, status.restarts), (JobState::Finished, 1));
    let failure = status.failure.unwrap();
    assert!(
        failure.message.starts_with("TaskManager tm-2 was lost: "),
        "{failure}"
    );
    let took = thalweg_transport::now() - start;
    assert!(
        took < Duration::from_secs(4),
        "{took:?}: a second for the restart, no heartbeat"
    );
}

#[tokio::test(start_paused = true)]
async fn a_registration_must_come_from_the_node_that_it_names() {
    let network = Network::start().await;
    let (_node, fake) = network
        .task_manager("tm-1", 1, always(Behaviour::Run))
        .await;
    let address = network.cluster.manager.resource_manager_address();
    let (_thief, service) = network.service("tm-2").await;
    let manager: ResourceManagerClient = service.connect(address, None).await.unwrap();
    let registration = TaskExecutorRegistration {
        id: id("tm-1"),
        session: SessionId::random(),
        address: fake.handle.address().clone(),
        data_address: "thief:1".to_owned(),
    };
    let answer = manager.register_task_executor(registration.clone()).await;
    let Ok(RegistrationResponse::Rejected { reason }) = answer else {
        panic!("{answer:?}");
    };
    assert_eq!(
        reason,
        "spiffe://test/taskmanager/tm-2 cannot speak for tm-1"
    );
    let other = TaskExecutorRegistration {
        id: id("tm-2"),
        ..registration
    };
    let nameless =
        RpcAddress::remote(None, other.address.host_port().unwrap(), "taskexecutor").unwrap();
    for address in [other.address.clone(), nameless] {
        let other = TaskExecutorRegistration {
            address,
            ..other.clone()
        };
        let answer = manager.register_task_executor(other).await;
        let Ok(RegistrationResponse::Rejected { reason }) = answer else {
            panic!("{answer:?}");
        };
        assert!(reason.ends_with("is not an address of tm-2"), "{reason}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_manager_cannot_speak_for_the_tasks_of_another() {
    let network = Network::start().await;
    let (_node, fake) = network
        .task_manager("tm-1", 1, always(Behaviour::Run))
        .await;
    let job = network.cluster.submit(graph(1)).await;
    let status = network.cluster.running(job).await;
    let own = fake.job_master().await;
    let (_thief, service) = network.service("tm-2").await;
    let token = fake
        .shared
        .job_master
        .lock()
        .unwrap()
        .clone()
        .unwrap()
        .token;
    let master: JobMasterClient = service.connect(own.address(), Some(token)).await.unwrap();
    let update = TaskStateUpdate {
        execution: status.tasks[0].execution,
        state: TaskState::Finished,
        failure: None,
        metrics: TaskMetrics::default(),
    };
    let error = master.update_task_state(update).await.unwrap_err();
    assert_eq!(error.kind(), "caller.identity_mismatch");
    let bytes = bytes::Bytes::from_static(b"forged");
    let result = master.add_task_result(status.tasks[1].execution, 0, bytes);
    assert_eq!(result.await.unwrap_err().kind(), "caller.identity_mismatch");
    let goodbye = FailureCause::new(FailureKind::Cluster, "bye");
    master.disconnect_task_manager(id("tm-1"), goodbye).unwrap();
    let error = master.cancel().await.unwrap_err();
    assert!(matches!(error, RpcError::NotAuthorized { .. }), "{error}");
    let after = network.cluster.status(job).await;
    assert_eq!(after.state, JobState::Running);
    assert_eq!(after.tasks[0].state, TaskState::Running);
}
