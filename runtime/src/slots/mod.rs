//! Task slots of a TaskExecutor.
