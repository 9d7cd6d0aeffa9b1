//! Signals that Slurm and users send to a step.

use std::io;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// Signals that wait for the worker; more say nothing new.
const QUEUE: usize = 4;

/// Exit code of a lead that left because of SIGTERM: what a shell says of a program that died of it.
pub(crate) const EXIT_TERMINATED: i32 = 143;

/// A signal to the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AgentSignal {
    /// SIGTERM or SIGINT: the node is wanted, or the job's time is up.
    Leave,
    /// A user's signal to the whole step, which the command has got too.
    User(i32),
}

/// Listens for them.
pub(crate) fn listen_for_signals() -> io::Result<mpsc::Receiver<AgentSignal>> {
    let (sender, receiver) = mpsc::channel(QUEUE);
    let kinds = [
        (libc::SIGTERM, AgentSignal::Leave),
        (libc::SIGINT, AgentSignal::Leave),
        (libc::SIGUSR1, AgentSignal::User(libc::SIGUSR1)),
        (libc::SIGUSR2, AgentSignal::User(libc::SIGUSR2)),
        (libc::SIGHUP, AgentSignal::User(libc::SIGHUP)),
    ];
    for (number, told) in kinds {
        let mut stream = signal(SignalKind::from_raw(number))?;
        let sender = sender.clone();
        tokio::spawn(
            async move { while stream.recv().await.is_some() && sender.send(told).await.is_ok() {} },
        );
    }
    Ok(receiver)
}
