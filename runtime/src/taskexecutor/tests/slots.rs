//! Slots: given, offered, accepted, rejected, timed out.

use super::*;
use crate::rpc::RpcError;

fn kind(result: Result<(), RpcError>) -> String {
    result.expect_err("refused").kind().to_owned()
}

#[tokio::test(start_paused = true)]
async fn an_accepted_slot_is_active() {
    let world = World::start();
    let (_, job_master) = world.job(Offers::Accept).await;
    // The heartbeat is handled after the answer to the offer, which was sent before it.
    let heartbeat =
        world
            .gateway
            .heartbeat_from_job_master(JOB, job_master.token, vec![allocation(0)]);
    within(heartbeat).await.unwrap();
    tokio::time::sleep(Duration::from_secs(30)).await;
    is(world.slot(0).await, SlotState::Active);
    is(world.slot(1).await, SlotState::Free);
}

#[tokio::test(start_paused = true)]
async fn a_rejected_slot_is_freed_and_the_job_forgotten() {
    let world = World::start();
    let (mut resource_manager, mut job_master) = world.job(Offers::Reject).await;
    assert!(matches!(job_master.next().await, Seen::TaskManagerLeft(_)));
    let Seen::SlotAvailable(0, freed) = resource_manager.next().await else {
        panic!("the ResourceManager hears of slot 0");
    };
    assert_eq!(freed, allocation(0));
    is(world.slot(0).await, SlotState::Free);
    assert_eq!(world.ask(|executor| executor.jobs.jobs().count()).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_slot_is_given_by_the_right_resource_manager_to_one_job_only() {
    let world = World::start();
    let (resource_manager, job_master) = world.job(Offers::Accept).await;
    let assign = |token, slot, allocation| {
        let assignment = SlotAssignment {
            slot,
            job: JOB,
            allocation,
            job_master: job_master.address(),
        };
        within(world.gateway.request_slot(token, assignment))
    };
    let token = resource_manager.token;
    let other = AllocationId::random();
    assert_eq!(
        kind(assign(FencingToken::random(), 1, other).await),
        "slot.wrong_resource_manager"
    );
    assert_eq!(kind(assign(token, 0, other).await), "slot.occupied");
    assert_eq!(kind(assign(token, 9, other).await), "slot.not_found");
    assert_eq!(assign(token, 0, allocation(0)).await, Ok(()), "idempotent");
    is(world.slot(1).await, SlotState::Free);
}

#[tokio::test(start_paused = true)]
async fn a_slot_whose_job_master_does_not_come_times_out() {
    let world = World::start();
    let mut resource_manager = world.registered().await;
    let nobody = JobMasterAddress {
        address: RpcAddress::local("nobody").unwrap(),
        token: FencingToken::random(),
    };
    let before = thalweg_transport::now();
    world.assign(&resource_manager, JOB, nobody, 1).await;
    assert!(matches!(
        resource_manager.next().await,
        Seen::SlotAvailable(1, _)
    ));
    assert_eq!((thalweg_transport::now() - before).as_secs(), 10);
    assert_eq!(world.ask(|executor| executor.jobs.jobs().count()).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_job_master_that_rejects_the_registration_gets_no_slot() {
    let world = World::start();
    let mut resource_manager = world.registered().await;
    let job_master = world.job_master(JOB, Offers::Accept);
    let reject = job_master
        .handle
        .main_thread()
        .call_async(Deadline::Never, |state, _| state.rejects = true);
    within(reject).await.unwrap();
    world
        .assign(&resource_manager, JOB, job_master.address(), 0)
        .await;
    assert!(matches!(
        resource_manager.next().await,
        Seen::SlotAvailable(0, _)
    ));
}

#[tokio::test(start_paused = true)]
async fn a_job_master_of_another_session_gets_no_slot() {
    let world = World::start();
    let mut resource_manager = world.registered().await;
    let job_master = world.job_master(JOB, Offers::Accept);
    let former = JobMasterAddress {
        token: FencingToken::random(),
        ..job_master.address()
    };
    world.assign(&resource_manager, JOB, former, 0).await;
    assert!(matches!(
        resource_manager.next().await,
        Seen::SlotAvailable(0, _)
    ));
}

#[tokio::test(start_paused = true)]
async fn the_answer_to_an_outdated_offer_is_ignored() {
    let world = World::start();
    let (resource_manager, mut job_master) = world.job(Offers::Keep).await;
    world
        .assign(&resource_manager, JOB, job_master.address(), 1)
        .await;
    let Seen::Offered(offers) = job_master.next().await else {
        panic!("both slots are offered");
    };
    assert_eq!(offers.len(), 2);
    let answers = job_master
        .handle
        .main_thread()
        .call_async(Deadline::Never, |state, _| std::mem::take(&mut state.kept));
    let mut answers = within(answers).await.unwrap();
    let (new, old) = (answers.pop().unwrap(), answers.pop().unwrap());
    old.send(Ok(Vec::new()));
    new.send(Ok(vec![allocation(0), allocation(1)]));
    tokio::time::sleep(Duration::from_secs(1)).await;
    is(world.slot(0).await, SlotState::Active);
    is(world.slot(1).await, SlotState::Active);
}

#[tokio::test(start_paused = true)]
async fn an_offer_without_an_answer_is_made_again() {
    let world = World::start();
    let (_, mut job_master) = world.job(Offers::Keep).await;
    let before = thalweg_transport::now();
    assert!(matches!(job_master.next().await, Seen::Offered(_)));
    assert_eq!((thalweg_transport::now() - before).as_secs(), 5);
}

#[tokio::test(start_paused = true)]
async fn slots_are_reconciled_with_what_the_job_master_counts_on() {
    let world = World::start();
    let (mut resource_manager, mut job_master) = world.job(Offers::Accept).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let heartbeat = |listed| {
        within(
            world
                .gateway
                .heartbeat_from_job_master(JOB, job_master.token, listed),
        )
    };
    heartbeat(vec![allocation(9)]).await.unwrap();
    is(world.slot(0).await, SlotState::Active);
    heartbeat(vec![allocation(0), allocation(9)]).await.unwrap();
    heartbeat(Vec::new()).await.unwrap();
    is(world.slot(0).await, SlotState::Active);
    heartbeat(Vec::new()).await.unwrap();
    is(world.slot(0).await, SlotState::Free);
    assert!(matches!(
        resource_manager.next().await,
        Seen::SlotAvailable(0, _)
    ));
    let Seen::SlotFailed(missing) = job_master.next().await else {
        panic!("the JobMaster hears of the slot that is not here");
    };
    assert_eq!(missing, allocation(9));
    let unknown = world
        .gateway
        .heartbeat_from_job_master(JOB, FencingToken::random(), Vec::new());
    assert!(within(unknown).await.is_err());
}
