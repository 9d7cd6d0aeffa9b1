//! Whether this daemon may do or say anything: only as long as no other can have taken over.
//!
//! The store decides who leads; here is what follows from it outside the store. Twice a second the daemon
//! looks whether it still leads. Where another waits to take over, a look that fails ends this daemon, for
//! the other leads in the same moment; and a look is worth nothing after [`LEADER_LEASE`]: a daemon that was
//! stopped for a while thus finds, before it does anything at Slurm or answers an agent, that its last look
//! is too old. Where nobody waits, a store that is away stops nobody.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use infill_store::{LeadStanding, POSTGRES_SILENCE};

/// For how long a look is worth something: less than the silence (6 s) after which PostgreSQL ends a leader's
/// session.
pub const LEADER_LEASE: Duration = Duration::from_secs(4);

const _: () = assert!(
    LEADER_LEASE.as_millis() < POSTGRES_SILENCE.as_millis(),
    "a leader must know that its lead is over before another daemon can take it"
);

/// The last look; none once the lead is lost.
#[derive(Debug)]
pub struct LeadershipState(Mutex<Option<LeadCheck>>);

/// What the store said of the lead.
#[derive(Clone, Copy, Debug)]
pub struct LeadCheck {
    /// When the store was asked.
    pub at: Instant,
    /// What it said.
    pub standing: LeadStanding,
}

impl LeadershipState {
    /// Of a daemon that has just been given the lead.
    pub fn new(standing: LeadStanding) -> Self {
        LeadershipState(Mutex::new(Some(LeadCheck { at: Instant::now(), standing })))
    }

    fn last_check(&self) -> MutexGuard<'_, Option<LeadCheck>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether anything may be done or said now.
    pub fn may_act(&self) -> bool {
        self.last_check().is_some_and(|l| l.standing == LeadStanding::Alone || l.at.elapsed() < LEADER_LEASE)
    }

    /// Nothing may be done or said any more.
    pub fn mark_lost(&self) {
        *self.last_check() = None;
    }

    /// Takes in another look. Lost once is lost for good.
    pub fn record_check(&self, look: LeadCheck) {
        if let Some(last) = self.last_check().as_mut() {
            *last = look;
        }
    }

    /// Whether another daemon waits, as far as is known.
    pub(crate) fn is_watched(&self) -> bool {
        self.last_check().is_none_or(|l| l.standing == LeadStanding::Watched)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_look_is_worth_nothing_where_another_waits() {
        let leadership = LeadershipState::new(LeadStanding::Watched);
        assert!(leadership.may_act());
        let old = Instant::now().checked_sub(LEADER_LEASE).unwrap();
        for (standing, holds) in [(LeadStanding::Watched, false), (LeadStanding::Alone, true)] {
            *leadership.last_check() = Some(LeadCheck { at: old, standing });
            assert_eq!(leadership.may_act(), holds, "{standing:?}");
        }
        leadership.mark_lost();
        assert!(!leadership.may_act());
    }
}
