//! Registers TaskManagers, watches them, and gives their slots to jobs.

mod slot_manager;
