//! Keeps the switches on which nodes hang as Slurm has them.

use std::sync::Arc;
use std::time::Duration;

use super::context::DaemonContext;
use infill_slurm::SlurmError;

/// How often Slurm is asked: what hangs where changes when an administrator says so.
const REFRESH_INTERVAL: Duration = Duration::from_secs(300);

/// How soon it is asked again when it did not say.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// How long a daemon's start waits for the first look.
const FIRST_TIMEOUT: Duration = Duration::from_secs(3);

/// Asks Slurm which switch each node hangs on.
///
/// # Errors
/// When it did not tell; what was known last stays.
pub(crate) async fn refresh_topology(context: &DaemonContext) -> Result<(), SlurmError> {
    let topology = context.slurm.read_topology().await?;
    let switches = topology.len();
    let odd = topology.oddities().to_vec();
    if !context.lock_state().scene.set_topology(topology) {
        return Ok(());
    }
    odd.iter().for_each(|oddity| tracing::warn!("Slurm's topology: {oddity}"));
    match switches {
        0 => tracing::info!("Slurm knows of no switches: nodes count as equally near"),
        _ => tracing::info!(switches, "jobs are laid on few of Slurm's switches"),
    }
    Ok(())
}

/// Looks for the first time, before anything is laid on switches or learned of them. Says whether it is known
/// now how nodes hang together; nobody waits for that for long.
pub(crate) async fn load_topology(context: &DaemonContext) -> bool {
    match tokio::time::timeout(FIRST_TIMEOUT, refresh_topology(context)).await {
        Ok(Ok(())) => true,
        Ok(Err(e)) => {
            tracing::warn!("which switch each node hangs on is not known: {e}");
            false
        }
        Err(_) => {
            tracing::warn!("which switch each node hangs on is not known: scontrol took too long");
            false
        }
    }
}

/// Looks again and again, for ever. `told`: whether the last look did.
pub(crate) async fn watch_topology(context: Arc<DaemonContext>, mut told: bool) {
    loop {
        tokio::time::sleep(if told { REFRESH_INTERVAL } else { RETRY_INTERVAL }).await;
        let looked = refresh_topology(&context).await;
        if let (true, Err(e)) = (told, &looked) {
            tracing::warn!("which switch each node hangs on is as it was known last: {e}");
        }
        told = looked.is_ok();
    }
}
