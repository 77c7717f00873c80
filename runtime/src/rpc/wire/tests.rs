use proptest::{collection::vec, option, prelude::*};

use super::*;

fn bytes(head: Head, body: &[u8]) -> Vec<u8> {
    let mut out = BytesMut::new();
    head.encode(u32::try_from(body.len()).unwrap(), &mut out);
    out.extend_from_slice(body);
    out.to_vec()
}

#[test]
fn the_bytes_of_every_frame_are_these() {
    let token = Some(FencingToken::from_u128(
        0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f,
    ));
    let trace = TraceContext::new(0x10, 0x20, 1);
    let call = 0x0102_0304_0506_0708;
    let golden: [(Head, &[u8], &[u8]); 12] = [
        (
            Head::Hello {
                lowest: 1,
                highest: 2,
                max_frame: 0x00a0_0000,
            },
            &encode_hello("G", "end"),
            &[
                1, 1, 2, 0, 0, 0xa0, 0, 0, 0, 0, 0, 6, 1, b'G', 3, b'e', b'n', b'd',
            ],
        ),
        (
            Head::Welcome {
                version: 1,
                max_frame: 1024,
            },
            b"end",
            &[2, 1, 0, 0, 0, 0, 4, 0, 0, 0, 0, 3, b'e', b'n', b'd'],
        ),
        (Head::Refuse, &[9], &[3, 0, 0, 0, 0, 0, 0, 1, 9]),
        (
            Head::Request {
                call,
                method: 0xdead_beef,
                context: CallContext { token, trace: None },
                deadline_ms: 10_000,
            },
            &[7, 7],
            &[
                4, 1, 0, 0, 0xde, 0xad, 0xbe, 0xef, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0x27, 0x10, 0, 0,
                0, 2, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 7, 7,
            ],
        ),
        (
            Head::Tell {
                method: 1,
                context: CallContext::default(),
            },
            &[7],
            &[5, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 7],
        ),
        (
            Head::Tell {
                method: 1,
                context: CallContext { token: None, trace },
            },
            &[7],
            &[
                5, 2, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                0x10, 0, 0, 0, 0, 0, 0, 0, 0x20, 1, 7,
            ],
        ),
        (
            Head::Request {
                call,
                method: 1,
                context: CallContext { token, trace },
                deadline_ms: 0,
            },
            &[],
            &[
                4, 3, 0, 0, 0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3,
                4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
                0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0x20, 1,
            ],
        ),
        (
            Head::Answer { call },
            &[],
            &[6, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0],
        ),
        (
            Head::Error { call },
            &[1],
            &[7, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 1, 1],
        ),
        (
            Head::Cancel { call },
            &[],
            &[8, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8],
        ),
        (Head::Drain, &[], &[9, 0, 0, 0]),
        (Head::Drained, &[], &[10, 0, 0, 0]),
    ];
    for (head, body, expected) in golden {
        assert_eq!(bytes(head, body), expected, "{head:?}");
        let mut decoder = Decoder::new(1024);
        decoder.push(expected);
        let frame = decoder.next_frame().unwrap().unwrap();
        assert_eq!((frame.head, &frame.body[..]), (head, body));
        assert!(decoder.is_empty());
    }
}

#[test]
fn a_length_over_the_limit_is_refused_before_the_body_is_there() {
    for (kind, length_at) in [(4u8, 20), (5, 8), (6, 12), (7, 12), (1, 8), (2, 8), (3, 4)] {
        let mut head = vec![0; 24];
        head[0] = kind;
        head[length_at..length_at + 4].copy_from_slice(&u32::MAX.to_be_bytes());
        let mut decoder = Decoder::new(1024);
        decoder.push(&head);
        assert!(
            matches!(decoder.next_frame(), Err(WireError::TooLarge { size, .. }) if size == u32::MAX as usize),
            "kind {kind}"
        );
    }
}

