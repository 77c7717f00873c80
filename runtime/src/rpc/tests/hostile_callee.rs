//! Callees that break the rules: their callers fail with a named cause, at once, and the callers of others go on.

use bytes::BytesMut;
use thalweg_transport::{
    BoxFuture, BoxSendStream, PeerStream, RecvStream, SendStream, StreamHandler, StreamKind,
};

use super::{
    super::wire::{Decoder, Head},
    *,
};

/// What a callee says to a request with this number.
type Script = fn(u64) -> Vec<(Head, Vec<u8>)>;

/// Welcomes every caller, and then follows its script.
#[derive(Debug)]
struct Scripted(Script);

impl StreamHandler for Scripted {
    fn handle(&self, stream: PeerStream) -> BoxFuture<'static, ()> {
        let script = self.0;
        Box::pin(async move {
            let PeerStream {
                mut send, mut recv, ..
            } = stream;
            let mut decoder = Decoder::new(1 << 20);
            loop {
                while let Some(frame) = decoder.next_frame().unwrap() {
                    let said = match frame.head {
                        Head::Hello { .. } => {
                            let head = Head::Welcome {
                                version: 1,
                                max_frame: 1 << 20,
                            };
                            vec![(head, b"counter".to_vec())]
                        }
                        Head::Request { call, .. } => script(call),
                        _ => Vec::new(),
                    };
                    for (head, body) in said {
                        say(&mut send, head, &body).await;
                    }
                }
                match recv.read(1 << 16).await {
                    Ok(Some(bytes)) => decoder.push(&bytes),
                    _ => return,
                }
            }
        })
    }
}

async fn say(send: &mut BoxSendStream, head: Head, body: &[u8]) {
    let mut bytes = BytesMut::new();
    head.encode(u32::try_from(body.len()).unwrap(), &mut bytes);
    bytes.extend_from_slice(body);
    // The caller may have reset the stream already.
    let _ = send.write(&mut [bytes.freeze()]).await;
}

/// A caller with a client of a hostile callee, and one of an honest callee.
struct Callers {
    service: RpcService,
    hostile: CounterClient,
    honest: CounterClient,
    _nodes: (Node, RpcService),
}

impl Callers {
    async fn of(script: Script) -> Self {
        let network = MemNetwork::new();
        let caller = node(&network, "caller", None).await;
        let hostile = node(&network, "hostile", None).await;
        hostile.register(StreamKind::RPC, Arc::new(Scripted(script)));
        let honest = on(&node(&network, "honest", None).await, RpcConfig::default());
        counter(&honest, "counter");
        let service = on(&caller, RpcConfig::default());
        let client = async |host_port: &str| {
            let address = RpcAddress::remote(None, host_port, "counter").unwrap();
            service.connect(&address, None).await.unwrap()
        };
        Self {
            hostile: client(&hostile.advertised()).await,
            honest: client(&honest.address().unwrap()).await,
            service,
            _nodes: (hostile, honest),
        }
    }

    /// The honest callee is not touched by any of it.
    async fn others_go_on(&self) {
        let before = self.honest.add(0).await.unwrap();
        assert_eq!(self.honest.add(1).await, Ok(before + 1));
    }
}

fn answer(call: u64, value: u8) -> (Head, Vec<u8>) {
    (Head::Answer { call }, vec![value])
}

