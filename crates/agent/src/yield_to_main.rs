//! A start that nobody wants any more: while a main job takes its nodes together, Slurm may start ours on one
//! of them, and it takes that back only when it next looks at the whole queue, up to a minute later.
//!
//! Seen on 24.11: the main scheduler preempts for a job and goes on; backfill leaves that job out while its
//! nodes become free, and starts what waits behind it on those that were idle. The daemon sees to it. Where
//! it does not answer, or cannot take anybody in because slurmrestd does not, a worker that has just begun
//! has nothing to do, and goes.

use std::time::Duration;

use chrono::{Local, NaiveDateTime, TimeDelta};
use tokio::time::timeout;

use infill_model::is_waiting_for_nodes;

use super::daemon_link::DaemonLink;
use super::slurm_programs::{SlurmPrograms, run_program};

/// By then a daemon has said what to do.
pub(crate) const FIRST_DIRECTIVE_WAIT: Duration = Duration::from_secs(1);

/// A daemon that is there says so within this time, whatever becomes of Slurm.
const HEALTH_TIMEOUT: Duration = Duration::from_millis(500);

/// Slurm's program may take so long.
const LOOK_TIMEOUT: Duration = Duration::from_secs(10);

/// Main jobs that were submitted before wait for something else, seconds.
const RECENT_SECS: i64 = 60;

/// Whether no daemon says what to do, and a main job that has come lately waits for nodes. `malleable`: our
/// own partition.
pub(crate) async fn blocks_main_job(link: &DaemonLink, programs: &SlurmPrograms, malleable: &str) -> bool {
    if link.was_accepted() && timeout(HEALTH_TIMEOUT, link.is_daemon_healthy()).await.is_ok_and(|well| well) {
        return false;
    }
    let args = ["--states=PENDING", "--noheader", "--format=%P|%r|%V"];
    match run_program(&programs.squeue, &args, "", LOOK_TIMEOUT).await {
        Ok(text) => text.lines().any(|line| waits_for_nodes(line, malleable, Local::now().naive_local())),
        Err(error) => {
            tracing::warn!(%error, "squeue does not say who waits");
            false
        }
    }
}

/// Whether `PARTITION|REASON|SUBMITTED` tells of such a job. What cannot be read is none.
fn waits_for_nodes(line: &str, malleable: &str, now: NaiveDateTime) -> bool {
    let mut words = line.trim().split('|');
    let (Some(partition), Some(reason), Some(at)) = (words.next(), words.next(), words.next()) else {
        return false;
    };
    let lately = NaiveDateTime::parse_from_str(at, "%Y-%m-%dT%H:%M:%S")
        .is_ok_and(|at| now.signed_duration_since(at).abs() < TimeDelta::seconds(RECENT_SECS));
    partition != malleable && is_waiting_for_nodes(reason) && lately
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_nodes() {
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
