//! Requests whose bodies or numbers are wrong: each gets its error, and neither its stream nor another peer's calls
//! suffer.

use serde::{Deserialize, Serialize};

use super::{hostile::Raw, *};
use crate::{
    ids::FencingToken,
    rpc::wire::{CallContext, Head},
};

#[derive(Debug, Serialize, Deserialize)]
enum Shape {
    Dot,
    Line(u32),
}

#[gateway(name = "Shapes", callers = ["*"], fenced)]
trait ShapesGateway {
    /// How many shapes there are then.
    async fn draw(&self, shape: Shape, filled: bool, label: String) -> u64;
    /// Never answers.
    async fn keep(&self, bytes: Vec<u8>);
    /// Their sum.
    async fn sum(&self, numbers: Vec<u64>) -> u64;
}

#[derive(Default)]
struct Shapes {
    drawn: u64,
    kept: Vec<Reply<()>>,
}

impl Endpoint for Shapes {}

impl ShapesGateway for Shapes {
    fn draw(
        &mut self,
        _cx: &mut Context<Self>,
        shape: Shape,
        _filled: bool,
        _label: String,
    ) -> Answer<u64> {
        self.drawn += match shape {
            Shape::Dot => 1,
            Shape::Line(dots) => u64::from(dots),
        };
        Answer::ok(self.drawn)
    }

    fn keep(&mut self, _cx: &mut Context<Self>, _bytes: Vec<u8>) -> Answer<()> {
        let (reply, answer) = Answer::deferred();
        self.kept.push(reply);
        answer
    }

    fn sum(&mut self, _cx: &mut Context<Self>, numbers: Vec<u64>) -> Answer<u64> {
        Answer::ok(numbers.iter().sum())
    }
}

fn token(number: u128) -> FencingToken {
    FencingToken::from_u128(number)
}

fn request(call: u64, method: &str, token: Option<FencingToken>) -> Head {
    let method = ShapesClient::METHODS
        .iter()
        .find(|known| known.name == method)
        .unwrap();
    Head::Request {
        call,
        method: method.id,
        context: CallContext { token, trace: None },
        deadline_ms: 0,
    }
}

/// An endpoint under leadership 2, an attacker's stream to it, and a client of a good peer.
struct Attacked {
    raw: Raw,
    good: ShapesClient,
    endpoint: EndpointHandle<Shapes>,
    _attacker: Node,
}

