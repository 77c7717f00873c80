//! Peers that break the rules.

use bytes::{Bytes, BytesMut};
use thalweg_transport::{
    ConnectionId, ErrorCode, Lease, PeerStream, RecvStream, SendStream, StreamError, StreamKind,
};

use super::{
    super::wire::{CallContext, Decoder, Frame, Head, encode_hello},
    *,
};

/// A gateway stream that a test writes by hand.
pub(super) struct Raw {
    stream: PeerStream,
    decoder: Decoder,
    _lease: Lease,
}

impl Raw {
    async fn open(attacker: &Node, service: &RpcService) -> Self {
        let lease = attacker
            .acquire(ConnectionId::to_address(service.address().unwrap()))
            .await
            .unwrap();
        let stream = lease.open(StreamKind::RPC).await.unwrap();
        Self {
            stream,
            decoder: Decoder::new(1 << 20),
            _lease: lease,
        }
    }

    async fn greeted(attacker: &Node, service: &RpcService, max_frame: u32) -> Self {
        Self::at(attacker, service, ("Counter", "counter"), max_frame).await
    }

    /// A stream to a gateway of an endpoint, after the handshake.
    pub(super) async fn at(
        attacker: &Node,
        service: &RpcService,
        (gateway, endpoint): (&str, &str),
        max_frame: u32,
    ) -> Self {
        let mut raw = Self::open(attacker, service).await;
        let hello = Head::Hello {
            lowest: 1,
            highest: 1,
            max_frame,
        };
        raw.send(hello, &encode_hello(gateway, endpoint)).await;
        let frame = raw.frame().await.unwrap();
        assert!(matches!(frame.head, Head::Welcome { version: 1, .. }));
        raw
    }

    pub(super) async fn send(&mut self, head: Head, body: &[u8]) {
        let mut bytes = BytesMut::new();
        head.encode(u32::try_from(body.len()).unwrap(), &mut bytes);
        bytes.extend_from_slice(body);
        self.send_bytes(bytes.freeze()).await;
    }

    async fn send_bytes(&mut self, bytes: Bytes) {
        // The peer may have given up already; what it says is read afterwards.
        let _ = self.stream.send.write(&mut [bytes]).await;
    }

    pub(super) async fn frame(&mut self) -> Result<Frame, StreamError> {
        tokio::time::timeout(Duration::from_secs(60), async {
            loop {
                if let Some(frame) = self.decoder.next_frame().unwrap() {
                    return Ok(frame);
                }
                let bytes = self.stream.recv.read(1 << 16).await?;
                self.decoder.push(&bytes.expect("the peer does not finish"));
            }
        })
        .await
        .unwrap()
    }

    pub(super) async fn error(&mut self) -> RpcError {
        let frame = self.frame().await.unwrap();
        assert!(matches!(frame.head, Head::Error { .. } | Head::Refuse));
        postcard::from_bytes(&frame.body).unwrap()
    }

    async fn reset_code(&mut self) -> ErrorCode {
        match self.frame().await {
            Err(StreamError::Reset { code }) => code,
            Err(other) => panic!("{other}"),
            Ok(frame) => panic!("{:?}", frame.head),
        }
    }
}

fn method(name: &str) -> u32 {
    CounterClient::METHODS
        .iter()
        .find(|method| method.name == name)
        .unwrap()
        .id
}

fn request(call: u64, name: &str) -> Head {
    Head::Request {
        call,
        method: method(name),
        context: CallContext::default(),
        deadline_ms: 0,
    }
}

async fn target(config: RpcConfig) -> (Node, RpcService, EndpointHandle<Counter>) {
    let network = MemNetwork::with_window(64 * 1024);
    let attacker = node(&network, "attacker", None).await;
    let service = on(&node(&network, "callee", None).await, config);
    let endpoint = counter(&service, "counter");
    (attacker, service, endpoint)
}

