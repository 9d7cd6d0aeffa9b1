//! Whether this daemon may do or say anything: only as long as no other can have taken over.
//!
//! The store decides who leads; here is what follows from it outside the store. Once a second the daemon looks whether
//! it still leads. Where another waits to take over, a look is worth [`LEASE`]: after that nothing is done at Slurm and
//! no agent is answered, for the other may lead by now. A daemon that was stopped for a while thus finds, before it does
//! anything, that its last look is too old. Where nobody waits, a store that is away stops nobody.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::anyhow;

use super::{Context, executor};
use crate::store::{Standing, StoreError};

/// For how long a look is worth something. Three can fail before that, and PostgreSQL ends the session of a leader that
/// it has not heard for longer than that (6 s).
pub const LEASE: Duration = Duration::from_secs(4);

/// Pause between two looks.
const LOOK: Duration = Duration::from_secs(1);

/// The last look.
#[derive(Debug)]
pub struct Leadership(Mutex<Look>);

#[derive(Clone, Copy, Debug)]
struct Look {
    /// When the store was asked.
    at: Instant,
    standing: Standing,
}

impl Default for Leadership {
    /// Of a daemon that has just been given the lead.
    fn default() -> Self {
        Leadership(Mutex::new(Look { at: Instant::now(), standing: Standing::Watched }))
    }
}

impl Leadership {
    fn look(&self) -> MutexGuard<'_, Look> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether anything may be done or said now.
    pub fn holds(&self) -> bool {
        let look = self.look();
        look.standing == Standing::Alone || look.at.elapsed() < LEASE
    }
}

/// Looks every second; ends with the reason why this daemon must end.
pub async fn keep(context: &Context) -> anyhow::Error {
    loop {
        let at = Instant::now();
        match context.store.standing().await {
            Ok(standing) => {
                *context.leadership.look() = Look { at, standing };
                context.metrics.standby.set(i64::from(standing == Standing::Watched));
            }
            Err(e @ StoreError::Deposed { .. }) => return anyhow!(e).context("this daemon leads no more"),
            Err(e) => {
                executor::store_failed(context, &e);
                if !context.leadership.holds() {
                    let why = "another daemon waits to take over, and the store does not say who leads";
                    return anyhow!(e).context(why);
                }
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_look_is_worth_nothing_where_another_waits() {
        let leadership = Leadership::default();
        assert!(leadership.holds());
        let old = Instant::now().checked_sub(LEASE).unwrap();
        for (standing, holds) in [(Standing::Watched, false), (Standing::Alone, true)] {
            *leadership.look() = Look { at: old, standing };
            assert_eq!(leadership.holds(), holds, "{standing:?}");
        }
    }
}
