//! Signals that Slurm and users send to a step.

use std::io;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// How many signals may wait for the worker. More would say nothing new.
const QUEUE: usize = 4;

/// Exit code of a lead that left because of SIGTERM. Shells report it for a program that died of SIGTERM.
pub(crate) const EXIT_TERMINATED: i32 = 143;

/// A signal that the agent received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AgentSignal {
    /// SIGTERM or SIGINT: the node is wanted, or the job's time is up.
    Leave,
    /// A user's signal to the whole step, which the command has received too.
    User(i32),
}

/// Installs handlers for the signals, and returns the channel on which they arrive.
///
/// # Errors
/// When a handler cannot be installed.
pub(crate) fn listen_for_signals() -> io::Result<mpsc::Receiver<AgentSignal>> {
    let (sender, receiver) = mpsc::channel(QUEUE);
    let kinds = [
        (libc::SIGTERM, AgentSignal::Leave),
        (libc::SIGINT, AgentSignal::Leave),
        (libc::SIGUSR1, AgentSignal::User(libc::SIGUSR1)),
        (libc::SIGUSR2, AgentSignal::User(libc::SIGUSR2)),
        (libc::SIGHUP, AgentSignal::User(libc::SIGHUP)),
    ];
    for (number, meaning) in kinds {
        let mut stream = signal(SignalKind::from_raw(number))?;
        let sender = sender.clone();
        tokio::spawn(
            async move { while stream.recv().await.is_some() && sender.send(meaning).await.is_ok() {} },
        );
    }
    Ok(receiver)
}
