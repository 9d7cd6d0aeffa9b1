//! Ends a worker that has just started and is in the way of a main job. While a main job waits for all its
//! nodes, Slurm may start our job on one of them. It takes that back only when it next looks at the whole
//! queue, up to a minute later.
//!
//! Seen on 24.11: the main scheduler preempts for a job and goes on. While that job's nodes become free,
//! backfill leaves it out, and starts the jobs behind it on its idle nodes. Usually the daemon handles this.
//! If the daemon does not answer, or cannot accept the worker because slurmrestd is away, the worker has
//! nothing to do, and leaves.

use std::time::Duration;

use chrono::{Local, NaiveDateTime, TimeDelta};
use tokio::time::timeout;

use infill_model::is_waiting_for_nodes;

use super::daemon_link::DaemonLink;
use super::slurm_programs::{SlurmPrograms, run_program};

/// By this time a daemon that works has sent its first directive.
pub(crate) const FIRST_DIRECTIVE_WAIT: Duration = Duration::from_secs(1);

/// Within this time a daemon answers that it is healthy, whatever the state of Slurm.
const HEALTH_TIMEOUT: Duration = Duration::from_millis(500);

/// How long Slurm's program may take.
const LOOK_TIMEOUT: Duration = Duration::from_secs(10);

/// How recently a main job must have been submitted, seconds. Earlier ones wait for something else.
const RECENT_SECS: i64 = 60;

/// Whether no daemon takes care of this worker, and a main job that was submitted recently waits for nodes.
/// `malleable`: our own partition.
pub(crate) async fn blocks_main_job(link: &DaemonLink, programs: &SlurmPrograms, malleable: &str) -> bool {
    if link.was_accepted()
        && timeout(HEALTH_TIMEOUT, link.is_daemon_healthy()).await.is_ok_and(|healthy| healthy)
    {
        return false;
    }
    let args = ["--states=PENDING", "--noheader", "--format=%P|%r|%V"];
    match run_program(&programs.squeue, &args, "", LOOK_TIMEOUT).await {
        Ok(text) => text.lines().any(|line| waits_for_nodes(line, malleable, Local::now().naive_local())),
        Err(error) => {
            tracing::warn!(%error, "squeue does not say which jobs wait");
            false
        }
    }
}

/// Whether `PARTITION|REASON|SUBMITTED` describes such a job. A line that cannot be read does not.
fn waits_for_nodes(line: &str, malleable: &str, now: NaiveDateTime) -> bool {
    let mut words = line.trim().split('|');
    let Some(partition) = words.next() else { return false };
    let Some(reason) = words.next() else { return false };
    let Some(submitted) = words.next() else { return false };
    let is_recent = NaiveDateTime::parse_from_str(submitted, "%Y-%m-%dT%H:%M:%S")
        .is_ok_and(|time| now.signed_duration_since(time).abs() < TimeDelta::seconds(RECENT_SECS));
    partition != malleable && is_waiting_for_nodes(reason) && is_recent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recent_main_jobs_that_wait_for_nodes_are_recognised() {
        let now = NaiveDateTime::parse_from_str("2026-11-25T03:26:41", "%Y-%m-%dT%H:%M:%S").unwrap();
        for (line, waits) in [
            ("debug|Resources|2026-11-25T03:26:39", true),
            ("main,long|Priority|2026-11-25T03:25:50", true),
            ("main|Resources|2026-11-25T03:20:00", false),
            ("main|Dependency|2026-11-25T03:26:39", false),
            ("infill|Resources|2026-11-25T03:26:39", false),
            ("main|Resources|N/A", false),
            ("main|Resources", false),
            ("", false),
        ] {
            assert_eq!(waits_for_nodes(line, "infill", now), waits, "{line}");
        }
    }
}