async fn attacked() -> Attacked {
    let network = MemNetwork::new();
    let attacker = node(&network, "attacker", None).await;
    let good = on(&node(&network, "good", None).await, RpcConfig::default());
    let config = RpcConfig {
        max_pending_bytes: PENDING_BYTES,
        max_frame_size: u32::try_from(LARGEST).unwrap(),
        ..RpcConfig::default()
    };
    let callee = on(&node(&network, "callee", None).await, config);
    let endpoint = callee
        .endpoint("shapes", Shapes::default())
        .serve::<ShapesClient>()
        .fencing_token(token(2))
        .spawn()
        .unwrap();
    endpoint.start();
    let raw = Raw::at(&attacker, &callee, ("Shapes", "shapes"), 1 << 20).await;
    let address = RpcAddress::remote(None, &callee.address().unwrap(), "shapes").unwrap();
    Attacked {
        raw,
        good: good.connect(&address, Some(token(2))).await.unwrap(),
        endpoint,
        _attacker: attacker,
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_breaks_the_encoding_is_a_decode_error_and_nothing_else() {
    let mut attacked = attacked().await;
    let (raw, good) = (&mut attacked.raw, &attacked.good);
    let two_to_63 = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01];
    let bodies: [(&str, &str, &[u8]); 9] = [
        ("sum", "a list of 2^63 numbers", &two_to_63),
        (
            "sum",
            "a number of eleven bytes",
            &[1, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1],
        ),
        ("sum", "a list that ends early", &[3, 1, 2]),
        ("sum", "bytes left over", &[1, 5, 5]),
        ("draw", "an unknown variant", &[2, 0, 0]),
        ("draw", "a bool of 2", &[0, 2, 0]),
        ("draw", "invalid UTF-8", &[0, 1, 2, 0xc3, 0x28]),
        (
            "draw",
            "a text of 2^63 bytes",
            &[&[0, 1][..], &two_to_63].concat(),
        ),
        ("draw", "nothing", &[]),
    ];
    for (call, (method, what, body)) in bodies.into_iter().enumerate() {
        raw.send(request(call as u64, method, Some(token(2))), body)
            .await;
        let error = raw.error().await;
        assert!(matches!(error, RpcError::Decode { .. }), "{what}: {error}");
        assert_eq!(good.sum(vec![1, 2]).await, Ok(3), "{what}");
    }
    raw.send(request(99, "draw", Some(token(2))), &[1, 4, 0, 0])
        .await;
    let frame = raw.frame().await.unwrap();
    assert_eq!(
        (frame.head, &frame.body[..]),
        (Head::Answer { call: 99 }, &[4][..])
    );
}

#[tokio::test(start_paused = true)]
async fn a_wrong_token_changes_nothing() {
    let mut attacked = attacked().await;
    let (raw, good) = (&mut attacked.raw, &attacked.good);
    for (call, stale) in [None, Some(token(0)), Some(token(1)), Some(token(3))]
        .into_iter()
        .enumerate()
    {
        raw.send(request(call as u64, "draw", stale), &[1, 9, 0, 0])
            .await;
        let error = raw.error().await;
        let expected = RpcError::Fenced {
            expected: Some(token(2)),
            got: stale,
        };
        assert_eq!(error, expected);
    }
    assert_eq!(good.draw(Shape::Dot, true, String::new()).await, Ok(1));
    // A new leadership fences off the one before it, also on streams that are open.
    attacked
        .endpoint
        .main_thread()
        .run_async(|_, cx| cx.set_fencing_token(Some(token(3))))
        .unwrap();
    let error = good
        .draw(Shape::Dot, true, String::new())
        .await
        .unwrap_err();
    assert!(matches!(error, RpcError::Fenced { .. }), "{error}");
    raw.send(request(10, "draw", Some(token(3))), &[0, 0, 0])
        .await;
    assert_eq!(&raw.frame().await.unwrap().body[..], [2]);
}

#[tokio::test(start_paused = true)]
async fn a_method_of_another_gateway_is_unknown_here() {
    let mut attacked = attacked().await;
    let (raw, good) = (&mut attacked.raw, &attacked.good);
    for (call, foreign) in CounterClient::METHODS.iter().enumerate() {
        let head = Head::Request {
            call: call as u64,
            method: foreign.id,
            context: CallContext::default(),
            deadline_ms: 0,
        };
        raw.send(head, &[]).await;
        let error = raw.error().await;
        assert!(matches!(error, RpcError::UnknownMethod { .. }), "{error}");
    }
    assert_eq!(good.sum(vec![]).await, Ok(0));
}

#[tokio::test(start_paused = true)]
async fn the_largest_requests_are_refused_beyond_the_bound_while_others_are_served() {
    let mut attacked = attacked().await;
    let (raw, good) = (&mut attacked.raw, &attacked.good);
    let mut body = vec![0xff, 0x3f];
    body.resize(LARGEST, 0);
    let mut refused = 0;
    for call in 0..1_000 {
        raw.send(request(call, "keep", Some(token(2))), &body).await;
        // A call that is kept is not answered, one that is refused is answered before the next.
        raw.send(request(1_000 + call, "sum", Some(token(2))), &[0])
            .await;
        let frame = raw.frame().await.unwrap();
        if let Head::Error { call: answered } = frame.head {
            assert_eq!(answered, call);
            let error: RpcError = postcard::from_bytes(&frame.body).unwrap();
            assert!(matches!(error, RpcError::Overloaded { .. }), "{error}");
            refused += 1;
            assert!(matches!(
                raw.frame().await.unwrap().head,
                Head::Error { .. } | Head::Answer { .. }
            ));
        }
    }
    assert_eq!(1_000 - refused, PENDING_BYTES / LARGEST as u64);
    assert_eq!(good.sum(vec![1, 2]).await, Ok(3));
}

/// A list of 8,191 bytes behind its length.
const LARGEST: usize = 2 + 8_191;

const PENDING_BYTES: u64 = 256 * 1024;
