//! Bytes and frames.

use proptest::prelude::*;

use super::*;
use crate::error::ErrorCode;

#[test]
fn frames_have_these_bytes() {
    assert_eq!(
        data(7, b"ab", true),
        [1, 0, 0, 2, 0, 0, 0, 7, b'a', b'b'],
        "kind, 24-bit length, stream id, payload"
    );
    assert_eq!(
        control(&Control::Window {
            stream: 0x0102_0304,
            increment: 5
        }),
        [4, 0, 0, 4, 1, 2, 3, 4, 0, 0, 0, 5]
    );
    assert_eq!(
        control(&Control::Close {
            code: ErrorCode(258),
            reason: Bytes::from_static(b"x")
        }),
        [9, 0, 0, 5, 0, 0, 0, 0, 0, 0, 1, 2, b'x']
    );
    assert_eq!(
        control(&Control::Settings(Settings {
            window: 1,
            streams: 2
        })),
        [10, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2]
    );
}

fn any_control() -> impl Strategy<Value = Control> {
    let stream = 1..u32::MAX;
    prop_oneof![
        (stream.clone(), any::<u32>()).prop_map(|(stream, code)| Control::Reset {
            stream,
            code: ErrorCode(code)
        }),
        (stream.clone(), any::<u32>()).prop_map(|(stream, code)| Control::Stop {
            stream,
            code: ErrorCode(code)
        }),
        (stream.clone(), 1..=MAX_WINDOW)
            .prop_map(|(stream, increment)| Control::Window { stream, increment }),
        stream.prop_map(|stream| Control::Consumed { stream }),
        any::<u32>().prop_map(|count| Control::MaxStreams { count }),
        any::<u64>().prop_map(|token| Control::Ping { token }),
        any::<u64>().prop_map(|token| Control::Pong { token }),
        (any::<u32>(), prop::collection::vec(any::<u8>(), 0..1024)).prop_map(|(code, reason)| {
            Control::Close {
                code: ErrorCode(code),
                reason: reason.into(),
            }
        }),
        (0..=MAX_WINDOW, any::<u32>())
            .prop_map(|(window, streams)| Control::Settings(Settings { window, streams })),
    ]
}

proptest! {
    #[test]
    fn any_portions_give_the_same_frames(
        controls in prop::collection::vec(any_control(), 1..8),
        payload in prop::collection::vec(any::<u8>(), 1..200),
        fin: bool,
        portion in 1usize..64,
    ) {
        let mut wire = data(9, &payload, fin);
        for one in &controls {
            wire.extend(control(one));
        }
        wire.extend(data(11, b"", true));
        let whole = pieces(&wire, usize::MAX).unwrap();
        prop_assert_eq!(
            whole.iter().filter_map(|piece| match piece {
                Piece::Control(control) => Some(control.clone()),
                _ => None,
            }).collect::<Vec<_>>(),
            controls
        );
        prop_assert_eq!(joined(pieces(&wire, portion).unwrap()), joined(whole));
    }

    #[test]
    fn garbage_is_an_error_or_nothing(wire in prop::collection::vec(any::<u8>(), 0..300), portion in 1usize..40) {
        let mut mux = Mux::new(Side::Acceptor, config(WINDOW, 4));
        if let Ok(pieces) = pieces(&wire, portion) {
            for piece in pieces {
                if mux.receive(piece).is_err() {
                    break;
                }
            }
        }
    }

    #[test]
    fn plausible_garbage_is_an_error_or_nothing(
        frames in prop::collection::vec((0u8..11, 0u8..12, 0u8..8, any::<u8>()), 0..60),
        portion in 1usize..40,
    ) {
        let mut wire = Vec::new();
        for (kind, length, stream, fill) in frames {
            wire.extend([kind, 0, 0, length, 0, 0, 0, stream]);
            wire.extend(vec![fill; length.into()]);
        }
        let mut mux = Mux::new(Side::Acceptor, config(WINDOW, 4));
        let mut decoder = Decoder::new();
        'all: for mut part in wire.chunks(portion) {
            loop {
                match decoder.piece(&mut part) {
                    Ok(Some(piece)) => if mux.receive(piece).is_err() { break 'all },
                    Ok(None) => break,
                    Err(_) => break 'all,
                }
            }
            while let Some(key) = mux.accept() {
                let _ = mux.write(key, &mut [Bytes::from_static(b"answer")]);
                mux.drop_sender(key);
                let _ = mux.read(key, 10);
                mux.drop_receiver(key);
            }
            transmit(&mut mux, 1 << 16);
        }
    }
}
