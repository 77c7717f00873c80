//! Ctrl-C and SIGTERM.

use std::{io, process, time::Duration};

use tokio::{
    signal::unix::{Signal as SignalStream, SignalKind, signal},
    sync::watch,
    task::JoinSet,
};

use super::failure::Failure;

/// A request of the user or of the system to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    /// Ctrl-C.
    Interrupt,
    /// SIGTERM.
    Terminate,
}

/// Listens for signals as long as it lives. The second one ends the process at once, as does a first one whose
/// consequences take longer than the limit.
#[derive(Debug)]
pub(crate) struct Signals {
    received: watch::Receiver<Option<Signal>>,
    _listener: JoinSet<()>,
}

/// Sees the first signal; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Stop(watch::Receiver<Option<Signal>>);

impl Signal {
    /// The exit code of a process that ends because of it, as shells count: 128 + number.
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Self::Interrupt => 130,
            Self::Terminate => 143,
        }
    }

    /// The name for messages.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Interrupt => "Ctrl-C",
            Self::Terminate => "SIGTERM",
        }
    }
}

impl Signals {
    /// Begins to listen.
    ///
    /// `limit` is the time that stopping may take; `None` leaves it to the command.
    pub(crate) fn listen(limit: Option<Duration>) -> Result<Self, Failure> {
        let failed =
            |error: io::Error| Failure::failed(format!("cannot listen for signals: {error}"));
        let interrupts = signal(SignalKind::interrupt()).map_err(failed)?;
        let terminations = signal(SignalKind::terminate()).map_err(failed)?;
        let (sender, received) = watch::channel(None);
        let mut listener = JoinSet::new();
        listener.spawn(listen(interrupts, terminations, sender, limit));
        Ok(Self {
            received,
            _listener: listener,
        })
    }

    pub(crate) fn stop(&self) -> Stop {
        Stop(self.received.clone())
    }
}

impl Stop {
    /// Waits for the first signal; for ever, if nobody listens any more.
    ///
    /// # Cancel safety
    /// Cancel-safe.
    pub(crate) async fn requested(&mut self) -> Signal {
        let received = self
            .0
            .wait_for(Option::is_some)
            .await
            .ok()
            .and_then(|signal| *signal);
        match received {
            Some(signal) => signal,
            None => std::future::pending().await,
        }
    }

    /// The signal, if one came.
    pub(crate) fn signal(&self) -> Option<Signal> {
        *self.0.borrow()
    }

    /// One that is sent by hand.
    #[cfg(test)]
    pub(crate) fn by_hand() -> (watch::Sender<Option<Signal>>, Self) {
        let (sender, receiver) = watch::channel(None);
        (sender, Self(receiver))
    }
}

async fn listen(
    mut interrupts: SignalStream,
    mut terminations: SignalStream,
    sender: watch::Sender<Option<Signal>>,
    limit: Option<Duration>,
) {
    let first = next(&mut interrupts, &mut terminations).await;
    sender.send_replace(Some(first));
    let late = async {
        match limit {
            Some(limit) => tokio::time::sleep(limit).await,
            None => std::future::pending().await,
        }
    };
    let last = tokio::select! {
        second = next(&mut interrupts, &mut terminations) => second,
        () = late => first,
    };
    process::exit(i32::from(last.exit_code()));
}

async fn next(interrupts: &mut SignalStream, terminations: &mut SignalStream) -> Signal {
    tokio::select! {
        _ = interrupts.recv() => Signal::Interrupt,
        _ = terminations.recv() => Signal::Terminate,
    }
}
