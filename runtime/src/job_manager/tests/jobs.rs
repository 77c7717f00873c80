//! Jobs from submission to their end.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_job_runs_and_publishes_its_result_once() {
    let (cluster, [a, _b]) = Cluster::of([1, 2], always(Behaviour::Finish)).await;
    let job = cluster.submit(graph(2)).await;
    let status = cluster.end(job).await;
    assert_eq!(status.state, JobState::Finished);
    assert_eq!((status.restarts, &status.failure), (0, &None));
    assert_eq!(
        status.totals.records_out, 20,
        "final counters of four tasks"
    );
    assert_eq!(cluster.result(job).await, "source0 source1 sink0 sink1 ");
    assert_eq!(status.result_bytes, 28);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(cluster.free_slots().await, 3, "slots are given back");
    assert_eq!(a.shared.saw("job master gone: the job has ended"), 1);
    assert_eq!(a.shared.saw("failed"), 0);
}

#[tokio::test(start_paused = true)]
async fn too_few_slots_fail_a_job_with_what_was_asked_and_what_exists() {
    let (cluster, [_a, _b]) = Cluster::of([2, 1], always(Behaviour::Finish)).await;
    let job = cluster.submit(graph(8)).await;
    let status = cluster.end(job).await;
    assert_eq!(status.state, JobState::Failed);
    let failure = status.failure.unwrap();
    assert_eq!(failure.kind, FailureKind::Resources);
    let expected =
        format!("no slots for job words ({job}): 8 asked, 3 exist (tm-1 2/2 free, tm-2 1/1 free)");
    assert_eq!(failure.message, expected);
    assert!((30_000..31_000).contains(&status.duration_ms));
    let next = cluster.submit(graph(3)).await;
    assert_eq!(
        cluster.end(next).await.state,
        JobState::Finished,
        "the cluster lives"
    );
}

#[tokio::test(start_paused = true)]
async fn a_lost_task_manager_restarts_the_job_on_the_remaining_slots() {
    let script = first(Behaviour::Run, Behaviour::Finish);
    let (cluster, [a, b]) = Cluster::of([2, 2], script).await;
    let job = cluster.submit(graph(2)).await;
    let status = cluster.running(job).await;
    assert_eq!(status.tasks[1].task_manager, Some(id("tm-2")), "spread");
    b.kill().await;
    let status = cluster.end(job).await;
    assert_eq!((status.state, status.restarts), (JobState::Finished, 1));
    let failure = status.failure.unwrap();
    assert_eq!(failure.kind, FailureKind::TaskManagerLost);
    assert!(
        failure.message.starts_with("TaskManager tm-2 was lost: "),
        "{failure}"
    );
    assert_eq!(a.shared.saw("cancelled"), 2);
    assert_eq!(a.shared.saw("#1"), 4);
    assert_eq!(cluster.result(job).await, "source0 source1 sink0 sink1 ");
}

#[tokio::test(start_paused = true)]
async fn a_lost_task_manager_fails_a_job_without_restarts() {
    let (cluster, [_a, b]) = Cluster::of([2, 2], always(Behaviour::Run)).await;
    let mut graph = graph(2);
    graph.restart = Some(RestartStrategy::None);
    let job = cluster.submit(graph).await;
    cluster.running(job).await;
    b.kill().await;
    let status = cluster.end(job).await;
    assert_eq!(status.state, JobState::Failed);
    assert_eq!(status.failure.unwrap().kind, FailureKind::TaskManagerLost);
    assert_eq!(cluster.registered().await, 1);
}

