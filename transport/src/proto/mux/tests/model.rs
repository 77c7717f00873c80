//! Random operations on two connected machines, against queues of bytes.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::{
    error::{ErrorCode, StreamError},
    proto::mux::recv::RecvState,
};

/// One stream direction as it should be: what was written and not read, and how it ended.
#[derive(Debug, Default)]
struct Flow {
    written: Vec<u8>,
    read: usize,
    finished: bool,
    reset: bool,
    stopped: bool,
    ended: bool,
}

#[derive(Debug, Clone)]
enum Op {
    Open(usize),
    Write(usize, usize, usize),
    Finish(usize, usize),
    Reset(usize, usize),
    Read(usize, usize, usize),
    Stop(usize, usize),
    Priority(usize, usize, i32),
    DropSender(usize, usize),
    DropReceiver(usize, usize),
    Carry(usize, usize),
}

fn any_op() -> impl Strategy<Value = Op> {
    let side = 0..2usize;
    let pick = 0..8usize;
    prop_oneof![
        2 => side.clone().prop_map(Op::Open),
        6 => (side.clone(), pick.clone(), 1..20_000usize).prop_map(|(s, p, n)| Op::Write(s, p, n)),
        1 => (side.clone(), pick.clone()).prop_map(|(s, p)| Op::Finish(s, p)),
        1 => (side.clone(), pick.clone()).prop_map(|(s, p)| Op::Reset(s, p)),
        6 => (side.clone(), pick.clone(), 1..15_000usize).prop_map(|(s, p, n)| Op::Read(s, p, n)),
        1 => (side.clone(), pick.clone()).prop_map(|(s, p)| Op::Stop(s, p)),
        1 => (side.clone(), pick.clone(), -2..3).prop_map(|(s, p, n)| Op::Priority(s, p, n)),
        1 => (side.clone(), pick.clone()).prop_map(|(s, p)| Op::DropSender(s, p)),
        1 => (side.clone(), pick).prop_map(|(s, p)| Op::DropReceiver(s, p)),
        6 => (side, 1..12_000usize).prop_map(|(s, n)| Op::Carry(s, n)),
    ]
}

/// A handle pair of one side. The flows are found by the marker that the opener writes first.
#[derive(Debug)]
struct Handle {
    key: Key,
    /// The stream's name in the model; on the accepting side known after the first bytes.
    name: Option<u32>,
    marker: Vec<u8>,
    sender: bool,
    receiver: bool,
}

struct World {
    pair: Pair,
    handles: [Vec<Handle>; 2],
    /// By stream name and the side that sends.
    flows: BTreeMap<(u32, usize), Flow>,
    names: u32,
}

/// Large enough for pieces on both sides of the size below which they are copied.
const MODEL_FRAME: usize = 9000;
const MODEL_WINDOW: u32 = 5_000;
/// Windows grow, and the streams of a side want more than there is.
const MODEL_GROWTH: Growth = Growth {
    first: 9_000,
    max: 50_000,
    budget: 60_000,
};
const MODEL_STREAMS: u32 = 3;
const MODEL_QUEUE: usize = 30_000;

impl World {
    fn new() -> Self {
        let mut config = config(MODEL_WINDOW, MODEL_STREAMS);
        config.frame_bytes = MODEL_FRAME;
        config.queue_bytes = MODEL_QUEUE;
        config.growth = MODEL_GROWTH;
        Self {
            pair: Pair::new(config),
            handles: [Vec::new(), Vec::new()],
            flows: BTreeMap::new(),
            names: 0,
        }
    }

    fn mux(&mut self, side: usize) -> &mut Mux {
        match side {
            0 => &mut self.pair.dialler,
            _ => &mut self.pair.acceptor,
        }
    }

    fn open(&mut self, side: usize) {
        let Ok(key) = self.mux(side).open() else {
            return;
        };
        let name = self.names;
        self.names += 1;
        write(self.mux(side), key, &name.to_be_bytes());
        for from in [0, 1] {
            self.flows.insert((name, from), Flow::default());
        }
        self.handles[side].push(Handle {
            key,
            name: Some(name),
            marker: Vec::new(),
            sender: true,
            receiver: true,
        });
    }

