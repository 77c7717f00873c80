//! The endpoint that most tests call, and services on nodes.

use std::{path::PathBuf, sync::Arc, time::Duration};

use thalweg_runtime::rpc::{
    Answer, Context, Endpoint, EndpointHandle, HandlerError, Reply, RpcConfig, RpcService,
    ServedBy, gateway,
};
use thalweg_tests::{
    conformance::Backend,
    harness::{in_time, start_node},
};
use thalweg_transport::{Node, TransportConfig};

/// The gateway of most tests.
#[gateway(name = "Desk", callers = ["taskmanager"])]
pub(crate) trait DeskGateway {
    /// Twice the number.
    async fn double(&self, number: u64) -> u64;
    /// No value.
    async fn nothing(&self) -> Option<u32>;
    /// The very bytes that came.
    async fn raw(&self, bytes: Vec<u8>) -> Vec<u8>;
    /// Fails, now or later.
    async fn fail(&self, later: bool) -> u64;
    /// So many bytes, now or later.
    async fn bytes(&self, size: u32, later: bool) -> Vec<u8>;
    /// Never answers.
    async fn hang(&self);
    /// How long the path is; one that is no UTF-8 has no encoding.
    async fn measure(&self, path: PathBuf) -> u64;
    /// A path that is no UTF-8.
    async fn odd_path(&self) -> PathBuf;
    /// Notes the number.
    fn note(&self, number: u64);
    /// What was noted.
    async fn notes(&self) -> Vec<u64>;
}

/// Serves [`DeskGateway`].
#[derive(Debug, Default)]
pub(crate) struct Desk {
    notes: Vec<u64>,
    held: Vec<Reply<()>>,
}

impl Endpoint for Desk {}

impl DeskGateway for Desk {
    fn double(&mut self, _cx: &mut Context<Self>, number: u64) -> Answer<u64> {
        Answer::ok(2 * number)
    }

    fn nothing(&mut self, _cx: &mut Context<Self>) -> Answer<Option<u32>> {
        Answer::ok(None)
    }

    fn raw(&mut self, _cx: &mut Context<Self>, bytes: Vec<u8>) -> Answer<Vec<u8>> {
        Answer::ok(bytes)
    }

    fn fail(&mut self, _cx: &mut Context<Self>, later: bool) -> Answer<u64> {
        let error = HandlerError::new("desk.closed", "come back later").retryable();
        now_or(later, Err(error))
    }

    fn bytes(&mut self, _cx: &mut Context<Self>, size: u32, later: bool) -> Answer<Vec<u8>> {
        now_or(later, Ok(vec![7; size as usize]))
    }

    fn hang(&mut self, _cx: &mut Context<Self>) -> Answer<()> {
        let (reply, answer) = Answer::deferred();
        self.held.push(reply);
        answer
    }

    fn measure(&mut self, _cx: &mut Context<Self>, path: PathBuf) -> Answer<u64> {
        Answer::ok(path.as_os_str().len() as u64)
    }

    fn odd_path(&mut self, _cx: &mut Context<Self>) -> Answer<PathBuf> {
        Answer::ok(odd_path())
    }

    fn note(&mut self, _cx: &mut Context<Self>, number: u64) {
        self.notes.push(number);
    }

    fn notes(&mut self, _cx: &mut Context<Self>) -> Answer<Vec<u64>> {
        Answer::ok(self.notes.clone())
    }
}

fn now_or<T: Send + 'static>(later: bool, result: Result<T, HandlerError>) -> Answer<T> {
    if !later {
        return result.into();
    }
    Answer::future(async move {
        tokio::task::yield_now().await;
        result
    })
}

/// Four bytes, one of which is no UTF-8.
pub(crate) fn odd_path() -> PathBuf {
    use std::os::unix::ffi::OsStringExt as _;
    PathBuf::from(std::ffi::OsString::from_vec(vec![b'/', b'a', 0xff, b'b']))
}

/// A service on a node of its own.
pub(crate) async fn service<B: Backend>(backend: &B, name: &str) -> (RpcService, Node) {
    service_with(backend, name, RpcConfig::default()).await
}

/// The same with settings.
pub(crate) async fn service_with<B: Backend>(
    backend: &B,
    name: &str,
    config: RpcConfig,
) -> (RpcService, Node) {
    let node = start_node(backend, name, &TransportConfig::default()).await;
    (on(&node, config), node)
}

/// A service on this node.
pub(crate) fn on(node: &Node, config: RpcConfig) -> RpcService {
    RpcService::builder(thalweg_transport::Connections::id(node).clone())
        .config(config)
        .connections(Arc::new(node.clone()))
        .build()
        .unwrap()
}

/// Settings with frames of at most 1 KiB.
pub(crate) fn small_frames() -> RpcConfig {
    let mut config = RpcConfig::default();
    config.max_frame_size = 1024;
    config
}

/// Starts an endpoint that serves one gateway.
pub(crate) fn serve<G: ServedBy<E>, E: Endpoint>(
    service: &RpcService,
    name: &str,
    state: E,
) -> EndpointHandle<E> {
    let endpoint = service.endpoint(name, state).serve::<G>().spawn().unwrap();
    endpoint.start();
    endpoint
}

pub(crate) fn desk(service: &RpcService, name: &str) -> EndpointHandle<Desk> {
    serve::<DeskClient, _>(service, name, Desk::default())
}

/// A desk, a client of it on another node, and what keeps both alive.
pub(crate) struct Pair {
    pub(crate) client: DeskClient,
    pub(crate) desk: EndpointHandle<Desk>,
    pub(crate) caller: RpcService,
    pub(crate) callee: RpcService,
    pub(crate) nodes: [Node; 2],
}

impl Pair {
    pub(crate) async fn new<B: Backend>(backend: &B) -> Self {
        Self::with(backend, RpcConfig::default()).await
    }

    pub(crate) async fn with<B: Backend>(backend: &B, config: RpcConfig) -> Self {
        let (caller, here) = service_with(backend, "caller", config.clone()).await;
        let (callee, there) = service_with(backend, "callee", config).await;
        let desk = desk(&callee, "desk");
        let client = in_time("connect", caller.connect(desk.address(), None)).await;
        Self {
            client: client.unwrap(),
            desk,
            caller,
            callee,
            nodes: [here, there],
        }
    }
}

/// Time for what takes no time on an idle machine.
pub(crate) const CLOSE: Duration = Duration::from_secs(20);
