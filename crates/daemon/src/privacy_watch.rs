//! Keeps what the site keeps private as Slurm says it.

use std::sync::Arc;
use std::time::Duration;

use super::context::DaemonContext;
use super::gauges;

/// How often Slurm is asked what is private.
const REFRESH_INTERVAL: Duration = Duration::from_secs(60);

/// How soon it is asked again when it did not say.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// Asks Slurm what is private. Says whether it told.
pub(crate) async fn refresh_privacy(context: &DaemonContext) -> bool {
    match context.slurm.read_privacy().await {
        Ok(privacy) => {
            let private = privacy.private;
            if context.doors.set_privacy(privacy) {
                tracing::info!(?private, "what readers are shown follows Slurm's PrivateData");
            }
            gauges::set_account_reporting(&context.metrics.nodes, context.shows_accounts());
            true
        }
        Err(e) => {
            tracing::debug!("what is private is as it was known last, or everything: {e}");
            false
        }
    }
}

/// Looks, for ever.
pub(crate) async fn watch_privacy(context: Arc<DaemonContext>) {
    let mut told = true;
    loop {
        let tells = refresh_privacy(&context).await;
        if told && !tells {
            let what = "what is private is as it was known last, or everything but a reader's own";
            tracing::warn!("slurm.scontrol does not tell Slurm's PrivateData: {what}");
        }
        told = tells;
        tokio::time::sleep(if told { REFRESH_INTERVAL } else { RETRY_INTERVAL }).await;
    }
}
