mod random;

use std::time::Duration;

use super::*;
use crate::{
    ids::VertexId,
    job::{Distribution, ExchangeMode},
};

/// Two sources in slot group 0, two sinks in group 1, all to all.
fn graph(exchange: ExchangeMode) -> Arc<JobGraph> {
    let mut graph = JobGraph::new("j");
    let source = graph.vertex("source", "t").parallelism(2).id();
    let sink = graph.vertex("sink", "t").parallelism(2).slot_group(1).id();
    graph.connect_with(source, sink, Distribution::Hash, exchange);
    Arc::new(graph)
}

fn tm(name: &str) -> ResourceId {
    ResourceId::new(name).unwrap()
}

/// Group 0 at tm-0, group 1 at tm-1.
fn owners() -> SlotOwners {
    (0..2)
        .flat_map(|group| (0..2).map(move |i| ((group, i), tm(&format!("tm-{group}")))))
        .collect()
}

struct Job {
    machine: ExecutionGraph,
    now: Instant,
}

impl Job {
    fn new(restarts: u32) -> Self {
        Self::with_exchange(restarts, ExchangeMode::Pipelined)
    }

    fn with_exchange(restarts: u32, exchange: ExchangeMode) -> Self {
        let restart = RestartStrategy::FixedDelay {
            attempts: restarts,
            delay: Duration::from_secs(1),
        };
        Self {
            machine: ExecutionGraph::new(JobId::from_u128(1), graph(exchange), restart),
            now: thalweg_transport::now(),
        }
    }

    fn running(restarts: u32) -> Self {
        let mut job = Self::new(restarts);
        job.deploy();
        job
    }

    fn deploy(&mut self) {
        let attempt = self.machine.attempt();
        if self.machine.state() == JobState::Created {
            let actions = self.on(GraphEvent::Start);
            assert_eq!(actions, [GraphAction::RequestSlots { attempt }]);
        }
        let actions = self.on(GraphEvent::SlotsReady(owners()));
        assert_eq!(actions, [GraphAction::Deploy { attempt }]);
    }

    fn on(&mut self, event: GraphEvent) -> Vec<GraphAction> {
        self.machine.on_event(self.now, event)
    }

    fn task(&self, vertex: u32, subtask: u32) -> ExecutionId {
        task_of(vertex, subtask, self.machine.attempt())
    }

    fn update(&mut self, execution: ExecutionId, state: TaskState) -> Vec<GraphAction> {
        let failure = (state == TaskState::Failed)
            .then(|| FailureCause::new(FailureKind::User, format!("boom in {execution}")));
        self.on(GraphEvent::TaskUpdate {
            execution,
            state,
            failure,
            metrics: TaskMetrics::default(),
        })
    }

    fn lose(&mut self, name: &str) -> Vec<GraphAction> {
        self.on(GraphEvent::TaskManagerLost {
            task_manager: tm(name),
            reason: "its connection broke".to_owned(),
        })
    }

    fn message(&self) -> String {
        self.machine.failure().unwrap().message.clone()
    }
}

fn task_of(vertex: u32, subtask: u32, attempt: u32) -> ExecutionId {
    ExecutionId {
        job: JobId::from_u128(1),
        vertex: VertexId(vertex),
        subtask,
        attempt,
    }
}

fn cancelled(actions: &[GraphAction]) -> usize {
    actions
        .iter()
        .filter(|action| matches!(action, GraphAction::CancelTask { .. }))
        .count()
}

#[test]
fn a_job_finishes_when_all_its_tasks_have() {
    let mut job = Job::running(0);
    for (vertex, subtask) in [(0, 0), (0, 1), (1, 0)] {
        let task = job.task(vertex, subtask);
        assert_eq!(job.update(task, TaskState::Running), []);
        assert_eq!(job.update(task, TaskState::Finished), []);
    }
    let last = job.task(1, 1);
    assert_eq!(
        job.update(last, TaskState::Finished),
        [GraphAction::End(JobState::Finished)]
    );
    assert_eq!(job.machine.failure(), None);
}

#[test]
fn the_first_failure_cancels_the_others_and_stays_the_cause() {
    let mut job = Job::running(0);
    let (a, b, c, d) = (
        job.task(0, 0),
        job.task(0, 1),
        job.task(1, 0),
        job.task(1, 1),
    );
    assert_eq!(cancelled(&job.update(b, TaskState::Failed)), 3);
    assert_eq!(job.machine.state(), JobState::Failing);
    assert_eq!(job.update(c, TaskState::Failed), []);
    assert_eq!(job.update(a, TaskState::Canceled), []);
    assert_eq!(
        job.update(d, TaskState::Finished),
        [GraphAction::End(JobState::Failed)]
    );
    assert!(
        job.message()
            .starts_with("task source (2/2) at tm-0 failed: boom"),
        "{}",
        job.message()
    );
    assert_eq!(job.machine.failure().unwrap().kind, FailureKind::User);
}

