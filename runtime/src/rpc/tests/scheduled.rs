//! Work of a service that belongs to no main thread.

use std::sync::{Mutex, Weak};

use thalweg_transport::now;
use tokio::sync::oneshot;

use super::*;

const DELAY: Duration = Duration::from_secs(5);

#[tokio::test(start_paused = true)]
async fn scheduled_work_begins_after_its_delay_and_on_no_main_thread() {
    let service = service();
    let endpoint = counter(&service, "counter");
    let main = endpoint.main_thread();
    let (done, result) = oneshot::channel();
    let begin = now();
    // Scheduled on a main thread, it does not run there; nor does it need the endpoint any more.
    let (service_of_work, main_of_work) = (service.clone(), main.clone());
    let scheduled = main
        .call_async(Deadline::Never, move |_, _| {
            service_of_work.schedule(DELAY, async move {
                tokio::task::yield_now().await;
                let _ = done.send((now(), main_of_work.assert_current()));
            })
        })
        .await
        .unwrap();
    endpoint.terminate().await.unwrap();
    let (at, is_main) = result.await.unwrap();
    assert_eq!(at - begin, DELAY);
    assert!(matches!(is_main, Err(RpcError::WrongThread { .. })));
    assert!(!scheduled.is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn what_is_cancelled_does_not_begin_and_leaves_nothing() {
    let service = service();
    let endpoint = counter(&service, "counter");
    let began = Arc::new(Mutex::new(Vec::new()));
    let held: [Arc<()>; 3] = Default::default();
    let kept: Vec<Weak<()>> = held.iter().map(Arc::downgrade).collect();
    let [early, under_way, of_main] = held;
    let note = |word: &'static str| {
        let began = Arc::clone(&began);
        move || began.lock().unwrap().push(word)
    };
    let begin = note("early");
    let early = service.schedule(DELAY, async move {
        begin();
        drop(early);
    });
    let begin = note("under way");
    let under_way = service.schedule(Duration::ZERO, async move {
        let _held = under_way;
        begin();
        std::future::pending::<()>().await;
    });
    let begin = note("of main");
    let of_main = endpoint.main_thread().schedule(DELAY, move |_, _| {
        begin();
        drop(of_main);
    });
    settle().await;
    assert!(kept.iter().all(|held| held.strong_count() == 1));
    for scheduled in [early, under_way, of_main] {
        scheduled.cancel();
        assert!(scheduled.is_cancelled());
    }
    settle().await;
    assert!(kept.iter().all(|held| held.strong_count() == 0));
    tokio::time::sleep(DELAY * 2).await;
    assert_eq!(*began.lock().unwrap(), ["under way"]);
}

/// Ends well if scheduled work helps it.
#[derive(Debug)]
struct Leaning;

impl Endpoint for Leaning {
    fn on_stop(&mut self, cx: &mut Context<Self>) -> Answer<()> {
        let (reply, answer) = Answer::deferred();
        cx.service().schedule(Duration::from_secs(1), async move {
            reply.send(Ok(()));
        });
        answer
    }
}

#[tokio::test(start_paused = true)]
async fn scheduled_work_ends_with_the_service_after_its_endpoints() {
    let service = service();
    let endpoint = service.endpoint("leaning", Leaning).spawn().unwrap();
    endpoint.start();
    settle().await;
    let held = Arc::new(());
    let kept = Arc::downgrade(&held);
    service.schedule(Duration::from_secs(3600), async move { drop(held) });
    service.close(Duration::from_secs(10)).await.unwrap();
    endpoint.terminated().await.unwrap();
    assert_eq!(kept.strong_count(), 0);
    let begun = Arc::new(Mutex::new(false));
    let late = Arc::clone(&begun);
    let refused = service.schedule(Duration::ZERO, async move {
        *late.lock().unwrap() = true;
    });
    assert!(refused.is_cancelled());
    settle().await;
    assert!(!*begun.lock().unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_scheduled_work_ends_nothing_else() {
    let service = service();
    let client: CounterClient = counter(&service, "counter").gateway();
    service.schedule(Duration::ZERO, async { panic!("work exploded") });
    settle().await;
    assert_eq!(client.add(1).await, Ok(1));
    service.close(Duration::from_secs(1)).await.unwrap();
}
