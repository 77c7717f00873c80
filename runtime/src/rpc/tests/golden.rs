//! The bytes of every message between the parts of a cluster: those that clients really send, and those of answers.
//!
//! Nodes of different builds talk to each other. A change of these bytes is a change of the protocol.

mod values;

use std::{
    fmt::{Debug, Write as _},
    sync::Mutex,
};

use bytes::{Bytes, BytesMut};
use serde::{Serialize, de::DeserializeOwned};
use thalweg_transport::{BoxFuture, PeerStream, RecvStream, SendStream, StreamHandler, StreamKind};

use super::{
    super::{
        call::GatewayCall,
        wire::{Decoder, Head},
    },
    *,
};
use crate::{gateways::*, job::*, slots::SlotState};
use values::*;

/// A line for each message: its name, of calls the method's number, and the bytes.
const GOLDEN: &str = include_str!("golden/messages.txt");

/// Welcomes every caller, and writes down method and body of what it sends.
#[derive(Debug, Default)]
struct Recorder(Arc<Mutex<Vec<(u32, Bytes)>>>);

impl StreamHandler for Recorder {
    fn handle(&self, mut stream: PeerStream) -> BoxFuture<'static, ()> {
        let sent = Arc::clone(&self.0);
        Box::pin(async move {
            let mut decoder = Decoder::new(1 << 20);
            let mut welcome = BytesMut::new();
            let head = Head::Welcome {
                version: 1,
                max_frame: 1 << 20,
            };
            head.encode(1, &mut welcome);
            welcome.extend_from_slice(b"x");
            stream.send.write(&mut [welcome.freeze()]).await.unwrap();
            while let Ok(Some(bytes)) = stream.recv.read(1 << 16).await {
                decoder.push(&bytes);
                while let Some(frame) = decoder.next_frame().unwrap() {
                    if let Head::Request { method, .. } | Head::Tell { method, .. } = frame.head {
                        sent.lock().unwrap().push((method, frame.body));
                    }
                }
            }
        })
    }
}

/// Sends one call of each method, and gives the lines of what went over the wire.
async fn calls() -> Vec<String> {
    let network = MemNetwork::new();
    let callee = node(&network, "callee", None).await;
    let caller = on(&node(&network, "caller", None).await, RpcConfig::default());
    let recorder = Recorder::default();
    let sent = Arc::clone(&recorder.0);
    callee.register(StreamKind::RPC, Arc::new(recorder));
    let address = RpcAddress::remote(None, &callee.advertised(), "x").unwrap();
    let mut lines = Vec::new();
    // Nobody answers; each call is on its way when it has been polled once.
    macro_rules! record {
        ($client:ident: $($kind:ident $method:ident($($argument:expr),*)),+ $(,)?) => {
            let client: $client = caller.connect(&address, None).await.unwrap();
            let mut methods = $client::METHODS.iter();
            $({
                let method = methods.next().expect("one call for each method");
                assert_eq!(method.name, stringify!($method), "in the order of the declaration");
                record!(@ $kind, client.$method($($argument),*));
                settle().await;
                let (id, body) = sent.lock().unwrap().pop().expect("the call was sent");
                assert_eq!(id, method.id);
                let call = <$client as Gateway>::Call::decode(id, &body, None);
                assert_eq!(call.unwrap().method(), method);
                lines.push(format!("{method} {id:08x}: {}", hex(&body)));
            })+
            assert_eq!(methods.next(), None, "a method has no line");
        };
        (@ ask, $call:expr) => { drop(tokio::spawn($call)) };
        (@ tell, $call:expr) => { $call.unwrap() };
    }
    record! { DispatcherClient:
        ask submit_job(graph()),
        ask cancel_job(JOB),
        ask job_status(JOB),
        ask job_result(JOB, 300, 4096),
        ask cluster_status(),
    }
    record! { ResourceManagerClient:
        ask register_task_executor(task_executor()),
        ask report_slots(INSTANCE, report()),
        tell disconnect_task_executor(INSTANCE, "bye".to_owned()),
        tell notify_slot_available(INSTANCE, 3, ALLOCATION),
        ask request_slots(slots_request()),
        tell release_job(JOB),
        ask overview(),
    }
    record! { JobMasterClient:
        ask register_task_manager(task_manager_registration()),
        ask offer_slots(id("tm"), vec![SlotOffer { allocation: ALLOCATION, slot: 3 }]),
        tell fail_slot(id("tm"), ALLOCATION, cause()),
        ask update_task_state(state_update()),
        ask add_task_result(EXECUTION, 300, Bytes::from_static(&[7, 8])),
        tell report_metrics(id("tm"), 300, vec![(EXECUTION, metrics())]),
        ask partition_producer_state(PARTITION),
        tell disconnect_task_manager(id("tm"), cause()),
        ask cancel(),
        ask status(),
        ask result(300, 4096),
    }
    record! { TaskExecutorClient:
        ask request_slot(TOKEN, SlotAssignment {
            slot: 3,
            job: JOB,
            allocation: ALLOCATION,
            job_master: job_master(),
        }),
        ask submit_task(TOKEN, deployment()),
        ask cancel_task(EXECUTION),
        ask free_slot(ALLOCATION, cause()),
        ask heartbeat_from_resource_manager(TOKEN),
        ask heartbeat_from_job_master(JOB, TOKEN, vec![ALLOCATION]),
        tell disconnect_resource_manager(SESSION, DisconnectReason::HeartbeatTimeout),
        tell disconnect_job_master(JOB, TOKEN, cause()),
    }
    lines
}

