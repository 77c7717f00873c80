use proptest::prelude::*;

use super::*;

fn hello() -> Hello {
    Hello {
        versions: Versions::SUPPORTED,
        features: 0b101,
        buffer_size: 32 * 1024,
        max_frame: 1 << 20,
        id: ResourceId::new("tm-1").unwrap(),
        cluster: Some("prod".into()),
    }
}

/// The bytes of a hello, changed.
fn changed(change: impl FnOnce(&mut Vec<u8>)) -> Result<Option<(Hello, usize)>, HelloError> {
    let mut bytes = hello().encode().unwrap().to_vec();
    change(&mut bytes);
    Hello::decode(&bytes)
}

#[test]
fn the_layout_is_fixed() {
    let bytes = hello().encode().unwrap();
    assert_eq!(&bytes[..8], b"THLW\x01\x01\x00\x1a");
    assert_eq!(&bytes[8..16], &[0, 0, 0, 0, 0, 0, 0, 5]);
    assert_eq!(&bytes[16..24], &[0, 0, 0x80, 0, 0, 0x10, 0, 0]);
    assert_eq!(&bytes[24..], b"\x04tm-1\x04prod");
}

#[test]
fn wrong_magic_is_refused_at_its_first_wrong_byte() {
    assert_eq!(Hello::decode(b"G"), Err(HelloError::BadMagic));
    assert_eq!(Hello::decode(b"THLX"), Err(HelloError::BadMagic));
    assert_eq!(HelloError::BadMagic.code(), ErrorCode::PROTOCOL);
}

#[test]
fn versions_without_overlap_are_a_mismatch_before_the_body_is_read() {
    for (min, max) in [(0, 0), (255, 255), (2, 9), (3, 1)] {
        let error = changed(|bytes| {
            bytes[4] = min;
            bytes[5] = max;
            bytes.truncate(8);
        })
        .unwrap_err();
        assert_eq!(error.code(), ErrorCode::VERSION_MISMATCH, "{min} {max}");
    }
}

#[test]
fn a_newer_minor_version_negotiates_down_and_its_additions_are_skipped() {
    let (newer, used) = changed(|bytes| {
        bytes[5] = 200;
        bytes[7] += 3;
        bytes.extend([7, 8, 9]);
    })
    .unwrap()
    .unwrap();
    assert_eq!(used, 8 + 0x1a + 3);
    assert_eq!(hello().agree(&newer).unwrap().version, 1);
}

#[test]
fn features_are_the_common_ones_and_limits_are_the_peers() {
    let other = Hello {
        features: 0b110,
        buffer_size: 4096,
        max_frame: 8192,
        cluster: None,
        ..hello()
    };
    let agreement = hello().agree(&other).unwrap();
    assert_eq!(agreement.features, 0b100);
    assert_eq!(agreement.peer_buffer_size, 4096);
    assert_eq!(agreement.peer_max_frame, 8192);
}

#[test]
fn another_cluster_is_refused() {
    let other = Hello {
        cluster: Some("test".into()),
        ..hello()
    };
    let error = hello().agree(&other).unwrap_err();
    assert_eq!(error.code(), ErrorCode::WRONG_CLUSTER);
}

#[test]
fn bad_fields_have_their_own_errors() {
    let too_long = changed(|bytes| bytes[6] = 0xff).unwrap_err();
    assert!(matches!(too_long, HelloError::TooLong { .. }));
    assert_eq!(changed(|b| b[7] = 5), Err(HelloError::Truncated));
    assert_eq!(changed(|b| b[24] = 255), Err(HelloError::Truncated));
    assert_eq!(changed(|b| b[24] = 0), Err(HelloError::ResourceId));
    assert_eq!(changed(|b| b[25] = b'/'), Err(HelloError::ResourceId));
    assert_eq!(changed(|b| b[25] = 0xff), Err(HelloError::ResourceId));
    assert_eq!(changed(|b| b[30] = b'\n'), Err(HelloError::Cluster));
    let limits = changed(|b| b[16..20].fill(0)).unwrap_err();
    assert!(matches!(limits, HelloError::Limits { .. }));
    let bad = Hello {
        cluster: Some("a b".into()),
        ..hello()
    };
    assert_eq!(bad.encode(), Err(HelloError::Cluster));
}

proptest! {
    #[test]
    fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..2048)) {
        let _ = Hello::decode(&bytes);
        let mut behind_a_good_head = b"THLW\x01\x01\x01\x00".to_vec();
        behind_a_good_head.extend(bytes);
        let _ = Hello::decode(&behind_a_good_head);
    }

    #[test]
    fn any_hello_comes_back_however_it_is_cut(
        features: u64, buffer_size in 1..u32::MAX, more: u32,
        id in "[A-Za-z0-9._-]{1,128}", cluster in proptest::option::of("[A-Za-z0-9._-]{1,128}"),
    ) {
        let hello = Hello {
            versions: Versions::SUPPORTED,
            features,
            buffer_size,
            max_frame: buffer_size.saturating_add(more),
            id: ResourceId::new(&id).unwrap(),
            cluster: cluster.map(Into::into),
        };
        let bytes = hello.encode().unwrap();
        prop_assert!(bytes.len() <= MAX_HELLO_BYTES);
        for cut in 0..bytes.len() {
            prop_assert_eq!(Hello::decode(&bytes[..cut]), Ok(None));
        }
        prop_assert_eq!(Hello::decode(&bytes), Ok(Some((hello, bytes.len()))));
    }
}
