use super::{handler::MAX_CHAIN, *};

#[test]
fn texts_of_a_peer_are_cut_and_escaped() {
    let error = RpcError::Handler(HandlerError {
        kind: "x".repeat(1_000_000),
        message: "\x1b[31mred\n".to_owned(),
        retryable: true,
        chain: vec!["\0".to_owned(); 100],
    })
    .sanitized();
    let RpcError::Handler(error) = error else {
        panic!("kept its kind");
    };
    assert_eq!(error.kind.len(), MAX_TEXT_BYTES);
    assert_eq!(error.message, "\\u{1b}[31mred\\n");
    assert_eq!(error.chain.len(), MAX_CHAIN);
    assert_eq!(error.chain[0], "\\u{0}");
    assert!(error.retryable);
}

#[test]
fn kind_and_retryability_survive_being_passed_on() {
    let inner = RpcError::TimedOut {
        method: "JobMaster.cancel".to_owned(),
        address: "thalweg:///jobmaster_0".to_owned(),
        after: Duration::from_secs(1),
        caller: None,
    };
    let first = HandlerError::from(inner.clone());
    let second = HandlerError::from(RpcError::from(first.clone()));
    assert_eq!(first, second);
    assert_eq!(second.kind, inner.kind());
    assert!(second.retryable);
}

#[derive(Debug, ThisError)]
#[error("cannot store partition {partition}")]
struct StoreError {
    partition: u32,
    source: std::io::Error,
}

#[derive(Debug, ThisError)]
#[error("cannot deploy")]
struct DeployError(#[source] RpcError);

#[test]
fn sources_of_an_error_are_kept() {
    let error = StoreError {
        partition: 7,
        source: std::io::Error::other("disk full"),
    };
    let error = HandlerError::from_error("blob.write", &error);
    assert_eq!(error.to_string(), "cannot store partition 7: disk full");
    assert_eq!(error.kind, "blob.write");
    assert_eq!(error.chain, ["disk full"]);
    assert!(!error.retryable);
}

#[test]
fn a_failed_call_among_the_sources_gives_its_own_sources_and_chance_of_a_retry() {
    let inner = HandlerError::new("slot.busy", "slot 3 is taken")
        .context("cannot give a slot")
        .retryable();
    let error = DeployError(RpcError::Handler(inner));
    let error = HandlerError::from_error("deploy", &error);
    assert_eq!(error.message, "cannot deploy");
    assert_eq!(error.chain, ["cannot give a slot", "slot 3 is taken"]);
    assert!(error.retryable);
    let lost = RpcError::Connection {
        address: "thalweg:///x".to_owned(),
        message: "reset".to_owned(),
        retryable: true,
    };
    let error = HandlerError::from_error("deploy", &DeployError(lost));
    assert_eq!(error.chain, ["connection to thalweg:///x failed: reset"]);
    assert!(error.retryable);
}

#[test]
fn context_keeps_kind_chance_of_a_retry_and_the_way_to_the_root() {
    let mut error = RpcError::EndpointNotStarted {
        address: "thalweg:///a".to_owned(),
    }
    .context("1");
    for depth in 2..=40 {
        error = RpcError::Handler(error).context(depth.to_string());
    }
    assert_eq!(error.kind, "rpc.endpoint_not_started");
    assert!(error.retryable);
    assert_eq!(error.message, "40");
    assert_eq!(error.chain.len(), MAX_CHAIN);
    assert_eq!(error.chain[0], "39");
    assert_eq!(
        error.chain[MAX_CHAIN - 1],
        "endpoint thalweg:///a is not started"
    );
}

/// A value of each variant, with its bytes.
fn golden() -> Vec<(RpcError, &'static [u8])> {
    let text = |text: &str| text.to_owned();
    let token = |value| Some(FencingToken::from_u128(value));
    vec![
        (
            RpcError::Connection {
                address: text("a"),
                message: text("mm"),
                retryable: true,
            },
            b"\x00\x01a\x02mm\x01",
        ),
        (
            RpcError::Handshake {
                address: text("a"),
                reason: text("r"),
            },
            b"\x01\x01a\x01r",
        ),
        (
            RpcError::RecipientUnreachable {
                address: text("a"),
                reason: text("r"),
            },
            b"\x02\x01a\x01r",
        ),
        (
            RpcError::EndpointNotStarted { address: text("a") },
            b"\x03\x01a",
        ),
        (
            RpcError::Fenced {
                expected: token(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10),
                got: None,
            },
            b"\x04\x01\x10\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10\x00",
        ),
        (
            RpcError::NotAuthorized {
                method: text("G.m"),
                role: text("r"),
            },
            b"\x05\x03G.m\x01r",
        ),
        (
            RpcError::UnknownMethod {
                gateway: text("G"),
                method: text("m"),
            },
            b"\x06\x01G\x01m",
        ),
        (
            RpcError::TooLarge {
                what: text("w"),
                size: 300,
                limit: 127,
            },
            b"\x07\x01w\xac\x02\x7f",
        ),
        (
            RpcError::Decode {
                what: text("w"),
                reason: text("r"),
            },
            b"\x08\x01w\x01r",
        ),
        (
            RpcError::TimedOut {
                method: text("G.m"),
                address: text("a"),
                after: Duration::new(10, 5),
                caller: Some(text("c")),
            },
            b"\x09\x03G.m\x01a\x0a\x05\x01\x01c",
        ),
        (
            RpcError::Overloaded {
                what: text("w"),
                limit: 128,
            },
            b"\x0a\x01w\x80\x01",
        ),
        (
            RpcError::Handler(HandlerError {
                kind: text("k"),
                message: text("m"),
                retryable: true,
                chain: vec![text("c"), text("d")],
            }),
            b"\x0b\x01k\x01m\x01\x02\x01c\x01d",
        ),
        (RpcError::Stopped { node: text("n") }, b"\x0c\x01n"),
        (
            RpcError::WrongThread {
                endpoint: text("e"),
            },
            b"\x0d\x01e",
        ),
    ]
}

#[test]
fn the_bytes_of_every_error_are_these() {
    for (number, (error, bytes)) in golden().into_iter().enumerate() {
        assert_eq!(usize::from(bytes[0]), number, "{error:?}");
        assert_eq!(postcard::to_allocvec(&error).unwrap(), bytes, "{error:?}");
        assert_eq!(postcard::from_bytes::<RpcError>(bytes).unwrap(), error);
    }
    // The next number is free: a variant more belongs into the table.
    let next = [u8::try_from(golden().len()).unwrap(), 0, 0, 0];
    assert!(postcard::from_bytes::<RpcError>(&next).is_err());
}
