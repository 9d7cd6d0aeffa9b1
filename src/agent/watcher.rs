//! What watches over a wing until its agent lives.
//!
//! Slurm tells a batch script of a preemption only at the end of the grace time. While slurmctld is away, or
//! has just begun, `srun` waits, perhaps for a minute, and there is no step that could be told. So the script
//! itself asks squeue until the agent has begun, and is ended if the node is wanted.

use super::processes::{environment, send};
use crate::model::JobId;

/// Tells the agent the watcher's process.
const VARIABLE: &str = "INFILL_WATCHER";

/// Lines of a wing's script, before it becomes `srun`: every three seconds, as in a lead's.
pub const LINES: &str = r#"(while sleep 3; do
    squeue -h -O PreemptTime:40,StartTime:40 -j "$SLURM_JOB_ID" 2>/dev/null |
        awk '$1 ~ /^[0-9]/ && $1 >= $2 { told = 1 } END { exit !told }' && kill $$ && exit
done) &
export INFILL_WATCHER=$!
"#;

/// The agent has begun, and looks for itself.
pub fn dismiss(job: JobId) {
    let watcher = std::env::var(VARIABLE).ok().and_then(|pid| pid.parse::<i32>().ok());
    // The agents of a wing's other nodes have no watcher beside them, and its number may be somebody's there.
    let is_of = |pid: &i32| environment(*pid).contains(&format!("SLURM_JOB_ID={job}").into_bytes());
    if let Some(watcher) = watcher.filter(|pid| *pid > 1 && is_of(pid)) {
        send(watcher, libc::SIGTERM);
    }
}
