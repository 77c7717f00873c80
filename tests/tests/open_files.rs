//! A process that has used up its open files. A program of its own: the limit is that of the whole process.

#![cfg(unix)]

use std::{fs::File, time::Duration};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use thalweg_tests::harness::{DEADLINE, TcpBackend, address_of, in_time, start_node};
use thalweg_transport::{Connections, ErrorCode, Node, TransportConfig, TransportError};

async fn start(backend: &TcpBackend, id: &str) -> Node {
    let mut config = TransportConfig::default();
    config.connect_retries = 2;
    config.connect_backoff = Duration::from_millis(1);
    start_node(backend, id, &config).await
}

/// Opens files until no more can be opened.
fn use_up() -> Vec<File> {
    let mut files = vec![];
    loop {
        match File::open("/dev/null") {
            Ok(file) => files.push(file),
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(24), "{error}");
                return files;
            }
        }
    }
}

#[tokio::test]
async fn a_process_without_open_files_says_so_goes_on_and_recovers() {
    const LIMIT: u64 = 256;
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, LIMIT, hard).unwrap();
    let backend = TcpBackend::plaintext();
    let (a, b) = (start(&backend, "a").await, start(&backend, "b").await);
    let first = in_time("acquire", a.acquire(address_of(&b))).await.unwrap();

    // The dialler has no descriptor.
    let mut files = use_up();
    let error = in_time("acquire", b.acquire(address_of(&a)))
        .await
        .unwrap_err();
    assert!(matches!(error, TransportError::Local { .. }), "{error:?}");
    assert_eq!(error.code(), ErrorCode::LIMIT_EXCEEDED);
    assert!(error.is_retryable(), "files are closed again: {error}");
    let text = error.to_string();
    for words in [
        &format!("a@{}", a.advertised()),
        &format!("limit of {LIMIT} open files"),
        "1 of them connections of this node",
        "ulimit -n",
        "after 3 attempts",
    ] {
        assert!(text.contains(words), "{words:?} is not in {text}");
    }

    // The listener has none: the peer's connection waits in the kernel until it has.
    files.pop();
    let waiting = tokio::spawn(b.acquire(address_of(&a)));
    let taken = async {
        while File::open("/dev/null").is_ok() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    in_time("the dial has taken the last one", taken).await;
    assert!(!waiting.is_finished());
    assert!(first.close_reason().is_none(), "what is there goes on");
    drop(files);
    in_time("the accept", waiting).await.unwrap().unwrap();
    drop(first);
    for node in [a, b] {
        in_time("shutdown", node.shutdown(DEADLINE)).await.unwrap();
    }
}
