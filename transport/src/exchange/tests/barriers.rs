//! Blocking events hold a channel until its consumer resumes it.

use super::*;

async fn barrier_blocks_until_resume(exclusive: u32, local: bool) {
    let (producer, consumer) = pair().await;
    let (from, mut context) = if local {
        (&consumer, consumer.context())
    } else {
        (&producer, consumer.context())
    };
    context.exclusive_buffers = exclusive;
    let mut writer = from.produce(0, 1);
    let source = if local {
        ChannelSource::Local(request(0, 0))
    } else {
        producer.remote(0, 0)
    };
    let mut gate = consumer.consume_with(context, vec![source]).await;
    let barrier = Event::Barrier(Bytes::from_static(b"checkpoint 1"));
    for round in 0..3 {
        for _ in 0..5 {
            writer.emit(0, &[round; 990]).await.unwrap();
        }
        writer.broadcast_event(barrier.clone()).unwrap();
    }
    writer.finish().unwrap();
    for round in 0..3 {
        let mut got = 0;
        loop {
            match within("item", gate.next()).await.unwrap().unwrap().1 {
                BufferOrEvent::Buffer(buffer) => got += buffer.len(),
                BufferOrEvent::Event(event) => {
                    assert_eq!(event, barrier);
                    break;
                }
            }
        }
        assert_eq!(got, 5 * 994, "round {round}");
        settle().await;
        assert!(gate.try_next().is_none(), "nothing passes a barrier");
        if exclusive == 0 && !local {
            assert_eq!(consumer.used(), 1, "all but the gate's one are given back");
        }
        gate.resume_consumption(0).unwrap();
    }
    let end = within("end", gate.next()).await.unwrap();
    assert_eq!(end, Some((0, BufferOrEvent::Event(Event::EndOfPartition))));
    assert_eq!(within("end", gate.next()).await.unwrap(), None);
    assert!(gate.resume_consumption(1).is_err());
}

#[tokio::test(start_paused = true)]
async fn a_remote_channel_waits_behind_its_barrier() {
    barrier_blocks_until_resume(2, false).await;
}

#[tokio::test(start_paused = true)]
async fn a_remote_channel_without_exclusive_buffers_waits_behind_its_barrier() {
    barrier_blocks_until_resume(0, false).await;
}

#[tokio::test(start_paused = true)]
async fn a_local_channel_waits_behind_its_barrier() {
    barrier_blocks_until_resume(2, true).await;
}
