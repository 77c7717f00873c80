//! Peers with a valid certificate that lie or flood. In each test a good peer goes on.

use tokio::task::JoinSet;

use super::{network::Network, *};

/// A cluster with a job on its good TaskManager `good`.
struct World {
    network: Network,
    job: JobId,
    _good: (thalweg_transport::Node, Fake),
}

impl World {
    async fn start() -> Self {
        let network = Network::start().await;
        let good = network
            .task_manager("good", 1, always(Behaviour::Run))
            .await;
        let job = network.cluster.submit(graph(1)).await;
        network.cluster.running(job).await;
        Self {
            network,
            job,
            _good: good,
        }
    }

    /// The good TaskManager has not noticed anything.
    async fn goes_on(&self) {
        let status = self.network.cluster.status(self.job).await;
        assert_eq!((status.state, status.restarts), (JobState::Running, 0));
        let overview = self.network.cluster.manager.resource_manager().overview();
        let overview = overview.await.unwrap();
        let good = overview.iter().find(|tm| tm.id == id("good")).unwrap();
        assert_eq!(good.report.slots.slots.len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn the_second_of_two_hosts_with_one_id_replaces_the_first() {
    let world = World::start().await;
    let network = &world.network;
    let (_first, old) = network
        .task_manager("tm-1", 3, always(Behaviour::Run))
        .await;
    let instance = accepted(old.register().await);
    let (_second, new) = network
        .task_manager("tm-1", 2, always(Behaviour::Run))
        .await;
    assert_ne!(accepted(new.register().await), instance);
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(old.shared.saw("disconnected: Replaced"), 1);
    assert_eq!(network.cluster.free_slots().await, 2, "never both");
    // What the old one says with its registration does not count any more.
    let (_third, service) = network.service("tm-1").await;
    let manager = network.resource_manager(&service).await;
    let late = manager.report_slots(instance, old.report().await).await;
    assert_eq!(late.unwrap_err().kind(), "resource_manager.not_registered");
    manager
        .disconnect_task_executor(instance, "late".to_owned())
        .unwrap();
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(network.cluster.free_slots().await, 2);
    world.goes_on().await;
}

#[tokio::test(start_paused = true)]
async fn the_slots_of_another_peer_cannot_be_reported() {
    let world = World::start().await;
    let (_node, fake) = world
        .network
        .task_manager("tm-1", 1, always(Behaviour::Run))
        .await;
    let instance = accepted(fake.register().await);
    let (_thief, service) = world.network.service("tm-2").await;
    let manager = world.network.resource_manager(&service).await;
    let mut report = fake.report().await;
    report.slots.slots.clear();
    let forged = manager.report_slots(instance, report).await;
    assert_eq!(
        forged.unwrap_err().kind(),
        "resource_manager.not_registered"
    );
    assert_eq!(world.network.cluster.free_slots().await, 1);
    world.goes_on().await;
}

#[tokio::test(start_paused = true)]
async fn slots_that_cannot_be_are_refused_and_none_is_given() {
    let world = World::start().await;
    let (_node, service) = world.network.service("tm-1").await;
    let manager = world.network.resource_manager(&service).await;
    let script = always(Behaviour::Run);
    let fake = Fake::start(&service, manager.clone(), ("tm-1", "tm-1"), 0, script).await;
    let instance = accepted(fake.register().await);
    let waiting = world.network.cluster.submit(graph(1)).await;
    let slot = |index, state, allocation| SlotStatus {
        index,
        state,
        profile: ResourceProfile { memory_bytes: 1 },
        allocation,
    };
    let owner = Some((world.job, AllocationId::random()));
    let lies = [
        vec![slot(1 << 31, SlotState::Free, None)],
        vec![slot(u32::MAX, SlotState::Free, None)],
        vec![slot(0, SlotState::Free, None); 2],
        (0..3000).map(|i| slot(i, SlotState::Free, None)).collect(),
        vec![slot(0, SlotState::Active, None)],
        vec![
            slot(0, SlotState::Active, owner),
            slot(1, SlotState::Active, owner),
        ],
    ];
    for slots in lies {
        let mut report = fake.report().await;
        report.slots = SlotReport { slots };
        let refused = manager.report_slots(instance, report).await.unwrap_err();
        assert_eq!(refused.kind(), "report.invalid", "{refused}");
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(fake.shared.job_master.lock().unwrap().is_none());
    assert_eq!(
        world.network.cluster.status(waiting).await.state,
        JobState::Created
    );
    world.goes_on().await;
}

#[tokio::test(start_paused = true)]
async fn lies_in_answers_to_heartbeats_leave_everything_as_it_was() {
    let world = World::start().await;
    let (_node, fake) = world
        .network
        .task_manager("tm-1", 1, always(Behaviour::Run))
        .await;
    *fake.shared.lies.lock().unwrap() = true;
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert!(fake.shared.saw("lied") >= 9);
    assert_eq!(fake.shared.saw("disconnected"), 0, "it lives");
    assert_eq!(world.network.cluster.free_slots().await, 1, "as before");
    world.goes_on().await;
}

#[tokio::test(start_paused = true)]
async fn ten_megabytes_are_refused_wherever_they_are_put() {
    let world = World::start().await;
    let (_node, service) = world.network.service("tm-1").await;
    let manager = world.network.resource_manager(&service).await;
    let script = always(Behaviour::Run);
    let fake = Fake::start(&service, manager.clone(), ("tm-1", "tm-1"), 1, script).await;
    let instance = accepted(fake.register().await);
    let payload = "x".repeat(10_000_000);
    let mut report = fake.report().await;
    report.identity = Some(payload.clone());
    let refused = manager.report_slots(instance, report.clone()).await;
    assert_eq!(refused.unwrap_err().kind(), "report.invalid");
    let registration = TaskExecutorRegistration {
        data_address: payload.clone(),
        ..fake.registration()
    };
    let answer = manager.register_task_executor(registration).await.unwrap();
    let RegistrationResponse::Rejected { reason } = answer else {
        panic!("not refused");
    };
    assert!(reason.contains("10000000 bytes"), "{}", reason.len());
    // A frame over its limit does not even get onto the wire; one that a hostile peer writes by hand ends its stream.
    report.identity = Some(payload.repeat(2));
    let refused = manager.report_slots(instance, report).await.unwrap_err();
    assert!(matches!(refused, RpcError::TooLarge { .. }), "{refused}");
    assert_eq!(world.network.cluster.free_slots().await, 1);
    world.goes_on().await;
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_heartbeats_is_answered_at_the_allowed_rate_only() {
    let world = World::start().await;
    let (_node, service) = world.network.service("tm-1").await;
    let manager = world.network.resource_manager(&service).await;
    let script = always(Behaviour::Run);
    let fake = Fake::start(&service, manager, ("tm-1", "tm-1"), 1, script).await;
    let (_flooder, flooder) = world.network.service_of("jm-2", "jobmanager").await;
    let connect = flooder.connect(fake.handle.address(), None);
    let client: TaskExecutorClient = connect.await.unwrap();
    let mut calls = JoinSet::new();
    for _ in 0..10_000 {
        calls.spawn(client.heartbeat_from_resource_manager(FencingToken::random()));
    }
    let mut answered = 0;
    while let Some(result) = calls.join_next().await {
        match result.unwrap() {
            Ok(_) => answered += 1,
            Err(RpcError::Overloaded { what, limit: 1000 }) => {
                assert!(what.contains("by jm-2 in a second"), "{what}");
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!((1000..1100).contains(&answered), "{answered}");
    assert_eq!(service.stats().rate_limited, 10_000 - answered);
    // The cluster's own heartbeats are another peer's.
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(fake.shared.saw("disconnected"), 0);
    assert_eq!(world.network.cluster.free_slots().await, 1);
    world.goes_on().await;
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_registrations_leaves_room_for_others() {
    let world = World::start().await;
    let (_node, service) = world.network.service("tm-1").await;
    let manager = world.network.resource_manager(&service).await;
    let script = always(Behaviour::Run);
    let fake = Fake::start(&service, manager.clone(), ("tm-1", "tm-1"), 1, script).await;
    let mut calls = JoinSet::new();
    for _ in 0..10_000 {
        let registration = TaskExecutorRegistration {
            session: SessionId::random(),
            ..fake.registration()
        };
        calls.spawn(manager.register_task_executor(registration));
    }
    let (_late, late) = world
        .network
        .task_manager("tm-2", 1, always(Behaviour::Run))
        .await;
    accepted(late.register().await);
    let mut taken = 0_u32;
    while let Some(result) = calls.join_next().await {
        taken += u32::from(result.unwrap().is_ok());
    }
    assert!(taken < 200, "{taken}");
    assert!(world.network.cluster.service.stats().rate_limited > 9_800);
    world.goes_on().await;
}
