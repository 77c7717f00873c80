use proptest::prelude::*;

use super::*;

fn frames() -> impl Strategy<Value = Frame> {
    prop_oneof![
        (any::<u32>(), any::<u32>()).prop_map(|(initial_credit, buffer_size)| Frame::Request {
            initial_credit,
            buffer_size
        }),
        (1u32..).prop_map(|credit| Frame::AddCredit { credit }),
        Just(Frame::ResumeConsumption),
        Just(Frame::AllRecordsAcknowledged),
        (1u32..).prop_map(|bytes| Frame::NewBufferSize { bytes }),
        (0u32..=65_536).prop_map(|length| Frame::TaskEvent { length }),
        (any::<u32>(), any::<u32>(), any::<u32>()).prop_map(|(length, sequence, backlog)| {
            Frame::Buffer {
                data_type: DataType::Data,
                length,
                sequence,
                backlog,
            }
        }),
        (0u32..65_536, any::<u32>()).prop_map(|(length, sequence)| Frame::Buffer {
            data_type: DataType::EndOfPartition,
            length,
            sequence,
            backlog: 0,
        }),
        (0u32..65_536, any::<u32>()).prop_map(|(length, sequence)| Frame::CompressedBuffer {
            length,
            sequence,
            backlog: 3,
        }),
        any::<u32>().prop_map(|backlog| Frame::BacklogAnnouncement { backlog }),
        Just(Frame::Opened),
        (0u32..1024).prop_map(|length| Frame::Error {
            kind: ErrorKind::ProducerFailed,
            length
        }),
    ]
}

proptest! {
    #[test]
    fn any_split_of_the_input_gives_the_same_frames(
        sent in proptest::collection::vec(frames(), 1..20),
        cuts in proptest::collection::vec(1usize..40, 1..100),
    ) {
        let mut wire = BytesMut::new();
        for frame in &sent {
            frame.encode(&mut wire);
        }
        let mut wire = wire.freeze();
        let (mut decoder, mut got) = (HeaderDecoder::default(), Vec::new());
        let mut cuts = cuts.into_iter().cycle();
        while !wire.is_empty() {
            let mut piece = wire.split_to(cuts.next().unwrap().min(wire.len()));
            while !piece.is_empty() {
                got.extend(decoder.decode(&mut piece).unwrap());
            }
        }
        prop_assert!(decoder.is_empty());
        prop_assert_eq!(got, sent);
    }

    #[test]
    fn garbage_is_an_error_or_a_frame_within_its_limits(header: [u8; FRAME_HEADER_BYTES]) {
        match Frame::decode(&header) {
            Ok(Frame::Buffer { data_type, length, .. }) if !data_type.is_data() => {
                prop_assert!(length as usize <= MAX_EVENT_BYTES);
            }
            Ok(Frame::Error { length, .. }) => prop_assert!(length as usize <= MAX_ERROR_BYTES),
            Ok(Frame::AddCredit { credit }) => prop_assert!(credit > 0),
            Ok(Frame::NewBufferSize { bytes }) => prop_assert!(bytes > 0),
            Ok(Frame::TaskEvent { length }) => prop_assert!(length as usize <= MAX_EVENT_BYTES),
            Ok(_) | Err(_) => {}
        }
    }

    #[test]
    fn requests_survive_the_wire(
        dataset: u128, number: u32, subpartition: u32, credit: u32, size: u32, producer: u128, consumer: u128,
    ) {
        let request = PartitionRequest {
            partition: PartitionId { dataset, number },
            subpartition: SubpartitionIndex(subpartition),
            initial_credit: credit,
            buffer_size: size,
            producer: ExecutionAttemptId(producer),
            consumer: ExecutionAttemptId(consumer),
        };
        let mut wire = request.encode();
        let header = HeaderDecoder::default().decode(&mut wire).unwrap().unwrap();
        let Frame::Request { initial_credit, buffer_size } = header else { panic!("{header:?}") };
        let body = wire.as_ref().try_into().unwrap();
        prop_assert_eq!(PartitionRequest::decode(initial_credit, buffer_size, body), request);
    }
}

#[test]
fn a_buffer_header_has_these_bytes() {
    let header = Frame::Buffer {
        data_type: DataType::Data,
        length: 32_744,
        sequence: 5,
        backlog: 7,
    }
    .to_bytes();
    assert_eq!(
        header.as_ref(),
        [64, 1, 0, 0, 0, 0, 0x7f, 0xe8, 0, 0, 0, 5, 0, 0, 0, 7]
    );
}

#[test]
fn each_frame_of_a_consumer_has_these_bytes() {
    let expected = |kind: u8, length: u8, first: u8| {
        [kind, 0, 0, 0, 0, 0, 0, length, 0, 0, 0, first, 0, 0, 0, 0]
    };
    for (frame, bytes) in [
        (Frame::AddCredit { credit: 5 }, expected(2, 0, 5)),
        (Frame::ResumeConsumption, expected(3, 0, 0)),
        (Frame::AllRecordsAcknowledged, expected(4, 0, 0)),
        (Frame::NewBufferSize { bytes: 65 }, expected(5, 0, 65)),
        (Frame::TaskEvent { length: 9 }, expected(6, 9, 0)),
    ] {
        assert_eq!(frame.to_bytes().as_ref(), bytes, "{frame:?}");
    }
}

#[test]
fn a_requests_header_and_payload_agree() {
    let mut header = [0; FRAME_HEADER_BYTES];
    header[0] = KIND_REQUEST;
    header[4..8].copy_from_slice(&REQUEST_LENGTH.to_be_bytes());
    assert!(Frame::decode(&header).is_ok());
    assert_eq!(usize::try_from(REQUEST_LENGTH).unwrap(), REQUEST_BODY_BYTES);
}

#[test]
fn frames_that_cannot_be_right_are_refused() {
    let mut header = [0u8; FRAME_HEADER_BYTES];
    let mut check = |bytes: &[(usize, u8)], expected: FrameError| {
        header = [0u8; FRAME_HEADER_BYTES];
        for &(at, byte) in bytes {
            header[at] = byte;
        }
        assert_eq!(Frame::decode(&header), Err(expected));
    };
    check(&[(0, 9)], FrameError::Kind { kind: 9 });
    check(&[(0, KIND_ADD_CREDIT)], FrameError::ZeroCredit);
    check(&[(0, KIND_BUFFER_SIZE)], FrameError::ZeroBufferSize);
    for kind in [KIND_ACKNOWLEDGED, KIND_BUFFER_SIZE] {
        check(
            &[(0, kind), (7, 1), (11, 1)],
            FrameError::Length { kind, length: 1 },
        );
    }
    check(
        &[(0, KIND_TASK_EVENT), (5, 1), (7, 1)],
        FrameError::Length {
            kind: KIND_TASK_EVENT,
            length: 65_537,
        },
    );
    check(
        &[(0, KIND_RESUME), (7, 1)],
        FrameError::Length {
            kind: KIND_RESUME,
            length: 1,
        },
    );
    check(&[(0, KIND_BUFFER), (1, 7)], FrameError::DataType { tag: 7 });
    for (kind, tag, flags) in [(KIND_BUFFER, 1, 2), (KIND_BUFFER, 2, 1), (KIND_ERROR, 1, 1)] {
        let low = u8::try_from(flags).unwrap();
        check(
            &[(0, kind), (1, tag), (3, low)],
            FrameError::Flags { kind, flags },
        );
    }
    check(
        &[(0, KIND_BUFFER), (1, 2), (4, 1)],
        FrameError::Length {
            kind: KIND_BUFFER,
            length: 1 << 24,
        },
    );
}
