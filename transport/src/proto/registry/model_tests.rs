//! Random events against a simple model: a world that dials, holds and closes, and checks every action.

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Step {
    Acquire(u32),
    CallerGone(usize),
    CloseUnused(u32),
    Fail(usize),
    Succeed(usize),
    Die(usize),
    Release(usize),
    /// The timer of an open or draining connection fires.
    Timer(usize),
    ShutDown,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..3_u32).prop_map(Step::Acquire),
        2 => any::<usize>().prop_map(Step::CallerGone),
        2 => (0..3_u32).prop_map(Step::CloseUnused),
        2 => any::<usize>().prop_map(Step::Fail),
        4 => any::<usize>().prop_map(Step::Succeed),
        2 => any::<usize>().prop_map(Step::Die),
        4 => any::<usize>().prop_map(Step::Release),
        3 => any::<usize>().prop_map(Step::Timer),
    ];
    let step = prop_oneof![60 => step, 1 => Just(Step::ShutDown)];
    proptest::collection::vec(step, 0..120)
}

fn key(index: u32) -> ConnectionId {
    ConnectionId::to_address("peer:1").with_index(index)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Dialling,
    Cancelled,
    Open,
    Draining,
    Closed,
}

#[derive(Debug)]
struct Connection {
    link: LinkId,
    key: ConnectionId,
    phase: Phase,
    /// Whether its timer runs.
    timer: bool,
}

/// What the world outside the registry looks like.
#[derive(Debug)]
struct World {
    registry: Registry,
    reuse: bool,
    connections: Vec<Connection>,
    waiting: Vec<(WaiterId, ConnectionId)>,
    held: Vec<LinkId>,
    next_waiter: u64,
}

impl World {
    fn new(reuse: bool) -> Self {
        Self {
            registry: Registry::new(Rules {
                reuse,
                max_age: Duration::from_secs(100),
            }),
            reuse,
            connections: vec![],
            waiting: vec![],
            held: vec![],
            next_waiter: 0,
        }
    }

    fn connection(&mut self, link: LinkId) -> &mut Connection {
        let found = self.connections.iter_mut().find(|c| c.link == link);
        found.expect("the registry names links that it gave out")
    }

    fn in_phase(&self, pick: usize, phases: &[Phase]) -> Option<LinkId> {
        let fit: Vec<_> = self
            .connections
            .iter()
            .filter(|c| phases.contains(&c.phase))
            .collect();
        (!fit.is_empty()).then(|| fit[pick % fit.len()].link)
    }

    fn event(&mut self, event: Event<u64>) {
        for action in self
            .registry
            .on_event(event)
            .expect("the world makes no mistake")
        {
            self.act(action);
        }
    }

