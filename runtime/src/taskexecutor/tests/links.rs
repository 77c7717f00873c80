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
    assert_eq!(registration.report.slots.free(), 2);
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
