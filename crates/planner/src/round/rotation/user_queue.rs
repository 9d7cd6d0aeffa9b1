//! Each user's part of an allocation.

/// A user's jobs in an allocation.
#[derive(Debug, Default)]
pub(super) struct UserQueue {
    pub(super) share: f64,
    pub(super) used_secs: f64,
    /// Nodes that the user's jobs could use.
    pub(super) wants: f64,
    /// Nodes that its share entitles it to.
    pub(super) entitled: f64,
    /// Nodes of its jobs whose turn it is.
    pub(super) has: u32,
    /// Its other jobs, the one that comes first last.
    pub(super) queue: Vec<usize>,
}

impl UserQueue {
    /// Whether the user's jobs have turns for all the nodes that its share entitles it to; for one job at the
    /// least.
    pub(super) fn is_full(&self) -> bool {
        self.has > 0 && f64::from(self.has) >= self.entitled
    }
}

/// Divides nodes over users by their shares; what somebody cannot use is for the others.
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
