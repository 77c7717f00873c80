//! Every message in every state of an endpoint: the table of Flink's rpc actor, with endpoints that run.

use tokio::sync::Notify;

use super::{
    lifecycle::{Probe, ProbeClient, Script},
    *,
};
use crate::ids::FencingToken;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    Stopped,
    Started,
    Terminating,
    Terminated,
}

const LIVES: [Life; 4] = [
    Life::Stopped,
    Life::Started,
    Life::Terminating,
    Life::Terminated,
];

/// An endpoint in some state, with a client near and one far.
struct Subject {
    endpoint: EndpointHandle<Probe>,
    script: Arc<Script>,
    caller: RpcService,
    callee: RpcService,
    near: ProbeClient,
    far: ProbeClient,
}

const TOKEN: Option<FencingToken> = Some(FencingToken::from_u128(1));

impl Subject {
    /// It is brought there by what leads there; while it is terminating, its `on_stop` waits.
    async fn in_state(life: Life) -> Self {
        let (caller, callee) = pair(RpcConfig::default()).await;
        let gate = Arc::new(Notify::new());
        let script = Arc::new(Script {
            gate: Some(Arc::clone(&gate)),
            ..Script::default()
        });
        let endpoint = callee
            .endpoint("probe", Probe(Arc::clone(&script)))
            .serve::<ProbeClient>()
            .fencing_token(FencingToken::from_u128(1))
            .spawn()
            .unwrap();
        let near = callee.connect(endpoint.address(), TOKEN).await.unwrap();
        let far = caller.connect(endpoint.address(), TOKEN).await.unwrap();
        if life != Life::Stopped {
            endpoint.start();
        }
        if matches!(life, Life::Terminating | Life::Terminated) {
            drop(endpoint.terminate());
        }
        settle().await;
        if life == Life::Terminated {
            gate.notify_one();
            endpoint.terminated().await.unwrap();
        }
        settle().await;
        Self {
            endpoint,
            script,
            caller,
            callee,
            near,
            far,
        }
    }

    async fn has_ended(&self) -> bool {
        let wait = tokio::time::timeout(Duration::from_secs(1), self.endpoint.terminated());
        wait.await.is_ok()
    }
}

fn is_not_started<T>(result: &Result<T, RpcError>) -> bool {
    matches!(result, Err(RpcError::EndpointNotStarted { .. }))
}

fn is_unreachable<T>(result: &Result<T, RpcError>) -> bool {
    matches!(result, Err(RpcError::RecipientUnreachable { .. }))
}

