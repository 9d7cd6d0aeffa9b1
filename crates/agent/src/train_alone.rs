//! Training alone: a lead trains without the daemon, on its one node, if its owner allows it.
//!
//! The daemon does not count it as a generation, and it never overlaps one. Before it starts, our requests to
//! the daemon are blocked and the wings are gone. Before the daemon receives a request from us again, the
//! command has saved and ended.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use infill_model::{GenerationMember, JobId, NodeName, counted_noun, wing_name};

use super::daemon_link::DaemonLink;
use super::node_network::free_port;
use super::slurm_programs::{SlurmPrograms, run_program};
use super::worker_input::{SilenceGuard, WorkerInput};

/// The generation of the command that trains alone. The daemon's generations begin at 1.
pub(crate) const ALONE_GENERATION: u64 = 0;

/// How often we check whether the daemon is back.
const DAEMON_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// How long Slurm's programs may take.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(30);

/// How long cancelled wings may take to end. Slurm's own grace time is half a minute.
const WINGS_END_TIMEOUT: Duration = Duration::from_secs(60);

/// How often we check whether the wings have ended.
const WINGS_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Pause after a preparation that failed, usually because Slurm is away too.
const PREPARE_RETRY_PAUSE: Duration = Duration::from_secs(30);

/// Whether a lead trains alone.
pub(crate) enum AloneState {
    /// It does not train alone.
    No,
    /// It will train alone once its wings are gone.
    Preparing,
    /// It trains alone.
    Yes(#[allow(dead_code, reason = "it is dropped when that ends")] SilenceGuard),
}

/// The conditions under which a lead begins to train alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AloneTerms {
    /// How long the daemon must have been away.
    pub patience: Duration,
    /// Whether the daemon will never accept the job, even if it is healthy. Then the lead does not check
    /// whether it is back.
    pub for_good: bool,
}

/// Prepares to train alone: blocks requests to the daemon, and ends the wings, whose commands may still run.
/// Sends the worker the event whether it may begin.
pub(crate) async fn prepare_alone(
    link: Arc<DaemonLink>,
    programs: SlurmPrograms,
    job: JobId,
    terms: AloneTerms,
    events: mpsc::Sender<WorkerInput>,
) {
    let blocked_requests = link.block_requests().await;
    let guard = match check_alone_allowed(&link, &programs, job, terms).await {
        Ok(()) => {
            let sender = events.clone();
            let health_checks = async move {
                if !terms.for_good {
                    wait_for_daemon(link, sender).await;
                }
            };
            Some(SilenceGuard::new(blocked_requests, tokio::spawn(health_checks).abort_handle()))
        }
        Err(why) => {
            drop(blocked_requests);
            tracing::warn!(why, "not training alone for now");
            sleep(PREPARE_RETRY_PAUSE).await;
            None
        }
    };
    // When the worker has ended, it does not receive this any more.
    events.send(WorkerInput::MayTrainAlone(guard)).await.ok();
}

async fn check_alone_allowed(
    link: &DaemonLink,
    programs: &SlurmPrograms,
    job: JobId,
    terms: AloneTerms,
) -> Result<(), String> {
    let AloneTerms { patience, for_good } = terms;
    // A request that was under way may have reached the daemon; or the daemon is there, and only refuses us.
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
            return Err(format!(
                "{} left of the job that do not end",
                counted_noun(left.len() as u64, "wing")
            ));
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

/// Waits for a daemon that works, and sends the worker the event once.
async fn wait_for_daemon(link: Arc<DaemonLink>, events: mpsc::Sender<WorkerInput>) {
    while !link.is_daemon_healthy().await {
        sleep(DAEMON_CHECK_INTERVAL).await;
    }
    events.send(WorkerInput::DaemonIsBack).await.ok();
}

/// The membership of a worker that trains alone: on its one node, or on all of its job's own nodes.
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
