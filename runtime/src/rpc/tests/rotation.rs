//! Clients whose connection becomes too old under them.

mod failures;

use std::{
    future::{Future, poll_fn},
    task::Poll,
};

use thalweg_certs::Role;
use thalweg_transport::now;
use tokio::task::JoinSet;

use super::{
    networks::{Backend, Cluster, soon},
    *,
};

/// Writes down what reaches it.
#[gateway(name = "Journal", callers = ["taskmanager"])]
trait JournalGateway {
    /// Notes the number.
    async fn ask(&self, number: u64) -> u64;
    /// Notes the number.
    fn tell(&self, number: u64);
    /// Answers when `release` is called.
    #[rpc(timeout = "never")]
    async fn hold(&self) -> u64;
    /// Answers those that are held.
    async fn release(&self);
    /// How many are held and not given up.
    async fn held(&self) -> u64;
    /// Everything noted so far.
    async fn entries(&self) -> Vec<u64>;
}

#[derive(Debug, Default)]
struct Journal {
    entries: Vec<u64>,
    held: Vec<Reply<u64>>,
}

impl Endpoint for Journal {}

impl JournalGateway for Journal {
    fn ask(&mut self, _cx: &mut Context<Self>, number: u64) -> Answer<u64> {
        self.entries.push(number);
        Answer::ok(number)
    }

    fn tell(&mut self, _cx: &mut Context<Self>, number: u64) {
        self.entries.push(number);
    }

    fn hold(&mut self, _cx: &mut Context<Self>) -> Answer<u64> {
        let (reply, answer) = Answer::deferred();
        self.held.push(reply);
        answer
    }

    fn release(&mut self, _cx: &mut Context<Self>) -> Answer<()> {
        for reply in self.held.drain(..) {
            reply.send(Ok(7));
        }
        Answer::ok(())
    }

    fn held(&mut self, _cx: &mut Context<Self>) -> Answer<u64> {
        let held = self.held.iter().filter(|reply| !reply.is_cancelled());
        Answer::ok(held.count() as u64)
    }

    fn entries(&mut self, _cx: &mut Context<Self>) -> Answer<Vec<u64>> {
        Answer::ok(self.entries.clone())
    }
}

fn journal(service: &RpcService) -> EndpointHandle<Journal> {
    serve::<JournalClient, _>(service, "journal", Journal::default())
}

fn with_age(max_connection_age: Duration) -> TransportConfig {
    let mut config = TransportConfig::default();
    config.max_connection_age = max_connection_age;
    config
}

/// Sends a call without waiting for its answer.
async fn begin<T>(call: impl Future<Output = T> + Send + 'static, under_way: &mut JoinSet<T>)
where
    T: Send + 'static,
{
    let mut call = Box::pin(call);
    match poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx))).await {
        Poll::Ready(done) => drop(under_way.spawn(std::future::ready(done))),
        Poll::Pending => drop(under_way.spawn(call)),
    }
}

/// Calls and tells without a pause while connections come and go; every one arrives once and in its place.
async fn nothing_is_lost_doubled_or_reordered(
    caller: &RpcService,
    callee: &RpcService,
    step: Duration,
) {
    let endpoint = journal(callee);
    let client: JournalClient = soon(caller.connect(endpoint.address(), None))
        .await
        .unwrap();
    let mut under_way = JoinSet::new();
    let mut sent = 0;
    let mut moves = 0;
    while moves < 3 {
        for _ in 0..20 {
            begin(client.ask(sent), &mut under_way).await;
            client.tell(sent + 1).unwrap();
            client.tell(sent + 2).unwrap();
            sent += 3;
        }
        while under_way.len() > 100 {
            soon(under_way.join_next()).await.unwrap().unwrap().unwrap();
        }
        tokio::time::sleep(step).await;
        moves = caller.stats().gateways_moved;
    }
    while let Some(answer) = soon(under_way.join_next()).await {
        answer.unwrap().unwrap();
    }
    let entries = soon(client.entries()).await.unwrap();
    let wrong = entries.iter().zip(0..).find(|(entry, at)| *entry != at);
    assert_eq!(wrong, None);
    assert_eq!(entries.len() as u64, sent);
    assert_eq!(callee.stats().dropped_tells, 0);
}

