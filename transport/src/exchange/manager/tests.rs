use super::*;
use crate::{
    exchange::{BufferPool, ResultPartition},
    proto::SubpartitionIndex,
};

#[derive(Debug)]
struct Deaf;

impl AvailabilityListener for Deaf {
    fn on_available(&self) {}
}

type Answered = Result<Box<dyn SubpartitionView>, ExchangeError>;

const WAIT: Duration = Duration::from_secs(10);

fn manager() -> (ResultPartitionManager, BufferPool) {
    let pool = BufferPool::with_buffers(64, 100, Duration::from_secs(1));
    (ResultPartitionManager::new(WAIT), pool)
}

fn partition(number: u32, pool: &BufferPool) -> Arc<ResultPartition> {
    let (id, producer) = name(number);
    ResultPartition::pipelined_bounded(id, producer, 2, pool).unwrap()
}

fn name(number: u32) -> Key {
    (PartitionId::new(1, number), ExecutionAttemptId(1))
}

fn request(manager: &ResultPartitionManager, number: u32) -> BoxFuture<'static, Answered> {
    let (partition, producer) = name(number);
    let request = SubpartitionRequest {
        partition,
        producer,
        subpartition: SubpartitionIndex(0),
    };
    manager.create_subpartition_view(request, Arc::new(Deaf))
}

fn is_not_found(answer: &Answered, number: u32) -> bool {
    matches!(answer, Err(ExchangeError::PartitionNotFound { partition }) if *partition == name(number).0)
}

#[tokio::test(start_paused = true)]
async fn unknown_and_released_partitions_are_not_found() {
    let (manager, pool) = manager();
    assert!(is_not_found(&request(&manager, 0).await, 0));
    manager.register(partition(0, &pool)).unwrap();
    assert!(request(&manager, 0).await.is_ok());
    let (id, producer) = name(0);
    manager.release_partition(id, producer);
    assert!(is_not_found(&request(&manager, 0).await, 0));
    assert_eq!((manager.registered(), manager.parked()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_is_answered_at_the_registration_and_no_other() {
    let (manager, pool) = manager();
    let waiting = tokio::spawn(request(&manager, 0));
    let other = tokio::spawn(request(&manager, 1));
    tokio::task::yield_now().await;
    assert_eq!(manager.parked(), 2);
    manager.register(partition(0, &pool)).unwrap();
    assert_eq!(manager.parked(), 1);
    assert!(waiting.await.unwrap().is_ok());
    assert!(!other.is_finished());
    assert!(is_not_found(&other.await.unwrap(), 1));
}

#[tokio::test(start_paused = true)]
async fn each_waiting_request_has_its_own_time_and_only_the_expired_is_forgotten() {
    let (manager, pool) = manager();
    let first = tokio::spawn(request(&manager, 0));
    tokio::time::sleep(WAIT / 2).await;
    let second = tokio::spawn(request(&manager, 0));
    tokio::time::sleep(WAIT / 2 + Duration::from_millis(1)).await;
    assert!(is_not_found(&first.await.unwrap(), 0));
    assert_eq!(manager.parked(), 1);
    manager.register(partition(0, &pool)).unwrap();
    assert!(second.await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_release_and_a_failure_answer_who_waits() {
    let (manager, _pool) = manager();
    let begun = crate::now();
    let released = tokio::spawn(request(&manager, 0));
    let failed = tokio::spawn(request(&manager, 1));
    let dropped = tokio::spawn(request(&manager, 2));
    tokio::task::yield_now().await;
    let (id, producer) = name(0);
    manager.release_partition(id, producer);
    ReleaseHook {
        manager: Arc::downgrade(&manager.inner),
        key: name(1),
    }
    .fail("out of luck");
    dropped.abort();
    assert!(is_not_found(&released.await.unwrap(), 0));
    let answer = failed.await.unwrap();
    assert!(
        matches!(&answer, Err(ExchangeError::ProducerFailed { cause, .. }) if cause == "out of luck"),
        "{answer:?}"
    );
    assert!(dropped.await.is_err());
    assert_eq!((manager.parked(), crate::now()), (0, begun));
}

#[tokio::test(start_paused = true)]
async fn a_pipelined_partition_ends_with_its_writer_and_every_reader() {
    let (manager, pool) = manager();
    let made = partition(0, &pool);
    manager.register(made.clone()).unwrap();
    assert!(manager.register(made.clone()).is_err(), "twice");
    let writer = made.writer().unwrap();
    let view = |index| {
        made.clone()
            .create_view(SubpartitionIndex(index), Arc::new(Deaf))
    };
    let (one, two) = (view(0).unwrap(), view(1).unwrap());
    assert!(view(0).is_err(), "one reader ever");
    drop(one);
    assert!(view(0).is_err(), "one reader ever");
    drop(two);
    assert_eq!(manager.registered(), 1, "its writer is there");
    writer.finish().unwrap();
    assert_eq!((manager.registered(), pool.stats().guaranteed), (0, 0));
}
