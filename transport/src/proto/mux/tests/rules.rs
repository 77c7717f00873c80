//! One rule at a time.

use super::*;
use crate::error::{ErrorCode, StreamError};

#[test]
fn a_full_exchange_frame_is_two_records_on_the_wire() {
    let mut mux = Mux::new(Side::Dialler, config(1 << 20, 10));
    let key = mux.open().unwrap();
    write(&mut mux, key, &vec![7; 3 * 32_760]);
    assert_eq!(transmit(&mut mux, 64 * 1024).len(), 65_536);
    mux.ping(1);
    // The ping's 16 bytes are taken off the frame, so that no short record is left.
    write(&mut mux, key, &[7; 32_760]);
    assert_eq!(transmit(&mut mux, 64 * 1024).len(), 65_536);
}

#[test]
fn a_stream_is_seen_at_its_first_byte() {
    let mut pair = Pair::new(config(WINDOW, 10));
    let silent = pair.dialler.open().unwrap();
    let loud = pair.dialler.open().unwrap();
    pair.settle();
    assert_eq!(pair.acceptor.accept(), None);
    write(&mut pair.dialler, loud, b"hello");
    pair.settle();
    let seen = pair.acceptor.accept().unwrap();
    assert_eq!(pair.acceptor.accept(), None);
    assert_eq!(
        read_all(&mut pair.acceptor, seen),
        (b"hello".to_vec(), false)
    );
    write(&mut pair.dialler, silent, b"late");
    pair.settle();
    let seen = pair.acceptor.accept().unwrap();
    assert_eq!(
        read_all(&mut pair.acceptor, seen),
        (b"late".to_vec(), false)
    );
}

#[test]
fn an_unused_stream_leaves_nothing_behind() {
    let mut pair = Pair::new(config(WINDOW, 1));
    let key = pair.dialler.open().unwrap();
    assert_eq!(pair.dialler.open(), Err(OpenError::Limit));
    pair.dialler.drop_sender(key);
    pair.dialler.drop_receiver(key);
    assert_eq!(pair.dialler.events().next(), Some(Event::MayOpen));
    pair.dialler.open().unwrap();
    pair.settle();
    assert_eq!(pair.acceptor.accept(), None);
}

#[test]
fn the_limit_of_streams_follows_the_streams_that_are_over() {
    let mut pair = Pair::new(config(WINDOW, 2));
    for round in 0..10 {
        let first = pair.dialler.open().unwrap();
        let second = pair.dialler.open().unwrap();
        assert_eq!(pair.dialler.open(), Err(OpenError::Limit), "{round}");
        for key in [first, second] {
            write(&mut pair.dialler, key, b"x");
        }
        pair.settle();
        for key in [first, second] {
            pair.dialler.drop_sender(key);
            pair.dialler.drop_receiver(key);
        }
        pair.settle();
        while let Some(key) = pair.acceptor.accept() {
            pair.acceptor.drop_sender(key);
            pair.acceptor.drop_receiver(key);
        }
        pair.settle();
    }
    assert_eq!(pair.dialler.counters().streams_open, 0);
    assert_eq!(pair.acceptor.counters().streams_open, 0);
    pair.acceptor.allow_streams(5);
    pair.settle();
    for _ in 0..5 {
        pair.dialler.open().unwrap();
    }
    assert_eq!(pair.dialler.open(), Err(OpenError::Limit));
}

#[test]
fn a_dropped_sender_resets_and_a_dropped_receiver_stops() {
    let mut pair = Pair::new(config(WINDOW, 10));
    let key = pair.dialler.open().unwrap();
    write(&mut pair.dialler, key, b"part");
    pair.settle();
    let theirs = pair.acceptor.accept().unwrap();
    pair.dialler.drop_sender(key);
    pair.dialler.drop_receiver(key);
    pair.settle();
    assert!(matches!(
        pair.acceptor.read(theirs, 10),
        Err(StreamError::Reset {
            code: ErrorCode::DROPPED
        })
    ));
    assert!(matches!(
        pair.acceptor.write(theirs, &mut [Bytes::from_static(b"x")]),
        Err(StreamError::Stopped {
            code: ErrorCode::DROPPED
        })
    ));
}