#[tokio::test(start_paused = true)]
async fn missing_slots_after_a_loss_name_the_lost_task_manager() {
    let (cluster, [_a, b]) = Cluster::of([1, 1], always(Behaviour::Run)).await;
    let job = cluster.submit(graph(2)).await;
    cluster.running(job).await;
    b.kill().await;
    let failure = cluster.end(job).await.failure.unwrap();
    let text = &failure.message;
    assert!(
        text.contains("2 asked (1 held), 1 exist (tm-1 0/1 free)"),
        "{text}"
    );
    assert!(text.contains("; TaskManager tm-2 was lost: "), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_lost_task_manager_that_comes_back_is_used_again() {
    let script = first(Behaviour::Run, Behaviour::Finish);
    let (cluster, [_a, b]) = Cluster::of([1, 1], script.clone()).await;
    let job = cluster.submit(graph(2)).await;
    cluster.running(job).await;
    b.kill().await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let _again = cluster.task_manager("tm-2", 1, script).await;
    assert_eq!(cluster.end(job).await.state, JobState::Finished);
}

#[tokio::test(start_paused = true)]
async fn a_failing_task_uses_the_restarts_up() {
    let cluster = Cluster::start();
    let fail_sink: Script = Arc::new(|task| match &*task.vertex_name {
        "sink" => Behaviour::Fail,
        _ => Behaviour::Run,
    });
    let a = cluster.task_manager("tm-1", 1, fail_sink).await;
    let job = cluster.submit(graph(1)).await;
    let status = cluster.end(job).await;
    assert_eq!((status.state, status.restarts), (JobState::Failed, 3));
    let failure = status.failure.unwrap();
    assert_eq!(failure.kind, FailureKind::User);
    assert_eq!(failure.message, "task sink (1/1) at tm-1 failed: boom");
    assert_eq!(a.shared.saw("submit sink"), 4);
    assert_eq!(a.shared.saw("cancelled"), 4);
    let error = cluster.manager.dispatcher().job_result(job, 0, 9).await;
    assert!(error.unwrap_err().to_string().contains("failed: boom"));
}

#[tokio::test(start_paused = true)]
async fn a_refused_submission_fails_with_its_own_cause() {
    let (cluster, [_a]) = Cluster::of([1], always(Behaviour::Refuse)).await;
    let job = cluster.submit(graph(1)).await;
    let status = cluster.end(job).await;
    let failure = status.failure.unwrap();
    assert_eq!(failure.kind, FailureKind::InvalidJob);
    assert!(
        failure.message.ends_with("failed: bad configuration"),
        "{failure}"
    );
    assert_eq!(
        status.restarts, 0,
        "the next attempt would end the same way"
    );
}

#[tokio::test(start_paused = true)]
async fn a_job_can_be_cancelled() {
    let (cluster, [a]) = Cluster::of([2], always(Behaviour::Run)).await;
    let job = cluster.submit(graph(2)).await;
    cluster.running(job).await;
    let client = cluster.manager.dispatcher();
    client.cancel_job(job).await.unwrap();
    assert_eq!(cluster.end(job).await.state, JobState::Canceled);
    assert_eq!(a.shared.saw("cancelled"), 4);
    client.cancel_job(job).await.unwrap();
    let waiting = cluster.submit(graph(9)).await;
    client.cancel_job(waiting).await.unwrap();
    assert_eq!(cluster.end(waiting).await.state, JobState::Canceled);
    let unknown = client.cancel_job(JobId::random()).await.unwrap_err();
    assert!(unknown.to_string().contains("there is no job"), "{unknown}");
}

#[tokio::test(start_paused = true)]
async fn two_jobs_run_at_once_and_a_third_waits_for_slots() {
    let (cluster, [_a, _b]) = Cluster::of([2, 2], always(Behaviour::Run)).await;
    let one = cluster.submit(graph(2)).await;
    let two = cluster.submit(graph(2)).await;
    cluster.running(one).await;
    cluster.running(two).await;
    let three = cluster.submit(graph(2)).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(cluster.status(three).await.state, JobState::Created);
    let status = cluster.manager.dispatcher().cluster_status().await.unwrap();
    let listed: Vec<_> = status.jobs.iter().map(|job| job.id).collect();
    assert_eq!(listed, [one, two, three]);
    assert_eq!(status.task_managers.len(), 2);
    cluster.manager.dispatcher().cancel_job(one).await.unwrap();
    cluster.running(three).await;
    assert_eq!(cluster.status(two).await.state, JobState::Running);
}

#[tokio::test(start_paused = true)]
async fn a_refused_slot_is_looked_for_elsewhere() {
    let (cluster, [a]) = Cluster::of([2], always(Behaviour::Finish)).await;
    *a.shared.refuse_slots.lock().unwrap() = true;
    let _b = cluster
        .task_manager("tm-2", 1, always(Behaviour::Finish))
        .await;
    let job = cluster.submit(graph(1)).await;
    let status = cluster.end(job).await;
    assert_eq!(status.state, JobState::Finished);
    assert_eq!(status.tasks[0].task_manager, Some(id("tm-2")));
    assert!(a.shared.saw("slot refused") > 0);
}

#[tokio::test(start_paused = true)]
async fn separate_groups_run_on_separate_task_managers() {
    let (cluster, [_a]) = Cluster::of([2], always(Behaviour::Finish)).await;
    let mut graph = graph(2);
    graph.vertices[1].slot_group = 1;
    graph.placement = Placement::SeparateGroups;
    let job = cluster.submit(graph).await;
    let _b = cluster
        .task_manager("tm-2", 2, always(Behaviour::Finish))
        .await;
    let status = cluster.end(job).await;
    assert_eq!(status.state, JobState::Finished);
    let places: Vec<_> = status
        .tasks
        .iter()
        .map(|t| t.task_manager.clone())
        .collect();
    assert_eq!(places[0], places[1]);
    assert_eq!(places[2], places[3]);
    assert_ne!(places[0], places[2]);
}

#[tokio::test(start_paused = true)]
async fn a_silent_task_manager_is_lost_after_the_heartbeat_timeout() {
    let script = first(Behaviour::Run, Behaviour::Finish);
    let (cluster, [_a, b]) = Cluster::of([2, 2], script).await;
    let job = cluster.submit(graph(2)).await;
    cluster.running(job).await;
    *b.shared.silent.lock().unwrap() = true;
    let status = cluster.end(job).await;
    assert_eq!(status.state, JobState::Finished);
    let failure = status.failure.unwrap();
    assert!(
        failure
            .message
            .contains("tm-2 was lost: no heartbeat for 50s"),
        "{failure}"
    );
    assert_eq!(b.shared.saw("disconnected: HeartbeatTimeout"), 1);
    assert_eq!(b.shared.saw("gave TaskManager tm-2 up"), 1);
    assert_eq!(cluster.registered().await, 1);
}

#[tokio::test(start_paused = true)]
async fn wrong_jobs_are_refused_at_once() {
    let cluster = Cluster::start();
    let client = cluster.manager.dispatcher();
    let mut unknown = graph(1);
    unknown.vertices[1].task = "sinkhole".to_owned();
    let error = client.submit_job(unknown).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "vertex \"sink\" names the unknown task type \"sinkhole\": registered are sink, source"
    );
    assert_eq!(FailureCause::from_rpc(&error).kind, FailureKind::InvalidJob);
    let error = client.submit_job(JobGraph::new("x")).await.unwrap_err();
    assert!(error.to_string().contains("no vertex"), "{error}");
    assert!(client.cluster_status().await.unwrap().jobs.is_empty());
}

#[tokio::test(start_paused = true)]
async fn finished_jobs_expire_after_the_retention() {
    let (cluster, [_a]) = Cluster::of([1], always(Behaviour::Finish)).await;
    let job = cluster.submit(graph(1)).await;
    cluster.end(job).await;
    let client = cluster.manager.dispatcher();
    tokio::time::sleep(Duration::from_secs(3590)).await;
    assert_eq!(client.cluster_status().await.unwrap().jobs.len(), 1);
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert!(client.cluster_status().await.unwrap().jobs.is_empty());
    assert!(client.job_status(job).await.is_err());
    assert!(client.job_result(job, 0, 1).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_stop_fails_running_jobs_and_tells_the_task_managers() {
    let (cluster, [a]) = Cluster::of([2], always(Behaviour::Run)).await;
    let job = cluster.submit(graph(2)).await;
    cluster.running(job).await;
    let start = thalweg_transport::now();
    cluster
        .manager
        .shutdown(Duration::from_secs(5))
        .await
        .unwrap();
    assert!(thalweg_transport::now() - start < Duration::from_secs(3));
    tokio::task::yield_now().await;
    assert_eq!(a.shared.saw("cancelled"), 4);
    assert_eq!(a.shared.saw("disconnected: Stopping"), 1);
    assert!(cluster.manager.dispatcher().job_status(job).await.is_err());
    cluster.service.close(Duration::from_secs(5)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_restart_does_not_go_to_a_task_manager_that_does_not_answer() {
    let cluster = Cluster::start();
    let fails = first(Behaviour::Fail, Behaviour::Finish);
    let _a = cluster.task_manager("tm-1", 2, fails).await;
    let b = cluster
        .task_manager("tm-2", 2, always(Behaviour::Finish))
        .await;
    *b.shared.silent.lock().unwrap() = true;
    let job = cluster.submit(graph(2)).await;
    let status = cluster.end(job).await;
    assert_eq!((status.state, status.restarts), (JobState::Finished, 1));
    assert_eq!((b.shared.saw("#0"), b.shared.saw("#1")), (2, 0));
    assert_eq!(b.shared.saw("gave TaskManager tm-2 up"), 1);
    assert!(
        status.duration_ms < 20_000,
        "{} ms: one call without an answer, no heartbeat time-out",
        status.duration_ms
    );
}
