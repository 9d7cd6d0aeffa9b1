//! Whether this daemon may act and answer: only while no other daemon can have taken over.
//!
//! The store decides which daemon leads. This module applies the decision outside the store. Twice a second
//! the daemon checks whether it still leads.
//!
//! - Where another daemon waits to take over, a failed check ends this daemon, because the other one may lead
//!   from that moment on. A check also expires after [`LEADER_LEASE`]. So a daemon that was stopped for a
//!   while finds its last check too old before it acts at Slurm or answers an agent.
//! - Where no daemon waits, a store that is down stops nothing.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use infill_store::{LeadStanding, POSTGRES_SILENCE};

/// How long a check is valid: less than the silence (6 s) after which PostgreSQL ends a leader's session.
pub const LEADER_LEASE: Duration = Duration::from_secs(4);

const _: () = assert!(
    LEADER_LEASE.as_millis() < POSTGRES_SILENCE.as_millis(),
    "a leader must know that its lead is over before another daemon can take it"
);

/// The last check; `None` once the lead is lost.
#[derive(Debug)]
pub struct LeadershipState(Mutex<Option<LeadCheck>>);

/// The store's answer about the lead.
#[derive(Clone, Copy, Debug)]
pub struct LeadCheck {
    /// When the store was asked.
    pub at: Instant,
    /// Whether another daemon waits to take over.
    pub standing: LeadStanding,
}

impl LeadershipState {
    /// The state of a daemon that has just taken the lead.
    pub fn new(standing: LeadStanding) -> Self {
        LeadershipState(Mutex::new(Some(LeadCheck { at: Instant::now(), standing })))
    }

    fn last_check(&self) -> MutexGuard<'_, Option<LeadCheck>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the daemon may act and answer now.
    pub fn may_act(&self) -> bool {
        self.last_check()
            .is_some_and(|check| check.standing == LeadStanding::Alone || check.at.elapsed() < LEADER_LEASE)
    }

    /// The daemon may never act or answer again.
    pub fn mark_lost(&self) {
        *self.last_check() = None;
    }

    /// Replaces the last check by a newer one. A lead that was lost stays lost.
    pub fn record_check(&self, check: LeadCheck) {
        if let Some(last) = self.last_check().as_mut() {
            *last = check;
        }
    }

    /// Whether another daemon waited at the last check. True once the lead is lost.
    pub(crate) fn is_watched(&self) -> bool {
        self.last_check().is_none_or(|check| check.standing == LeadStanding::Watched)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_check_is_invalid_where_another_daemon_waits() {
        let leadership = LeadershipState::new(LeadStanding::Watched);
        assert!(leadership.may_act());
        let old = Instant::now().checked_sub(LEADER_LEASE).unwrap();
        for (standing, may_act) in [(LeadStanding::Watched, false), (LeadStanding::Alone, true)] {
            *leadership.last_check() = Some(LeadCheck { at: old, standing });
            assert_eq!(leadership.may_act(), may_act, "{standing:?}");
        }
        leadership.mark_lost();
        assert!(!leadership.may_act());
    }
}
