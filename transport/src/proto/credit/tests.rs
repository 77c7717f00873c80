use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

#[test]
fn data_costs_credit_and_events_do_not() {
    let mut sender = SenderCredit::new(1);
    assert_eq!(sender.on_sent(DataType::Data), Ok(0));
    assert_eq!(sender.on_sent(DataType::Event), Ok(1));
    assert_eq!(
        sender.on_sent(DataType::Data),
        Err(CreditViolation::NoCredit { sequence: 2 })
    );
    sender.on_add_credit(2).unwrap();
    assert_eq!(sender.available(), 2);
}

#[test]
fn credit_beyond_32_bits_is_a_violation() {
    let mut sender = SenderCredit::new(u32::MAX);
    assert!(matches!(
        sender.on_add_credit(1),
        Err(CreditViolation::Overflow { .. })
    ));
    assert_eq!(sender.available(), u32::MAX);
}

#[test]
fn resume_keeps_credit_only_where_buffers_are_exclusive() {
    for (initial, expected) in [(2, 2), (0, 0)] {
        let mut sender = SenderCredit::new(initial);
        if initial == 0 {
            sender.on_add_credit(2).unwrap();
        }
        sender.on_sent(DataType::AlignedBarrier).unwrap();
        assert_eq!((sender.available(), sender.reported_backlog(5)), (0, 0));
        assert!(sender.on_sent(DataType::Event).is_err());
        sender.on_resume();
        assert_eq!(sender.available(), expected);
    }
}

#[test]
fn backlog_is_announced_only_without_initial_and_without_credit() {
    assert_eq!(SenderCredit::new(2).poll_announcement(4), None);
    let mut sender = SenderCredit::new(0);
    assert_eq!(sender.poll_announcement(0), None);
    assert_eq!(sender.poll_announcement(4), Some(4));
    assert_eq!(sender.poll_announcement(9), None, "once until credit comes");
    sender.on_add_credit(1).unwrap();
    assert_eq!(sender.poll_announcement(4), None);
    sender.on_sent(DataType::Data).unwrap();
    assert_eq!(sender.poll_announcement(3), Some(3));
}

#[test]
fn sequence_numbers_wrap_and_gaps_are_violations() {
    let mut receiver = ReceiverCredit::new(2);
    receiver.sequence = u32::MAX;
    receiver.on_data(u32::MAX, 0).unwrap();
    assert_eq!(
        receiver.on_data(1, 0),
        Err(CreditViolation::Sequence {
            expected: 0,
            received: 1
        })
    );
    receiver.on_event(DataType::Event, 0, 0).unwrap();
    assert_eq!(receiver.outstanding(), 1);
}

#[test]
fn data_without_credit_changes_nothing() {
    let mut receiver = ReceiverCredit::new(1);
    receiver.on_data(0, 9).unwrap();
    receiver.on_floating(3);
    assert_eq!(
        receiver.on_data(1, 0),
        Err(CreditViolation::NoCredit { sequence: 1 }),
        "credit that was not announced is none"
    );
    assert_eq!(receiver.free(), 3);
}

#[test]
fn recycled_buffers_beyond_the_required_ones_go_back() {
    let mut receiver = ReceiverCredit::new(2);
    receiver.on_backlog(2);
    assert_eq!(receiver.wanted(40), 2);
    receiver.on_floating(2);
    assert_eq!(receiver.poll_announcement(false), Some(2));
    receiver.on_data(0, 0).unwrap();
    assert_eq!(receiver.on_recycled(false), Recycled::Floating);
    receiver.on_data(1, 5).unwrap();
    assert_eq!(receiver.on_recycled(true), Recycled::Floating);
    receiver.on_data(2, 5).unwrap();
    assert_eq!(receiver.on_recycled(false), Recycled::Kept);
}

#[test]
fn a_blocked_channel_without_exclusive_buffers_gives_its_floating_ones_back() {
    let mut receiver = ReceiverCredit::new(0);
    receiver.on_backlog(3);
    receiver.on_floating(3);
    assert_eq!(receiver.poll_announcement(true), Some(3));
    assert_eq!(receiver.on_event(DataType::AlignedBarrier, 0, 0), Ok(3));
    assert_eq!((receiver.free(), receiver.wanted(40)), (0, 0));
    assert!(receiver.on_data(1, 0).is_err());
    receiver.on_resume();
    receiver.on_backlog(1);
    assert_eq!(receiver.wanted(40), 1);

    let mut exclusive = ReceiverCredit::new(2);
    assert_eq!(exclusive.on_event(DataType::AlignedBarrier, 0, 0), Ok(0));
    assert_eq!(exclusive.free(), 2);
}

#[test]
fn shares_follow_the_number_of_channels() {
    assert_eq!(floating_share(64, 1), 40);
    assert_eq!(floating_share(64, 8), 16);
    assert_eq!(floating_share(64, 64), 8);
    assert_eq!(floating_share(1, 1), 1);
    assert_eq!(floating_share(1, 1000), 1);
}