/// The lines of answers, each by the method that gives it.
fn answers() -> Vec<String> {
    let accepted = ResourceManagerAccepted {
        instance: INSTANCE,
        token: TOKEN,
        resource_manager: id("jm"),
    };
    let welcome = JobMasterAccepted {
        job_master: id("jm"),
    };
    let chunk = ResultChunk {
        bytes: Bytes::from_static(&[7, 8]),
        end: true,
    };
    let tasks = ExecutionReport {
        tasks: vec![(EXECUTION, TaskState::Running, metrics())],
        allocations: vec![ALLOCATION],
        connections: 300,
    };
    let reason = || "full".to_owned();
    type Registered = RegistrationResponse<ResourceManagerAccepted>;
    vec![
        line("answer of Dispatcher.submit_job", &JOB),
        line("answer of Dispatcher.job_status", &job_status()),
        line("answer of Dispatcher.job_result", &chunk),
        line("answer of Dispatcher.cluster_status", &cluster()),
        line(
            "answer of ResourceManager.register_task_executor, accepted",
            &Registered::Accepted(accepted),
        ),
        line(
            "answer of ResourceManager.register_task_executor, refused",
            &Registered::Refused { reason: reason() },
        ),
        line(
            "answer of ResourceManager.register_task_executor, rejected",
            &Registered::Rejected { reason: reason() },
        ),
        line("answer of ResourceManager.overview", &vec![task_manager()]),
        line(
            "answer of JobMaster.register_task_manager, accepted",
            &RegistrationResponse::Accepted(welcome),
        ),
        line("answer of JobMaster.offer_slots", &vec![ALLOCATION]),
        line(
            "answer of JobMaster.partition_producer_state",
            &TaskState::Finished,
        ),
        line("answer of JobMaster.status", &job_status()),
        line("answer of JobMaster.result", &chunk),
        line(
            "answer of TaskExecutor.heartbeat_from_resource_manager",
            &report(),
        ),
        line("answer of TaskExecutor.heartbeat_from_job_master", &tasks),
        line("answer without a value", &()),
    ]
}

/// The lines of every variant of the enumerations in messages.
fn variants() -> Vec<String> {
    let second = Duration::from_secs(1);
    let mut lines = Vec::new();
    each(
        &mut lines,
        "TaskState",
        &[
            TaskState::Created,
            TaskState::Scheduled,
            TaskState::Deploying,
            TaskState::Initializing,
            TaskState::Running,
            TaskState::Canceling,
            TaskState::Finished,
            TaskState::Canceled,
            TaskState::Failed,
        ],
    );
    each(
        &mut lines,
        "JobState",
        &[
            JobState::Created,
            JobState::Running,
            JobState::Failing,
            JobState::Restarting,
            JobState::Canceling,
            JobState::Finished,
            JobState::Failed,
            JobState::Canceled,
        ],
    );
    each(&mut lines, "FailureKind", &FailureKind::ALL);
    each(
        &mut lines,
        "Distribution",
        &[
            Distribution::Forward,
            Distribution::Rebalance,
            Distribution::Hash,
            Distribution::Broadcast,
        ],
    );
    each(
        &mut lines,
        "ExchangeMode",
        &[ExchangeMode::Pipelined, ExchangeMode::Blocking],
    );
    each(
        &mut lines,
        "Placement",
        &[Placement::Spread, Placement::SeparateGroups],
    );
    each(
        &mut lines,
        "RestartStrategy",
        &[
            RestartStrategy::None,
            RestartStrategy::FixedDelay {
                attempts: 300,
                delay: second,
            },
            RestartStrategy::Exponential {
                attempts: 300,
                initial: second,
                max: second * 60,
            },
        ],
    );
    each(
        &mut lines,
        "SlotState",
        &[
            SlotState::Free,
            SlotState::Allocated,
            SlotState::Active,
            SlotState::Releasing,
        ],
    );
    each(
        &mut lines,
        "DisconnectReason",
        &[
            DisconnectReason::Replaced {
                by: "h:1".to_owned(),
            },
            DisconnectReason::HeartbeatTimeout,
            DisconnectReason::Stopping,
        ],
    );
    lines
}

fn line<T: Serialize + DeserializeOwned + Debug + PartialEq>(name: &str, value: &T) -> String {
    let bytes = postcard::to_stdvec(value).unwrap();
    assert_eq!(postcard::from_bytes::<T>(&bytes).unwrap(), *value);
    format!("{name}: {}", hex(&bytes))
}

/// Every variant, in the order of their numbers on the wire.
fn each<T>(lines: &mut Vec<String>, name: &str, values: &[T])
where
    T: Serialize + DeserializeOwned + Debug + PartialEq,
{
    for (number, value) in values.iter().enumerate() {
        let text = format!("{value:?}");
        let variant = text.split([' ', '(']).next().unwrap_or_default();
        assert_eq!(usize::from(postcard::to_stdvec(value).unwrap()[0]), number);
        lines.push(line(&format!("{name}::{variant}"), value));
    }
    let mut next = vec![0; 64];
    next[0] = u8::try_from(values.len()).unwrap();
    assert!(
        postcard::take_from_bytes::<T>(&next).is_err(),
        "a variant of {name} has no line"
    );
}

fn hex(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "nothing".to_owned();
    }
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[tokio::test(start_paused = true)]
async fn the_bytes_of_every_message_of_the_runtime_are_these() {
    let mut now = calls().await;
    now.extend(answers());
    now.extend(variants());
    let expected: Vec<&str> = GOLDEN
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect();
    let changed: Vec<&String> = now
        .iter()
        .filter(|line| !expected.contains(&line.as_str()))
        .collect();
    assert!(
        changed.is_empty(),
        "these lines of messages.txt are other or new:\n{changed:#?}"
    );
    assert_eq!(now, expected, "order and number of the lines");
}
