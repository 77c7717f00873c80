//! Transports that another crate adds, chosen by `transport.backend` like the crate's own.

use std::{sync::Arc, time::Duration};

use thalweg_examples::jobs::{
    registry,
    shuffle::{Pattern, Shuffle},
    wordcount::{WordCount, WordCountResult, select},
};
use thalweg_runtime::{Backend, BackendRegistry, MiniCluster, job::JobState};
use thalweg_tests::{
    faulty::{FaultInjecting, Flip},
    harness::{mem_backend, run_job, start_mini_cluster},
};
use thalweg_transport::{
    mem::{MemNetwork, MemTransport},
    quic::QuicTransport,
    tcp::TcpTransport,
};

use crate::corpus::count;

#[tokio::test]
async fn a_job_runs_over_a_transport_that_a_test_registered() {
    let text = "Über Wasser, über Land;\nunter Wasser".repeat(50_000);
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.txt", "b.txt", "c.txt"] {
        std::fs::write(folder.path().join(name), &text).unwrap();
    }
    let files = select(&[folder.path().to_owned()]).unwrap().files;
    let cluster = start("mem", "off", mem_backend()).await;
    let graph = WordCount::of_files(files).graph(4).unwrap();
    let (id, status) = run_job(&cluster, graph).await;
    assert_eq!(status.state, JobState::Finished, "{:?}", status.failure);
    assert!(status.totals.bytes_remote > 0);
    let chunk = cluster
        .dispatcher()
        .job_result(id, 0, 1 << 20)
        .await
        .unwrap();
    assert!(chunk.end);
    let mut found = Vec::new();
    let result = WordCountResult::parse(&chunk.bytes).unwrap();
    result.counts.write_to(&mut found).unwrap();
    assert_eq!(
        String::from_utf8(found).unwrap(),
        count([text.as_bytes(); 3])
    );
    cluster.shutdown(DRAIN).await;
}

#[tokio::test]
async fn a_byte_flipped_in_memory_fails_the_job() {
    let flip = Flip::after(OFFSET);
    let (network, own) = (MemNetwork::new(), flip.clone());
    let backend: Backend = Arc::new(move |builder, _config, _credentials| {
        let (mem, flip) = (MemTransport::new(network.clone(), None), own.clone());
        Box::pin(async move { builder.start(FaultInjecting::new(mem, flip)).await })
    });
    finds_the_flip("off", backend, &flip).await;
}

#[tokio::test]
async fn a_byte_flipped_on_tcp_fails_the_job() {
    let flip = Flip::after(OFFSET);
    let own = flip.clone();
    let backend: Backend = Arc::new(move |builder, config, credentials| {
        let flip = own.clone();
        Box::pin(async move {
            let tcp = TcpTransport::new(&config, credentials);
            builder.start(FaultInjecting::new(tcp, flip)).await
        })
    });
    finds_the_flip("mutual", backend, &flip).await;
}

#[tokio::test]
async fn a_byte_flipped_on_quic_fails_the_job() {
    let flip = Flip::after(OFFSET);
    let own = flip.clone();
    let backend: Backend = Arc::new(move |builder, config, credentials| {
        let flip = own.clone();
        Box::pin(async move {
            let credentials = credentials.expect("mutual TLS comes with credentials");
            let quic = QuicTransport::new(&config, credentials)?;
            builder.start(FaultInjecting::new(quic, flip)).await
        })
    });
    finds_the_flip("mutual", backend, &flip).await;
}

/// One byte of partition data is wrong: the job fails for good, and says what was found.
async fn finds_the_flip(tls: &str, backend: Backend, flip: &Flip) {
    let cluster = start("flipping", tls, backend).await;
    let shuffle = Shuffle::new(64 << 20, 16 << 10, Pattern::AllToAll).unwrap();
    let (_, status) = run_job(&cluster, shuffle.graph(4).unwrap()).await;
    assert!(flip.is_done(), "no stream was long enough: {status:?}");
    assert_eq!(status.state, JobState::Failed, "{status:?}");
    let failure = status
        .failure
        .expect("a failed job has a cause")
        .to_string();
    assert!(failure.contains("checksum mismatch"), "{failure}");
    assert_eq!(
        status.restarts, 0,
        "the same bytes would come again: {failure}"
    );
    cluster.shutdown(DRAIN).await;
}

/// A cluster of two TaskManagers that takes the backend by its name.
async fn start(name: &str, tls: &str, backend: Backend) -> MiniCluster {
    let text = format!(
        "[transport]\nbackend = {name:?}\nprofile = \"loopback\"\n[tls]\nmode = {tls:?}\n\
         [jobmanager]\nrestart_strategy = \"fixed-delay\"\nrestart_attempts = 1000\nrestart_delay = \"10ms\"\n"
    );
    let backends = BackendRegistry::default().with(name, backend);
    start_mini_cluster(&text, registry(), &backends).await
}

/// Inside the body of a record of 16 KiB, in the fourth buffer of the first channel that gets so far.
const OFFSET: u64 = 100_000;
const DRAIN: Duration = Duration::from_secs(5);
