//! The task of a gate that lets the size of buffers follow its throughput.

use tokio::time::{MissedTickBehavior, interval};

use super::gate_handle::GateHandle;
use crate::proto::debloat::{BufferDebloater, DEBLOAT_PERIOD};

/// Runs until the gate is cancelled.
pub(super) async fn debloat(gate: GateHandle) {
    let cancel = gate.core.cancel.clone();
    cancel.run_until_cancelled(announce(&gate)).await;
}

async fn announce(gate: &GateHandle) {
    let largest = u32::try_from(gate.core.pool.buffer_bytes()).unwrap_or(u32::MAX);
    let mut debloater = BufferDebloater::new(largest);
    let mut ticks = interval(DEBLOAT_PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let stats = gate.core.counters.snapshot();
        let total = stats.bytes_local + stats.bytes_remote;
        let (channels, throughput) = {
            let mut state = gate.core.lock();
            let sample = state
                .meter
                .as_mut()
                .and_then(|meter| meter.sample(crate::now(), total));
            (state.channels.len(), sample)
        };
        let Some(throughput) = throughput else {
            continue;
        };
        let in_use = (0..channels).fold(0, |sum: u32, channel| {
            sum.saturating_add(gate.core.buffers_in_use(channel))
        });
        let Some(bytes) = debloater.on_sample(throughput, in_use) else {
            continue;
        };
        tracing::trace!(gate = %gate.core.name, bytes, in_use, throughput, "new buffer size");
        for channel in 0..channels {
            // A gate that was closed meanwhile ends this task.
            let _ = gate.announce_buffer_size(channel, bytes);
        }
    }
}
