use proptest::prelude::*;

use super::*;

const LIMIT: Duration = Duration::from_secs(30);

fn pool(total: usize) -> BufferPool {
    BufferPool::with_buffers(total, 100, LIMIT)
}

#[test]
fn guarantees_beyond_the_node_are_refused_with_the_key_to_raise() {
    let pool = pool(10);
    let _first = pool.local(7, 10).unwrap();
    let error = pool.local(4, 4).unwrap_err();
    assert_eq!(
        error,
        BufferError::Insufficient {
            required: 4,
            available: 3,
            total: 10,
            buffer_bytes: 100
        }
    );
    assert!(error.to_string().contains("raise transport.buffer_pool"));
}

#[test]
fn memory_is_allocated_when_used_and_reused() {
    let pool = pool(10);
    let local = pool.local(1, 10).unwrap();
    assert_eq!(pool.stats().allocated, 0);
    for _ in 0..5 {
        let mut buffer = local.try_request().unwrap().unwrap();
        assert_eq!(buffer.append(&[1; 150]), 100);
        assert_eq!(buffer.remaining(), 0);
    }
    let stats = pool.stats();
    assert_eq!((stats.allocated, stats.used, stats.peak), (1, 0, 1));
}

#[test]
fn a_frozen_buffer_returns_with_its_last_slice() {
    let pool = pool(2);
    let local = pool.local(1, 1).unwrap();
    let mut buffer = local.try_request().unwrap().unwrap();
    buffer.append(b"hello");
    let bytes = buffer.freeze();
    let slice = bytes.slice(1..3);
    drop(bytes);
    assert!(local.try_request().unwrap().is_none());
    drop(slice);
    assert!(local.try_request().unwrap().is_some());
}