#[test]
fn unknown_kinds_and_reserved_bits_are_refused() {
    let mut decoder = Decoder::new(1024);
    decoder.push(&[0]);
    assert_eq!(decoder.next_frame(), Err(WireError::UnknownKind(0)));
    for (head, reserved) in [([4u8, 4, 0, 0], 4u8), ([6, 0, 0, 1], 6), ([5, 0, 1, 0], 5)] {
        let mut decoder = Decoder::new(1024);
        decoder.push(&head);
        decoder.push(&[0; 20]);
        assert_eq!(decoder.next_frame(), Err(WireError::Reserved(reserved)));
    }
}

#[test]
fn malformed_hellos_are_refused() {
    for bad in [
        &b""[..],
        &[1],
        &[1, b'G'],
        &[1, b'G', 2, b'e'],
        &[0, 0, 0],
        &[1, 0xff, 0],
    ] {
        assert_eq!(decode_hello(bad), Err(WireError::BadHello), "{bad:?}");
    }
    assert_eq!(decode_hello(&encode_hello("G", "e_*")), Ok(("G", "e_*")));
}

#[test]
fn the_highest_common_version_is_spoken() {
    assert_eq!(common_version(1, 9), Some(1));
    assert_eq!(common_version(0, 1), Some(1));
    assert_eq!(common_version(2, 9), None);
    assert_eq!(common_version(0, 0), None);
    assert_eq!(common_version(9, 1), None);
}

fn heads() -> impl Strategy<Value = Head> {
    let token = || option::of(any::<u128>().prop_map(FencingToken::from_u128));
    let trace = || {
        let ids = (any::<u128>(), any::<u64>(), any::<u8>());
        option::of(ids).prop_map(|ids| {
            ids.and_then(|(trace, span, flags)| TraceContext::new(trace, span, flags))
        })
    };
    let context =
        move || (token(), trace()).prop_map(|(token, trace)| CallContext { token, trace });
    prop_oneof![
        (any::<u8>(), any::<u8>(), any::<u32>()).prop_map(|(lowest, highest, max_frame)| {
            Head::Hello {
                lowest,
                highest,
                max_frame,
            }
        }),
        (any::<u64>(), any::<u32>(), context(), any::<u32>()).prop_map(
            |(call, method, context, deadline_ms)| Head::Request {
                call,
                method,
                context,
                deadline_ms
            }
        ),
        (any::<u32>(), context()).prop_map(|(method, context)| Head::Tell { method, context }),
        any::<u64>().prop_map(|call| Head::Answer { call }),
        any::<u64>().prop_map(|call| Head::Error { call }),
    ]
}

#[test]
fn an_invalid_trace_counts_as_none_and_breaks_nothing() {
    let mut tell = vec![5, 2, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1];
    tell.extend_from_slice(&[0; TRACE_BYTES]);
    tell.push(7);
    let mut decoder = Decoder::new(1024);
    decoder.push(&tell);
    let frame = decoder.next_frame().unwrap().unwrap();
    let head = Head::Tell {
        method: 1,
        context: CallContext::default(),
    };
    assert_eq!((frame.head, &frame.body[..]), (head, &[7][..]));
}

proptest! {
    #[test]
    fn any_split_of_the_bytes_gives_the_same_frames(
        frames in vec((heads(), vec(any::<u8>(), 0..64)), 1..8),
        cuts in vec(1usize..40, 1..64),
    ) {
        let all: Vec<u8> = frames.iter().flat_map(|(head, body)| bytes(*head, body)).collect();
        let mut decoder = Decoder::new(64);
        let mut found = Vec::new();
        let mut rest = &all[..];
        for cut in cuts.into_iter().cycle() {
            let (now, later) = rest.split_at(cut.min(rest.len()));
            decoder.push(now);
            while let Some(frame) = decoder.next_frame().unwrap() {
                found.push((frame.head, frame.body.to_vec()));
            }
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        prop_assert_eq!(found, frames);
        prop_assert!(decoder.is_empty());
    }

    #[test]
    fn garbage_never_panics(garbage in vec(any::<u8>(), 0..256)) {
        let mut decoder = Decoder::new(64);
        decoder.push(&garbage);
        while let Ok(Some(_)) = decoder.next_frame() {}
        let _ = decode_hello(&garbage);
    }
}
