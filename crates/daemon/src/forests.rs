//! The forest that helps to expect how long jobs run: grown anew each day from what ended, off the rounds,
//! and never stored.

use std::sync::Arc;
use std::time::Duration;

use super::context::Context;
use infill_model::clock::now;

/// After a start, jobs that come back are met first.
const FIRST: Duration = Duration::from_secs(60);

/// From one to the next.
const EVERY: Duration = Duration::from_secs(86_400);

/// Grows forests, for ever.
pub(crate) async fn keep(context: Arc<Context>) {
    let mut wait = FIRST;
    loop {
        tokio::time::sleep(wait).await;
        wait = EVERY;
        grow(&context).await;
    }
}

async fn grow(context: &Context) {
    let ground = context.state().scene.turns().outlook.ground();
    let seed = now().0.unsigned_abs();
    match tokio::task::spawn_blocking(move || ground.grow(seed)).await {
        Ok(Ok(Some(forest))) => context.state().scene.turns_mut().outlook.plant(forest),
        Ok(Ok(None)) => {}
        Ok(Err(e)) => tracing::warn!("lengths of jobs are expected without a forest: {e}"),
        Err(e) => tracing::warn!("lengths of jobs are expected without a forest, which broke: {e}"),
    }
}