#[tokio::test(start_paused = true)]
async fn answers_that_come_twice_or_to_nobody_are_ignored_and_counted() {
    let callers = Callers::of(|call| {
        vec![
            answer(call + 1_000, 9),
            answer(call, 7),
            answer(call, 8),
            (Head::Error { call }, Vec::new()),
        ]
    })
    .await;
    assert_eq!(callers.hostile.add(1).await, Ok(7));
    assert_eq!(callers.hostile.add(1).await, Ok(7));
    settle().await;
    assert_eq!(callers.service.stats().late_answers, 6);
    callers.others_go_on().await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_cannot_be_decoded_fails_its_call_alone() {
    let callers = Callers::of(|call| match call {
        0 => vec![(Head::Answer { call }, vec![1, 2, 3])],
        1 => vec![(Head::Answer { call }, vec![0xff; 11])],
        2 => vec![(Head::Answer { call }, Vec::new())],
        3 => vec![(Head::Error { call }, vec![200])],
        _ => vec![answer(call, 5)],
    })
    .await;
    for bad in 0..4 {
        let error = callers.hostile.add(1).await.unwrap_err();
        assert!(matches!(error, RpcError::Decode { .. }), "{bad}: {error}");
    }
    assert_eq!(callers.hostile.add(1).await, Ok(5));
    callers.others_go_on().await;
}

#[tokio::test(start_paused = true)]
async fn a_frame_that_no_callee_may_send_ends_the_gateway_at_once() {
    let scripts: [Script; 4] = [
        |_| vec![(Head::Cancel { call: 0 }, Vec::new())],
        |_| {
            let head = Head::Welcome {
                version: 1,
                max_frame: 1,
            };
            vec![(head, b"again".to_vec())]
        },
        |_| vec![(Head::Drained, Vec::new())],
        // Longer than any error, whatever the limit of answers is.
        |call| vec![(Head::Error { call }, vec![0; 1 << 20])],
    ];
    for (at, script) in scripts.into_iter().enumerate() {
        let callers = Callers::of(script).await;
        let waiting = callers.hostile.wait();
        let (first, second) = tokio::join!(waiting, callers.hostile.add(1));
        for error in [first.unwrap_err(), second.unwrap_err()] {
            assert!(matches!(error, RpcError::Decode { .. }), "{at}: {error}");
        }
        assert!(callers.hostile.closed().is_some(), "{at}");
        callers.others_go_on().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_frame_that_no_callee_may_send_ends_the_gateway_also_if_it_comes_with_the_welcome() {
    let network = MemNetwork::new();
    let caller = node(&network, "caller", None).await;
    let hostile = node(&network, "hostile", None).await;
    hostile.register(StreamKind::RPC, Arc::new(WelcomesTwice));
    let service = on(&caller, RpcConfig::default());
    let address = RpcAddress::remote(None, &hostile.advertised(), "counter").unwrap();
    let client: CounterClient = service.connect(&address, None).await.unwrap();
    let end = tokio::time::timeout(Duration::from_secs(1), client.wait_closed());
    let error = end.await.unwrap();
    assert!(matches!(error, RpcError::Decode { .. }), "{error}");
}

/// Says welcome twice, in one write, and nothing more.
#[derive(Debug)]
struct WelcomesTwice;

impl StreamHandler for WelcomesTwice {
    fn handle(&self, mut stream: PeerStream) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let head = Head::Welcome {
                version: 1,
                max_frame: 1 << 20,
            };
            let mut both = BytesMut::new();
            for _ in 0..2 {
                head.encode(7, &mut both);
                both.extend_from_slice(b"counter");
            }
            stream.send.write(&mut [both.freeze()]).await.unwrap();
            std::future::pending().await
        })
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_over_the_callers_limit_ends_the_gateway_before_it_is_held() {
    let callers = Callers::of(|call| {
        let size = RpcConfig::default().max_frame_size as usize + 1;
        vec![(Head::Answer { call }, vec![0; size])]
    })
    .await;
    let error = callers.hostile.bytes(1, false).await.unwrap_err();
    assert!(error.to_string().contains("10485761 bytes"), "{error}");
    callers.others_go_on().await;
}

#[tokio::test(start_paused = true)]
async fn texts_of_a_callee_are_cut_and_safe_in_a_log() {
    let callers = Callers::of(|call| {
        let text = "\u{1b}[31mred\u{7}\n".repeat(8_000);
        let error = RpcError::Handler(HandlerError::new("k\u{0}", text));
        vec![(Head::Error { call }, postcard::to_stdvec(&error).unwrap())]
    })
    .await;
    let error = callers.hostile.add(1).await.unwrap_err();
    let text = error.to_string();
    assert!(text.len() <= 4096, "{}", text.len());
    assert!(!text.chars().any(char::is_control));
    assert!(
        text.starts_with("\\u{1b}[31mred\\u{7}\\n"),
        "{}",
        &text[..40]
    );
    assert_eq!(error.kind(), "k\\u{0}");
    callers.others_go_on().await;
}

#[tokio::test(start_paused = true)]
async fn a_callee_that_never_answers_costs_its_callers_their_deadline_only() {
    let callers = Callers::of(|_| Vec::new()).await;
    let quick = callers
        .hostile
        .with_deadline(Deadline::After(Duration::from_millis(50)));
    let error = quick.add(1).await.unwrap_err();
    assert!(matches!(error, RpcError::TimedOut { .. }), "{error}");
    callers.others_go_on().await;
}
