use super::*;

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

#[test]
fn sources_of_an_error_are_kept() {
    let io = std::io::Error::other("disk full");
    let error = HandlerError::from_error("blob.write", &io);
    assert_eq!(error.to_string(), "disk full");
    assert_eq!(error.kind, "blob.write");
}

#[test]
fn numbers_of_the_variants_on_the_wire_do_not_change() {
    let bytes = |error: &RpcError| postcard::to_allocvec(error).unwrap();
    let started = RpcError::EndpointNotStarted {
        address: "a".to_owned(),
    };
    assert_eq!(bytes(&started), [3, 1, b'a']);
    let handler = RpcError::Handler(HandlerError::new("k", "m").retryable());
    assert_eq!(bytes(&handler), [11, 1, b'k', 1, b'm', 1, 0]);
    let last = RpcError::WrongThread {
        endpoint: "e".to_owned(),
    };
    assert_eq!(bytes(&last), [13, 1, b'e']);
}