#[test]
fn a_huge_backlog_is_only_a_wish() {
    let mut receiver = ReceiverCredit::new(2);
    receiver.on_data(0, u32::MAX).unwrap();
    assert_eq!(receiver.wanted(8), 8);
}

fn data_in(items: &VecDeque<DataType>) -> u32 {
    let data = items.iter().filter(|item| item.is_data());
    u32::try_from(data.count()).unwrap()
}

#[derive(Debug, Clone)]
enum Step {
    Produce(bool),
    Barrier,
    Send,
    Deliver,
    Consume,
    Recycle,
    Float,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => Just(Step::Produce(true)),
        1 => Just(Step::Produce(false)),
        1 => Just(Step::Barrier),
        4 => Just(Step::Send),
        4 => Just(Step::Deliver),
        4 => Just(Step::Consume),
        4 => Just(Step::Recycle),
        2 => Just(Step::Float),
    ];
    proptest::collection::vec(step, 1..400)
}

/// Two machines with a wire in each direction; `pool` floating buffers at the gate.
struct Model {
    sender: SenderCredit,
    receiver: ReceiverCredit,
    exclusive: u32,
    pool: u32,
    queue: VecDeque<DataType>,
    wire: VecDeque<(Option<DataType>, u32, u32)>,
    credits: VecDeque<Option<u32>>,
    received: VecDeque<DataType>,
    held: u32,
    sent: u64,
    granted: u64,
    consumed: usize,
}

impl Model {
    fn new(exclusive: u32, pool: u32) -> Self {
        Self {
            sender: SenderCredit::new(exclusive),
            receiver: ReceiverCredit::new(exclusive),
            exclusive,
            pool,
            queue: VecDeque::new(),
            wire: VecDeque::new(),
            credits: VecDeque::new(),
            received: VecDeque::new(),
            held: 0,
            sent: 0,
            granted: u64::from(exclusive),
            consumed: 0,
        }
    }

    fn backlog(&self) -> u32 {
        data_in(&self.queue)
    }

    /// Returns whether anything happened.
    fn step(&mut self, step: &Step) -> bool {
        match step {
            Step::Produce(data) => self.queue.push_back(if *data {
                DataType::Data
            } else {
                DataType::Event
            }),
            Step::Barrier => self.queue.push_back(DataType::AlignedBarrier),
            Step::Send => return self.send(),
            Step::Deliver => return self.deliver(),
            Step::Consume => {
                let Some(item) = self.received.pop_front() else {
                    return false;
                };
                self.consumed += 1;
                if item.is_data() {
                    self.held += 1;
                }
                if item.is_blocking() {
                    self.receiver.on_resume();
                    self.credits.push_back(None);
                }
                self.announce();
            }
            Step::Recycle => {
                if self.held == 0 {
                    return false;
                }
                self.held -= 1;
                if self.receiver.on_recycled(false) == Recycled::Floating {
                    self.pool += 1;
                }
                self.announce();
            }
            Step::Float => return self.float(),
        }
        true
    }

    fn send(&mut self) -> bool {
        if let Some(credit) = self.credits.pop_front() {
            match credit {
                Some(credit) => self.sender.on_add_credit(credit).unwrap(),
                None => self.sender.on_resume(),
            }
            return true;
        }
        if self.sender.is_blocked() {
            return false;
        }
        match self.queue.front().copied() {
            Some(item) if !item.is_data() || self.sender.available() > 0 => {
                self.queue.pop_front();
                let sequence = self.sender.on_sent(item).unwrap();
                self.sent += u64::from(item.is_data());
                let backlog = self.sender.reported_backlog(self.backlog());
                self.wire.push_back((Some(item), sequence, backlog));
                true
            }
            _ => match self.sender.poll_announcement(self.backlog()) {
                Some(backlog) => {
                    self.wire.push_back((None, 0, backlog));
                    true
                }
                None => false,
            },
        }
    }

    fn deliver(&mut self) -> bool {
        let Some((item, sequence, backlog)) = self.wire.pop_front() else {
            return false;
        };
        match item {
            None => self.receiver.on_backlog(backlog),
            Some(item) => {
                if item.is_data() {
                    self.receiver.on_data(sequence, backlog).unwrap();
                } else {
                    self.pool += self.receiver.on_event(item, sequence, backlog).unwrap();
                }
                self.received.push_back(item);
            }
        }
        self.float();
        true
    }

    fn float(&mut self) -> bool {
        let take = self.receiver.wanted(self.pool).min(self.pool);
        self.pool -= take;
        self.receiver.on_floating(take);
        self.announce();
        take > 0
    }

    fn announce(&mut self) {
        if let Some(credit) = self.receiver.poll_announcement(self.received.is_empty()) {
            self.granted += u64::from(credit);
            self.credits.push_back(Some(credit));
        }
    }

