//! Keeps the privacy rules of the daemon equal to Slurm's `PrivateData`.

use std::sync::Arc;
use std::time::Duration;

use super::context::DaemonContext;
use super::gauges;

/// How often Slurm is asked for its `PrivateData`.
const REFRESH_INTERVAL: Duration = Duration::from_secs(60);

/// How soon Slurm is asked again after a failure.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// Asks Slurm what is private. Returns whether it answered.
pub(crate) async fn refresh_privacy(context: &DaemonContext) -> bool {
    match context.slurm.read_privacy().await {
        Ok(privacy) => {
            let private = privacy.private;
            if context.access.set_privacy(privacy) {
                tracing::info!(?private, "answers to readers follow Slurm's PrivateData");
            }
            gauges::set_account_reporting(&context.metrics.nodes, context.shows_accounts());
            true
        }
        Err(e) => {
            tracing::debug!(
                "the last known PrivateData stays in force; without one, everything is private: {e}"
            );
            false
        }
    }
}

/// Asks Slurm again and again what is private. Never returns.
pub(crate) async fn watch_privacy(context: Arc<DaemonContext>) {
    let mut answered = true;
    loop {
        let answers = refresh_privacy(&context).await;
        if answered && !answers {
            let what = "the last known rules stay; without any, readers see only their own";
            tracing::warn!("slurm.scontrol does not report Slurm's PrivateData: {what}");
        }
        answered = answers;
        tokio::time::sleep(if answered { REFRESH_INTERVAL } else { RETRY_INTERVAL }).await;
    }
}
