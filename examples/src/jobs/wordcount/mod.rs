//! WordCount: files to words to counts.

mod generate;
mod input;
mod job;
mod paths;
mod pieces;
mod report;
mod splits;
mod stages;
mod tasks;
mod words;

pub use input::{FileList, Input};
pub use job::{COUNT_TASK, GENERATED_BYTES, SOURCE_TASK, TOKENIZE_TASK, WordCount};
pub use paths::{PathError, Selection, SourceFile, select};
pub use pieces::Pieces;
pub use report::{Counts, WordCountResult};
pub use stages::{Counter, SourceReader, Tokenizer};
pub use tasks::{CountTask, SourceTask, TokenizeTask};
