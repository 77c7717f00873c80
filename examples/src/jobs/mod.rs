//! The jobs of the example cluster.

mod registry;
pub mod shuffle;
pub mod wordcount;

pub use registry::registry;

/// How far a task is, in the unit of [`TaskMetrics::progress`](thalweg_runtime::job::TaskMetrics::progress): 0 to
/// 10,000. A task with nothing to do is done.
fn progress(done: u64, total: u64) -> u32 {
    if total == 0 {
        return 10_000;
    }
    let share = u128::from(done.min(total)) * 10_000 / u128::from(total);
    u32::try_from(share).unwrap_or(10_000)
}
