//! Behaviour of endpoints and gateways. Names follow Flink's tests where there is one.

mod local;

use std::sync::Arc;

use thalweg_transport::ResourceId;

use super::*;

/// The gateway of most tests.
#[gateway(name = "Counter", callers = ["taskmanager", "client"])]
pub(crate) trait CounterGateway {
    /// Adds and gives the new value.
    async fn add(&self, amount: u64) -> u64;
    /// The very value that came in.
    async fn echo(&self, value: Arc<Vec<u8>>) -> Arc<Vec<u8>>;
    /// Nothing.
    async fn nothing(&self) -> Option<u32>;
    /// Fails.
    async fn fail(&self, later: bool) -> u64;
    /// Never answers.
    #[rpc(timeout = "2s")]
    async fn hang(&self);
    /// Panics.
    async fn crash(&self);
    /// Adds without an answer.
    fn bump(&self, amount: u64);
}

/// Serves [`CounterGateway`].
#[derive(Debug, Default)]
pub(crate) struct Counter {
    value: u64,
    held: Vec<Reply<()>>,
}

impl Endpoint for Counter {}

impl CounterGateway for Counter {
    fn add(&mut self, _cx: &mut Context<Self>, amount: u64) -> Answer<u64> {
        self.value += amount;
        Answer::ok(self.value)
    }

    fn echo(&mut self, _cx: &mut Context<Self>, value: Arc<Vec<u8>>) -> Answer<Arc<Vec<u8>>> {
        Answer::ok(value)
    }

    fn nothing(&mut self, _cx: &mut Context<Self>) -> Answer<Option<u32>> {
        Answer::ok(None)
    }

    fn fail(&mut self, _cx: &mut Context<Self>, later: bool) -> Answer<u64> {
        let error = HandlerError::new("counter.broken", "no more").retryable();
        if later {
            Answer::future(async move {
                tokio::task::yield_now().await;
                Err(error)
            })
        } else {
            Answer::err(error)
        }
    }

    fn hang(&mut self, _cx: &mut Context<Self>) -> Answer<()> {
        let (reply, answer) = Answer::deferred();
        self.held.push(reply);
        answer
    }

    fn crash(&mut self, _cx: &mut Context<Self>) -> Answer<()> {
        panic!("counter exploded")
    }

    fn bump(&mut self, _cx: &mut Context<Self>, amount: u64) {
        self.value += amount;
    }
}

pub(crate) fn id(name: &str) -> ResourceId {
    ResourceId::new(name).unwrap()
}
