//! The task types of this program.

use thalweg_runtime::task::TaskRegistry;

use super::{shuffle, wordcount};

/// The task types of all jobs, by the names that their graphs use.
#[must_use]
pub fn registry() -> TaskRegistry {
    TaskRegistry::new()
        .with::<shuffle::SourceTask>(shuffle::SOURCE_TASK)
        .with::<shuffle::SinkTask>(shuffle::SINK_TASK)
        .with::<wordcount::SourceTask>(wordcount::SOURCE_TASK)
        .with::<wordcount::TokenizeTask>(wordcount::TOKENIZE_TASK)
        .with::<wordcount::CountTask>(wordcount::COUNT_TASK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::{
        shuffle::{Pattern, Shuffle},
        wordcount::WordCount,
    };

    #[test]
    fn every_vertex_of_every_job_has_a_task_that_takes_its_configuration() {
        let registry = registry();
        let graphs = [
            Shuffle::new(1000, 100, Pattern::AllToAll)
                .unwrap()
                .graph(2)
                .unwrap(),
            WordCount::of_generated_text().graph(2).unwrap(),
            WordCount::of_files(Vec::new()).graph(2).unwrap(),
        ];
        for vertex in graphs.iter().flat_map(|graph| &graph.vertices) {
            registry.make(&vertex.task, &vertex.config).unwrap();
            if !vertex.config.is_empty() {
                let error = registry.make(&vertex.task, b"\xff").unwrap_err();
                assert!(error.to_string().contains("cannot be read"), "{error}");
            }
        }
    }
}
