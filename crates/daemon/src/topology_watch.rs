//! Keeps the network topology (which switch each node is on) equal to Slurm's.

use std::sync::Arc;
use std::time::Duration;

use super::context::DaemonContext;
use infill_slurm::SlurmError;

/// How often Slurm is asked. The topology changes only when an administrator changes it.
const REFRESH_INTERVAL: Duration = Duration::from_secs(300);

/// How soon Slurm is asked again after a failure.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// How long a daemon's start waits for the first answer.
const FIRST_TIMEOUT: Duration = Duration::from_secs(3);

/// Asks Slurm which switch each node is on.
///
/// # Errors
/// When Slurm does not answer. The last known topology stays.
pub(crate) async fn refresh_topology(context: &DaemonContext) -> Result<(), SlurmError> {
    let topology = context.slurm.read_topology().await?;
    let switches = topology.len();
    let odd = topology.warnings().to_vec();
    if !context.lock_state().round_state.set_topology(topology) {
        return Ok(());
    }
    odd.iter().for_each(|oddity| tracing::warn!("Slurm's topology: {oddity}"));
    match switches {
        0 => tracing::info!("Slurm knows no switches: all nodes count as equally near"),
        _ => tracing::info!(switches, "jobs are placed on as few of Slurm's switches as possible"),
    }
    Ok(())
}

/// Reads the topology for the first time, before anything is placed on switches or learned about them. Gives
/// up after [`FIRST_TIMEOUT`]. Returns whether the topology is known now.
pub(crate) async fn load_topology(context: &DaemonContext) -> bool {
    match tokio::time::timeout(FIRST_TIMEOUT, refresh_topology(context)).await {
        Ok(Ok(())) => true,
        Ok(Err(e)) => {
            tracing::warn!("the switches of the nodes are unknown: {e}");
            false
        }
        Err(_) => {
            tracing::warn!(
                "the switches of the nodes are unknown: scontrol took longer than {FIRST_TIMEOUT:?}"
            );
            false
        }
    }
}

/// Asks Slurm again and again. Never returns. `answered`: whether Slurm answered the last time.
pub(crate) async fn watch_topology(context: Arc<DaemonContext>, mut answered: bool) {
    loop {
        tokio::time::sleep(if answered { REFRESH_INTERVAL } else { RETRY_INTERVAL }).await;
        let refreshed = refresh_topology(&context).await;
        if let Err(e) = &refreshed
            && answered
        {
            tracing::warn!("the last known switches of the nodes stay in use: {e}");
        }
        answered = refreshed.is_ok();
    }
}
