//! The connections to ResourceManager and JobMasters.

use super::*;
use crate::{
    gateways::DisconnectReason,
    ids::SessionId,
    job::{FailureCause, FailureKind},
};

#[tokio::test(start_paused = true)]
async fn it_registers_with_its_slots() {
    let world = World::start();
    let mut peer = world.resource_manager(Vec::new());
    let Seen::TaskExecutor(registration) = peer.next().await else {
        panic!("a registration comes first");
    };
    assert_eq!(registration.id, id("tm-1"));
    assert_eq!(registration.address, *world.executor.address());
    let Seen::Slots(report) = peer.next().await else {
        panic!("then the slots are told");
    };
    assert_eq!(report.slots.free(), 2);
    within(world.status.registered()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn it_registers_whenever_the_resource_manager_comes_up() {
    let world = World::start();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!world.status.is_registered());
    world.registered().await;
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_tried_again_and_a_rejection_is_fatal() {
    let world = World::start();
    let mut peer = world.resource_manager(vec![Told::Refuse, Told::Reject]);
    for _ in 0..2 {
        assert!(matches!(peer.next().await, Seen::TaskExecutor(_)));
    }
    let cause = within(world.status.registered()).await.unwrap_err();
    assert!(cause.message.contains("as the test wants"), "{cause}");
}

#[tokio::test(start_paused = true)]
async fn no_resource_manager_for_too_long_is_fatal() {
    let world = World::start();
    let before = thalweg_transport::now();
    let cause = within(world.status.failed()).await;
    assert_eq!(cause.kind, FailureKind::Cluster);
    assert_eq!((thalweg_transport::now() - before).as_secs(), 300);
}

#[tokio::test(start_paused = true)]
async fn a_resource_manager_that_does_not_come_back_is_fatal_in_the_end() {
    let world = World::start();
    let peer = world.registered().await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    let lost = thalweg_transport::now();
    within(peer.handle.terminate()).await.unwrap();
    let cause = within(world.status.failed()).await;
    assert!(cause.message.contains("no ResourceManager"), "{cause}");
    assert_eq!((thalweg_transport::now() - lost).as_secs(), 300);
}

#[tokio::test(start_paused = true)]
async fn a_lost_resource_manager_is_registered_at_again() {
    let world = World::start();
    let peer = world.registered().await;
    within(peer.handle.terminate()).await.unwrap();
    let mut successor = world.resource_manager(Vec::new());
    assert!(matches!(successor.next().await, Seen::TaskExecutor(_)));
    within(world.status.registered()).await.unwrap();
    let heartbeat = world.gateway.heartbeat_from_resource_manager(peer.token);
    assert!(within(heartbeat).await.is_err(), "the old session is over");
    let heartbeat = world
        .gateway
        .heartbeat_from_resource_manager(successor.token);
    assert_eq!(within(heartbeat).await.unwrap().slots.free(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_timeout_of_a_former_resource_manager_does_not_count() {
    let world = World::start();
    let former = world.registered().await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    within(former.handle.terminate()).await.unwrap();
    let mut peer = world.registered().await;
    let registered = thalweg_transport::now();
    assert!(matches!(peer.next().await, Seen::TaskExecutorLeft(_)));
    assert_eq!((thalweg_transport::now() - registered).as_secs(), 50);
}

#[tokio::test(start_paused = true)]
async fn heartbeats_keep_the_resource_manager_and_silence_loses_it() {
    let world = World::start();
    let mut peer = world.registered().await;
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_secs(40)).await;
        let heartbeat = world.gateway.heartbeat_from_resource_manager(peer.token);
        within(heartbeat).await.unwrap();
    }
    let last = thalweg_transport::now();
    assert!(matches!(peer.next().await, Seen::TaskExecutorLeft(_)));
    assert_eq!((thalweg_transport::now() - last).as_secs(), 50);
    assert!(matches!(peer.next().await, Seen::TaskExecutor(_)));
}

#[tokio::test(start_paused = true)]
async fn a_replaced_task_manager_meets_a_fatal_error() {
    let world = World::start();
    let mut peer = world.resource_manager(Vec::new());
    let Seen::TaskExecutor(registration) = peer.next().await else {
        panic!("a registration comes first");
    };
    within(world.status.registered()).await.unwrap();
    let reason = DisconnectReason::Replaced {
        by: "10.0.0.9:1".to_owned(),
    };
    let tell = |session| {
        let told = world
            .gateway
            .disconnect_resource_manager(session, reason.clone());
        told.unwrap();
    };
    tell(SessionId::random());
    world.ask(|_| ()).await;
    assert!(world.status.is_registered(), "another start was meant");
    tell(registration.session);
    let cause = within(world.status.failed()).await;
    assert!(cause.message.contains("10.0.0.9:1"), "{cause}");
    assert!(matches!(peer.next().await, Seen::Slots(_)));
    assert!(matches!(peer.next().await, Seen::TaskExecutorLeft(_)));
}

#[tokio::test(start_paused = true)]
async fn a_stopping_resource_manager_is_registered_at_again() {
    let world = World::start();
    let mut peer = world.registered().await;
    let session = world.ask(|executor| executor.session).await;
    world
        .gateway
        .disconnect_resource_manager(session, DisconnectReason::Stopping)
        .unwrap();
    let again = peer.first(|seen| match seen {
        Seen::TaskExecutor(registration) => Some(registration.session),
        _ => None,
    });
    assert_eq!(again.await, session);
}

#[tokio::test(start_paused = true)]
async fn a_silent_job_master_is_lost_and_registered_at_again() {
    let world = World::start();
    let (resource_manager, mut job_master) = world.job(Offers::Accept).await;
    let token = job_master.token;
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_secs(40)).await;
        let alive = world
            .gateway
            .heartbeat_from_resource_manager(resource_manager.token);
        within(alive).await.unwrap();
        let heartbeat = world
            .gateway
            .heartbeat_from_job_master(JOB, token, vec![allocation(0)]);
        let report = within(heartbeat).await.unwrap();
        assert_eq!(report.allocations, [allocation(0)]);
    }
    let last = thalweg_transport::now();
    let left = job_master.first(|seen| match seen {
        Seen::TaskManagerLeft(cause) => Some(cause),
        _ => None,
    });
    assert_eq!(left.await.kind, FailureKind::Transport);
    assert_eq!((thalweg_transport::now() - last).as_secs(), 50);
    assert!(matches!(job_master.next().await, Seen::TaskManager(_)));
    assert!(matches!(job_master.next().await, Seen::Offered(_)));
}

#[tokio::test(start_paused = true)]
async fn a_job_master_that_gives_it_up_is_registered_at_again() {
    let world = World::start();
    let (_resource_manager, mut job_master) = world.job(Offers::Accept).await;
    world.submit(&job_master, deployment("endless")).await;
    let tell = |token| {
        let cause = FailureCause::new(FailureKind::TaskManagerLost, "given up");
        world.gateway.disconnect_job_master(JOB, token, cause)
    };
    tell(FencingToken::random()).unwrap();
    is(world.slot(0).await, SlotState::Active);
    tell(job_master.token).unwrap();
    is(world.slot(0).await, SlotState::Allocated);
    let again = job_master.first(|seen| match seen {
        Seen::TaskManager(registration) => Some(registration.job),
        _ => None,
    });
    assert_eq!(again.await, JOB);
    let offered = job_master.first(|seen| match seen {
        Seen::Offered(offers) => Some(offers.len()),
        _ => None,
    });
    assert_eq!(offered.await, 1);
    world.is_idle().await;
}

#[tokio::test(start_paused = true)]
async fn a_new_job_master_of_a_job_takes_the_place_of_the_old_one() {
    let world = World::start();
    let (resource_manager, mut old) = world.job(Offers::Accept).await;
    let (state, seen) = FakeJobMaster::new(JOB, Offers::Accept);
    let token = FencingToken::random();
    let endpoint = world.service.endpoint("successor", state);
    let handle = endpoint
        .serve::<JobMasterClient>()
        .fencing_token(token)
        .spawn()
        .unwrap();
    handle.start();
    let mut new = Peer {
        handle,
        token,
        seen,
    };
    world.assign(&resource_manager, JOB, new.address(), 1).await;
    let left = old.first(|seen| match seen {
        Seen::TaskManagerLeft(cause) => Some(cause.message),
        _ => None,
    });
    assert_eq!(left.await, "the job has a new JobMaster");
    assert!(matches!(new.next().await, Seen::TaskManager(_)));
    let Seen::Offered(offers) = new.next().await else {
        panic!("what the job has is offered to its new JobMaster");
    };
    assert_eq!(offers.len(), 2);
    let heartbeat = world
        .gateway
        .heartbeat_from_job_master(JOB, old.token, Vec::new());
    assert!(within(heartbeat).await.is_err(), "the old one is nobody");
}

#[tokio::test(start_paused = true)]
async fn a_job_master_that_takes_it_and_gives_it_up_again_is_asked_ever_less_often() {
    let world = World::with(|config| config.slots.slot_timeout = Duration::from_secs(1000));
    let (_resource_manager, mut job_master) = world.job(Offers::Keep).await;
    let begin = thalweg_transport::now();
    let mut registrations = 0;
    while (thalweg_transport::now() - begin).as_secs() < 60 {
        let cause = FailureCause::new(FailureKind::TaskManagerLost, "given up");
        let token = job_master.token;
        world
            .gateway
            .disconnect_job_master(JOB, token, cause)
            .unwrap();
        let offered = job_master.first(|seen| matches!(seen, Seen::Offered(_)).then_some(()));
        offered.await;
        registrations += 1;
    }
    assert!((10..20).contains(&registrations), "{registrations}");
}

#[tokio::test(start_paused = true)]
async fn stopping_says_goodbye_to_everybody() {
    let world = World::start();
    let (mut resource_manager, mut job_master) = world.job(Offers::Accept).await;
    within(world.executor.terminate()).await.unwrap();
    let Seen::TaskExecutorLeft(reason) = resource_manager.next().await else {
        panic!("nothing else is told to the ResourceManager");
    };
    assert!(reason.contains("shutting down"), "{reason}");
    assert!(matches!(job_master.next().await, Seen::TaskManagerLeft(_)));
}

#[tokio::test(start_paused = true)]
async fn a_job_stays_until_its_last_slot_is_freed() {
    let world = World::start();
    let (resource_manager, mut job_master) = world.job(Offers::Accept).await;
    let address = job_master.address();
    world.assign(&resource_manager, JOB, address, 1).await;
    assert!(matches!(job_master.next().await, Seen::Offered(_)));
    let free = |slot| {
        let cause = FailureCause::new(FailureKind::Resources, "not needed");
        within(world.gateway.free_slot(allocation(slot), cause))
    };
    free(0).await.unwrap();
    assert_eq!(world.ask(|executor| executor.jobs.jobs().count()).await, 1);
    free(1).await.unwrap();
    assert_eq!(world.ask(|executor| executor.jobs.jobs().count()).await, 0);
    assert!(matches!(job_master.next().await, Seen::TaskManagerLeft(_)));
}

#[tokio::test(start_paused = true)]
async fn a_job_master_that_ends_for_good_leaves_no_slot_behind() {
    let world = World::start();
    let (mut resource_manager, job_master) = world.job(Offers::Accept).await;
    let tell = |cause: FailureCause| {
        let token = job_master.token;
        world.gateway.disconnect_job_master(JOB, token, cause)
    };
    tell(FailureCause::new(FailureKind::Cluster, "the job has ended")).unwrap();
    let freed = resource_manager.first(|seen| match seen {
        Seen::SlotAvailable(slot, allocation) => Some((slot, allocation)),
        _ => None,
    });
    assert_eq!(freed.await, (0, allocation(0)));
    is(world.slot(0).await, SlotState::Free);
}