    fn accept(&mut self, side: usize) {
        while let Some(key) = self.mux(side).accept() {
            self.handles[side].push(Handle {
                key,
                name: None,
                marker: Vec::new(),
                sender: true,
                receiver: true,
            });
        }
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Open(side) => self.open(side),
            Op::Carry(side, portion) => {
                self.pair.carry(side, portion);
                self.accept(1 - side);
            }
            Op::Write(side, pick, length) => self.write(side, pick, length),
            Op::Finish(side, pick) => self.on_sender(side, pick, |mux, key, flow| {
                if mux.finish(key).is_ok() {
                    flow.finished = true;
                }
            }),
            Op::Reset(side, pick) => self.on_sender(side, pick, |mux, key, flow| {
                mux.reset(key, ErrorCode(7));
                flow.reset = true;
            }),
            Op::Priority(side, pick, priority) => {
                self.on_sender(side, pick, |mux, key, _| mux.set_priority(key, priority));
            }
            Op::DropSender(side, pick) => {
                self.on_sender(side, pick, |mux, key, flow| {
                    mux.drop_sender(key);
                    flow.reset |= !flow.finished;
                });
                if let Some(handle) = self.pick(side, pick)
                    && handle.name.is_some()
                {
                    handle.sender = false;
                }
                self.sweep(side);
            }
            Op::Read(side, pick, max) => self.read(side, pick, max),
            Op::Stop(side, pick) => self.stop(side, pick, false),
            Op::DropReceiver(side, pick) => self.stop(side, pick, true),
        }
        self.check_bounds();
    }

    fn pick(&mut self, side: usize, pick: usize) -> Option<&mut Handle> {
        let count = self.handles[side].len();
        (count > 0).then(|| &mut self.handles[side][pick % count])
    }

    /// Runs `f` on a live sending half whose stream has a name.
    fn on_sender(&mut self, side: usize, pick: usize, f: impl FnOnce(&mut Mux, Key, &mut Flow)) {
        let Some(handle) = self.pick(side, pick) else {
            return;
        };
        let (key, name, sender) = (handle.key, handle.name, handle.sender);
        let (Some(name), true) = (name, sender) else {
            return;
        };
        let mut flow = self.flows.remove(&(name, side)).unwrap();
        f(self.mux(side), key, &mut flow);
        self.flows.insert((name, side), flow);
    }

    fn write(&mut self, side: usize, pick: usize, length: usize) {
        self.on_sender(side, pick, |mux, key, flow| {
            let start = flow.written.len();
            #[expect(
                clippy::cast_possible_truncation,
                reason = "a pattern of bytes is wanted"
            )]
            let bytes: Vec<u8> = (start..start + length)
                .map(|n| (n * 7 + n / 256) as u8)
                .collect();
            let mut chunks = [Bytes::from(bytes.clone())];
            if mux.write(key, &mut chunks).is_ok() {
                let taken = length - chunks[0].len();
                flow.written.extend(&bytes[..taken]);
            }
        });
    }

    fn read(&mut self, side: usize, pick: usize, max: usize) {
        let Some(handle) = self.pick(side, pick) else {
            return;
        };
        if !handle.receiver {
            return;
        }
        let (key, name) = (handle.key, handle.name);
        let max = match name {
            Some(_) => max,
            None => 4 - handle.marker.len(),
        };
        let result = self.mux(side).read(key, max);
        let Some(name) = name else {
            let handle = self.pick(side, pick).unwrap();
            if let Ok(Read::Chunk(chunk)) = &result {
                assert!(!chunk.is_empty() && chunk.len() <= max);
                handle.marker.extend(chunk);
            }
            if let Ok(name) = <[u8; 4]>::try_from(&handle.marker[..]) {
                handle.name = Some(u32::from_be_bytes(name));
            }
            return;
        };
        let flow = self.flows.get_mut(&(name, 1 - side)).unwrap();
        match result {
            Ok(Read::Chunk(chunk)) => {
                assert!(!chunk.is_empty() && chunk.len() <= max);
                let expected = &flow.written[flow.read..flow.read + chunk.len()];
                assert_eq!(&chunk[..], expected, "bytes in order");
                flow.read += chunk.len();
            }
            Ok(Read::End) => {
                assert!(flow.finished && flow.read == flow.written.len());
                flow.ended = true;
            }
            Ok(Read::Blocked) => {}
            Err(StreamError::Reset { .. }) => assert!(flow.reset),
            // After a stop, or a reset of the own half before the first frame.
            Err(StreamError::Closed) => {}
            Err(other) => panic!("{other}"),
        }
    }

    fn stop(&mut self, side: usize, pick: usize, drop: bool) {
        let Some(handle) = self.pick(side, pick) else {
            return;
        };
        let (key, name, receiver) = (handle.key, handle.name, handle.receiver);
        let (Some(name), true) = (name, receiver) else {
            return;
        };
        handle.receiver = !drop;
        if drop {
            self.mux(side).drop_receiver(key);
        } else {
            self.mux(side).stop(key, ErrorCode(8));
        }
        self.flows.get_mut(&(name, 1 - side)).unwrap().stopped = true;
        self.sweep(side);
    }

    fn sweep(&mut self, side: usize) {
        self.handles[side].retain(|handle| handle.sender || handle.receiver);
    }

    fn check_bounds(&mut self) {
        for mux in [&self.pair.dialler, &self.pair.acceptor] {
            let mut granted = 0;
            for stream in mux.slots.iter().flatten() {
                let recv = &stream.recv;
                let size = MODEL_WINDOW + recv.granted;
                granted += u64::from(recv.granted);
                assert!(size <= MODEL_GROWTH.max.max(MODEL_WINDOW));
                assert!(recv.buffered() <= size as usize);
                if recv.state == RecvState::Open {
                    let held = u32::try_from(recv.buffered()).unwrap();
                    assert_eq!(recv.window + recv.unannounced + held, size);
                } else if recv.is_over() {
                    assert_eq!(recv.granted, 0);
                }
                assert!(stream.send.queued <= MODEL_QUEUE);
            }
            assert_eq!(mux.grants.granted, granted);
            assert!(granted <= MODEL_GROWTH.budget);
        }
    }

    /// Finishes and reads everything, then drops all handles.
    fn wind_up(&mut self) {
        for side in [0, 1] {
            for at in 0..self.handles[side].len() {
                self.apply(Op::Finish(side, at));
            }
        }
        for _ in 0..2000 {
            let mut moved = self.pair.carry(0, usize::MAX) + self.pair.carry(1, usize::MAX);
            for side in [0, 1] {
                self.accept(side);
                for at in 0..self.handles[side].len() {
                    let before = self.total_read();
                    self.read(side, at, usize::MAX);
                    moved += self.total_read() - before;
                    self.apply(Op::Finish(side, at));
                }
            }
            if moved == 0 {
                break;
            }
        }
    }

    fn total_read(&self) -> usize {
        let handles = self.handles.iter().flatten();
        let markers: usize = handles.map(|handle| handle.marker.len()).sum();
        markers + self.flows.values().map(|flow| flow.read).sum::<usize>()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_byte_arrives_in_order_and_nothing_is_left(ops in prop::collection::vec(any_op(), 1..250)) {
        let mut world = World::new();
        for op in ops {
            world.apply(op);
        }
        world.wind_up();
        for ((name, from), flow) in &world.flows {
            if flow.finished && !flow.reset && !flow.stopped {
                prop_assert_eq!(flow.read, flow.written.len(), "stream {} from {}", name, from);
            }
        }
        for side in [0, 1] {
            for handle in std::mem::take(&mut world.handles[side]) {
                let mux = world.mux(side);
                if handle.sender {
                    mux.drop_sender(handle.key);
                }
                if handle.receiver {
                    mux.drop_receiver(handle.key);
                }
            }
        }
        for _ in 0..10 {
            world.pair.settle();
            for side in [0, 1] {
                while let Some(key) = world.mux(side).accept() {
                    world.mux(side).drop_sender(key);
                    world.mux(side).drop_receiver(key);
                }
            }
        }
        for side in [0, 1] {
            let mux = world.mux(side);
            prop_assert_eq!(mux.counters().streams_open, 0);
            prop_assert!(mux.ids.is_empty());
            prop_assert_eq!(mux.grants.granted, 0);
            prop_assert!(!mux.has_output());
        }
    }

    #[test]
    fn streams_of_one_priority_get_equal_shares(count in 2usize..8, batches in 1usize..6) {
        let mut mux = Mux::new(Side::Dialler, config(1 << 20, 10));
        let keys: Vec<Key> = (0..count).map(|_| mux.open().unwrap()).collect();
        let mut sent = BTreeMap::new();
        for _ in 0..batches {
            for key in &keys {
                let _ = mux.write(*key, &mut [vec![0; 100_000].into()]);
            }
            for piece in pieces(&transmit(&mut mux, 64 * 1024), usize::MAX).unwrap() {
                if let Piece::Begin { stream, .. } = piece {
                    *sent.entry(stream).or_insert(0u32) += 1;
                }
            }
        }
        let most = sent.values().max().copied().unwrap_or(0);
        let least = if sent.len() < count { 0 } else { sent.values().min().copied().unwrap_or(0) };
        prop_assert!(most - least <= 1, "{:?}", sent);
    }
}
