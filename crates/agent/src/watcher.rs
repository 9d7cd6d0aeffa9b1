//! What watches over a wing until its agent lives.
//!
//! Slurm tells a batch script of a preemption only at the end of the grace time. While slurmctld is away, or
//! has just begun, `srun` waits, perhaps for a minute, and there is no step that could be told. So the script
//! itself asks squeue until the agent has begun, and is ended if the node is wanted.

use super::processes::{process_environment, send_signal};
use infill_model::JobId;

/// Tells the agent the watcher's process.
const WATCHER_VARIABLE: &str = "INFILL_WATCHER";

/// Lines of a wing's script, before it becomes `srun`: every three seconds, as in a lead's.
pub(crate) const WATCHER_LINES: &str = r#"(while sleep 3; do
    squeue -h -O PreemptTime:40,StartTime:40 -j "$SLURM_JOB_ID" 2>/dev/null |
        awk '$1 ~ /^[0-9]/ && $1 >= $2 { told = 1 } END { exit !told }' && kill $$ && exit
done) &
export INFILL_WATCHER=$!
"#;

/// The agent has begun, and looks for itself.
pub(crate) fn dismiss_watcher(job: JobId) {
    let watcher = std::env::var(WATCHER_VARIABLE).ok().and_then(|pid| pid.parse::<i32>().ok());
    // The agents of a wing's other nodes have no watcher beside them, and its number may be somebody's there.
    let is_of = |pid: &i32| process_environment(*pid).contains(&format!("SLURM_JOB_ID={job}").into_bytes());
    if let Some(watcher) = watcher.filter(|pid| *pid > 1 && is_of(pid)) {
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

    /// Three seconds are short here, and no other time is.
    const SLEEP: &str = r#"case $1 in 3) exec /bin/sleep 0.02;; *) exec /bin/sleep "$1";; esac"#;

    /// Whether a script whose `srun` waits is ended before it asks again, where squeue says this.
    async fn is_ended(squeue: &str) -> bool {
        let dir = tempfile::tempdir().unwrap();
        let asked = dir.path().join("asked");
        write_script(dir.path().join("squeue"), &format!("echo >>{}; {squeue}", asked.display()));
        write_script(dir.path().join("sleep"), SLEEP);
        let path = format!("{}:{}", dir.path().display(), std::env::var("PATH").unwrap());
        let mut waits = Command::new("sh");
        waits
            .args(["-c", &format!("{WATCHER_LINES}exec sleep 60")])
            .env("PATH", path)
            .env("SLURM_JOB_ID", "7");
        let mut child = waits.process_group(0).spawn().unwrap();
        let group = child.id().and_then(|id| i32::try_from(id).ok()).unwrap();
        let times = || std::fs::read_to_string(&asked).unwrap_or_default().lines().count();
        let deadline = Instant::now() + Duration::from_secs(20);
        while child.try_wait().unwrap().is_none() && times() < 2 {
            assert!(Instant::now() < deadline, "it asks once in three seconds");
            sleep(Duration::from_millis(5)).await;
        }
        let ended = times() < 2;
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
