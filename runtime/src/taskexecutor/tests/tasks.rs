//! Tasks: submitted, run, cancelled, failed. In real time: they run on threads of their own.

use super::*;
use crate::{
    gateways::{
        ChannelDeployment, InputDeployment, OutputDeployment, PartitionKey, TaskStateUpdate,
    },
    job::{Distribution, ExchangeMode, FailureCause, FailureKind, TaskState},
    rpc::RpcError,
};

/// The next terminal state that a JobMaster hears of, and the states before.
async fn ending(job_master: &mut Peer<FakeJobMaster>) -> (Vec<TaskState>, TaskStateUpdate) {
    let mut before = Vec::new();
    let update = job_master.first(|seen| match seen {
        Seen::State(update) if update.state.is_terminal() => Some(update),
        Seen::State(update) => {
            before.push(update.state);
            None
        }
        _ => None,
    });
    let update = update.await;
    (before, update)
}

async fn running(job_master: &mut Peer<FakeJobMaster>) {
    let running = job_master.first(|seen| match seen {
        Seen::State(update) => (update.state == TaskState::Running).then_some(()),
        _ => None,
    });
    running.await;
}

/// What a refused submission says.
async fn refusal(world: &World, token: FencingToken, deployment: TaskDeployment) -> String {
    let answer = within(world.gateway.submit_task(token, deployment)).await;
    let error = answer.expect_err("refused");
    assert!(matches!(error, RpcError::Handler(_)));
    error.kind().to_owned()
}

/// `count` and `sum` in one slot, joined by a local channel.
fn pipeline(count: u64, producer: &str) -> [TaskDeployment; 2] {
    let partition = PartitionKey {
        producer: execution(0, 0),
        output: 0,
    };
    let mut source = deployment(producer);
    source.config = Bytes::copy_from_slice(&count.to_le_bytes());
    source.outputs.push(OutputDeployment {
        partition,
        subpartitions: 1,
        distribution: Distribution::Forward,
        exchange: ExchangeMode::Pipelined,
    });
    let mut sink = deployment("sum");
    sink.execution = execution(1, 0);
    sink.inputs.push(InputDeployment {
        distribution: Distribution::Forward,
        channels: vec![ChannelDeployment {
            partition,
            subpartition: 0,
            task_manager: id("tm-1"),
            address: "local".to_owned(),
        }],
    });
    [source, sink]
}

#[tokio::test]
async fn a_pipeline_runs_and_finishes_and_gives_everything_back() {
    let world = World::start();
    let (_rm, mut job_master) = world.job(Offers::Accept).await;
    let [source, sink] = pipeline(100_000, "count");
    world.submit(&job_master, sink).await;
    world.submit(&job_master, source).await;
    let (mut finished, mut sum) = (Vec::new(), None);
    while finished.len() < 2 {
        match job_master.next().await {
            Seen::State(update) if update.state.is_terminal() => finished.push(update),
            Seen::Result(task, 0, bytes) => {
                assert_eq!(task, execution(1, 0));
                sum = Some(u64::from_le_bytes(bytes.as_ref().try_into().unwrap()));
            }
            _ => {}
        }
    }
    assert_eq!(sum, Some((0..100_000).sum()));
    for update in finished {
        assert_eq!(update.state, TaskState::Finished, "{update:?}");
        let metrics = update.metrics;
        if update.execution == execution(0, 0) {
            assert_eq!(metrics.records_out, 100_000);
            assert_eq!(metrics.progress, Some(10_000));
        } else {
            assert_eq!(metrics.records_in, 100_000);
            assert_eq!(metrics.bytes_local, 100_000 * 12);
            assert_eq!((metrics.bytes_remote, metrics.streams), (0, 0));
        }
    }
    world.is_idle().await;
    is(world.slot(0).await, SlotState::Active);
}

#[tokio::test]
async fn states_are_told_in_order() {
    let world = World::start();
    let (_rm, mut job_master) = world.job(Offers::Accept).await;
    world.submit(&job_master, deployment("fail")).await;
    let (before, update) = ending(&mut job_master).await;
    assert_eq!(before, [TaskState::Initializing, TaskState::Running]);
    assert_eq!(update.state, TaskState::Failed);
    let cause = update.failure.unwrap();
    assert_eq!(cause, FailureCause::new(FailureKind::User, "boom"));
    world.is_idle().await;
}

