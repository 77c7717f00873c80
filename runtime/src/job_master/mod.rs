//! Runs one job: slots, deployment, states, restarts, result.

mod deployment;
mod execution_graph;
mod restart;
mod results;
mod slot_pool;
