//! Finds and signals all processes of a command, also those that left its process group.
//!
//! Launchers such as `torchrun` start their workers in sessions of their own, and may die before them. So
//! infill recognises the processes of a command by a mark in their environment, besides their process group.

use std::os::unix::fs::MetadataExt;

/// The variable that marks the processes of one start of the command.
pub(crate) const MARK_VARIABLE: &str = "INFILL_COMMAND";

/// The processes of one start of the command.
#[derive(Clone, Debug)]
pub(crate) struct CommandProcesses {
    /// Process groups of the local ranks, which are also the ranks' process ids.
    groups: Vec<i32>,
    /// `INFILL_COMMAND=…` as it stands in their environment.
    mark: Vec<u8>,
}

impl CommandProcesses {
    /// Processes in these groups, or with this value of [`MARK_VARIABLE`].
    pub fn new(groups: Vec<i32>, mark: &str) -> CommandProcesses {
        CommandProcesses { groups, mark: format!("{MARK_VARIABLE}={mark}").into_bytes() }
    }

    /// Sends a signal to all these processes. The groups get it at once, strays after a scan of `/proc`.
    pub async fn signal_all(&self, signal: i32) {
        for &group in &self.groups {
            send_signal(-group, signal);
        }
        for stray in self.find_processes(false).await {
            send_signal(stray, signal);
        }
    }

    /// Asks the command to save and exit, by a signal. Returns the processes that it spares for now: those
    /// that would die of the signal while others handle it, such as servers that the command has started.
    /// A rank's first process is never spared, because a shell must not go on after its program.
    pub async fn ask_all(&self, signal: i32) -> Vec<i32> {
        let mut spared = Vec::new();
        let mut takers = Vec::new();
        for process in self.find_processes(true).await {
            // A process without a status has ended since it was found.
            let Some(status) = process_status(process) else { continue };
            let side = if dies_of_signal(&status, signal) { &mut spared } else { &mut takers };
            side.push(process);
        }
        if takers.is_empty() {
            self.signal_all(signal).await;
            return Vec::new();
        }
        let is_first = |pid: &i32| self.groups.contains(pid);
        for process in takers.iter().chain(spared.iter().filter(|pid| is_first(pid))) {
            send_signal(*process, signal);
        }
        spared.into_iter().filter(|pid| !is_first(pid)).collect()
    }

    /// Sends a signal to those of these processes that still live and are ours.
    pub async fn signal_some(&self, processes: &[i32], signal: i32) {
        for process in self.find_processes(true).await {
            if processes.contains(&process) {
                send_signal(process, signal);
            }
        }
    }

    /// Whether any of these processes lives; zombies don't count.
    pub async fn any_alive(&self) -> bool {
        !self.find_processes(true).await.is_empty()
    }

    /// How the command's processes take a signal: the way of the first that does not catch it, else of any.
    /// `None` if none of them lives.
    pub async fn signal_handling(&self, signal: i32) -> Option<SignalHandling> {
        let pids = self.find_processes(true).await;
        let handling = |pid: i32| SignalHandling::from_status(&process_status(pid)?, signal);
        pids.into_iter().filter_map(handling).min()
    }

    async fn find_processes(&self, in_groups: bool) -> Vec<i32> {
        let processes = self.clone();
        // Reading /proc takes 10 ms and more on a node with thousands of processes.
        tokio::task::spawn_blocking(move || processes.scan_proc(in_groups)).await.unwrap_or_default()
    }

    /// Ids of marked processes outside the groups and, with `in_groups`, of those in the groups.
    fn scan_proc(&self, in_groups: bool) -> Vec<i32> {
        let mut found = Vec::new();
        for (pid, group) in own_processes() {
            if self.groups.contains(&group) {
                found.extend(in_groups.then_some(pid));
            } else if process_environment(pid).contains(&self.mark) {
                found.push(pid);
            }
        }
        found
    }
}

