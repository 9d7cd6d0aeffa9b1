//! A shell loop that watches over a wing until its agent runs.
//!
//! Slurm signals a preemption to a batch script only at the end of the grace time. While slurmctld is away,
//! or has just started, `srun` waits, perhaps for a minute. Then there is no step that could get a signal. So
//! the script itself asks squeue until the agent runs, and ends if the node is wanted.

use super::processes::{process_environment, send_signal};
use infill_model::JobId;

/// The variable with the watcher's process id, for the agent.
const WATCHER_VARIABLE: &str = "INFILL_WATCHER";

/// Lines of a wing's script, before it becomes `srun`. They ask every three seconds, as a lead's script does.
pub(crate) const WATCHER_LINES: &str = r#"(while sleep 3; do
    squeue -h -O PreemptTime:40,StartTime:40 -j "$SLURM_JOB_ID" 2>/dev/null |
        awk '$1 ~ /^[0-9]/ && $1 >= $2 { told = 1 } END { exit !told }' && kill $$ && exit
done) &
export INFILL_WATCHER=$!
"#;

/// Ends the watcher: the agent runs now, and checks for itself.
pub(crate) fn dismiss_watcher(job: JobId) {
    let watcher = std::env::var(WATCHER_VARIABLE).ok().and_then(|pid| pid.parse::<i32>().ok());
    let Some(watcher) = watcher.filter(|pid| *pid > 1) else { return };
    // On a wing's other nodes there is no watcher, and another process may have its number there.
    if process_environment(watcher).contains(&format!("SLURM_JOB_ID={job}").into_bytes()) {
        send_signal(watcher, libc::SIGTERM);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::process::Command;
    use tokio::time::{Instant, sleep};

    use super::*;
    use infill_testkit::write_script;

    /// A `sleep` that shortens three seconds, and no other time.
    const SLEEP: &str = r#"case $1 in 3) exec /bin/sleep 0.02;; *) exec /bin/sleep "$1";; esac"#;

    /// Whether a script whose `srun` waits ends before it asks again, if squeue gives this answer.
    async fn is_ended(squeue: &str) -> bool {
        let dir = tempfile::tempdir().unwrap();
        let call_log = dir.path().join("calls");
        write_script(dir.path().join("squeue"), &format!("echo >>{}; {squeue}", call_log.display()));
        write_script(dir.path().join("sleep"), SLEEP);
        let path = format!("{}:{}", dir.path().display(), std::env::var("PATH").unwrap());
        let mut script = Command::new("sh");
        script
            .args(["-c", &format!("{WATCHER_LINES}exec sleep 60")])
            .env("PATH", path)
            .env("SLURM_JOB_ID", "7");
        let mut child = script.process_group(0).spawn().unwrap();
        let group = child.id().and_then(|id| i32::try_from(id).ok()).unwrap();
        let calls = || std::fs::read_to_string(&call_log).unwrap_or_default().lines().count();
        let deadline = Instant::now() + Duration::from_secs(20);
        while child.try_wait().unwrap().is_none() && calls() < 2 {
            assert!(Instant::now() < deadline, "it asks once in three seconds");
            sleep(Duration::from_millis(5)).await;
        }
        let ended = calls() < 2;
        send_signal(-group, libc::SIGKILL);
        ended
    }

    #[tokio::test]
    async fn a_wing_whose_node_is_wanted_is_ended_before_its_step_begins() {
        let (wanted, free, earlier) = tokio::join!(
            is_ended("echo 2026-11-24T22:03:25 2026-11-24T22:01:00"),
            is_ended("echo N/A 2026-11-24T22:01:00"),
            is_ended("echo 2026-11-24T22:03:25 2026-11-24T22:05:00"),
        );
        assert!(wanted && !free && !earlier);
    }
}
