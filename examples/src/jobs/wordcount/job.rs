//! The job: files or a generated text, counted by word.

use thalweg_runtime::job::{Distribution, JobGraph, JobGraphError};

use super::{input::Input, paths::SourceFile};

/// WordCount over an input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WordCount {
    files: Option<Vec<SourceFile>>,
    input: Input,
}

impl WordCount {
    /// Counts these files.
    #[must_use]
    pub fn of_files(files: Vec<SourceFile>) -> Self {
        let input = Input::files(&files);
        Self {
            files: Some(files),
            input,
        }
    }

    /// Counts [`GENERATED_BYTES`] of generated text.
    #[must_use]
    pub fn of_generated_text() -> Self {
        Self {
            files: None,
            input: Input::generated(GENERATED_BYTES),
        }
    }

    /// The files, in the order in which the result's notes number them; `None` for generated text.
    #[must_use]
    pub fn files(&self) -> Option<&[SourceFile]> {
        self.files.as_deref()
    }

    /// Vertices `source`, `tokenize` and `count` of the same parallelism.
    ///
    /// # Errors
    /// [`JobGraphError`] for a parallelism that is not allowed.
    pub fn graph(&self, parallelism: u32) -> Result<JobGraph, JobGraphError> {
        let mut graph = JobGraph::new("wordcount");
        let source = graph
            .vertex("source", SOURCE_TASK)
            .parallelism(parallelism)
            .config(&self.input)?
            .id();
        let tokenize = graph
            .vertex("tokenize", TOKENIZE_TASK)
            .parallelism(parallelism)
            .id();
        let count = graph
            .vertex("count", COUNT_TASK)
            .parallelism(parallelism)
            .id();
        graph
            .connect(source, tokenize, Distribution::Rebalance)
            .connect(tokenize, count, Distribution::Hash);
        graph.validate()?;
        Ok(graph)
    }
}

/// Registered name of the task that reads lines.
pub const SOURCE_TASK: &str = "wordcount-source";
/// Registered name of the task that cuts lines into words.
pub const TOKENIZE_TASK: &str = "wordcount-tokenize";
/// Registered name of the task that counts words.
pub const COUNT_TASK: &str = "wordcount-count";
/// Text that is counted when no file is named: some seconds of work.
pub const GENERATED_BYTES: u64 = 32 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use thalweg_runtime::job::decode_config;

    use super::*;

    #[test]
    fn lines_are_balanced_and_words_meet_by_hash() {
        let graph = WordCount::of_generated_text().graph(3).unwrap();
        let shape: Vec<(&str, u32)> = graph
            .vertices
            .iter()
            .map(|vertex| (vertex.task.as_str(), vertex.parallelism))
            .collect();
        assert_eq!(
            shape,
            [(SOURCE_TASK, 3), (TOKENIZE_TASK, 3), (COUNT_TASK, 3)]
        );
        let ways: Vec<Distribution> = graph.edges.iter().map(|edge| edge.distribution).collect();
        assert_eq!(ways, [Distribution::Rebalance, Distribution::Hash]);
        assert_eq!(
            graph.slots_by_group().into_iter().collect::<Vec<_>>(),
            [(0, 3)]
        );
        assert_eq!(
            decode_config(&graph.vertices[0].config),
            Ok(Input::Generated { blocks: 512 })
        );
    }
}