#[test]
fn a_failure_that_would_come_again_is_the_cause_even_if_its_consequence_came_first() {
    let mut job = Job::running(9);
    let (source, sink) = (job.task(0, 0), job.task(1, 0));
    job.update(source, TaskState::Failed);
    let failure = FailureCause::new(FailureKind::UserPermanent, "wrong data");
    let permanent = GraphEvent::TaskUpdate {
        execution: sink,
        state: TaskState::Failed,
        failure: Some(failure),
        metrics: TaskMetrics::default(),
    };
    assert_eq!(job.on(permanent), []);
    let (other, last) = (job.task(0, 1), job.task(1, 1));
    job.update(other, TaskState::Canceled);
    assert_eq!(
        job.update(last, TaskState::Canceled),
        [GraphAction::End(JobState::Failed)]
    );
    assert_eq!(job.message(), "task sink (1/2) at tm-1 failed: wrong data");
}

#[test]
fn a_restart_waits_for_the_last_task_and_for_its_delay() {
    let mut job = Job::running(1);
    let task = job.task(0, 0);
    job.update(task, TaskState::Failed);
    for (vertex, subtask) in [(0, 1), (1, 0)] {
        let task = job.task(vertex, subtask);
        assert_eq!(job.update(task, TaskState::Canceled), []);
    }
    let last = job.task(1, 1);
    let at = job.now + Duration::from_secs(1);
    assert_eq!(
        job.update(last, TaskState::Canceled),
        [GraphAction::RestartAt(at)]
    );
    assert_eq!(job.machine.state(), JobState::Restarting);
    assert_eq!(job.on(GraphEvent::RestartDue), [], "too early");
    job.now = at;
    assert_eq!(
        job.on(GraphEvent::RestartDue),
        [GraphAction::RequestSlots { attempt: 1 }]
    );
    assert_eq!(job.on(GraphEvent::RestartDue), [], "a second timer");
    job.deploy();
    assert_eq!(job.machine.state(), JobState::Running);
    assert_eq!(job.machine.restarts(), 1);
}

#[test]
fn a_lost_task_manager_fails_its_tasks_and_names_itself() {
    let mut job = Job::running(1);
    assert_eq!(cancelled(&job.lose("tm-1")), 2);
    assert_eq!(
        job.message(),
        "TaskManager tm-1 was lost: its connection broke"
    );
    assert_eq!(
        job.machine.failure().unwrap().kind,
        FailureKind::TaskManagerLost
    );
    assert!(matches!(job.lose("tm-0")[..], [GraphAction::RestartAt(_)]));
    assert_eq!(job.lose("tm-0"), []);
}

#[test]
fn a_task_manager_without_tasks_is_not_missed() {
    let mut job = Job::running(0);
    assert_eq!(job.lose("tm-9"), []);
    for subtask in 0..2 {
        let task = job.task(0, subtask);
        job.update(task, TaskState::Finished);
    }
    assert_eq!(job.lose("tm-0"), [], "its pipelined output is gone anyway");
    assert_eq!(job.machine.state(), JobState::Running);
}

#[test]
fn a_task_manager_that_stores_output_is_missed() {
    let mut job = Job::with_exchange(0, ExchangeMode::Blocking);
    job.deploy();
    for subtask in 0..2 {
        let task = job.task(0, subtask);
        job.update(task, TaskState::Finished);
    }
    assert_eq!(cancelled(&job.lose("tm-0")), 2);
}

#[test]
fn stale_unknown_and_late_updates_are_ignored() {
    let mut job = Job::running(1);
    for execution in [
        task_of(0, 0, 7),
        task_of(9, 0, 0),
        task_of(0, 9, 0),
        ExecutionId {
            job: JobId::from_u128(2),
            ..task_of(0, 0, 0)
        },
    ] {
        assert_eq!(job.update(execution, TaskState::Failed), []);
    }
    let task = job.task(0, 0);
    job.update(task, TaskState::Running);
    job.update(task, TaskState::Initializing);
    assert_eq!(job.machine.task_state(task), Some(TaskState::Running));
    job.update(task, TaskState::Finished);
    assert_eq!(job.update(task, TaskState::Failed), []);
    assert_eq!(job.machine.task_state(task), Some(TaskState::Finished));
}

#[test]
fn updates_before_the_deployment_are_ignored() {
    let mut job = Job::new(0);
    let _ = job.on(GraphEvent::Start);
    let task = job.task(0, 0);
    assert_eq!(job.update(task, TaskState::Finished), []);
    assert_eq!(job.machine.task_state(task), Some(TaskState::Scheduled));
}