#[tokio::test]
async fn a_panic_fails_its_task_alone() {
    let world = World::start();
    let (_rm, mut job_master) = world.job(Offers::Accept).await;
    world.submit(&job_master, deployment("crash")).await;
    let (_, update) = ending(&mut job_master).await;
    let cause = update.failure.unwrap();
    assert_eq!(cause.kind, FailureKind::User);
    assert!(cause.message.contains("bang 1"), "{cause}");
    world.is_idle().await;
    let mut next = deployment("fail");
    next.execution.attempt = 1;
    world.submit(&job_master, next).await;
    assert_eq!(ending(&mut job_master).await.1.execution.attempt, 1);
}

#[tokio::test]
async fn a_configuration_that_cannot_be_read_fails_the_task_for_good() {
    let world = World::start();
    let (_rm, mut job_master) = world.job(Offers::Accept).await;
    world.submit(&job_master, deployment("count")).await;
    let (_, update) = ending(&mut job_master).await;
    assert_eq!(update.failure.unwrap().kind, FailureKind::UserPermanent);
}

#[tokio::test]
async fn a_task_may_come_before_the_answer_to_the_slot_offer() {
    let world = World::start();
    let (_rm, mut job_master) = world.job(Offers::Keep).await;
    world.submit(&job_master, deployment("idle")).await;
    running(&mut job_master).await;
    is(world.slot(0).await, SlotState::Active);
}

#[tokio::test]
async fn what_cannot_run_is_refused_and_leaves_nothing() {
    let world = World::start();
    let (_rm, job_master) = world.job(Offers::Accept).await;
    let token = job_master.token;
    let mut foreign = deployment("idle");
    foreign.execution.job = JobId::from_u128(8);
    assert_eq!(refusal(&world, token, foreign).await, "failure.transport");
    let former = FencingToken::random();
    let refused = refusal(&world, former, deployment("idle")).await;
    assert_eq!(refused, "failure.transport");
    let mut homeless = deployment("idle");
    homeless.allocation = allocation(1);
    assert_eq!(refusal(&world, token, homeless).await, "slot.not_found");
    let unknown = refusal(&world, token, deployment("nonsense")).await;
    assert_eq!(unknown, "failure.invalid_job");
    assert_eq!(world.ask(|executor| executor.tasks.len()).await, 0);

    world.submit(&job_master, deployment("idle")).await;
    let twice = refusal(&world, token, deployment("idle")).await;
    assert_eq!(twice, "task.duplicate");
}

#[tokio::test]
async fn a_cancelled_task_stops_wherever_it_waits() {
    let world = World::start();
    let (_rm, mut job_master) = world.job(Offers::Accept).await;
    // A reader without a writer, and a writer without a reader that has filled its buffers.
    let [source, sink] = pipeline(0, "endless");
    for waiting in [deployment("idle"), sink, source] {
        let execution = waiting.execution;
        world.submit(&job_master, waiting).await;
        running(&mut job_master).await;
        within(world.gateway.cancel_task(execution)).await.unwrap();
        let (_, update) = ending(&mut job_master).await;
        assert_eq!(update.execution, execution);
        assert_eq!((update.state, update.failure), (TaskState::Canceled, None));
        world.is_idle().await;
    }
    within(world.gateway.cancel_task(execution(9, 9)))
        .await
        .unwrap();
}

#[tokio::test]
async fn consumers_hear_why_their_producer_failed() {
    let world = World::start();
    let (_rm, mut job_master) = world.job(Offers::Accept).await;
    let [source, sink] = pipeline(0, "break-after-some");
    world.submit(&job_master, sink).await;
    running(&mut job_master).await;
    world.submit(&job_master, source).await;
    let mut causes = std::collections::BTreeMap::new();
    while causes.len() < 2 {
        let (_, update) = ending(&mut job_master).await;
        causes.insert(update.execution, update.failure.unwrap());
    }
    let heard = &causes[&execution(1, 0)];
    assert_eq!(heard.kind, FailureKind::Partition);
    for part in ["producer broke", "tm-1", "partition"] {
        assert!(heard.message.contains(part), "{heard}");
    }
    world.is_idle().await;
}