    fn act(&mut self, action: Action<u64>) {
        match action {
            Action::StartDial { link, connection } => {
                let rival = self.connections.iter().find(|c| {
                    c.key == connection && matches!(c.phase, Phase::Dialling | Phase::Open)
                });
                assert!(rival.is_none(), "second connection beside {rival:?}");
                self.connections.push(Connection {
                    link,
                    key: connection,
                    phase: Phase::Dialling,
                    timer: false,
                });
            }
            Action::StartTimer { link, after } => {
                let connection = self.connection(link);
                let least = match connection.phase {
                    Phase::Open => 90,
                    Phase::Draining => 100,
                    other => panic!("a timer for a connection that is {other:?}"),
                };
                assert!((least..=100).contains(&after.as_secs()), "{after:?}");
                assert!(!std::mem::replace(&mut connection.timer, true));
            }
            Action::Drain { link } => {
                assert!(self.held.contains(&link), "drained for nobody");
                let connection = self.connection(link);
                assert_eq!(connection.phase, Phase::Open);
                connection.phase = Phase::Draining;
            }
            Action::CancelDial { link } => {
                let connection = self.connection(link);
                assert_eq!(connection.phase, Phase::Dialling);
                connection.phase = Phase::Cancelled;
            }
            Action::Answer { waiter, outcome } => {
                let at = self.waiting.iter().position(|(w, _)| *w == waiter);
                let (_, wanted) = self
                    .waiting
                    .remove(at.expect("an answer for one who waits"));
                if let Ok(link) = outcome {
                    let connection = self.connection(link);
                    assert_eq!((connection.phase, &connection.key), (Phase::Open, &wanted));
                    self.held.push(link);
                }
            }
            Action::Close { link, why } => {
                let held = self.held.contains(&link);
                let by_force = matches!(why, CloseCause::ShutDown | CloseCause::Overdue);
                assert!(!held || by_force, "closed in use");
                let reuse = self.reuse;
                let connection = self.connection(link);
                let was = std::mem::replace(&mut connection.phase, Phase::Closed);
                match why {
                    CloseCause::Overdue => assert_eq!(was, Phase::Draining),
                    // Without reuse nothing open is ever without a user, and so never aged without one.
                    CloseCause::Drained if !reuse => assert_eq!(was, Phase::Draining),
                    CloseCause::Drained | CloseCause::ShutDown => {
                        assert!(matches!(was, Phase::Open | Phase::Draining));
                    }
                    CloseCause::Unused | CloseCause::Unwanted => assert_eq!(was, Phase::Open),
                }
            }
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Acquire(index) => {
                let waiter = WaiterId(self.next_waiter);
                self.next_waiter += 1;
                self.waiting.push((waiter, key(index)));
                let connection = key(index);
                self.event(Event::Acquire { waiter, connection });
            }
            Step::CallerGone(pick) if !self.waiting.is_empty() => {
                let (waiter, _) = self.waiting.remove(pick % self.waiting.len());
                self.event(Event::CallerGone { waiter });
            }
            Step::CloseUnused(index) => self.event(Event::CloseUnused {
                connection: key(index),
            }),
            Step::Fail(pick) => {
                if let Some(link) = self.in_phase(pick, &[Phase::Dialling, Phase::Cancelled]) {
                    self.connection(link).phase = Phase::Closed;
                    let error = self.next_waiter;
                    self.event(Event::DialFailed { link, error });
                }
            }
            Step::Succeed(pick) => {
                if let Some(link) = self.in_phase(pick, &[Phase::Dialling, Phase::Cancelled]) {
                    self.connection(link).phase = Phase::Open;
                    let jitter = u16::try_from(pick % 65_536).unwrap();
                    self.event(Event::DialSucceeded { link, jitter });
                }
            }
            Step::Die(pick) => {
                if let Some(link) = self.in_phase(pick, &[Phase::Open, Phase::Draining]) {
                    self.connection(link).phase = Phase::Closed;
                    self.event(Event::Died { link });
                }
            }
            Step::Timer(pick) => {
                let alive = [Phase::Open, Phase::Draining];
                if let Some(link) = self.in_phase(pick, &alive) {
                    assert!(std::mem::take(&mut self.connection(link).timer), "no timer");
                    self.event(Event::TimerFired { link });
                }
            }
            Step::Release(pick) if !self.held.is_empty() => {
                let link = self.held.swap_remove(pick % self.held.len());
                self.event(Event::Released { link });
            }
            Step::ShutDown => self.event(Event::ShutDown),
            Step::CallerGone(_) | Step::Release(_) => {}
        }
        self.check();
    }

    fn check(&self) {
        let counted = |phase| self.connections.iter().filter(|c| c.phase == phase).count();
        let live = counted(Phase::Open) + counted(Phase::Dialling);
        assert_eq!(self.registry.active(), live);
        for connection in &self.connections {
            let held = self.held.iter().filter(|l| **l == connection.link).count() as u64;
            assert_eq!(self.registry.references(connection.link), held);
            let idle = connection.phase == Phase::Open && held == 0;
            assert!(self.reuse || !idle, "kept without use");
            let drained = connection.phase == Phase::Draining && held == 0;
            assert!(!drained, "drained and still there without use");
            let alive = matches!(connection.phase, Phase::Open | Phase::Draining);
            assert!(connection.timer || !alive, "alive without a timer");
            let waited = self.waiting.iter().any(|(_, key)| *key == connection.key);
            assert!(
                connection.phase != Phase::Dialling || waited,
                "dial for nobody"
            );
        }
        for (waiter, key) in &self.waiting {
            let dialled = self
                .connections
                .iter()
                .any(|c| c.key == *key && c.phase == Phase::Dialling);
            assert!(dialled, "{waiter:?} waits for nothing");
        }
    }

    /// Lets everything come to its end; nothing may be left.
    fn wind_up(mut self) {
        self.step(&Step::ShutDown);
        while self.in_phase(0, &[Phase::Cancelled]).is_some() {
            self.step(&Step::Succeed(0));
        }
        while !self.held.is_empty() {
            self.step(&Step::Release(0));
        }
        assert!(self.waiting.is_empty());
        assert!(self.connections.iter().all(|c| c.phase == Phase::Closed));
        assert!(self.registry.links.is_empty() && self.registry.current.is_empty());
        assert!(self.registry.waiters.is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_sequence_of_events_breaks_the_rules(reuse: bool, steps in steps()) {
        let mut world = World::new(reuse);
        for step in &steps {
            world.step(step);
        }
        world.wind_up();
    }
}