    fn check(&self, floating_total: u32) -> Result<(), TestCaseError> {
        prop_assert!(self.sent <= self.granted);
        let r = &self.receiver;
        prop_assert_eq!(
            r.unannounced() + r.outstanding() + r.filled(),
            self.exclusive + r.floating()
        );
        prop_assert_eq!(self.pool + r.floating(), floating_total);
        let queued = data_in(&self.received);
        prop_assert_eq!(r.filled(), queued + self.held);
        Ok(())
    }
}

proptest! {
    #[test]
    fn two_machines_account_every_buffer_and_always_make_progress(
        exclusive in 0u32..4,
        pool in 1u32..20,
        steps in steps(),
    ) {
        let mut model = Model::new(exclusive, pool);
        let mut produced = 0;
        for step in &steps {
            produced += usize::from(matches!(step, Step::Produce(_) | Step::Barrier));
            model.step(step);
            model.check(pool)?;
        }
        loop {
            let mut moved = false;
            for step in [Step::Send, Step::Deliver, Step::Float, Step::Consume, Step::Recycle] {
                moved |= model.step(&step);
                model.check(pool)?;
            }
            if !moved {
                break;
            }
        }
        prop_assert_eq!(model.consumed, produced, "stuck with {:?}", model.queue);
        prop_assert_eq!(model.receiver.filled(), 0);
    }

    #[test]
    fn an_ended_channel_gives_every_buffer_back(
        exclusive in 0u32..4, pool in 1u32..20, steps in steps(),
    ) {
        let mut model = Model::new(exclusive, pool);
        for step in &steps {
            model.step(step);
        }
        let mut back = model.receiver.on_end();
        while model.receiver.filled() > 0 {
            match model.receiver.on_recycled(false) {
                Recycled::Floating => back += 1,
                Recycled::Kept => back += model.receiver.on_end(),
            }
        }
        prop_assert_eq!(back + model.pool, exclusive + pool);
    }
}

/// Free buffers, floating ones and wish of a channel with 2 exclusive buffers whose producer has announced a backlog,
/// step by step: a buffer comes, goes back, and the backlog changes.
#[test]
fn a_channel_with_fewer_buffers_than_required_keeps_what_comes_back() {
    let mut receiver = ReceiverCredit::new(2);
    receiver.on_backlog(16);
    assert_eq!(receiver.wanted(u32::MAX), 16);
    receiver.on_floating(14);
    assert_eq!((receiver.free(), receiver.wanted(u32::MAX)), (16, 2));
    receiver.poll_announcement(true);
    receiver.on_data(0, 16).unwrap();
    assert_eq!(receiver.on_recycled(false), Recycled::Kept);
    assert_eq!((receiver.free(), receiver.floating()), (16, 14));
    receiver.on_floating(1);
    assert_eq!(receiver.wanted(u32::MAX), 1);
}

#[test]
fn a_channel_with_as_many_buffers_as_required_gives_floating_ones_back() {
    let mut receiver = ReceiverCredit::new(2);
    receiver.on_backlog(12);
    receiver.on_floating(12);
    assert_eq!((receiver.free(), receiver.wanted(u32::MAX)), (14, 0));
    receiver.poll_announcement(true);
    receiver.on_data(0, 12).unwrap();
    assert_eq!(receiver.on_recycled(false), Recycled::Kept);
    receiver.on_data(1, 11).unwrap();
    assert_eq!(receiver.on_recycled(false), Recycled::Floating);
    assert_eq!((receiver.free(), receiver.floating()), (13, 11));
}

#[test]
fn a_channel_with_more_buffers_than_required_gives_its_floating_ones_back_until_none_is_left() {
    let mut receiver = ReceiverCredit::new(2);
    receiver.on_backlog(4);
    receiver.on_floating(4);
    receiver.poll_announcement(true);
    for sequence in 0..4 {
        receiver.on_data(sequence, 0).unwrap();
    }
    let given: Vec<_> = (0..4).map(|_| receiver.on_recycled(false)).collect();
    assert_eq!(
        given[..],
        [Recycled::Floating; 4],
        "2 are free, and 2 are required"
    );
    assert_eq!((receiver.free(), receiver.floating()), (2, 0));
    receiver.on_data(4, 0).unwrap();
    assert_eq!(
        receiver.on_recycled(true),
        Recycled::Kept,
        "an exclusive one stays"
    );
}

#[test]
fn every_buffer_that_comes_is_required_no_longer() {
    let mut receiver = ReceiverCredit::new(0);
    receiver.on_backlog(3);
    receiver.on_floating(3);
    receiver.poll_announcement(true);
    for left in [2, 1, 0] {
        receiver.on_data(2 - left, left).unwrap();
        assert_eq!((receiver.expected(), receiver.free()), (left, left));
    }
}