#[test]
fn a_finish_is_acknowledged_when_all_was_read() {
    let mut pair = Pair::new(config(WINDOW, 10));
    let key = pair.dialler.open().unwrap();
    write(&mut pair.dialler, key, b"all");
    pair.dialler.finish(key).unwrap();
    pair.settle();
    assert_eq!(pair.dialler.outcome(key).unwrap(), None);
    let theirs = pair.acceptor.accept().unwrap();
    assert_eq!(
        read_all(&mut pair.acceptor, theirs),
        (b"all".to_vec(), true)
    );
    pair.settle();
    assert_eq!(pair.dialler.outcome(key).unwrap(), Some(None));
}

#[test]
fn a_stop_before_the_first_byte_reaches_the_peer_behind_it() {
    let mut pair = Pair::new(config(WINDOW, 10));
    let key = pair.dialler.open().unwrap();
    pair.dialler.stop(key, ErrorCode::CANCELLED);
    pair.settle();
    write(&mut pair.dialler, key, b"x");
    pair.settle();
    let theirs = pair.acceptor.accept().unwrap();
    assert_eq!(
        pair.acceptor.outcome(theirs).unwrap(),
        Some(Some(ErrorCode::CANCELLED))
    );
}

#[test]
fn every_violation_is_told_from_the_others() {
    let opened = || {
        let mut mux = Mux::new(Side::Acceptor, config(10, 2));
        receive(&mut mux, &data(1, b"12345", false)).unwrap();
        mux
    };
    let check = |wire: Vec<u8>, words: &str| {
        let error = receive(&mut opened(), &wire).unwrap_err().to_string();
        assert!(error.contains(words), "{error:?} has no {words:?}");
    };
    check(data(1, b"123456", false), "exceed its window of 5 bytes");
    check(data(1, b"", false), "0 payload bytes");
    check(data(0, b"x", false), "stream id 0");
    check(data(2, b"x", false), "never opened");
    check(data(5, b"x", false), "never opened");
    check(
        [data(3, b"x", false), data(5, b"x", false)].concat(),
        "limit of 2 streams",
    );
    check(
        [data(1, b"x", true), data(1, b"x", false)].concat(),
        "after its end",
    );
    check(vec![0x0c, 0, 0, 0, 0, 0, 0, 0], "unknown frame kind 0x0c");
    check(vec![0, 0x10, 0, 1, 0, 0, 0, 1], "1048577 payload bytes");
    check(vec![7, 0, 0, 9, 0, 0, 0, 0], "Ping frame with 9");
    check(vec![7, 0, 0, 8, 0, 0, 0, 1], "Ping frame with stream id 1");
    check(vec![9, 0, 4, 5, 0, 0, 0, 0], "Close frame with 1029");
    let window = |increment| Control::Window {
        stream: 1,
        increment,
    };
    check(control(&window(0)), "raised by 0");
    check(control(&window(MAX_WINDOW)), "raised by");
    check(control(&Control::Consumed { stream: 1 }), "after its end");
    check(control(&Control::Blocked { stream: 3 }), "never opened");
    check(
        control(&Control::Reset {
            stream: 3,
            code: ErrorCode(1),
        }),
        "never opened",
    );
    let settings = Settings {
        window: 1,
        streams: 1,
    };
    check(control(&Control::Settings(settings)), "second settings");
}

