//! Tests of the TaskExecutor.
