//! Registrations, offers and updates that come twice, late, or from the wrong one.

use super::*;
use crate::rpc::RpcAddress;

async fn running_job(cluster: &Cluster, fake: &Fake) -> (JobId, JobMasterClient) {
    let job = cluster.submit(graph(1)).await;
    cluster.running(job).await;
    (job, fake.job_master().await)
}

fn registration(fake: &Fake, job: JobId, session: SessionId) -> TaskManagerRegistration {
    TaskManagerRegistration {
        job,
        id: fake.id.clone(),
        session,
        address: fake.handle.address().clone(),
        data_address: "tm:1".to_owned(),
    }
}

#[tokio::test(start_paused = true)]
async fn the_same_session_keeps_its_registration() {
    let cluster = Cluster::start();
    let fake = cluster
        .task_manager("tm-1", 1, always(Behaviour::Run))
        .await;
    let again = accepted(fake.register().await);
    assert_eq!(accepted(fake.register().await), again);
    assert_eq!(fake.shared.saw("disconnected"), 0);
    assert_eq!(cluster.free_slots().await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_new_session_replaces_the_old_one_which_is_told() {
    let cluster = Cluster::start();
    let old = cluster
        .task_manager("tm-1", 3, always(Behaviour::Run))
        .await;
    let before = accepted(old.register().await);
    let script = always(Behaviour::Run);
    let new = cluster.replacement("tm-1", "tm-1b", 2, script).await;
    assert_ne!(accepted(new.register().await), before);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(
        old.shared.saw("disconnected: Replaced { by: \"tm-1b:1\" }"),
        1
    );
    old.kill().await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(
        cluster.free_slots().await,
        2,
        "the end of the old one changes nothing"
    );
}

#[tokio::test(start_paused = true)]
async fn a_task_executor_that_cannot_be_reached_is_refused() {
    let cluster = Cluster::start();
    let fake = cluster
        .task_manager("tm-1", 1, always(Behaviour::Run))
        .await;
    fake.kill().await;
    let registration = TaskExecutorRegistration {
        id: id("tm-1"),
        session: SessionId::random(),
        address: fake.handle.address().clone(),
        data_address: "tm-1:1".to_owned(),
    };
    let manager = cluster.manager.resource_manager();
    let answer = manager.register_task_executor(registration).await.unwrap();
    let RegistrationResponse::Refused { reason } = answer else {
        panic!("{answer:?}");
    };
    assert!(reason.contains("cannot connect back"), "{reason}");
    assert!(manager.overview().await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn no_slot_is_given_before_its_task_manager_has_reported() {
    let cluster = Cluster::start();
    let fake = cluster
        .task_manager("tm-1", 1, always(Behaviour::Run))
        .await;
    let instance = accepted(fake.register().await);
    let manager = cluster.manager.resource_manager();
    manager
        .disconnect_task_executor(instance, "comes again".to_owned())
        .unwrap();
    let instance = accepted(fake.register().await);
    let job = cluster.submit(graph(1)).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(fake.shared.job_master.lock().unwrap().is_none());
    assert_eq!(cluster.registered().await, 0, "not shown without slots");
    let error = manager.report_slots(InstanceId::random(), fake.report().await);
    assert_eq!(
        error.await.unwrap_err().kind(),
        "resource_manager.not_registered"
    );
    assert_eq!(fake.come().await, instance, "the same session");
    cluster.running(job).await;
}

#[tokio::test(start_paused = true)]
async fn a_job_master_refuses_a_task_manager_that_it_cannot_reach() {
    let cluster = Cluster::start();
    let fake = cluster
        .task_manager("tm-1", 1, always(Behaviour::Run))
        .await;
    let (job, master) = running_job(&cluster, &fake).await;
    let nobody = TaskManagerRegistration {
        id: id("tm-2"),
        address: RpcAddress::local("nobody").unwrap(),
        ..registration(&fake, job, SessionId::random())
    };
    let answer = master.register_task_manager(nobody).await.unwrap();
    let RegistrationResponse::Refused { reason } = answer else {
        panic!("{answer:?}");
    };
    assert!(reason.contains("cannot connect back"), "{reason}");
    let status = cluster.status(job).await;
    assert_eq!((status.state, status.restarts), (JobState::Running, 0));
}

#[tokio::test(start_paused = true)]
async fn a_goodbye_ends_a_registration() {
    let cluster = Cluster::start();
    let fake = cluster
        .task_manager("tm-1", 1, always(Behaviour::Run))
        .await;
    let instance = accepted(fake.register().await);
    let manager = cluster.manager.resource_manager();
    let goodbye = |instance| manager.disconnect_task_executor(instance, "stop".to_owned());
    goodbye(InstanceId::random()).unwrap();
    assert_eq!(cluster.free_slots().await, 1);
    goodbye(instance).unwrap();
    assert_eq!(cluster.free_slots().await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_second_registration_at_a_job_is_acknowledged_and_a_new_session_replaces() {
    let cluster = Cluster::start();
    let fake = cluster
        .task_manager("tm-1", 1, always(Behaviour::Run))
        .await;
    let (job, master) = running_job(&cluster, &fake).await;
    let again = registration(&fake, job, fake.session);
    let answer = master.register_task_manager(again).await.unwrap();
    assert!(matches!(answer, RegistrationResponse::Accepted(_)));
    let status = cluster.wait(job, |status| status.restarts == 1).await;
    assert_eq!(
        status.failure.unwrap().message,
        "TaskManager tm-1 was lost: it had lost its connection to the JobMaster",
        "a TaskManager that has to register again has stopped its tasks"
    );
    cluster.running(job).await;

    let wrong = registration(&fake, JobId::random(), fake.session);
    let answer = master.register_task_manager(wrong).await.unwrap();
    let RegistrationResponse::Rejected { reason } = answer else {
        panic!("{answer:?}");
    };
    assert!(reason.contains(&job.to_string()), "{reason}");

    let new = registration(&fake, job, SessionId::random());
    master.register_task_manager(new).await.unwrap();
    let status = cluster.wait(job, |status| status.restarts == 2).await;
    let failure = status.failure.unwrap();
    assert!(
        failure.message.contains("replaced by another process"),
        "{failure}"
    );
    assert_eq!(fake.shared.saw("gave TaskManager tm-1 up"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_wrong_fencing_token_is_refused() {
    let cluster = Cluster::start();
    let fake = cluster
        .task_manager("tm-1", 1, always(Behaviour::Run))
        .await;
    let (job, master) = running_job(&cluster, &fake).await;
    for token in [None, Some(FencingToken::random())] {
        let stale: JobMasterClient = cluster
            .service
            .connect(master.address(), token)
            .await
            .unwrap();
        let error = stale.cancel().await.unwrap_err();
        assert!(matches!(error, RpcError::Fenced { .. }), "{error}");
    }
    assert_eq!(cluster.status(job).await.state, JobState::Running);
}

#[tokio::test(start_paused = true)]
async fn offers_that_nobody_asked_for_are_refused() {
    let cluster = Cluster::start();
    let fake = cluster
        .task_manager("tm-1", 1, always(Behaviour::Run))
        .await;
    let (_, master) = running_job(&cluster, &fake).await;
    let held = fake.shared.accepted.lock().unwrap()[0];
    let offer = |allocation, slot| vec![SlotOffer { allocation, slot }];
    let again = master.offer_slots(id("tm-1"), offer(held, 0)).await;
    assert_eq!(again.unwrap(), [held], "the same offer again");
    let unknown = offer(AllocationId::random(), 0);
    let unknown = master.offer_slots(id("tm-1"), unknown).await;
    assert!(unknown.unwrap().is_empty());
    let error = master.offer_slots(id("tm-2"), offer(held, 0)).await;
    assert!(
        error
            .unwrap_err()
            .to_string()
            .contains("tm-2 is not registered")
    );
}

#[tokio::test(start_paused = true)]
async fn stale_updates_are_acknowledged_and_ignored() {
    let cluster = Cluster::start();
    let fake = cluster
        .task_manager("tm-1", 1, always(Behaviour::Run))
        .await;
    let (job, master) = running_job(&cluster, &fake).await;
    let current = cluster.status(job).await.tasks[0].execution;
    let stale = ExecutionId {
        attempt: 9,
        ..current
    };
    let update = |execution, state| {
        master.update_task_state(TaskStateUpdate {
            execution,
            state,
            failure: None,
            metrics: TaskMetrics::default(),
        })
    };
    update(stale, TaskState::Failed).await.unwrap();
    update(current, TaskState::Initializing).await.unwrap();
    let bytes = bytes::Bytes::from_static(b"x");
    master
        .add_task_result(stale, 7, bytes.clone())
        .await
        .unwrap();
    let status = cluster.status(job).await;
    assert_eq!(status.state, JobState::Running);
    assert_eq!(status.tasks[0].state, TaskState::Running);
    let partition = |producer| PartitionKey {
        producer,
        output: 0,
    };
    let state = master.partition_producer_state(partition(current)).await;
    assert_eq!(state.unwrap(), TaskState::Running);
    let state = master.partition_producer_state(partition(stale)).await;
    assert!(state.is_err());
    let gap = master.add_task_result(current, 7, bytes).await.unwrap_err();
    assert!(gap.to_string().contains("piece 7"), "{gap}");
    cluster.wait(job, |status| status.restarts == 1).await;
}