#[test]
fn late_frames_for_a_closed_stream_are_ignored() {
    let mut mux = Mux::new(Side::Acceptor, config(100, 2));
    receive(&mut mux, &data(1, b"12345", false)).unwrap();
    let key = mux.accept().unwrap();
    mux.drop_sender(key);
    mux.drop_receiver(key);
    let code = ErrorCode(1);
    for late in [
        data(1, &[0; 1000], true),
        control(&Control::Reset { stream: 1, code }),
        control(&Control::Stop { stream: 1, code }),
        control(&Control::Consumed { stream: 1 }),
        control(&Control::Blocked { stream: 1 }),
        control(&Control::Window {
            stream: 1,
            increment: MAX_WINDOW,
        }),
    ] {
        receive(&mut mux, &late).unwrap();
    }
    assert_eq!(mux.counters().streams_open, 0);
}

#[test]
fn a_peer_that_opens_and_resets_without_reading_is_held_to_its_limit() {
    let mut mux = Mux::new(Side::Acceptor, config(WINDOW, 100));
    let mut stream = 1;
    let violation = loop {
        let reset = Control::Reset {
            stream,
            code: ErrorCode(1),
        };
        let wire = [data(stream, b"x", false), control(&reset)].concat();
        if let Err(violation) = receive(&mut mux, &wire) {
            break violation;
        }
        let key = mux.accept().unwrap();
        mux.drop_sender(key);
        mux.drop_receiver(key);
        mux.events().for_each(drop);
        stream += 2;
    };
    assert!(matches!(violation, Violation::StreamLimit { .. }));
    assert_eq!(stream, 201);
    assert_eq!(mux.slots.len(), 1, "places are used again");
    assert!(mux.control.len() <= 300);
}

#[test]
fn pings_are_answered_once_however_many_come() {
    let mut mux = Mux::new(Side::Acceptor, config(WINDOW, 100));
    for token in 0..100_000 {
        mux.receive(Piece::Control(Control::Ping { token }))
            .unwrap();
    }
    assert_eq!(
        transmit(&mut mux, 1 << 16),
        control(&Control::Pong { token: 99_999 })
    );
}

#[test]
fn higher_priority_goes_first_and_equals_take_turns() {
    let mut mux = Mux::new(Side::Dialler, config(1 << 20, 10));
    let keys: Vec<Key> = (0..3).map(|_| mux.open().unwrap()).collect();
    for key in &keys {
        write(&mut mux, *key, &[0; 100_000]);
    }
    let call = mux.open().unwrap();
    mux.set_priority(call, 1);
    write(&mut mux, call, b"call");
    let order: Vec<u32> = pieces(&transmit(&mut mux, 250_000), usize::MAX)
        .unwrap()
        .iter()
        .filter_map(|piece| match piece {
            Piece::Begin { stream, .. } => Some(*stream),
            _ => None,
        })
        .collect();
    // Numbers are given in the order of the first frames.
    assert_eq!(order[..7], [1, 3, 5, 7, 3, 5, 7]);
}

#[test]
fn an_unread_stream_stalls_no_other() {
    let mut pair = Pair::new(config(WINDOW, 10));
    let stalled = pair.dialler.open().unwrap();
    let live = pair.dialler.open().unwrap();
    write(&mut pair.dialler, stalled, &[1; 120_000]);
    pair.settle();
    let mut carried = 0;
    for _ in 0..100 {
        write(&mut pair.dialler, live, &[2; 10_000]);
        pair.settle();
        while let Some(key) = pair.acceptor.accept() {
            if pair.acceptor.ids.get(&3) == Some(&key) {
                carried = 0;
            }
        }
        let key = pair.acceptor.ids[&3];
        carried += read_all(&mut pair.acceptor, key).0.len();
    }
    assert_eq!(carried, 1_000_000);
}

#[test]
fn a_number_that_runs_out_ends_the_opening_of_streams() {
    let mut mux = Mux::new(Side::Dialler, config(WINDOW, u32::MAX));
    mux.local.announced = machine::MAX_STREAMS - 1;
    let key = mux.open().unwrap();
    write(&mut mux, key, b"x");
    transmit(&mut mux, 1 << 16);
    assert_eq!(
        mux.slots[key.index()].as_ref().unwrap().id,
        Some(u32::MAX - 4)
    );
    assert_eq!(mux.open(), Err(OpenError::Exhausted));
}
