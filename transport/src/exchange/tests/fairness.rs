//! Channels are drained evenly.

use super::*;

/// Buffers per channel in the next `count` items: as many from each, give or take one.
async fn drained_evenly(gate: &mut InputGate, channels: usize, count: usize) {
    let mut seen = vec![0; channels];
    for taken in 0..count {
        let (channel, item) = within("buffer", gate.next()).await.unwrap().unwrap();
        assert!(matches!(item, BufferOrEvent::Buffer(_)));
        seen[channel] += 1;
        drop(item);
        settle().await;
        let (least, most) = (seen.iter().min().unwrap(), seen.iter().max().unwrap());
        assert!(most - least <= 1, "{seen:?} after {taken}");
    }
}

async fn writers(workers: impl Iterator<Item = &Worker>, buffers: usize) -> Vec<PartitionWriter> {
    let mut writers = Vec::new();
    for (number, worker) in (0u32..).zip(workers) {
        let mut writer = worker.produce(number, 1);
        for _ in 0..buffers {
            writer.emit(0, &[7; 996]).await.unwrap();
        }
        writers.push(writer);
    }
    writers
}

#[tokio::test(start_paused = true)]
async fn full_near_channels_are_drained_evenly() {
    let (_, node) = pair().await;
    let _writers = writers(std::iter::repeat_n(&node, 5), 30).await;
    let channels = (0..5)
        .map(|n| ChannelSource::Local(request(n, 0)))
        .collect();
    let mut gate = node.consume(channels).await;
    settle().await;
    drained_evenly(&mut gate, 5, 150).await;
}

#[tokio::test(start_paused = true)]
async fn full_far_channels_are_drained_evenly() {
    let (producer, consumer) = pair().await;
    let _writers = writers(std::iter::repeat_n(&producer, 5), 30).await;
    let channels = (0..5).map(|n| producer.remote(n, 0)).collect();
    let mut gate = consumer.consume(channels).await;
    settle().await;
    drained_evenly(&mut gate, 5, 150).await;
}

/// A channel that always has more does not keep the others waiting.
#[tokio::test(start_paused = true)]
async fn near_and_far_channels_that_fill_meanwhile_take_turns() {
    let (producer, consumer) = pair().await;
    let nodes = [&producer, &consumer, &producer, &consumer];
    let mut writers = writers(nodes.into_iter(), 2).await;
    let mut channels = Vec::new();
    for (number, local) in [(0, false), (1, true), (2, false), (3, true)] {
        channels.push(if local {
            ChannelSource::Local(request(number, 0))
        } else {
            producer.remote(number, 0)
        });
    }
    let mut gate = consumer.consume(channels).await;
    settle().await;
    for round in 0..40 {
        for (number, writer) in writers.iter_mut().enumerate() {
            // One of them always writes twice as much, as far as it may.
            for _ in 0..=usize::from(number == round % 2) {
                assert!(writer.try_emit(0, &[7; 996]).unwrap());
            }
        }
        settle().await;
        drained_evenly(&mut gate, 4, 4).await;
    }
}
