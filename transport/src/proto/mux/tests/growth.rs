//! Receive windows that grow.

use proptest::prelude::*;

use super::*;

const START: u32 = 16 * 1024;
const GROWTH: Growth = Growth {
    first: 256 * 1024,
    max: 2 * 1024 * 1024,
    budget: 8 * 1024 * 1024,
};

/// The dialler sends, the acceptor reads; the sender is never short of bytes.
struct Bulk {
    pair: Pair,
    flows: Vec<Flow>,
}

struct Flow {
    sender: Key,
    receiver: Key,
    sent: u64,
    read: u64,
}

impl Bulk {
    fn new(streams: usize) -> Self {
        let mut config = config(START, 10_000);
        config.growth = GROWTH;
        let mut pair = Pair::new(config);
        let flows = (0..streams)
            .map(|_| {
                let sender = pair.dialler.open().unwrap();
                write(&mut pair.dialler, sender, b"x");
                pair.settle();
                Flow {
                    sender,
                    receiver: pair.acceptor.accept().unwrap(),
                    sent: 1,
                    read: 0,
                }
            })
            .collect();
        Self { pair, flows }
    }

    /// Fills the sender's queue and lets everything come over that may.
    fn fill(&mut self, at: usize) {
        let flow = &mut self.flows[at];
        loop {
            let mut chunks = [Bytes::from(vec![7; 64 * 1024])];
            let whole = self.pair.dialler.write(flow.sender, &mut chunks).unwrap();
            flow.sent += 64 * 1024 - chunks[0].len() as u64;
            let moved = self.pair.carry(0, usize::MAX);
            if !whole && moved == 0 {
                return;
            }
        }
    }

    fn read(&mut self, at: usize, mut bytes: usize) {
        let flow = &mut self.flows[at];
        while bytes > 0 {
            let Ok(Read::Chunk(chunk)) = self.pair.acceptor.read(flow.receiver, bytes) else {
                return;
            };
            flow.read += chunk.len() as u64;
            bytes -= chunk.len();
        }
    }

    /// A round trip in which the reader takes all there is.
    fn round(&mut self, at: usize) {
        self.fill(at);
        self.read(at, usize::MAX);
        self.pair.carry(1, usize::MAX);
    }

    /// What the receiver lets the sender have under way.
    fn size(&self, at: usize) -> u32 {
        let key = self.flows[at].receiver;
        let stream = self.pair.acceptor.slots[key.0].as_ref().unwrap();
        START + stream.recv.granted
    }
}

#[test]
fn lone_bulk_has_its_full_window_after_four_round_trips() {
    let mut bulk = Bulk::new(1);
    let mut sizes = vec![];
    for _ in 0..5 {
        bulk.round(0);
        // The word that the sender is blocked comes over with the last of its bytes.
        bulk.pair.settle();
        sizes.push(bulk.size(0) / 1024);
    }
    assert_eq!(sizes, [256, 512, 1024, 2048, 2048]);
}

#[test]
fn a_stream_that_is_not_read_keeps_the_window_of_its_start() {
    let mut bulk = Bulk::new(1);
    for _ in 0..5 {
        bulk.fill(0);
        bulk.pair.settle();
    }
    assert_eq!(bulk.size(0), START);
    assert_eq!(bulk.pair.acceptor.grants.granted, 0);
}

#[test]
fn a_stream_that_never_uses_its_window_up_keeps_it_small() {
    let mut bulk = Bulk::new(1);
    for _ in 0..1000 {
        let sender = bulk.flows[0].sender;
        write(&mut bulk.pair.dialler, sender, &[1; 5000]);
        bulk.pair.settle();
        bulk.read(0, usize::MAX);
        bulk.pair.settle();
    }
    assert_eq!(bulk.size(0), START);
}

#[test]
fn what_unread_streams_hold_is_bounded_and_stops_nobody() {
    let mut bulk = Bulk::new(300);
    // All of them grow while they are read, and then are read no more.
    for _ in 0..6 {
        for at in 0..299 {
            bulk.round(at);
        }
    }
    for at in 0..299 {
        bulk.fill(at);
    }
    let held: u64 = bulk.flows.iter().map(|flow| flow.sent - flow.read).sum();
    let queued = 300 * 128 * 1024;
    assert!(
        held <= GROWTH.budget + 300 * u64::from(START) + queued,
        "{held}"
    );
    assert!(bulk.pair.acceptor.grants.granted <= GROWTH.budget);
    let before = bulk.flows[299].read;
    for _ in 0..100 {
        bulk.round(299);
    }
    assert!(bulk.flows[299].read - before >= 99 * u64::from(START));
}

