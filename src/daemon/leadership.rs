//! Whether this daemon may do or say anything: only as long as no other can have taken over.
//!
//! The store decides who leads; here is what follows from it outside the store. Twice a second the daemon
//! looks whether it still leads. Where another waits to take over, a look that fails ends this daemon, for
//! the other leads in the same moment; and a look is worth nothing after [`LEASE`]: a daemon that was stopped
//! for a while thus finds, before it does anything at Slurm or answers an agent, that its last look is too
//! old. Where nobody waits, a store that is away stops nobody.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::anyhow;

use super::Context;
use crate::store::{Standing, StoreError};

/// For how long a look is worth something: less than the silence (6 s) after which PostgreSQL ends a leader's
/// session.
pub const LEASE: Duration = Duration::from_secs(4);

/// Pause between two looks: the longest for which a daemon that has lost the lead does not know it.
const LOOK: Duration = Duration::from_millis(500);

/// The last look; none once the lead is lost.
#[derive(Debug)]
pub struct Leadership(Mutex<Option<Look>>);

#[derive(Clone, Copy, Debug)]
struct Look {
    /// When the store was asked.
    at: Instant,
    standing: Standing,
}

impl Leadership {
    /// Of a daemon that has just been given the lead.
    pub fn new(standing: Standing) -> Self {
        Leadership(Mutex::new(Some(Look { at: Instant::now(), standing })))
    }

    fn look(&self) -> MutexGuard<'_, Option<Look>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether anything may be done or said now.
    pub fn holds(&self) -> bool {
        self.look().is_some_and(|l| l.standing == Standing::Alone || l.at.elapsed() < LEASE)
    }

    /// Nothing may be done or said any more.
    pub fn lose(&self) {
        *self.look() = None;
    }

    /// Whether another daemon waits, as far as is known.
    fn is_watched(&self) -> bool {
        self.look().is_none_or(|l| l.standing == Standing::Watched)
    }
}

/// Looks for as long as this daemon leads; ends with the reason why it must end.
pub async fn keep(context: &Context) -> anyhow::Error {
    loop {
        let at = Instant::now();
        match context.store.standing().await {
            // One that was stopped over this question may have got an answer from long ago.
            Ok(standing) if at.elapsed() < LEASE => leads_on(context, Look { at, standing }),
            Ok(_) => {}
            Err(e) => {
                if matches!(e, StoreError::Deposed { .. }) || context.leadership.is_watched() {
                    context.leadership.lose();
                    return anyhow!(e).context("this daemon leads no more, or cannot be sure of it: it ends");
                }
                in_doubt(context, &e);
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn leads_on(context: &Context, look: Look) {
    // Lost once is lost for good.
    if let Some(last) = context.leadership.look().as_mut() {
        *last = look;
    }
    context.metrics.standby.set(i64::from(look.standing == Standing::Watched));
    context.world.lock().problems.remove("lead");
}

/// Nobody waits to take over, so nobody has.
fn in_doubt(context: &Context, e: &StoreError) {
    let text = format!("the store does not say who leads ({e}): a second daemon must not be started now");
    if context.world.lock().problems.insert("lead", text).is_none() {
        tracing::warn!("the store does not say who leads; nobody waits to take over: {e}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_look_is_worth_nothing_where_another_waits() {
        let leadership = Leadership::new(Standing::Watched);
        assert!(leadership.holds());
        let old = Instant::now().checked_sub(LEASE).unwrap();
        for (standing, holds) in [(Standing::Watched, false), (Standing::Alone, true)] {
            *leadership.look() = Some(Look { at: old, standing });
            assert_eq!(leadership.holds(), holds, "{standing:?}");
        }
        leadership.lose();
        assert!(!leadership.holds());
    }
}
