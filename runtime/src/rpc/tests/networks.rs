//! Calls between real nodes: TCP and QUIC, each node with its own network thread.

use std::future::Future;

use thalweg_certs::{CertificateAuthority, Identity, IssueRequest, Role};
use thalweg_transport::{quic::QuicTransport, tcp::TcpTransport};

use super::*;
use crate::NodeSecurity;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Backend {
    Tcp,
    TcpTls,
    Quic,
}

pub(crate) struct Cluster {
    backend: Backend,
    authority: CertificateAuthority,
}

impl Cluster {
    pub(crate) fn new(backend: Backend) -> Self {
        Self {
            backend,
            authority: CertificateAuthority::generate("test", 1).unwrap(),
        }
    }

    async fn node(&self, name: &str, role: Role) -> Node {
        self.node_with(name, role, TransportConfig::default()).await
    }

    pub(crate) async fn node_with(&self, name: &str, role: Role, config: TransportConfig) -> Node {
        let identity = Identity::new("test", role, name).unwrap();
        let certificate = self.authority.issue(&IssueRequest::new(identity)).unwrap();
        let security = Arc::new(NodeSecurity::new(certificate.credentials().unwrap()));
        let builder = Node::builder(id(name), config.clone());
        let node = match self.backend {
            Backend::Tcp => builder.start(TcpTransport::new(&config, None)).await,
            Backend::TcpTls => {
                let transport = TcpTransport::new(&config, Some(security));
                builder.start(transport).await
            }
            Backend::Quic => {
                let transport = QuicTransport::new(&config, security).unwrap();
                builder.start(transport).await
            }
        };
        node.unwrap()
    }
}

/// No wait of these tests may last longer.
pub(crate) async fn soon<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(30), future)
        .await
        .expect("within 30 s")
}

async fn calls_work_over(backend: Backend) {
    let cluster = Cluster::new(backend);
    let tm = cluster.node("tm", Role::TaskManager).await;
    let jm = cluster.node("jm", Role::JobManager).await;
    let config = RpcConfig {
        max_frame_size: 4 << 20,
        ..RpcConfig::default()
    };
    let (caller, callee) = (on(&tm, config.clone()), on(&jm, config));
    let endpoint = counter(&callee, "counter");
    let client: CounterClient = soon(caller.connect(endpoint.address(), None))
        .await
        .unwrap();

    let calls: Vec<_> = (0..200).map(|_| tokio::spawn(client.add(1))).collect();
    for _ in 0..100 {
        client.bump(1).unwrap();
    }
    for call in calls {
        soon(call).await.unwrap().unwrap();
    }
    assert_eq!(soon(client.add(0)).await, Ok(300));
    assert_eq!(soon(client.caller()).await.unwrap(), "tm");
    let value = Arc::new(vec![9; 3 << 20]);
    assert_eq!(soon(client.echo(Arc::clone(&value))).await.unwrap(), value);
    let error = soon(client.bytes(5 << 20, true)).await.unwrap_err();
    assert!(matches!(error, RpcError::TooLarge { .. }), "{error}");

    let reset = soon(client.reset()).await;
    if matches!(backend, Backend::Tcp) {
        assert_eq!(reset, Ok(()), "without TLS no role is proved");
    } else {
        let role = "taskmanager".to_owned();
        let method = "Counter.reset".to_owned();
        assert_eq!(reset, Err(RpcError::NotAuthorized { method, role }));
    }

    let abandoned = tokio::spawn(client.wait());
    let seen = async {
        while client.waiting().await.unwrap() == 0 {
            tokio::task::yield_now().await;
        }
    };
    soon(seen).await;
    abandoned.abort();
    let gone = async {
        while client.waiting().await.unwrap() > 0 {
            tokio::task::yield_now().await;
        }
    };
    soon(gone).await;

    // The peer restarts in the middle of a call.
    let held = tokio::spawn(client.with_deadline(Deadline::Never).wait());
    soon(async {
        while client.waiting().await.unwrap() == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    soon(jm.shutdown(Duration::from_secs(5))).await.unwrap();
    let error = soon(held).await.unwrap().unwrap_err();
    assert!(matches!(error, RpcError::Connection { .. }), "{error}");
    let jm = cluster.node("jm", Role::JobManager).await;
    let callee = on(&jm, RpcConfig::default());
    let endpoint = counter(&callee, "counter");
    let client: CounterClient = soon(caller.connect(endpoint.address(), None))
        .await
        .unwrap();
    assert_eq!(soon(client.add(1)).await, Ok(1));

    soon(caller.close(Duration::from_secs(5))).await.unwrap();
    soon(callee.close(Duration::from_secs(5))).await.unwrap();
    soon(tm.shutdown(Duration::from_secs(5))).await.unwrap();
    soon(jm.shutdown(Duration::from_secs(5))).await.unwrap();
}

#[tokio::test]
async fn calls_work_over_plain_tcp() {
    calls_work_over(Backend::Tcp).await;
}

#[tokio::test]
async fn calls_work_over_tcp_with_mutual_tls() {
    calls_work_over(Backend::TcpTls).await;
}

#[tokio::test]
async fn calls_work_over_quic() {
    calls_work_over(Backend::Quic).await;
}