#[test]
fn those_that_have_much_give_back_for_those_that_have_nothing() {
    let mut bulk = Bulk::new(16);
    // The first four have the whole budget.
    for _ in 0..6 {
        for at in 0..4 {
            bulk.round(at);
        }
    }
    assert_eq!(bulk.size(0), GROWTH.max);
    for _ in 0..200 {
        for at in 0..16 {
            bulk.round(at);
        }
    }
    let share = u32::try_from(GROWTH.budget / 16).unwrap();
    for at in 0..16 {
        let size = bulk.size(at);
        assert!(size >= GROWTH.first.min(share / 2), "{at} has {size}");
        assert!(size <= 4 * share, "{at} has {size}");
    }
}

#[test]
fn a_stream_that_idles_gives_back_what_its_sender_has_not_heard_of() {
    let mut bulk = Bulk::new(5);
    // The first four have the whole budget, and each has read nearly a quarter of its window when it falls silent.
    for _ in 0..6 {
        for at in 0..4 {
            bulk.round(at);
        }
    }
    assert_eq!(
        bulk.pair.acceptor.grants.granted,
        GROWTH.budget - 4 * u64::from(START)
    );
    for at in 0..4 {
        bulk.fill(at);
        bulk.read(at, usize::MAX);
        bulk.pair.carry(1, usize::MAX);
        bulk.fill(at);
        bulk.read(at, GROWTH.max as usize / 4 - 1);
    }
    for _ in 0..6 {
        bulk.round(4);
        bulk.pair.settle();
    }
    let size = bulk.size(4);
    assert!(size >= GROWTH.max / 2, "{size}");
    assert!(bulk.pair.acceptor.grants.granted <= GROWTH.budget);
}

#[test]
fn a_stream_that_sends_anyway_tells_its_window_early_and_a_silent_one_does_not() {
    let mut bulk = Bulk::new(1);
    let half = START / 8;
    let receiver = bulk.flows[0].receiver;
    bulk.fill(0);
    bulk.read(0, half as usize);
    assert!(!bulk.pair.acceptor.has_output());
    write(&mut bulk.pair.acceptor, receiver, b"credit");
    let told = control(&Control::Window {
        stream: 1,
        increment: half,
    });
    let wire = transmit(&mut bulk.pair.acceptor, 1024);
    assert_eq!(wire, [told, data(1, b"credit", false)].concat());
    bulk.read(0, half as usize - 1);
    write(&mut bulk.pair.acceptor, receiver, b"credit");
    let wire = transmit(&mut bulk.pair.acceptor, 1024);
    assert_eq!(wire, data(1, b"credit", false));
}

#[test]
fn the_grant_of_a_stream_that_ends_is_free_again() {
    let mut bulk = Bulk::new(1);
    for _ in 0..5 {
        bulk.round(0);
    }
    assert!(bulk.pair.acceptor.grants.granted > 0);
    let Flow {
        sender, receiver, ..
    } = bulk.flows[0];
    bulk.pair.dialler.drop_sender(sender);
    bulk.pair.dialler.drop_receiver(sender);
    bulk.pair.settle();
    assert_eq!(bulk.pair.acceptor.grants.granted, 0);
    bulk.pair.acceptor.drop_sender(receiver);
    bulk.pair.acceptor.drop_receiver(receiver);
    assert_eq!(bulk.pair.acceptor.counters().streams_open, 0);
}

#[test]
fn a_peer_that_says_blocked_without_end_gets_no_more_than_others() {
    let mut mux = Mux::new(
        Side::Acceptor,
        MuxConfig {
            growth: GROWTH,
            ..config(START, 100)
        },
    );
    for stream in (1..200).step_by(2) {
        receive(&mut mux, &data(stream, b"x", false)).unwrap();
        let key = mux.accept().unwrap();
        mux.read(key, 1).unwrap();
        for _ in 0..1000 {
            mux.receive(Piece::Control(Control::Blocked { stream }))
                .unwrap();
        }
    }
    assert!(mux.grants.granted <= GROWTH.budget);
    assert!(mux.windows.len() <= 100, "one frame for each stream");
}

proptest! {
    // Each case moves some hundred megabytes.
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn no_reader_waits_for_ever(reads in prop::collection::vec((0..8usize, 1..300_000usize), 1..40)) {
        let mut bulk = Bulk::new(8);
        for (at, bytes) in reads {
            bulk.fill(at);
            bulk.read(at, bytes);
            bulk.pair.carry(1, usize::MAX);
        }
        for at in 0..8 {
            let before = bulk.flows[at].read;
            for _ in 0..5 {
                bulk.round(at);
            }
            let read = bulk.flows[at].read - before;
            prop_assert!(read >= 4 * u64::from(START), "{} read {}", at, read);
        }
    }
}
