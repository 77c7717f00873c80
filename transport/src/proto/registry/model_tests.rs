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
    Closed,
}

#[derive(Debug)]
struct Connection {
    link: LinkId,
    key: ConnectionId,
    phase: Phase,
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
            registry: Registry::new(reuse),
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
                });
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
                assert!(!held || why == CloseCause::ShutDown, "closed in use");
                let connection = self.connection(link);
                assert_eq!(connection.phase, Phase::Open);
                connection.phase = Phase::Closed;
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
                    self.event(Event::DialSucceeded { link });
                }
            }
            Step::Die(pick) => {
                if let Some(link) = self.in_phase(pick, &[Phase::Open]) {
                    self.connection(link).phase = Phase::Closed;
                    self.event(Event::Died { link });
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
