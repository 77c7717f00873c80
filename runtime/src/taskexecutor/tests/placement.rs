//! Tasks on the network thread of their node, beside others on their own: each ends as it would there.

use thalweg_transport::mem::MemNetwork;

use super::{
    super::task::RunningTask,
    graph::{Listener, TaskManager, consumer, producer},
    *,
};
use crate::{
    config::TaskPlacement,
    job::{Distribution, FailureKind, TaskState},
};

/// A TaskManager that runs light tasks on its network thread.
async fn start() -> (TaskManager, Arc<Listener>) {
    let network = MemNetwork::new();
    let at = TaskManager::start(&network, "tm-1", TaskPlacement::Network).await;
    (at, Arc::new(Listener::default()))
}

async fn until(mut holds: impl FnMut() -> bool) {
    let mut ticks = tokio::time::interval(Duration::from_millis(5));
    within(async {
        while !holds() {
            ticks.tick().await;
        }
    })
    .await;
}

async fn goes_on(task: &RunningTask) {
    let before = task.metrics().records_in;
    until(|| task.metrics().records_in > before).await;
}

#[tokio::test]
async fn light_tasks_share_the_network_thread_and_others_have_their_own() {
    let network = MemNetwork::new();
    let own = TaskManager::start(&network, "tm-1", TaskPlacement::OwnThread).await;
    let shared = TaskManager::start(&network, "tm-2", TaskPlacement::Network).await;
    for (at, task, thread) in [
        (&own, "place", "task-place-0"),
        (&shared, "place", "net-tm-2"),
        (&shared, "heavy-place", "task-heavy-place-0"),
    ] {
        let reporter = Arc::new(Listener::default());
        let (_, ending) = at.run(&reporter, deployment(task));
        assert_eq!(within(ending).await.unwrap().state, TaskState::Finished);
        assert_eq!(*reporter.results.lock().unwrap(), [thread]);
    }
    own.close().await;
    shared.close().await;
}

#[tokio::test]
async fn a_panic_or_failure_on_the_network_thread_is_its_tasks_alone() {
    let (at, reporter) = start().await;
    let (written, write_end) = at.run(&reporter, producer("endless", 0, 1, Distribution::Forward));
    let (read, read_end) = at.run(&reporter, consumer(0, &[&at]));
    for (task, words) in [("crash", "the task panicked: bang 1"), ("fail", "boom")] {
        let mut broken = deployment(task);
        broken.execution = execution(2, 0);
        let (_, ending) = at.run(&reporter, broken);
        let ending = within(ending).await.unwrap();
        assert_eq!(ending.state, TaskState::Failed);
        let cause = ending.failure.unwrap();
        assert_eq!(
            (cause.kind, cause.message.as_str()),
            (FailureKind::User, words)
        );
        goes_on(&read).await;
    }
    for (task, ending) in [(written, write_end), (read, read_end)] {
        assert!(task.cancel());
        assert_eq!(within(ending).await.unwrap().state, TaskState::Canceled);
    }
    at.close().await;
}

#[tokio::test]
async fn a_task_on_the_network_thread_is_cancelled_and_interrupted_where_it_waits() {
    let (at, reporter) = start().await;
    for (task, interrupt) in [("idle", false), ("deaf", true)] {
        let (task, ending) = at.run(&reporter, deployment(task));
        until(|| task.state() == TaskState::Running).await;
        assert!(task.cancel());
        if interrupt {
            task.interrupt();
        }
        assert_eq!(within(ending).await.unwrap().state, TaskState::Canceled);
    }
    at.close().await;
}

#[tokio::test]
async fn the_end_of_its_node_ends_a_task_on_the_network_thread() {
    let (at, reporter) = start().await;
    let (task, ending) = at.run(&reporter, deployment("deaf"));
    until(|| task.state() == TaskState::Running).await;
    let shutdown = at.node.shutdown(Duration::from_secs(10));
    within(shutdown).await.unwrap();
    let cause = within(ending).await.unwrap().failure.unwrap();
    assert_eq!(cause.kind, FailureKind::TaskManagerLost);
    assert!(cause.message.contains("the node ended"), "{cause}");
    let (_, ending) = at.run(&reporter, deployment("idle"));
    let cause = within(ending).await.unwrap().failure.unwrap();
    assert_eq!(cause.kind, FailureKind::TaskManagerLost, "{cause}");
}

#[tokio::test]
async fn a_task_that_keeps_the_network_thread_is_noticed_while_it_does() {
    let (at, reporter) = start().await;
    let (task, ending) = at.run(&reporter, deployment("hog"));
    let mut held = None;
    until(|| {
        held = task.held_too_long();
        held.is_some()
    })
    .await;
    assert!(held.unwrap() >= Duration::from_millis(100), "{held:?}");
    let release = tokio::task::spawn_blocking(|| user_code::HOG.wait());
    assert_eq!(within(ending).await.unwrap().state, TaskState::Finished);
    within(release).await.unwrap();
    at.close().await;
}