#[tokio::test(start_paused = true)]
async fn another_protocol_version_is_refused_in_words() {
    let (attacker, service, _endpoint) = target(RpcConfig::default()).await;
    let mut raw = Raw::open(&attacker, &service).await;
    let hello = Head::Hello {
        lowest: 2,
        highest: 9,
        max_frame: 1024,
    };
    raw.send(hello, &encode_hello("Counter", "counter")).await;
    let error = raw.error().await;
    assert!(
        error.to_string().contains("no common protocol version"),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_stream_without_a_hello_is_reset() {
    let (attacker, service, _endpoint) = target(RpcConfig::default()).await;
    let mut raw = Raw::open(&attacker, &service).await;
    raw.send_bytes(Bytes::from_static(b"GET / HTTP/1.1\r\n"))
        .await;
    assert_eq!(raw.reset_code().await, ErrorCode::STREAM_PROTOCOL);
    let mut raw = Raw::open(&attacker, &service).await;
    raw.send(request(1, "add"), &[1]).await;
    assert_eq!(raw.reset_code().await, ErrorCode::STREAM_PROTOCOL);
    let mut silent = Raw::open(&attacker, &service).await;
    silent.send_bytes(Bytes::from_static(&[1])).await;
    assert_eq!(silent.reset_code().await, ErrorCode::TIMED_OUT);
}

#[tokio::test(start_paused = true)]
async fn a_bad_frame_resets_the_stream_also_if_it_comes_with_the_hello() {
    let (attacker, service, _endpoint) = target(RpcConfig::default()).await;
    let mut raw = Raw::open(&attacker, &service).await;
    let hello = Head::Hello {
        lowest: 1,
        highest: 1,
        max_frame: 1024,
    };
    let body = encode_hello("Counter", "counter");
    let mut both = BytesMut::new();
    hello.encode(u32::try_from(body.len()).unwrap(), &mut both);
    both.extend_from_slice(&body);
    both.extend_from_slice(&[0; 4]);
    raw.send_bytes(both.freeze()).await;
    // The welcome may come before it.
    let code = match raw.frame().await {
        Ok(_) => raw.reset_code().await,
        Err(StreamError::Reset { code }) => code,
        Err(other) => panic!("{other}"),
    };
    assert_eq!(code, ErrorCode::STREAM_PROTOCOL);
}

#[tokio::test(start_paused = true)]
async fn more_small_requests_than_go_at_once_are_all_answered_in_order() {
    let (attacker, service, _endpoint) = target(RpcConfig::default()).await;
    let mut raw = Raw::greeted(&attacker, &service, 1 << 20).await;
    let mut all = BytesMut::new();
    for call in 0..1000 {
        request(call, "add").encode(1, &mut all);
        all.extend_from_slice(&[1]);
    }
    raw.send_bytes(all.freeze()).await;
    for call in 0..1000 {
        assert_eq!(raw.frame().await.unwrap().head, Head::Answer { call });
    }
}

#[tokio::test(start_paused = true)]
async fn a_frame_over_the_limit_resets_the_stream_before_its_body_comes() {
    let (attacker, service, endpoint) = target(RpcConfig::default()).await;
    let mut raw = Raw::greeted(&attacker, &service, 1 << 20).await;
    let mut head = BytesMut::new();
    request(1, "add").encode(u32::MAX, &mut head);
    raw.send_bytes(head.freeze()).await;
    assert_eq!(raw.reset_code().await, ErrorCode::STREAM_PROTOCOL);
    assert_eq!(endpoint.gateway::<CounterClient>().add(1).await, Ok(1));
}

#[tokio::test(start_paused = true)]
async fn unknown_methods_and_bad_bodies_are_answered_and_the_stream_goes_on() {
    let (attacker, service, _endpoint) = target(RpcConfig::default()).await;
    let mut raw = Raw::greeted(&attacker, &service, 1 << 20).await;
    let unknown = Head::Request {
        call: 1,
        method: 0xdead_beef,
        context: CallContext::default(),
        deadline_ms: 0,
    };
    raw.send(unknown, &[]).await;
    assert!(matches!(raw.error().await, RpcError::UnknownMethod { .. }));
    let huge = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f];
    let bad: [(&str, &[u8]); 5] = [
        ("echo", &huge),
        ("echo", &[200]),
        ("add", &[]),
        ("add", &[1, 2]),
        ("fail", &[2]),
    ];
    for (call, (name, body)) in bad.into_iter().enumerate() {
        raw.send(request(10 + call as u64, name), body).await;
        let error = raw.error().await;
        assert!(
            matches!(error, RpcError::Decode { .. }),
            "{name} {body:?}: {error}"
        );
    }
    raw.send(request(2, "add"), &[5]).await;
    let frame = raw.frame().await.unwrap();
    assert_eq!(
        (frame.head, &frame.body[..]),
        (Head::Answer { call: 2 }, &[5][..])
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_number_that_is_under_way_resets_the_stream() {
    let (attacker, service, _endpoint) = target(RpcConfig::default()).await;
    let mut raw = Raw::greeted(&attacker, &service, 1 << 20).await;
    raw.send(request(7, "wait"), &[]).await;
    raw.send(request(7, "wait"), &[]).await;
    assert_eq!(raw.reset_code().await, ErrorCode::STREAM_PROTOCOL);
}

#[tokio::test(start_paused = true)]
async fn a_callers_deadline_ends_the_work_at_the_callee() {
    let (attacker, service, endpoint) = target(RpcConfig::default()).await;
    let mut raw = Raw::greeted(&attacker, &service, 1 << 20).await;
    let head = Head::Request {
        call: 1,
        method: method("wait"),
        context: CallContext::default(),
        deadline_ms: 200,
    };
    raw.send(head, &[]).await;
    let own: CounterClient = endpoint.gateway();
    settle().await;
    assert_eq!(own.waiting().await, Ok(1));
    let error = raw.error().await;
    assert!(matches!(error, RpcError::TimedOut { .. }), "{error}");
    assert_eq!(own.waiting().await, Ok(0));
    let longest = Head::Request {
        call: 2,
        method: method("add"),
        context: CallContext::default(),
        deadline_ms: u32::MAX,
    };
    raw.send(longest, &[1]).await;
    assert!(matches!(
        raw.frame().await.unwrap().head,
        Head::Answer { call: 2 }
    ));
}

#[tokio::test(start_paused = true)]
async fn calls_over_the_callees_bounds_are_refused_at_once() {
    let (attacker, service, endpoint) = target(RpcConfig {
        max_pending_calls: 2,
        ..RpcConfig::default()
    })
    .await;
    let mut raw = Raw::greeted(&attacker, &service, 1 << 20).await;
    // The bound is per peer: another stream does not help.
    let mut other = Raw::greeted(&attacker, &service, 1 << 20).await;
    raw.send(request(1, "wait"), &[]).await;
    other.send(request(1, "wait"), &[]).await;
    settle().await;
    raw.send(request(2, "wait"), &[]).await;
    assert!(matches!(
        raw.error().await,
        RpcError::Overloaded { limit: 2, .. }
    ));
    assert_eq!(service.stats().overloaded, 1);
    drop((raw, other));
    settle().await;
    assert_eq!(endpoint.gateway::<CounterClient>().waiting().await, Ok(0));
    assert_eq!(service.incoming_budget("attacker").calls(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_never_reads_its_answers_is_cut_off() {
    let (attacker, service, endpoint) = target(RpcConfig {
        max_frame_size: 100_000,
        max_pending_bytes: 300_000,
        ..RpcConfig::default()
    })
    .await;
    let mut raw = Raw::greeted(&attacker, &service, 1 << 20).await;
    let body = postcard::to_stdvec(&(90_000u32, false)).unwrap();
    for call in 0..8000 {
        // A few answers fill what may wait; then it is the errors that nobody reads.
        if call < 8 {
            raw.send(request(call, "bytes"), &body).await;
        } else {
            raw.send(request(call, "nothing"), &[]).await;
        }
        if call % 100 == 0 {
            settle().await;
        }
    }
    // What was buffered on the way is lost with the reset.
    assert_eq!(raw.reset_code().await, ErrorCode::LIMIT_EXCEEDED);
    assert_eq!(service.incoming_budget("attacker").calls(), 0);
    assert_eq!(endpoint.gateway::<CounterClient>().add(1).await, Ok(1));
}

#[tokio::test(start_paused = true)]
async fn frames_that_never_become_whole_are_bounded_per_peer() {
    let (attacker, service, endpoint) = target(RpcConfig {
        max_frame_size: 100_000,
        max_pending_bytes: 100_000,
        ..RpcConfig::default()
    })
    .await;
    let mut raws = Vec::new();
    for _ in 0..3 {
        let mut raw = Raw::greeted(&attacker, &service, 1 << 20).await;
        let mut head = BytesMut::new();
        request(1, "add").encode(90_000, &mut head);
        head.resize(80_000, 0);
        raw.send_bytes(head.freeze()).await;
        settle().await;
        raws.push(raw);
    }
    assert_eq!(raws[2].reset_code().await, ErrorCode::LIMIT_EXCEEDED);
    assert_eq!(endpoint.gateway::<CounterClient>().add(1).await, Ok(1));
    // The first is still served, and what the third held is free again.
    raws[0]
        .send_bytes(Bytes::from(vec![0; 90_000 + 24 - 80_000]))
        .await;
    assert!(matches!(raws[0].error().await, RpcError::Decode { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_reads_slowly_loses_answers_but_not_its_stream() {
    let (attacker, service, _endpoint) = target(RpcConfig {
        max_frame_size: 100_000,
        max_pending_bytes: 300_000,
        ..RpcConfig::default()
    })
    .await;
    let mut raw = Raw::greeted(&attacker, &service, 1 << 20).await;
    let body = postcard::to_stdvec(&(90_000u32, false)).unwrap();
    for call in 0..20 {
        raw.send(request(call, "bytes"), &body).await;
        settle().await;
    }
    let mut refused = 0;
    for _ in 0..20 {
        let frame = raw.frame().await.unwrap();
        if let Head::Error { .. } = frame.head {
            let error: RpcError = postcard::from_bytes(&frame.body).unwrap();
            assert!(matches!(error, RpcError::Overloaded { .. }), "{error}");
            refused += 1;
        }
    }
    assert!((10..20).contains(&refused), "{refused}");
    raw.send(request(99, "add"), &[1]).await;
    let frame = raw.frame().await.unwrap();
    assert_eq!(frame.head, Head::Answer { call: 99 });
}

#[tokio::test(start_paused = true)]
async fn tells_that_are_refused_are_counted_and_nothing_else() {
    let (attacker, service, _endpoint) = target(RpcConfig::default()).await;
    let mut raw = Raw::greeted(&attacker, &service, 1 << 20).await;
    for id in [0, method("bump")] {
        let tell = Head::Tell {
            method: id,
            context: CallContext::default(),
        };
        raw.send(tell, &[]).await;
    }
    // A call that answers may be told; its answer goes nowhere. A tell that is asked is an error.
    let told = Head::Tell {
        method: method("add"),
        context: CallContext::default(),
    };
    raw.send(told, &[4]).await;
    raw.send(request(1, "bump"), &[1]).await;
    assert!(matches!(raw.error().await, RpcError::Decode { .. }));
    raw.send(Head::Cancel { call: 99 }, &[]).await;
    raw.send(request(2, "add"), &[0]).await;
    assert_eq!(&raw.frame().await.unwrap().body[..], [4]);
    assert_eq!(service.stats().dropped_tells, 2);
}
