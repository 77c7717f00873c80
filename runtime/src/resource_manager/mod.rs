//! Registers TaskManagers, watches them, and gives their slots to jobs.

mod endpoint;
mod gateway;
mod report;
mod slot_manager;

pub use endpoint::ResourceManager;
