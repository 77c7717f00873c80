//! The task types of the job.

use thalweg_runtime::{
    job::decode_config,
    task::{Task, TaskContext, TaskError},
};

use super::{
    ends::{Sink, Source},
    job::ShuffleConfig,
};

/// Generates records, some for each sink. Light with the records of ordinary jobs: one of many megabytes is made, and
/// checked by its sink, in one step.
#[derive(Debug)]
pub struct SourceTask(ShuffleConfig);

/// Checks records, and publishes how many there were.
#[derive(Debug)]
pub struct SinkTask(ShuffleConfig);

impl Task for SourceTask {
    const LIGHT: bool = true;

    fn from_config(config: &[u8]) -> Result<Self, TaskError> {
        decode(config).map(Self)
    }

    async fn run(&mut self, context: &mut TaskContext) -> Result<(), TaskError> {
        let mut source = Source::new(
            &self.0,
            context.info().subtask(),
            context.info().parallelism(),
        );
        let mut record = Vec::with_capacity(self.0.record_bytes as usize);
        let mut until_report = 0_usize;
        while let Some(sink) = source.next_into(&mut record) {
            context.output(0).emit_to(sink as usize, &record).await?;
            until_report = until_report.saturating_sub(record.len());
            if until_report == 0 {
                context.progress(source.progress());
                until_report = REPORT_BYTES;
            }
        }
        context.progress(source.progress());
        Ok(())
    }
}

impl Task for SinkTask {
    const LIGHT: bool = true;

    fn from_config(config: &[u8]) -> Result<Self, TaskError> {
        decode(config).map(Self)
    }

    async fn run(&mut self, context: &mut TaskContext) -> Result<(), TaskError> {
        let mut sink = Sink::new(
            &self.0,
            context.info().subtask(),
            context.info().parallelism(),
        );
        while let Some((channel, record)) = context.input(0).next().await? {
            sink.check(channel, &record).map_err(TaskError::permanent)?;
        }
        let line = sink.finish().map_err(TaskError::permanent)?;
        context.result().write(line.as_bytes()).await
    }
}

fn decode(config: &[u8]) -> Result<ShuffleConfig, TaskError> {
    decode_config(config).map_err(|reason| {
        TaskError::permanent(format!(
            "the configuration of shuffle cannot be read: {reason}"
        ))
    })
}

/// Between two notes about how far a source is.
const REPORT_BYTES: usize = 1024 * 1024;
