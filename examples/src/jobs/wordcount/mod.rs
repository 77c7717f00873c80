//! WordCount: files to words to counts.

mod generate;
mod paths;
mod report;
mod splits;
mod words;
