//! Spans go on where calls lead.

use ::opentelemetry::trace::{SpanId, TracerProvider};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use tracing::{Instrument, info_span, subscriber::DefaultGuard};
use tracing_subscriber::layer::SubscriberExt;

use super::*;

#[gateway(name = "Traced", callers = ["*"])]
trait TracedGateway {
    /// Makes a span while the call is handled.
    async fn now(&self);
    /// Makes a span in the future that answers.
    async fn later(&self);
    /// Calls `now` of the next endpoint.
    async fn relay(&self);
    /// Makes a span for nobody who waits.
    fn note(&self);
}

struct Traced {
    next: Option<TracedClient>,
}

impl Endpoint for Traced {}

impl TracedGateway for Traced {
    fn now(&mut self, _cx: &mut Context<Self>) -> Answer<()> {
        info_span!("now").in_scope(|| Answer::ok(()))
    }

    fn later(&mut self, _cx: &mut Context<Self>) -> Answer<()> {
        Answer::future(async {
            tokio::task::yield_now().await;
            info_span!("later").in_scope(|| Ok(()))
        })
    }

    fn relay(&mut self, _cx: &mut Context<Self>) -> Answer<()> {
        let next = self.next.as_ref().unwrap().now();
        Answer::future(async move { Ok(next.await?) })
    }

    fn note(&mut self, _cx: &mut Context<Self>) {
        info_span!("note").in_scope(|| ());
    }
}

/// Spans that have ended on this thread.
struct Recorded {
    provider: SdkTracerProvider,
    exporter: InMemorySpanExporter,
    _subscriber: DefaultGuard,
}

impl Recorded {
    fn new() -> Self {
        let exporter = InMemorySpanExporter::default();
        let provider = SdkTracerProvider::builder()
            .with_simple_exporter(exporter.clone())
            .build();
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
        let subscriber = tracing_subscriber::registry().with(layer);
        Self {
            provider,
            exporter,
            _subscriber: tracing::subscriber::set_default(subscriber),
        }
    }

    fn spans(&self) -> Vec<SpanData> {
        self.provider.force_flush().unwrap();
        self.exporter.get_finished_spans().unwrap()
    }
}

/// A caller's service, and two endpoints at another node of which the first knows the second; all traced.
async fn traced() -> (RpcService, RpcService, TracedClient) {
    let network = MemNetwork::new();
    let mut services = Vec::new();
    for name in ["caller", "callee"] {
        let node = node(&network, name, None).await;
        let service = RpcService::builder(node.id().clone())
            .connections(Arc::new(node))
            .tracer(Arc::new(OpenTelemetry))
            .build()
            .unwrap();
        services.push(service);
    }
    let (callee, caller) = (services.pop().unwrap(), services.pop().unwrap());
    serve::<TracedClient, _>(&callee, "last", Traced { next: None });
    let last = RpcAddress::remote(None, &callee.address().unwrap(), "last").unwrap();
    // Back over the network: the second hop is remote, too.
    let next = caller.connect(&last, None).await.unwrap();
    serve::<TracedClient, _>(&callee, "first", Traced { next: Some(next) });
    let first = RpcAddress::remote(None, &callee.address().unwrap(), "first").unwrap();
    let client = caller.connect(&first, None).await.unwrap();
    (caller, callee, client)
}

/// The names from a span up to its trace's root.
fn path(spans: &[SpanData], leaf: &str) -> Vec<String> {
    let mut path = Vec::new();
    let mut span = spans.iter().find(|span| span.name == leaf);
    while let Some(found) = span {
        path.push(found.name.to_string());
        span = spans
            .iter()
            .find(|above| above.span_context.span_id() == found.parent_span_id);
        let is_root = found.parent_span_id == SpanId::INVALID;
        assert!(
            is_root || span.is_some(),
            "{} has a lost parent",
            found.name
        );
    }
    path
}

fn one_trace(spans: &[SpanData]) -> bool {
    let first = spans[0].span_context.trace_id();
    spans
        .iter()
        .all(|span| span.span_context.trace_id() == first)
}

#[tokio::test(start_paused = true)]
async fn a_span_of_the_caller_goes_on_in_the_endpoint_that_it_calls() {
    let recorded = Recorded::new();
    let (_caller, _callee, client) = traced().await;
    async {
        client.now().await.unwrap();
        client.later().await.unwrap();
        client.note().unwrap();
        settle().await;
    }
    .instrument(info_span!("work"))
    .await;
    let spans = recorded.spans();
    assert!(one_trace(&spans), "{spans:?}");
    assert_eq!(
        path(&spans, "now"),
        ["now", "rpc.serve", "rpc.call", "work"]
    );
    assert_eq!(
        path(&spans, "later"),
        ["later", "rpc.serve", "rpc.call", "work"]
    );
    // Nothing waits for a told message, so it has no span of its own at the caller.
    assert_eq!(path(&spans, "note"), ["note", "rpc.serve", "work"]);
    let call = spans.iter().find(|span| span.name == "rpc.call").unwrap();
    let has = |key: &str, value: &str| {
        call.attributes
            .iter()
            .any(|found| found.key.as_str() == key && found.value.as_str() == value)
    };
    assert!(has("rpc.service", "Traced") && has("rpc.method", "now"));
}

#[tokio::test(start_paused = true)]
async fn a_trace_goes_through_an_endpoint_that_calls_another() {
    let recorded = Recorded::new();
    let (_caller, _callee, client) = traced().await;
    let call = client.relay();
    async { call.await.unwrap() }
        .instrument(info_span!("work"))
        .await;
    let spans = recorded.spans();
    assert_eq!(
        path(&spans, "now"),
        ["now", "rpc.serve", "rpc.call", "rpc.serve", "rpc.call"]
    );
}

#[tokio::test(start_paused = true)]
async fn calls_within_a_service_are_traced_too() {
    let recorded = Recorded::new();
    let service = RpcService::builder(id("node-1"))
        .tracer(Arc::new(OpenTelemetry))
        .build()
        .unwrap();
    let endpoint = serve::<TracedClient, _>(&service, "near", Traced { next: None });
    let client: TracedClient = endpoint.gateway();
    async { client.now().await.unwrap() }
        .instrument(info_span!("work"))
        .await;
    let spans = recorded.spans();
    assert_eq!(
        path(&spans, "now"),
        ["now", "rpc.serve", "rpc.call", "work"]
    );
}

#[tokio::test(start_paused = true)]
async fn without_a_tracer_calls_make_no_spans() {
    let recorded = Recorded::new();
    let (caller, callee) = pair(RpcConfig::default()).await;
    serve::<TracedClient, _>(&callee, "plain", Traced { next: None });
    let plain = RpcAddress::remote(None, &callee.address().unwrap(), "plain").unwrap();
    let client: TracedClient = caller.connect(&plain, None).await.unwrap();
    client.now().await.unwrap();
    let names: Vec<_> = recorded
        .spans()
        .iter()
        .map(|span| span.name.to_string())
        .collect();
    assert_eq!(names, ["now"]);
}