#[test]
fn nothing_is_deployed_while_a_slot_is_missing() {
    let mut job = Job::new(0);
    let _ = job.on(GraphEvent::Start);
    assert_eq!(job.on(GraphEvent::Start), []);
    let mut some = owners();
    some.remove(&(1, 1));
    assert_eq!(job.on(GraphEvent::SlotsReady(some)), []);
    let deploy = [GraphAction::Deploy { attempt: 0 }];
    assert_eq!(job.on(GraphEvent::SlotsReady(owners())), deploy);
    assert_eq!(job.on(GraphEvent::SlotsReady(owners())), [], "twice");
}

#[test]
fn a_refused_submission_fails_the_attempt_with_its_cause() {
    let mut job = Job::running(0);
    let cause = FailureCause::new(FailureKind::InvalidJob, "unknown task type \"t\"");
    let task = job.task(1, 0);
    let actions = job.on(GraphEvent::SubmissionFailed(task, cause));
    assert_eq!(
        cancelled(&actions),
        4,
        "itself too: it may run nevertheless"
    );
    assert!(job.message().ends_with("unknown task type \"t\""));
    assert_eq!(job.machine.failure().unwrap().kind, FailureKind::InvalidJob);
}

#[test]
fn missing_slots_fail_a_job_without_a_restart() {
    let mut job = Job::new(3);
    let _ = job.on(GraphEvent::Start);
    let cause = FailureCause::new(FailureKind::Resources, "no slots");
    assert_eq!(
        job.on(GraphEvent::SlotsUnavailable(cause.clone())),
        [GraphAction::End(JobState::Failed)]
    );
    assert_eq!(job.message(), "no slots");
    assert_eq!(job.on(GraphEvent::SlotsUnavailable(cause)), []);
}

#[test]
fn cancelling_works_in_every_state() {
    let end = [GraphAction::End(JobState::Canceled)];
    assert_eq!(Job::new(0).on(GraphEvent::Cancel), end);
    let mut waiting = Job::new(0);
    let _ = waiting.on(GraphEvent::Start);
    assert_eq!(waiting.on(GraphEvent::Cancel), end);

    let mut job = Job::running(3);
    assert_eq!(cancelled(&job.on(GraphEvent::Cancel)), 4);
    assert_eq!(job.on(GraphEvent::Cancel), []);
    let task = job.task(0, 0);
    assert_eq!(job.update(task, TaskState::Failed), []);
    assert_eq!(job.lose("tm-1"), []);
    let task = job.task(0, 1);
    assert_eq!(job.update(task, TaskState::Canceled), end);
    assert_eq!(job.on(GraphEvent::Cancel), []);

    let mut restarting = Job::running(3);
    restarting.lose("tm-0");
    restarting.lose("tm-1");
    assert_eq!(restarting.machine.state(), JobState::Restarting);
    assert_eq!(restarting.on(GraphEvent::Cancel), end);
    restarting.now += Duration::from_secs(9);
    assert_eq!(restarting.on(GraphEvent::RestartDue), []);
}

#[test]
fn a_stopping_cluster_takes_the_restart_away() {
    let mut job = Job::running(3);
    job.lose("tm-0");
    let stop = FailureCause::new(FailureKind::Cluster, "the cluster stops");
    assert_eq!(job.on(GraphEvent::Fail(stop)), []);
    assert_eq!(job.lose("tm-1"), [GraphAction::End(JobState::Failed)]);
    assert!(job.message().contains("tm-0"), "the first cause stays");
}

#[test]
fn a_task_that_two_reports_do_not_list_has_failed() {
    let mut job = Job::running(0);
    let report = |tasks| GraphEvent::Report {
        task_manager: tm("tm-0"),
        tasks,
    };
    let (a, b) = (job.task(0, 0), job.task(0, 1));
    let _ = job.on(GraphEvent::Submitted(a));
    assert_eq!(job.on(report(vec![])), []);
    let there = vec![(a, TaskState::Running, TaskMetrics::default())];
    assert_eq!(job.on(report(there.clone())), []);
    assert_eq!(job.machine.task_state(a), Some(TaskState::Running));
    assert_eq!(job.on(report(vec![])), []);
    assert_eq!(
        job.machine.task_state(b),
        Some(TaskState::Deploying),
        "it was never accepted"
    );
    assert_eq!(cancelled(&job.on(report(vec![]))), 3);
    assert!(job.message().contains("does not know it"));
}

#[test]
fn a_leftover_of_an_earlier_attempt_is_cancelled() {
    let mut job = Job::running(0);
    let old = task_of(0, 0, 9);
    let actions = job.on(GraphEvent::Report {
        task_manager: tm("tm-0"),
        tasks: vec![
            (old, TaskState::Running, TaskMetrics::default()),
            (old, TaskState::Canceled, TaskMetrics::default()),
        ],
    });
    assert_eq!(
        actions,
        [GraphAction::CancelTask {
            execution: old,
            task_manager: tm("tm-0")
        }]
    );
}
