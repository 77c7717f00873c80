//! Calls are measured per method.

use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};

use super::*;

/// `name gateway method kind` of a metric, and its value: how often it was counted or recorded.
fn measured(snapshotter: &Snapshotter) -> Vec<(String, usize)> {
    let mut all: Vec<_> = snapshotter
        .snapshot()
        .into_vec()
        .into_iter()
        .filter_map(|(key, _, _, value)| {
            let times = match value {
                DebugValue::Counter(times) => usize::try_from(times).unwrap(),
                DebugValue::Histogram(values) => values.len(),
                DebugValue::Gauge(_) => return None,
            };
            let labels = key.key().labels().map(|label| label.value().to_owned());
            let name = key.key().name().to_owned();
            let words: Vec<_> = std::iter::once(name).chain(labels).collect();
            (times > 0).then(|| (words.join(" "), times))
        })
        .collect();
    all.sort();
    all
}

fn expect(found: &[(String, usize)], wanted: &[(&str, usize)]) {
    let found: Vec<_> = found
        .iter()
        .map(|(name, times)| (name.as_str(), *times))
        .collect();
    assert_eq!(found, wanted);
}

#[tokio::test(start_paused = true)]
async fn latency_and_errors_of_each_method_are_counted_at_both_ends() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _recorder = metrics::set_default_local_recorder(&recorder);
    let (caller, callee) = pair(RpcConfig::default()).await;
    counter(&callee, "counter");
    let address = RpcAddress::remote(None, &callee.address().unwrap(), "counter").unwrap();
    let client: CounterClient = caller.connect(&address, None).await.unwrap();
    client.add(1).await.unwrap();
    client.add(2).await.unwrap();
    client.fail(true).await.unwrap_err();
    client.hang().await.unwrap_err();
    // Who gives up is not measured at all.
    assert!(briefly(client.wait()).await.is_none());
    settle().await;
    expect(
        &measured(&snapshotter),
        &[
            (
                "thalweg_rpc_client_errors_total Counter fail rpc.handler",
                1,
            ),
            (
                "thalweg_rpc_client_errors_total Counter hang rpc.timed_out",
                1,
            ),
            ("thalweg_rpc_client_seconds Counter add", 2),
            ("thalweg_rpc_client_seconds Counter fail", 1),
            ("thalweg_rpc_client_seconds Counter hang", 1),
            (
                "thalweg_rpc_server_errors_total Counter fail rpc.handler",
                1,
            ),
            (
                "thalweg_rpc_server_errors_total Counter hang rpc.timed_out",
                1,
            ),
            ("thalweg_rpc_server_seconds Counter add", 2),
            ("thalweg_rpc_server_seconds Counter fail", 1),
            ("thalweg_rpc_server_seconds Counter hang", 1),
        ],
    );
}

#[tokio::test(start_paused = true)]
async fn calls_within_a_service_are_measured_as_their_callers_see_them() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _recorder = metrics::set_default_local_recorder(&recorder);
    let service = service();
    let client: CounterClient = counter(&service, "counter").gateway();
    client.add(1).await.unwrap();
    expect(
        &measured(&snapshotter),
        &[("thalweg_rpc_client_seconds Counter add", 1)],
    );
}

/// What a future gives within a moment; it is dropped then.
async fn briefly<T>(future: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(Duration::from_millis(1), future)
        .await
        .ok()
}
