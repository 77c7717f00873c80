//! Runs one job: slots, deployment, states, restarts, result.

mod execution_graph;
mod restart;
mod results;
