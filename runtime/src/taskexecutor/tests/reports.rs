//! The first slot report of a registration: when it comes, and what its failure does.

use super::*;
use crate::job::FailureKind;

impl World {
    /// A ResourceManager that takes registrations, but not the next so many slot reports.
    async fn picky(&self, bad_reports: u32) -> Peer<FakeResourceManager> {
        let peer = self.resource_manager(Vec::new());
        let main = peer.handle.main_thread();
        let set = move |state: &mut FakeResourceManager| state.bad_reports = bad_reports;
        let call = main.call_async(Deadline::Never, move |state, _| set(state));
        within(call).await.unwrap();
        peer
    }
}

#[tokio::test(start_paused = true)]
async fn slot_requests_before_a_registration_are_refused() {
    let world = World::start();
    let job_master = world.job_master(JOB, Offers::Accept);
    let assignment = SlotAssignment {
        slot: 0,
        job: JOB,
        allocation: allocation(0),
        job_master: job_master.address(),
    };
    let token = FencingToken::random();
    let refused = within(world.gateway.request_slot(token, assignment)).await;
    assert_eq!(refused.unwrap_err().kind(), "slot.wrong_resource_manager");
    is(world.slot(0).await, SlotState::Free);
}

#[tokio::test(start_paused = true)]
async fn slot_requests_are_taken_from_the_report_on() {
    let world = World::start();
    let mut peer = world.resource_manager(Vec::new());
    assert!(matches!(peer.next().await, Seen::TaskExecutor(_)));
    assert!(matches!(peer.next().await, Seen::Slots(_)));
    // The ResourceManager may ask before the TaskExecutor has its answer to the report.
    let job_master = world.job_master(JOB, Offers::Accept);
    world.assign(&peer, JOB, job_master.address(), 0).await;
    assert_ne!(world.slot(0).await.state, SlotState::Free);
}

#[tokio::test(start_paused = true)]
async fn a_report_that_is_not_taken_registers_again_after_a_delay() {
    let world = World::start();
    let mut peer = world.picky(2).await;
    let mut last = None;
    for round in 0..3 {
        assert!(matches!(peer.next().await, Seen::TaskExecutor(_)));
        let now = thalweg_transport::now();
        if let Some(last) = last.replace(now) {
            // 100 ms, then 200 ms, of which jitter leaves at least the half.
            let waited = (now - last).as_millis();
            let most = 100 << (round - 1);
            assert!((most / 2..=most + 5).contains(&waited), "{waited}");
        }
        assert!(matches!(peer.next().await, Seen::Slots(_)));
        if round < 2 {
            assert!(!world.status.is_registered());
            let Seen::TaskExecutorLeft(reason) = peer.next().await else {
                panic!("it takes leave of the registration that came to nothing");
            };
            assert!(reason.contains("as the test wants"), "{reason}");
        }
    }
    within(world.status.registered()).await.unwrap();
    // The next loss is one of a good registration: no delay.
    let lost = thalweg_transport::now();
    let session = world.ask(|executor| executor.session).await;
    let reason = crate::gateways::DisconnectReason::HeartbeatTimeout;
    world
        .gateway
        .disconnect_resource_manager(session, reason)
        .unwrap();
    let again = peer.first(|seen| matches!(seen, Seen::TaskExecutor(_)).then_some(()));
    again.await;
    assert!((thalweg_transport::now() - lost).as_millis() < 50);
}

#[tokio::test(start_paused = true)]
async fn reports_that_are_never_taken_are_fatal_in_the_end_and_no_hot_loop() {
    let world = World::start();
    let mut peer = world.picky(u32::MAX).await;
    let before = thalweg_transport::now();
    let cause = within(world.status.failed()).await;
    assert_eq!(cause.kind, FailureKind::Cluster);
    assert_eq!((thalweg_transport::now() - before).as_secs(), 300);
    let mut registrations = 0;
    while let Ok(seen) = peer.seen.try_recv() {
        registrations += u32::from(matches!(seen, Seen::TaskExecutor(_)));
    }
    assert!((30..80).contains(&registrations), "{registrations}");
}
