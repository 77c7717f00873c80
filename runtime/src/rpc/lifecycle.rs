//! The life cycle of an endpoint. Pure.
//!
//! ```text
//!            START, on_start ok            TERMINATE: on_stop begins
//!  Stopped ───────────────────► Started ─────────────────────────────► Terminating
//!     │  ◄─────────────────────    │                                        │
//!     │           STOP             │ crash                                  │ on_stop is done
//!     │ TERMINATE, on_start failed ▼                                        ▼
//!     └────────────────────────► Terminated ◄───────────────────────────────┘
//! ```
//!
//! The states and answers are those of Flink's rpc actor (flink-behaviour 2.2).

/// Where an endpoint is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Stopped,
    Started,
    Terminating,
    Terminated,
}

/// What the owner of an endpoint tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Control {
    Start,
    Stop,
    Terminate,
}

/// What the endpoint's task has to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// Nothing changes.
    Nothing,
    /// Run `on_start`, then tell [`Lifecycle::on_started`].
    RunOnStart,
    /// Run `on_stop`, and tell [`Lifecycle::on_stopped`] when its future is done.
    RunOnStop,
    /// End the task now.
    Finish,
    /// The message makes no sense in this state.
    Invalid,
}

/// What happens to a call or a main-thread function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    Process,
    NotStarted,
    Unreachable,
}

/// The machine.
#[derive(Debug)]
pub(super) struct Lifecycle {
    state: State,
}

impl Lifecycle {
    pub(super) fn new() -> Self {
        Self {
            state: State::Stopped,
        }
    }

    pub(super) fn state(&self) -> State {
        self.state
    }

    pub(super) fn on_control(&mut self, control: Control) -> Action {
        match (self.state, control) {
            (State::Stopped, Control::Start) => Action::RunOnStart,
            (State::Stopped, Control::Stop) | (State::Started, Control::Start) => Action::Nothing,
            (State::Stopped, Control::Terminate) => {
                self.state = State::Terminated;
                Action::Finish
            }
            (State::Started, Control::Stop) => {
                self.state = State::Stopped;
                Action::Nothing
            }
            (State::Started, Control::Terminate) => {
                self.state = State::Terminating;
                Action::RunOnStop
            }
            (State::Terminating, Control::Terminate) => Action::Nothing,
            (State::Terminating, Control::Start | Control::Stop) | (State::Terminated, _) => {
                Action::Invalid
            }
        }
    }

    /// `on_start` has run.
    pub(super) fn on_started(&mut self, succeeded: bool) -> Action {
        if succeeded {
            self.state = State::Started;
            Action::Nothing
        } else {
            self.state = State::Terminated;
            Action::Finish
        }
    }

    /// The future of `on_stop` is done.
    pub(super) fn on_stopped(&mut self) -> Action {
        self.state = State::Terminated;
        Action::Finish
    }

    /// The endpoint panicked, or its service failed.
    pub(super) fn on_crash(&mut self) -> Action {
        self.state = State::Terminated;
        Action::Finish
    }

    pub(super) fn admission(&self) -> Admission {
        match self.state {
            State::Stopped => Admission::NotStarted,
            State::Started | State::Terminating => Admission::Process,
            State::Terminated => Admission::Unreachable,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_answers_every_message_as_the_table_says() {
        use {Action as A, Admission as M, Control as C, State as S};
        let table = [
            (S::Stopped, C::Start, A::RunOnStart, S::Stopped),
            (S::Stopped, C::Stop, A::Nothing, S::Stopped),
            (S::Stopped, C::Terminate, A::Finish, S::Terminated),
            (S::Started, C::Start, A::Nothing, S::Started),
            (S::Started, C::Stop, A::Nothing, S::Stopped),
            (S::Started, C::Terminate, A::RunOnStop, S::Terminating),
            (S::Terminating, C::Start, A::Invalid, S::Terminating),
            (S::Terminating, C::Stop, A::Invalid, S::Terminating),
            (S::Terminating, C::Terminate, A::Nothing, S::Terminating),
            (S::Terminated, C::Start, A::Invalid, S::Terminated),
            (S::Terminated, C::Stop, A::Invalid, S::Terminated),
            (S::Terminated, C::Terminate, A::Invalid, S::Terminated),
        ];
        for (before, control, action, after) in table {
            let mut machine = Lifecycle { state: before };
            assert_eq!(
                machine.on_control(control),
                action,
                "{before:?} {control:?}"
            );
            assert_eq!(machine.state(), after, "{before:?} {control:?}");
        }
        for (state, admission) in [
            (S::Stopped, M::NotStarted),
            (S::Started, M::Process),
            (S::Terminating, M::Process),
            (S::Terminated, M::Unreachable),
        ] {
            assert_eq!(Lifecycle { state }.admission(), admission);
        }
    }

    #[test]
    fn a_failed_start_ends_the_endpoint() {
        let mut machine = Lifecycle::new();
        assert_eq!(machine.on_control(Control::Start), Action::RunOnStart);
        assert_eq!(machine.on_started(false), Action::Finish);
        assert_eq!(machine.state(), State::Terminated);
    }

    #[test]
    fn a_stopped_endpoint_can_start_again() {
        let mut machine = Lifecycle::new();
        machine.on_control(Control::Start);
        machine.on_started(true);
        machine.on_control(Control::Stop);
        assert_eq!(machine.on_control(Control::Start), Action::RunOnStart);
    }
}
