//! Requests that are repeated while the stream of the one before is still written to.

use std::sync::Mutex;

use tokio::sync::Semaphore;

use super::*;
use crate::{
    ErrorCode, SendStream, StreamError,
    exchange::{channel::Close, credit_task::send_credit},
    stream::BoxSendStream,
};

/// A sending half whose writes wait for the test.
#[derive(Debug)]
struct Slow {
    name: &'static str,
    may_write: Arc<Semaphore>,
    log: Arc<Mutex<Vec<String>>>,
}

impl Slow {
    fn log(&self, what: &str) {
        let line = format!("{} {what}", self.name);
        self.log.lock().unwrap().push(line);
    }
}

impl SendStream for Slow {
    async fn write(&mut self, chunks: &mut [Bytes]) -> Result<(), StreamError> {
        self.log("begins");
        self.may_write.acquire().await.unwrap().forget();
        chunks.fill(Bytes::new());
        self.log("has written");
        Ok(())
    }

    fn finish(&mut self) -> Result<(), StreamError> {
        self.log("finishes");
        Ok(())
    }

    fn reset(&mut self, code: ErrorCode) {
        self.log(&format!("resets with {code}"));
    }

    fn set_priority(&mut self, _: i32) {}

    async fn stopped(&mut self) -> Result<Option<ErrorCode>, StreamError> {
        std::future::pending().await
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        self.log("goes");
    }
}

/// A gate with one channel, whose streams the test plays.
struct Played {
    gate: InputGate,
    may_write: Arc<Semaphore>,
    log: Arc<Mutex<Vec<String>>>,
}

impl Played {
    async fn new() -> Self {
        let (_, consumer) = pair().await;
        let sources = vec![ChannelSource::Unknown];
        let gate = InputGate::setup("gate", CONSUMER, sources, consumer.context())
            .await
            .unwrap();
        tokio::spawn(send_credit(gate.handle().core.clone()));
        Self {
            gate,
            may_write: Arc::new(Semaphore::new(0)),
            log: Arc::default(),
        }
    }

    fn attach(&self, name: &'static str) {
        let stream = Slow {
            name,
            may_write: self.may_write.clone(),
            log: self.log.clone(),
        };
        let core = &self.gate.handle().core;
        core.attach_control(0, BoxSendStream::new(stream));
    }

    fn detach(&self) {
        let close = Close::Reset(ErrorCode::PARTITION_NOT_FOUND);
        self.gate.handle().core.detach_control(0, close);
    }

    async fn tell(&self) {
        self.gate.handle().announce_buffer_size(0, 100).unwrap();
        settle().await;
    }

    /// What has happened since the last call.
    async fn heard(&self) -> Vec<String> {
        settle().await;
        std::mem::take(&mut self.log.lock().unwrap())
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_ends_after_its_request_was_repeated_does_not_take_the_new_streams_place() {
    let played = Played::new().await;
    played.attach("first");
    played.tell().await;
    played.detach();
    played.attach("second");
    let begun = played.heard().await;
    assert_eq!(begun, ["first begins", "second begins"], "it is told again");
    played.may_write.add_permits(1);
    let ended = played.heard().await;
    assert_eq!(ended, ["first has written", "first goes"]);
    played.may_write.add_permits(1);
    assert_eq!(played.heard().await, ["second has written"]);
    played.tell().await;
    assert_eq!(played.heard().await, ["second begins"]);
    played.may_write.add_permits(1);
    assert_eq!(played.heard().await, ["second has written"]);
    played.detach();
    let code = ErrorCode::PARTITION_NOT_FOUND;
    let reset = format!("second resets with {code}");
    assert_eq!(played.heard().await, [reset.as_str(), "second goes"]);
}

#[tokio::test(start_paused = true)]
async fn closing_a_gate_while_both_streams_are_written_to_ends_both() {
    let mut played = Played::new().await;
    played.attach("first");
    played.tell().await;
    played.detach();
    played.attach("second");
    played.tell().await;
    assert_eq!(played.heard().await, ["first begins", "second begins"]);
    played.gate.close();
    played.detach();
    let mut ended = played.heard().await;
    ended.sort();
    assert_eq!(ended, ["first goes", "second goes"]);
    played.attach("third");
    let code = ErrorCode::CANCELLED;
    let reset = format!("third resets with {code}");
    assert_eq!(played.heard().await, [reset.as_str(), "third goes"]);
}
