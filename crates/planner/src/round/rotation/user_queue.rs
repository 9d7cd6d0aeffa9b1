//! One user's jobs in an allocation of turns.

use std::cmp::Ordering;

/// One user's jobs in an allocation.
#[derive(Debug, Default)]
pub(super) struct UserQueue {
    /// Configured share of the user.
    pub(super) share: f64,
    /// Node-seconds that the user has used lately.
    pub(super) used_secs: f64,
    /// Nodes or places that the user's jobs could use.
    pub(super) wants: f64,
    /// Nodes or places that the share entitles the user to.
    pub(super) entitled: f64,
    /// Nodes or places of the user's jobs that have their turn.
    pub(super) has: u32,
    /// The user's other jobs; the last one comes first.
    pub(super) queue: Vec<usize>,
}

impl UserQueue {
    /// Whether the user's jobs have turns for all nodes that the share entitles the user to, and for at least
    /// one job.
    pub(super) fn is_full(&self) -> bool {
        self.has > 0 && f64::from(self.has) >= self.entitled
    }

    /// Orders users by how much they need another turn, the neediest first. Users wait for others beyond what
    /// they are entitled to.
    pub(super) fn compare_need(&self, other: &UserQueue) -> Ordering {
        let has = f64::from(self.has) / self.share;
        let used = self.used_secs / self.share;
        let other_has = f64::from(other.has) / other.share;
        let other_used = other.used_secs / other.share;
        let by_full = self.is_full().cmp(&other.is_full());
        by_full.then(has.total_cmp(&other_has)).then(used.total_cmp(&other_used))
    }
}

/// Divides nodes over users by their shares. What one user cannot use goes to the others.
pub(super) fn divide_by_share(mut users: Vec<&mut UserQueue>, places: f64) {
    let mut left = places;
    users.sort_by(|a, b| (a.wants / a.share).total_cmp(&(b.wants / b.share)));
    let mut shares: f64 = users.iter().map(|user| user.share).sum();
    for user in users {
        user.entitled = (left * user.share / shares).min(user.wants);
        left -= user.entitled;
        shares = (shares - user.share).max(f64::MIN_POSITIVE);
    }
}
