//! Every deliberately broken transport is found by the check that is meant to find it, for the right reason.

use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::BytesMut;
use thalweg_tests::{
    conformance::{self, Backend, Pair, run_check},
    conformance_tests,
    faulty::{Fault, FaultInjecting, FaultyBackend, Flip},
    harness::MemBackend,
};
use thalweg_transport::{
    Connection, Listener, RecvStream, SendStream, Transport, mem::MemTransport,
};

// The counter-proof: the wrapper without a fault breaks nothing.
conformance_tests!(sound_wrapper, FaultyBackend::sound());

#[test]
fn every_fault_is_found_by_its_check() {
    // Some are found by a deadline; together they wait once.
    std::thread::scope(|scope| {
        for fault in Fault::ALL {
            scope.spawn(move || {
                let (check, symptom) = fault.found_by();
                let words = run(check, FaultyBackend::new(fault))
                    .expect_err(&format!("{check} does not find {fault:?}"));
                assert!(
                    words.contains(symptom),
                    "{check} finds {fault:?}, but says {words:?} instead of {symptom:?}"
                );
            });
        }
    });
}

#[test]
fn the_checks_that_find_faults_pass_without_one() {
    for fault in Fault::ALL {
        let (check, _symptom) = fault.found_by();
        if let Err(words) = run(check, MemBackend::new()) {
            panic!("{check} fails on mem: {words}");
        }
    }
}

#[test]
fn one_byte_is_flipped_once_and_only_there() {
    run_check(async {
        let mem = MemBackend::new();
        let flip = Flip::after(1_500);
        let server: MemTransport = mem.transport("listener");
        let client = FaultInjecting::new(mem.transport("dialler"), flip.clone());
        let mut listener = server.listen(&mem.bind()).await.unwrap();
        let dialled = client.connect(listener.local_addr(), None).await.unwrap();
        let accepted = listener.accept().await.unwrap();
        for (len, expected) in [(1_500, None), (3_000, Some(1_500)), (3_000, None)] {
            let (mut send, _recv) = dialled.open().await.unwrap();
            for part in vec![7_u8; len].chunks(1_000) {
                let part = BytesMut::from(part).freeze();
                send.write(&mut [part]).await.unwrap();
            }
            send.finish().unwrap();
            let (_send, mut recv) = accepted.accept().await.unwrap();
            let mut found = Vec::new();
            while let Some(chunk) = recv.read(512).await.unwrap() {
                found.extend_from_slice(&chunk);
            }
            assert_eq!(found.len(), len);
            let wrong: Vec<usize> = (0..len).filter(|&at| found[at] != 7).collect();
            assert_eq!(wrong, expected.into_iter().collect::<Vec<_>>());
            assert_eq!(flip.is_done(), len > 1_500);
        }
    });
}

#[test]
fn the_suite_runs_as_a_whole_and_by_name() {
    run_check(async {
        conformance::run_all(&MemBackend::new()).await;
        let pair = Pair::new(&MemBackend::new()).await;
        assert!(format!("{pair:?}").contains("MemConnection"));
        assert!(!conformance::run_named("no::such_check", &MemBackend::new()).await);
    });
    for fault in Fault::ALL {
        assert!(
            conformance::CHECKS.contains(&fault.found_by().0),
            "{fault:?}"
        );
    }
}

/// Runs one check by name; the error is what it panicked with.
fn run<B: Backend>(check: &str, backend: B) -> Result<(), String> {
    let run = || {
        run_check(async {
            assert!(
                conformance::run_named(check, &backend).await,
                "there is no check {check}"
            );
        });
    };
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| match panic.downcast::<String>() {
        Ok(words) => *words,
        Err(panic) => panic
            .downcast::<&'static str>()
            .map_or_else(|_| String::new(), |words| (*words).to_owned()),
    })
}