#[test]
fn others_cannot_take_an_unused_guarantee() {
    let pool = pool(4);
    let greedy = pool.local(0, 4).unwrap();
    let _promised = pool.local(3, 3).unwrap();
    let taken = greedy.try_request().unwrap();
    assert!(taken.is_some());
    assert!(greedy.try_request().unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_guaranteed_buffer_that_others_hold_times_out_with_advice() {
    let pool = pool(2);
    let early = pool.local(0, 2).unwrap();
    let _held = (early.try_request().unwrap(), early.try_request().unwrap());
    let late = pool.local(1, 1).unwrap();
    let error = late.request().await.unwrap_err();
    assert!(matches!(error, BufferError::TimedOut { seconds: 30, .. }));
    assert!(
        error
            .to_string()
            .contains("transport.buffer_request_timeout")
    );
    assert_eq!(pool.stats().waiting, 0);
}

#[tokio::test(start_paused = true)]
async fn requests_are_served_in_order_and_guarantees_first() {
    let pool = pool(2);
    let shared = pool.local(0, 2).unwrap();
    let one = shared.try_request().unwrap().unwrap();
    let two = shared.try_request().unwrap().unwrap();
    let (waiting, late) = (shared.clone(), pool.local(1, 1).unwrap());
    let first = tokio::spawn(async move { waiting.request().await });
    let second = tokio::spawn(async move { late.request().await });
    while pool.stats().waiting < 2 {
        tokio::task::yield_now().await;
    }
    drop(one);
    let guaranteed = second.await.unwrap().unwrap();
    assert!(!first.is_finished(), "the first asks beyond its guarantee");
    drop(two);
    let beyond = first.await.unwrap().unwrap();
    drop((guaranteed, beyond));
    assert_eq!(pool.stats().used, 0);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_request_leaves_nothing_behind() {
    let pool = pool(1);
    let local = pool.local(1, 1).unwrap();
    let held = local.try_request().unwrap().unwrap();
    for _ in 0..3 {
        let request = tokio::time::timeout(Duration::from_millis(1), local.request());
        assert!(request.await.is_err());
    }
    assert_eq!(pool.stats().waiting, 0);
    drop(held);
    assert_eq!(pool.stats().used, 0);
}

#[tokio::test(start_paused = true)]
async fn a_closed_pool_wakes_its_requests_and_pulls_nothing_any_more() {
    let pool = pool(2);
    let local = pool.local(1, 1).unwrap();
    let held = local.try_request().unwrap().unwrap();
    let waiting = local.clone();
    let request = tokio::spawn(async move { waiting.request().await });
    while pool.stats().waiting < 1 {
        tokio::task::yield_now().await;
    }
    local.close();
    assert_eq!(request.await.unwrap().unwrap_err(), BufferError::Closed);
    assert_eq!(local.try_request().unwrap_err(), BufferError::Closed);
    assert_eq!(pool.stats().guaranteed, 0);
    drop(held);
    assert_eq!(pool.stats().used, 0);
    drop(local);
    let _again = pool.local(2, 2).unwrap();
}

fn take_all(local: &LocalPool) -> Vec<BufferMut> {
    std::iter::from_fn(|| local.try_request().unwrap()).collect()
}

#[test]
fn what_nobody_was_promised_is_shared_in_proportion() {
    let pool = pool(100);
    let alone = pool.local(10, 60).unwrap();
    assert_eq!(alone.size(), 60);
    let second = pool.local(10, 110).unwrap();
    // 80 are left over; the pools want 50 and, of the node's 100, 90.
    assert_eq!((alone.size(), second.size()), (10 + 28, 10 + 51));
    drop(second);
    assert_eq!(alone.size(), 60);
    let stats = pool.local_stats();
    assert_eq!((stats.len(), stats[0].min, stats[0].max), (1, 10, 60));
}

#[test]
fn a_lone_pool_may_use_what_others_leave_but_for_a_reserve() {
    let pool = pool(80);
    let busy = pool.local(0, usize::MAX).unwrap();
    let idle = pool.local(0, usize::MAX).unwrap();
    assert_eq!((busy.size(), idle.size()), (40, 40));
    assert_eq!(take_all(&busy).len(), 70);
}

#[test]
fn a_pool_that_comes_late_gets_on_at_once_and_then_its_share() {
    let pool = pool(80);
    let early = pool.local(0, usize::MAX).unwrap();
    let mut held = take_all(&early);
    assert_eq!(held.len(), 80, "alone its share is all there is");
    let late = pool.local(0, usize::MAX).unwrap();
    let mut got = Vec::new();
    while got.len() < late.size() {
        held.pop().expect("the early pool ends above its share");
        assert!(early.try_request().unwrap().is_none(), "above its share");
        got.extend(late.try_request().unwrap());
    }
    assert_eq!((held.len(), got.len()), (40, 40));
}

#[tokio::test(start_paused = true)]
async fn a_request_below_its_share_is_served_before_an_older_one_above_it() {
    let pool = pool(16);
    let early = pool.local(0, usize::MAX).unwrap();
    let mut held = take_all(&early);
    let late = pool.local(0, usize::MAX).unwrap();
    let again = early.clone();
    let older = tokio::spawn(async move { again.request().await });
    let younger = tokio::spawn(async move { late.request().await });
    while pool.stats().waiting < 2 {
        tokio::task::yield_now().await;
    }
    held.pop();
    let buffer = younger.await.unwrap().unwrap();
    assert!(!older.is_finished());
    held.clear();
    drop((older.await.unwrap().unwrap(), buffer));
    assert_eq!(pool.stats().used, 0);
}

#[test]
fn an_overdraft_goes_beyond_the_maximum_but_takes_no_guarantee() {
    let pool = pool(10);
    let local = pool.local(1, 2).unwrap();
    let promised = pool.local(4, 4).unwrap();
    let held = take_all(&local);
    assert_eq!(held.len(), 2);
    let beyond: Vec<_> = std::iter::from_fn(|| local.try_request_overdraft().unwrap()).collect();
    assert_eq!(beyond.len(), 4, "4 of 10 are promised");
    assert_eq!(take_all(&promised).len(), 4);
    drop(promised);
    let more = local.try_request_overdraft().unwrap();
    assert!(more.is_some());
    assert!(local.try_request_overdraft().unwrap().is_none(), "5 beyond");
    drop((held, more));
    assert!(
        local.try_request().unwrap().is_none(),
        "the overdraft is paid back first"
    );
}

#[test]
fn requests_from_many_threads_lose_no_buffer() {
    let pool = pool(8);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let local = pool.local(1, 4).unwrap();
            scope.spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_time()
                    .build()
                    .unwrap();
                runtime.block_on(async {
                    let mut held = Vec::new();
                    for round in 0..2000 {
                        let buffer = match local.try_request().unwrap() {
                            Some(buffer) => buffer,
                            None => {
                                // Whoever waits holds nothing: four that hold two each would wait for ever.
                                held.clear();
                                local.request().await.unwrap()
                            }
                        };
                        held.push(buffer.freeze());
                        if held.len() > (round + thread) % 4 {
                            held.clear();
                        }
                    }
                });
            });
        }
    });
    let stats = pool.stats();
    assert_eq!((stats.used, stats.waiting), (0, 0));
    assert!(stats.peak <= 8);
}

proptest! {
    #[test]
    fn accounts_always_cover_the_unused_guarantees(
        steps in proptest::collection::vec((0usize..3, any::<bool>()), 1..200),
    ) {
        let pool = pool(10);
        let locals = [(2, 4), (3, 10), (0, 10)].map(|(min, max)| pool.local(min, max).unwrap());
        let mut held = [Vec::new(), Vec::new(), Vec::new()];
        for (which, take) in steps {
            if take {
                let got = locals[which].try_request().unwrap();
                let below = held[which].len() < locals[which].min();
                prop_assert!(got.is_some() || !below, "a guaranteed buffer is always there");
                held[which].extend(got);
            } else {
                held[which].pop();
            }
            let used: usize = held.iter().map(Vec::len).sum();
            prop_assert_eq!(pool.stats().used, used);
            for (local, held) in locals.iter().zip(&held) {
                prop_assert_eq!(local.used(), held.len());
                prop_assert!(held.len() <= local.max());
            }
        }
    }
}