#[tokio::test(start_paused = true)]
async fn start_stop_and_terminate_do_in_each_state_what_the_table_says() {
    const START: &str = "start";
    const STOP: &str = "stop, running false";
    const DROPPED: &str = "dropped";
    type Tell = fn(&EndpointHandle<Probe>);
    let (start, stop): (Tell, Tell) = (EndpointHandle::start, EndpointHandle::stop);
    let terminate: Tell = |endpoint| drop(endpoint.terminate());
    // What is told in which state; what has happened to the endpoint afterwards, and whether it runs or has ended.
    type Row = (
        Life,
        &'static str,
        Tell,
        &'static [&'static str],
        bool,
        bool,
    );
    let table: [Row; 12] = [
        (Life::Stopped, "start", start, &[START], true, false),
        (Life::Stopped, "stop", stop, &[], false, false),
        (
            Life::Stopped,
            "terminate",
            terminate,
            &[DROPPED],
            false,
            true,
        ),
        (Life::Started, "start", start, &[START], true, false),
        (Life::Started, "stop", stop, &[START], false, false),
        (
            Life::Started,
            "terminate",
            terminate,
            &[START, STOP],
            false,
            false,
        ),
        (
            Life::Terminating,
            "start",
            start,
            &[START, STOP],
            false,
            false,
        ),
        (
            Life::Terminating,
            "stop",
            stop,
            &[START, STOP],
            false,
            false,
        ),
        (
            Life::Terminating,
            "terminate",
            terminate,
            &[START, STOP],
            false,
            false,
        ),
        (
            Life::Terminated,
            "start",
            start,
            &[START, STOP, DROPPED],
            false,
            true,
        ),
        (
            Life::Terminated,
            "stop",
            stop,
            &[START, STOP, DROPPED],
            false,
            true,
        ),
        (
            Life::Terminated,
            "terminate",
            terminate,
            &[START, STOP, DROPPED],
            false,
            true,
        ),
    ];
    for (life, word, tell, log, runs, ended) in table {
        let subject = Subject::in_state(life).await;
        tell(&subject.endpoint);
        settle().await;
        assert_eq!(subject.script.log(), log, "{word} in {life:?}");
        assert_eq!(subject.endpoint.is_running(), runs, "{word} in {life:?}");
        assert_eq!(subject.has_ended().await, ended, "{word} in {life:?}");
        if life == Life::Terminating {
            // It is refused, and changes nothing of what is under way.
            assert_eq!(subject.near.ping().await, Ok(1), "{word} in {life:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn calls_and_tells_are_treated_in_each_state_as_the_table_says() {
    for life in LIVES {
        let subject = Subject::in_state(life).await;
        for (way, client) in [("near", &subject.near), ("far", &subject.far)] {
            let called = client.ping().await;
            let told = client.note(way.to_owned());
            settle().await;
            let arrived = subject.script.log().iter().any(|entry| entry == way);
            match life {
                Life::Stopped => assert!(is_not_started(&called) && told == Ok(()) && !arrived),
                Life::Started | Life::Terminating => {
                    assert_eq!((called, told, arrived), (Ok(1), Ok(()), true), "{life:?}");
                }
                Life::Terminated => {
                    assert!(is_unreachable(&called), "{way}: {called:?}");
                    // Far away it is not known yet that nobody is there.
                    assert!(way == "far" || is_unreachable(&told), "{told:?}");
                    assert!(!arrived);
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn main_thread_functions_are_treated_in_each_state_as_the_table_says() {
    for life in LIVES {
        let subject = Subject::in_state(life).await;
        let main = subject.endpoint.main_thread();
        let run = main.run_async(|probe, _| probe.0.note("run"));
        let called = main
            .call_async(Deadline::Never, |probe, _| probe.0.note("call"))
            .await;
        let scheduled = main.schedule(Duration::ZERO, |probe, _| probe.0.note("scheduled"));
        settle().await;
        let log = subject.script.log();
        let has = |word: &str| log.iter().any(|entry| entry == word);
        let done = (has("run"), has("call"), has("scheduled"));
        match life {
            Life::Stopped => {
                assert_eq!(run, Ok(()));
                assert!(is_not_started(&called), "{called:?}");
                assert_eq!(done, (false, false, false));
            }
            Life::Started => {
                assert_eq!((run, called), (Ok(()), Ok(())));
                assert_eq!(done, (true, true, true));
            }
            Life::Terminating => {
                assert_eq!((run, called), (Ok(()), Ok(())));
                assert!(scheduled.is_cancelled(), "timers end before on_stop");
                assert_eq!(done, (true, true, false));
            }
            Life::Terminated => {
                assert!(is_unreachable(&run) && is_unreachable(&called));
                assert!(scheduled.is_cancelled());
                assert_eq!(done, (false, false, false));
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn handshakes_are_answered_until_the_endpoint_has_ended() {
    for life in LIVES {
        let subject = Subject::in_state(life).await;
        for service in [&subject.callee, &subject.caller] {
            let address = subject.endpoint.address();
            let client = service.connect::<ProbeClient>(address, TOKEN).await;
            if life == Life::Terminated {
                assert!(is_unreachable(&client), "{client:?}");
            } else {
                assert_eq!(client.unwrap().address(), address, "{life:?}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_endpoints_own_token_check_comes_after_the_check_of_its_state() {
    let subject = Subject::in_state(Life::Stopped).await;
    let address = subject.endpoint.address();
    let stale = Some(FencingToken::from_u128(2));
    let stale: ProbeClient = subject.caller.connect(address, stale).await.unwrap();
    assert!(is_not_started(&stale.ping().await));
    subject.endpoint.start();
    let fenced = stale.ping().await;
    assert!(matches!(fenced, Err(RpcError::Fenced { .. })), "{fenced:?}");
}