async fn over(backend: Backend) {
    let cluster = Cluster::new(backend);
    let age = with_age(Duration::from_millis(800));
    let tm = cluster
        .node_with("tm", Role::TaskManager, age.clone())
        .await;
    let jm = cluster.node_with("jm", Role::JobManager, age).await;
    let (caller, callee) = (on(&tm, RpcConfig::default()), on(&jm, RpcConfig::default()));
    nothing_is_lost_doubled_or_reordered(&caller, &callee, Duration::from_millis(1)).await;
    soon(tm.shutdown(Duration::from_secs(5))).await.unwrap();
    soon(jm.shutdown(Duration::from_secs(5))).await.unwrap();
}

#[tokio::test]
async fn calls_in_flight_survive_a_rotation_over_plain_tcp() {
    over(Backend::Tcp).await;
}

#[tokio::test]
async fn calls_in_flight_survive_a_rotation_over_tcp_with_mutual_tls() {
    over(Backend::TcpTls).await;
}

#[tokio::test]
async fn calls_in_flight_survive_a_rotation_over_quic() {
    over(Backend::Quic).await;
}

const AGE: Duration = Duration::from_secs(1000);

struct Mem {
    nodes: [Node; 2],
    services: [RpcService; 2],
    client: JournalClient,
    _endpoint: EndpointHandle<Journal>,
}

/// Two nodes on the in-memory network.
async fn mem_nodes() -> [Node; 2] {
    let network = MemNetwork::new();
    let mut nodes = vec![];
    for name in ["caller", "callee"] {
        let transport = MemTransport::new(network.clone(), None);
        let node = Node::builder(id(name), with_age(AGE)).network(NetworkRuntime::Current);
        nodes.push(node.start(transport).await.unwrap());
    }
    nodes.try_into().unwrap()
}

/// They, and a client of the first one.
async fn mem() -> Mem {
    let nodes = mem_nodes().await;
    let services = [0, 1].map(|at| on(&nodes[at], RpcConfig::default()));
    let endpoint = journal(&services[1]);
    let client = services[0].connect(endpoint.address(), None).await.unwrap();
    Mem {
        nodes,
        services,
        client,
        _endpoint: endpoint,
    }
}

impl Mem {
    /// Waits until the client has moved so often.
    async fn moved(&self, times: u64) {
        while self.services[0].stats().gateways_moved < times {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    fn connections(&self) -> usize {
        self.nodes[0].snapshot().len()
    }
}

#[tokio::test(start_paused = true)]
async fn calls_in_flight_survive_a_rotation_in_memory() {
    let [caller, callee] = mem_nodes()
        .await
        .map(|node| on(&node, RpcConfig::default()));
    nothing_is_lost_doubled_or_reordered(&caller, &callee, AGE / 1000).await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_takes_long_is_answered_on_the_old_connection_and_delays_no_other() {
    let mem = mem().await;
    let held = tokio::spawn(mem.client.hold());
    settle().await;
    mem.moved(1).await;
    let begin = now();
    for number in 0..100 {
        assert_eq!(mem.client.ask(number).await, Ok(number));
    }
    assert!(now() - begin < Duration::from_secs(1));
    assert_eq!(mem.connections(), 2);
    mem.client.release().await.unwrap();
    assert_eq!(held.await.unwrap(), Ok(7));
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(mem.connections(), 1, "nothing keeps the old one");
    assert_eq!(mem.client.ask(100).await, Ok(100));
}

#[tokio::test(start_paused = true)]
async fn a_call_on_the_old_connection_can_be_given_up() {
    let mem = mem().await;
    let held = tokio::spawn(mem.client.hold());
    settle().await;
    mem.moved(1).await;
    assert_eq!(mem.client.held().await, Ok(1));
    held.abort();
    settle().await;
    assert_eq!(mem.client.held().await, Ok(0));
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(mem.connections(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_outlasts_the_old_connection_fails_alone() {
    let mem = mem().await;
    let held = tokio::spawn(mem.client.hold());
    let error = held.await.unwrap().unwrap_err();
    assert!(matches!(error, RpcError::Connection { .. }), "{error}");
    assert!(mem.client.closed().is_none());
    assert_eq!(mem.client.ask(1).await, Ok(1));
}

#[tokio::test(start_paused = true)]
async fn what_was_told_before_the_client_is_dropped_arrives_during_a_move_too() {
    let mem = mem().await;
    mem.moved(1).await;
    for number in 0..10 {
        mem.client.tell(number).unwrap();
    }
    let Mem {
        services, client, ..
    } = &mem;
    let again: JournalClient = services[0].connect(client.address(), None).await.unwrap();
    drop(mem.client);
    settle().await;
    assert_eq!(again.entries().await.unwrap(), (0..10).collect::<Vec<_>>());
}
