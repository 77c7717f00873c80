//! Registering at a leader: attempts that repeat until there is an answer, and the connection that stands on them.
//!
//! [`RetryingRegistration`] and [`RegisteredConnection`] are pure; [`run`] feeds the first with real calls.

mod connection;
mod driver;
mod retrying;

pub use connection::{Notice, RegisteredConnection, RegistrationId, StartError};
pub use driver::{Answer, AttemptError, Outcome, Target, run};
pub use retrying::{
    Action, Attempt, End, Event, RegistrationConfig, RetryingRegistration, jittered,
};