#[tokio::test]
async fn freeing_a_slot_fails_its_tasks_with_the_cause() {
    let world = World::start();
    let (mut resource_manager, mut job_master) = world.job(Offers::Accept).await;
    world.submit(&job_master, deployment("idle")).await;
    running(&mut job_master).await;
    let cause = FailureCause::new(FailureKind::Limit, "the slot is needed");
    let free = world.gateway.free_slot(allocation(0), cause.clone());
    within(free).await.unwrap();
    let (_, update) = ending(&mut job_master).await;
    assert_eq!(update.failure, Some(cause.clone()));
    let freed = resource_manager.next().await;
    assert!(matches!(freed, Seen::SlotAvailable(0, _)));
    within(world.gateway.free_slot(allocation(0), cause))
        .await
        .unwrap();
    world.is_idle().await;
}

#[tokio::test]
async fn tasks_of_a_lost_job_master_fail_and_their_slots_wait() {
    let world = World::start();
    let (_rm, mut job_master) = world.job(Offers::Accept).await;
    world.submit(&job_master, deployment("idle")).await;
    running(&mut job_master).await;
    within(job_master.handle.terminate()).await.unwrap();
    world.is_idle().await;
    is(world.slot(0).await, SlotState::Allocated);
}

#[tokio::test]
async fn a_task_that_waits_for_something_else_is_interrupted() {
    let world = World::with(|config| config.cancellation_interval = Duration::from_millis(10));
    let (_rm, mut job_master) = world.job(Offers::Accept).await;
    world.submit(&job_master, deployment("deaf")).await;
    running(&mut job_master).await;
    let cancel = world.gateway.cancel_task(execution(0, 0));
    within(cancel).await.unwrap();
    let (_, update) = ending(&mut job_master).await;
    assert_eq!(update.state, TaskState::Canceled);
    world.is_idle().await;
}

#[tokio::test]
async fn a_task_that_does_not_stop_is_a_fatal_error() {
    let world = World::with(|config| {
        config.cancellation_interval = Duration::from_millis(10);
        config.cancellation_timeout = Duration::from_millis(50);
    });
    let (_rm, mut job_master) = world.job(Offers::Accept).await;
    world.submit(&job_master, deployment("stubborn")).await;
    running(&mut job_master).await;
    let cancel = world.gateway.cancel_task(execution(0, 0));
    within(cancel).await.unwrap();
    let cause = within(world.status.failed()).await;
    assert_eq!(cause.kind, FailureKind::Cancellation);
    assert!(cause.message.contains("stubborn"), "{cause}");
}

#[tokio::test]
async fn counters_of_running_tasks_are_told() {
    let world = World::with(|config| config.metrics_interval = Duration::from_millis(5));
    let (_rm, mut job_master) = world.job(Offers::Accept).await;
    let [source, sink] = pipeline(0, "endless");
    world.submit(&job_master, source).await;
    world.submit(&job_master, sink).await;
    let many = job_master.first(|seen| match seen {
        Seen::Metrics(tasks) => tasks
            .iter()
            .any(|(task, metrics)| *task == execution(1, 0) && metrics.records_in > 1000)
            .then_some(()),
        _ => None,
    });
    many.await;
}

#[tokio::test]
async fn stopping_waits_for_the_tasks() {
    let world = World::start();
    let (_rm, mut job_master) = world.job(Offers::Accept).await;
    world.submit(&job_master, deployment("idle")).await;
    running(&mut job_master).await;
    within(world.executor.terminate()).await.unwrap();
    let (_, update) = ending(&mut job_master).await;
    assert_eq!(update.failure.unwrap().kind, FailureKind::Cluster);
    assert_eq!(world.shuffle.stats().pool.used, 0);
}

#[tokio::test]
async fn what_a_failed_attempt_has_left_is_released_by_the_next_one() {
    let world = World::start();
    let (_rm, mut job_master) = world.job(Offers::Accept).await;
    let [source, _] = pipeline(10, "count");
    world.submit(&job_master, source).await;
    let (_, update) = ending(&mut job_master).await;
    assert_eq!(update.state, TaskState::Finished);
    assert_eq!(world.shuffle.stats().partitions, 1, "its consumer may come");
    let mut next = deployment("idle");
    next.execution.attempt = 1;
    world.submit(&job_master, next).await;
    assert_eq!(world.shuffle.stats().partitions, 0);
}
