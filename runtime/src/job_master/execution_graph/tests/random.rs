//! Random sequences of events.

use proptest::prelude::*;

use super::*;
use crate::job::TaskStatus;

#[derive(Debug, Clone)]
enum Step {
    Update(u32, u32, u32, usize),
    Lose(u32),
    Submit(u32, u32, bool),
    Slots,
    NoSlots,
    Wait,
    Cancel,
    Fail,
    Report(u32, bool),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        20 => (0..3_u32, 0..3_u32, 0..3_u32, 0..5_usize)
            .prop_map(|(v, s, back, state)| Step::Update(v, s, back, state)),
        2 => (0..3_u32).prop_map(Step::Lose),
        4 => (0..2_u32, 0..2_u32, any::<bool>()).prop_map(|(v, s, ok)| Step::Submit(v, s, ok)),
        8 => Just(Step::Slots),
        1 => Just(Step::NoSlots),
        8 => Just(Step::Wait),
        1 => Just(Step::Cancel),
        1 => Just(Step::Fail),
        4 => (0..2_u32, any::<bool>()).prop_map(|(t, full)| Step::Report(t, full)),
    ];
    proptest::collection::vec(step, 0..80)
}

/// Checks after each event what must always hold.
struct Watch {
    before: Vec<TaskStatus>,
    state: JobState,
    deployed: u32,
    ended: bool,
}

impl Watch {
    fn check(&mut self, job: &Job, actions: &[GraphAction]) {
        let machine = &job.machine;
        let tasks = machine.tasks();
        if self.state.is_terminal() {
            assert_eq!(machine.state(), self.state, "terminal job states are final");
        }
        for (old, new) in self.before.iter().zip(&tasks) {
            if old.execution.attempt == new.execution.attempt {
                assert!(
                    rank(old.state) <= rank(new.state),
                    "a task never goes back: {} {}",
                    old.state,
                    new.state
                );
                assert!(!old.state.is_terminal() || old.state == new.state);
            } else {
                assert!(
                    old.state.is_terminal(),
                    "the old attempt ended before the new one began"
                );
            }
        }
        for action in actions {
            match action {
                GraphAction::Deploy { attempt } => {
                    assert_eq!(*attempt, self.deployed, "each attempt is deployed once");
                    self.deployed += 1;
                    assert!(tasks.iter().all(|task| task.task_manager.is_some()));
                }
                GraphAction::RequestSlots { attempt } => self.deployed = *attempt,
                GraphAction::End(state) => {
                    assert!(!self.ended, "a job ends once");
                    self.ended = true;
                    assert_eq!(*state, machine.state());
                    assert!(tasks.iter().all(|task| task.state.is_terminal()));
                    if *state == JobState::Finished {
                        assert!(tasks.iter().all(|task| task.state == TaskState::Finished));
                    }
                }
                GraphAction::CancelTask { .. } | GraphAction::RestartAt(_) => {}
            }
        }
        assert_eq!(self.ended, machine.state().is_terminal());
        self.before = tasks;
        self.state = machine.state();
    }
}

proptest! {
    #[test]
    fn any_sequence_of_events_keeps_the_rules_and_ends(steps in steps()) {
        let mut job = Job::new(2);
        let mut watch = Watch {
            before: job.machine.tasks(),
            state: JobState::Created,
            deployed: 0,
            ended: false,
        };
        let actions = job.on(GraphEvent::Start);
        watch.check(&job, &actions);
        for step in steps {
            let attempt = job.machine.attempt();
            let states = [
                TaskState::Initializing,
                TaskState::Running,
                TaskState::Finished,
                TaskState::Canceled,
                TaskState::Failed,
            ];
            let actions = match step {
                Step::Update(v, s, back, state) => {
                    job.update(task_of(v, s, attempt.saturating_sub(back / 2)), states[state])
                }
                Step::Lose(t) => job.lose(&format!("tm-{t}")),
                Step::Submit(v, s, true) => job.on(GraphEvent::Submitted(task_of(v, s, attempt))),
                Step::Submit(v, s, false) => job.on(GraphEvent::SubmissionFailed(
                    task_of(v, s, attempt),
                    FailureCause::new(FailureKind::Transport, "no answer"),
                )),
                Step::Slots => job.on(GraphEvent::SlotsReady(owners())),
                Step::NoSlots => job.on(GraphEvent::SlotsUnavailable(FailureCause::new(
                    FailureKind::Resources,
                    "no slots",
                ))),
                Step::Wait => {
                    job.now += Duration::from_secs(1);
                    job.on(GraphEvent::RestartDue)
                }
                Step::Cancel => job.on(GraphEvent::Cancel),
                Step::Fail => job.on(GraphEvent::Fail(FailureCause::new(
                    FailureKind::Internal,
                    "because",
                ))),
                Step::Report(t, full) => {
                    let tasks = if full {
                        (0..2)
                            .map(|s| (task_of(t, s, attempt), TaskState::Running, TaskMetrics::default()))
                            .collect()
                    } else {
                        Vec::new()
                    };
                    job.on(GraphEvent::Report { task_manager: tm(&format!("tm-{t}")), tasks })
                }
            };
            watch.check(&job, &actions);
        }
        // Whatever happened: once slots come, tasks end and delays pass, so does the job.
        for _ in 0..4 {
            job.now += Duration::from_secs(1);
            let actions = job.on(GraphEvent::RestartDue);
            watch.check(&job, &actions);
            let actions = job.on(GraphEvent::SlotsReady(owners()));
            watch.check(&job, &actions);
            for vertex in 0..2 {
                for subtask in 0..2 {
                    let task = job.task(vertex, subtask);
                    let actions = job.update(task, TaskState::Finished);
                    watch.check(&job, &actions);
                }
            }
        }
        prop_assert!(job.machine.state().is_terminal());
    }
}
