//! The task types of the job.

use thalweg_runtime::{
    job::decode_config,
    task::{Task, TaskContext, TaskError},
};

use super::{
    input::Input,
    pieces::Pieces,
    stages::{Counter, SourceReader, Tokenizer},
};

/// Reads its part of the input and sends it line by line. Not light: it waits for the disk.
#[derive(Debug)]
pub struct SourceTask(Input);

/// Cuts lines into words and sends each to the task that counts it. Not light: a line without an end is megabytes long.
#[derive(Debug)]
pub struct TokenizeTask;

/// Counts its words and publishes the counts. Not light: at the end it sorts as many words as there are.
#[derive(Debug)]
pub struct CountTask;

impl Task for SourceTask {
    fn from_config(config: &[u8]) -> Result<Self, TaskError> {
        decode_config(config).map(Self).map_err(|reason| {
            TaskError::permanent(format!("the input of wordcount cannot be read: {reason}"))
        })
    }

    async fn run(&mut self, context: &mut TaskContext) -> Result<(), TaskError> {
        let mut reader = SourceReader::new(
            &self.0,
            context.info().subtask(),
            context.info().parallelism(),
        )
        .map_err(TaskError::permanent)?;
        let mut batch = Pieces::new();
        while reader
            .next_batch(&mut batch)
            .map_err(TaskError::permanent)?
        {
            for line in batch.iter() {
                context.output(0).emit(line).await?;
            }
            context.progress(reader.progress());
        }
        context.progress(reader.progress());
        let notes = reader.notes();
        if notes.is_empty() {
            return Ok(());
        }
        context.result().write(notes.as_bytes()).await
    }
}

impl Task for TokenizeTask {
    fn from_config(_config: &[u8]) -> Result<Self, TaskError> {
        Ok(Self)
    }

    async fn run(&mut self, context: &mut TaskContext) -> Result<(), TaskError> {
        let mut tokenizer = Tokenizer::default();
        while let Some((_, line)) = context.input(0).next().await? {
            for word in tokenizer.words(&line).iter() {
                context.output(0).emit_keyed(word, word).await?;
            }
        }
        Ok(())
    }
}

impl Task for CountTask {
    fn from_config(_config: &[u8]) -> Result<Self, TaskError> {
        Ok(Self)
    }

    async fn run(&mut self, context: &mut TaskContext) -> Result<(), TaskError> {
        let mut counter = Counter::default();
        while let Some((_, word)) = context.input(0).next().await? {
            counter.add(&word).map_err(TaskError::permanent)?;
        }
        for chunk in counter.into_chunks() {
            context.result().write(chunk.as_bytes()).await?;
        }
        Ok(())
    }
}
