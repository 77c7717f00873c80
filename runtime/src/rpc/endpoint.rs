//! What an engine implements: the state of an endpoint.

use super::{answer::Answer, context::Context, error::HandlerError};

/// The state of an endpoint. One task owns it and handles one message at a time: its *main thread*.
///
/// It implements the server trait of each gateway that it serves. A panic in it ends the endpoint and fails its
/// service with all other endpoints: the state may be half changed.
pub trait Endpoint: Send + Sized + 'static {
    /// Runs on the main thread when the endpoint is started, and again when it is started after a stop.
    ///
    /// # Errors
    /// Ends the endpoint; its termination fails with
    /// [`TerminationError::StartFailed`](super::TerminationError::StartFailed).
    fn on_start(&mut self, cx: &mut Context<Self>) -> Result<(), HandlerError> {
        let _ = cx;
        Ok(())
    }

    /// Runs on the main thread, once, when a started endpoint is terminated. Timers are already cancelled.
    ///
    /// Calls and main-thread functions are served until the answer is there; then the endpoint ends at once, and its
    /// termination has the answer as its result.
    fn on_stop(&mut self, cx: &mut Context<Self>) -> Answer<()> {
        let _ = cx;
        Answer::ok(())
    }
}
