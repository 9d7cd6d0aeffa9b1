//! Training alone: what a lead does without the daemon, on its one node, if its owner said so.
//!
//! It is no generation of the daemon's, and never overlaps one. Before it starts, the daemon can no longer be
//! reached by us (the door is shut) and the wings are gone; before the daemon hears from us again, it has
//! saved and ended.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use infill_model::{GenerationMember, JobId, NodeName, wing_name};

use super::daemon_link::{DaemonLink, free_port};
use super::slurm_programs::{SlurmPrograms, run_program};
use super::worker_event::{SilenceGuard, WorkerEvent};

/// Stands for the command that trains alone; the daemon's generations begin at 1.
pub(crate) const ALONE_GENERATION: u64 = 0;

/// How often we look whether the daemon is back.
const DAEMON_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Slurm's programs may take so long.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(30);

/// Wings that were cancelled have ended after so long: the grace of Slurm itself is half a minute.
const WINGS_END_TIMEOUT: Duration = Duration::from_secs(60);

/// How often we look whether they have.
const WINGS_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Pause after a preparation that failed: Slurm is away, too.
const PREPARE_RETRY_PAUSE: Duration = Duration::from_secs(30);

/// Where a lead is with training alone.
pub(crate) enum AloneState {
    /// It does not.
    No,
    /// It will, once its wings are gone.
    Preparing,
    /// It does.
    Yes(#[allow(dead_code, reason = "it is dropped when that ends")] SilenceGuard),
}

/// When a lead begins to train alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AloneTerms {
    /// After the daemon was away for so long.
    pub patience: Duration,
    /// Whether the daemon will never take it in, though it may be well: nobody looks whether it is back.
    pub for_good: bool,
}

/// Makes ready: shuts the door and ends the wings, whose commands may still run. Tells whether it may begin.
pub(crate) async fn prepare_alone(
    link: Arc<DaemonLink>,
    programs: SlurmPrograms,
    job: JobId,
    terms: AloneTerms,
    tell: mpsc::Sender<WorkerEvent>,
) {
    let door = link.block_requests().await;
    let solitude = match check_alone_allowed(&link, &programs, job, terms).await {
        Ok(()) => {
            let teller = tell.clone();
            let knocks = async move {
                if !terms.for_good {
                    wait_for_daemon(link, teller).await;
                }
            };
            Some(SilenceGuard::new(door, tokio::spawn(knocks).abort_handle()))
        }
        Err(why) => {
            drop(door);
            tracing::warn!(why, "not training alone for now");
            sleep(PREPARE_RETRY_PAUSE).await;
            None
        }
    };
    // A worker that has ended wants to know nothing more.
    tell.send(WorkerEvent::MayTrainAlone(solitude)).await.ok();
}

async fn check_alone_allowed(
    link: &DaemonLink,
    programs: &SlurmPrograms,
    job: JobId,
    terms: AloneTerms,
) -> Result<(), String> {
    let AloneTerms { patience, for_good } = terms;
    // A request that was under way may have found the daemon; or it is there, and only refuses us.
    if link.away_duration() <= patience || (!for_good && link.is_daemon_healthy().await) {
        return Err("there is a daemon".to_owned());
    }
    end_wings(programs, job).await
}

/// Cancels our wings and waits until they have ended.
async fn end_wings(programs: &SlurmPrograms, job: JobId) -> Result<(), String> {
    let name = format!("--name={}", wing_name(job));
    let deadline = Instant::now() + WINGS_END_TIMEOUT;
    let mut cancelled = false;
    loop {
        let args = ["--me", "--noheader", "--format=%i", &name];
        let left = run_program(&programs.squeue, &args, "", PROGRAM_TIMEOUT).await;
        let left = left.map_err(|e| format!("squeue: {e}"))?;
        let left: Vec<&str> = left.split_whitespace().collect();
        if left.is_empty() {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(format!("{} wings do not end", left.len()));
        }
        if !cancelled {
            run_program(&programs.scancel, &left, "", PROGRAM_TIMEOUT)
                .await
                .map_err(|e| format!("scancel: {e}"))?;
            cancelled = true;
        }
        sleep(WINGS_POLL_INTERVAL).await;
    }
}

/// Says once when a daemon is there again that works.
async fn wait_for_daemon(link: Arc<DaemonLink>, tell: mpsc::Sender<WorkerEvent>) {
    while !link.is_daemon_healthy().await {
        sleep(DAEMON_CHECK_INTERVAL).await;
    }
    tell.send(WorkerEvent::DaemonIsBack).await.ok();
}

/// The place of a worker that trains alone: on its one node, or on all that are its job's own.
pub(crate) fn alone_member(node: &NodeName, own: &[NodeName], exec_plan: String) -> GenerationMember {
    let nodes = if own.is_empty() { std::slice::from_ref(node) } else { own };
    let is_one = nodes.len() == 1;
    GenerationMember {
        generation: ALONE_GENERATION,
        rank: 0,
        world: u32::try_from(nodes.len()).unwrap_or(u32::MAX),
        master_addr: if is_one { "127.0.0.1".to_owned() } else { node.host().to_string() },
        master_port: free_port(),
        nodes: nodes.to_vec(),
        exec_plan,
        meeting: None,
    }
}
