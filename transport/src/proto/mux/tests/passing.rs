//! Payload that goes past the queue.

use super::*;
use crate::error::ErrorCode;

/// Takes all that may pass and hands the rest to the machine, as the task that reads a connection does.
fn land(mux: &mut Mux, wire: &[u8], landed: &mut Vec<u8>) {
    let (mut decoder, mut rest) = (Decoder::new(), wire);
    while let Some(piece) = decoder.piece(&mut rest).unwrap() {
        match piece {
            Piece::Data { stream, bytes, end } if mux.may_pass(stream).is_some() => {
                let key = mux.may_pass(stream).unwrap();
                landed.extend_from_slice(bytes);
                assert!(mux.passed(Passing {
                    key,
                    stream,
                    length: bytes.len(),
                    end
                }));
            }
            piece => mux.receive(piece).unwrap(),
        }
    }
}

/// Both sides of a stream, its first byte read.
fn open(pair: &mut Pair) -> (Key, Key) {
    let near = pair.dialler.open().unwrap();
    write(&mut pair.dialler, near, b"!");
    pair.settle();
    let far = pair.acceptor.accept().unwrap();
    assert_eq!(read_all(&mut pair.acceptor, far), (b"!".to_vec(), false));
    (near, far)
}

#[test]
fn what_passes_counts_as_read_so_that_the_sender_never_stands_still() {
    let mut pair = Pair::new(config(WINDOW, 10));
    let (near, far) = open(&mut pair);
    let (mut sent, mut landed) = (Vec::new(), Vec::new());
    for part in 0..40_u8 {
        let bytes = vec![part; WINDOW as usize / 4];
        write(&mut pair.dialler, near, &bytes);
        sent.extend(bytes);
        let wire = transmit(&mut pair.dialler, 64 * 1024);
        land(&mut pair.acceptor, &wire, &mut landed);
        pair.carry(1, usize::MAX);
    }
    assert_eq!(landed, sent);
    assert_eq!(read_all(&mut pair.acceptor, far), (Vec::new(), false));
    let received = pair.acceptor.counters().bytes_received;
    assert_eq!(received, sent.len() as u64 + 1);
}

#[test]
fn nothing_passes_what_waits_in_the_queue() {
    let mut pair = Pair::new(config(WINDOW, 10));
    let (near, far) = open(&mut pair);
    let stream = 1;
    assert_eq!(pair.acceptor.may_pass(stream), Some(far));
    write(&mut pair.dialler, near, b"waits");
    pair.carry(0, usize::MAX);
    assert_eq!(pair.acceptor.may_pass(stream), None);
    read_all(&mut pair.acceptor, far);
    assert_eq!(pair.acceptor.may_pass(stream), Some(far));
    assert_eq!(pair.acceptor.may_pass(3), None, "there is no such stream");
}

#[test]
fn a_stream_that_nobody_has_accepted_has_no_place_to_land() {
    let mut mux = Mux::new(Side::Acceptor, config(WINDOW, 10));
    let wire = data(1, b"first", false);
    let (mut decoder, mut rest) = (Decoder::new(), &wire[..]);
    let begin = decoder.piece(&mut rest).unwrap().unwrap();
    mux.receive(begin).unwrap();
    assert_eq!(mux.may_pass(1), None);
}

#[test]
fn an_end_that_passed_is_read_as_the_end_and_told_to_the_sender() {
    let mut pair = Pair::new(config(WINDOW, 10));
    let (near, far) = open(&mut pair);
    write(&mut pair.dialler, near, b"last");
    pair.dialler.finish(near).unwrap();
    let wire = transmit(&mut pair.dialler, 64 * 1024);
    let mut landed = Vec::new();
    land(&mut pair.acceptor, &wire, &mut landed);
    assert_eq!(landed, b"last");
    let events: Vec<_> = pair.acceptor.events().collect();
    assert!(events.contains(&Event::Readable(far)), "{events:?}");
    assert_eq!(pair.acceptor.read(far, 10).unwrap(), Read::End);
    pair.settle();
    assert_eq!(pair.dialler.outcome(near).unwrap(), Some(None));
}

#[test]
fn a_stream_that_was_given_up_while_its_bytes_were_taken_changes_nothing() {
    let mut pair = Pair::new(config(WINDOW, 10));
    let (near, far) = open(&mut pair);
    write(&mut pair.dialler, near, b"under way");
    transmit(&mut pair.dialler, 64 * 1024);
    let passing = Passing {
        key: far,
        stream: 1,
        length: 9,
        end: true,
    };
    pair.acceptor.stop(far, ErrorCode::CANCELLED);
    assert!(!pair.acceptor.passed(passing));
    // The place of a forgotten stream goes to the next one.
    pair.acceptor.drop_sender(far);
    pair.acceptor.drop_receiver(far);
    let next = pair.acceptor.open().unwrap();
    assert_eq!(next, far);
    assert!(!pair.acceptor.passed(passing));
    assert_eq!(pair.acceptor.read(next, 10).unwrap(), Read::Blocked);
}