/// How a process takes a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SignalHandling {
    /// The kernel drops the signal for it.
    Ignored,
    /// It holds the signal back.
    Blocked,
    /// Something in it handles the signal, or it would die of it.
    Taken,
}

impl SignalHandling {
    /// Reads it from `/proc/PID/status`; `None` if the text has no masks of signals.
    fn from_status(text: &str, signal: i32) -> Option<SignalHandling> {
        Some(match (has_signal(text, "SigIgn:", signal)?, has_signal(text, "SigBlk:", signal)?) {
            (true, _) => SignalHandling::Ignored,
            (false, true) => SignalHandling::Blocked,
            (false, false) => SignalHandling::Taken,
        })
    }
}

/// Whether a mask of signals in `/proc/PID/status` has this signal; `None` if the text has no such mask.
fn has_signal(status: &str, mask: &str, signal: i32) -> Option<bool> {
    let bit = 1u64.checked_shl(u32::try_from(signal).ok()?.checked_sub(1)?)?;
    let digits = status.lines().find_map(|line| line.strip_prefix(mask))?;
    Some(u64::from_str_radix(digits.trim(), 16).ok()? & bit != 0)
}

/// Whether a process with this status neither handles, holds back nor ignores the signal.
fn dies_of_signal(status: &str, signal: i32) -> bool {
    ["SigCgt:", "SigBlk:", "SigIgn:"].iter().all(|mask| has_signal(status, mask, signal) == Some(false))
}

/// What `/proc` says of a process; `None` if it is gone.
fn process_status(pid: i32) -> Option<String> {
    std::fs::read_to_string(format!("/proc/{pid}/status")).ok()
}

/// The living processes of our user: process id and process group.
pub(crate) fn own_processes() -> impl Iterator<Item = (i32, i32)> {
    // SAFETY: geteuid has no preconditions and cannot fail.
    let uid = unsafe { libc::geteuid() };
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let mine = entries.filter(move |entry| entry.metadata().is_ok_and(|m| m.uid() == uid));
    mine.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        Some((pid, live_group(pid)?))
    })
}

/// The environment variables with which a process was started, as `NAME=VALUE`.
pub(crate) fn process_environment(pid: i32) -> Vec<Vec<u8>> {
    let text = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    text.split(|&byte| byte == 0).map(<[u8]>::to_vec).collect()
}

/// The process group of a process; `None` if it has ended, also if it is a zombie.
fn live_group(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain anything, also parentheses and blanks.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    let group = fields.nth(1)?.parse().ok()?;
    (!["Z", "X"].contains(&state)).then_some(group)
}

/// Sends a signal to a process, or to a group by its negative id.
pub(crate) fn send_signal(target: i32, signal: i32) {
    // SAFETY: kill has no preconditions. It fails if the target is gone, which does no harm.
    unsafe { libc::kill(target, signal) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_of_signals_are_read() {
        let read = |text: &str| SignalHandling::from_status(text, libc::SIGUSR1);
        assert_eq!(
            read("SigBlk:\t0000000000000000\nSigIgn:\t0000000000000200\n"),
            Some(SignalHandling::Ignored)
        );
        assert_eq!(
            read("SigBlk:\t0000000000000200\nSigIgn:\t0000000000001000\n"),
            Some(SignalHandling::Blocked)
        );
        assert_eq!(
            read("SigBlk:\t0000000000000000\nSigIgn:\t0000000000000100\n"),
            Some(SignalHandling::Taken)
        );
        assert_eq!(read("Name:\tpython\n"), None);
        assert_eq!(SignalHandling::from_status("SigIgn:\t0\nSigBlk:\t0\n", 0), None);
        let masks = |caught: &str| format!("SigBlk:\t0\nSigIgn:\t0\nSigCgt:\t{caught}\n");
        assert!(dies_of_signal(&masks("100"), libc::SIGUSR1));
        assert!(!dies_of_signal(&masks("200"), libc::SIGUSR1));
        assert!(!dies_of_signal("Name:\tpython\n", libc::SIGUSR1), "unknown");
    }
}
