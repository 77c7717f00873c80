//! The configuration file, environment and flags.
