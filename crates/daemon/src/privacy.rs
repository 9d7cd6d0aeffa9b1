//! Keeps what the site keeps private as Slurm says it.

use std::sync::Arc;
use std::time::Duration;

use super::context::Context;
use super::gauges;

/// How often Slurm is asked what is private.
const LOOK: Duration = Duration::from_secs(60);

/// How soon it is asked again when it did not say.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Asks Slurm what is private. Says whether it told.
pub(crate) async fn look(context: &Context) -> bool {
    match context.slurm.privacy().await {
        Ok(privacy) => {
            let private = privacy.private;
            if context.doors.set_privacy(privacy) {
                tracing::info!(?private, "what readers are shown follows Slurm's PrivateData");
            }
            gauges::tell_accounts(&context.metrics.nodes, context.tells_accounts());
            true
        }
        Err(e) => {
            tracing::debug!("what is private is as it was known last, or everything: {e}");
            false
        }
    }
}

/// Looks, for ever.
pub(crate) async fn keep(context: Arc<Context>) {
    let mut told = true;
    loop {
        let tells = look(&context).await;
        if told && !tells {
            let what = "what is private is as it was known last, or everything but a reader's own";
            tracing::warn!("slurm.scontrol does not tell Slurm's PrivateData: {what}");
        }
        told = tells;
        tokio::time::sleep(if told { LOOK } else { LOOK_AGAIN }).await;
    }
}
