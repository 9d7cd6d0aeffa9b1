//! What a store keeps and what it can be asked for: the trait that each database's adapter fulfils.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use infill_model::{
    EndedGap, EndedJob, GenerationRecord, JobId, LeadRecord, MainDelay, NodeTimeRow, NodeTimeUsage,
    NodeUsageSecs, PackedHour, Plan, Profile, ProfileFilter, ProfileKey, RoundReport, RoundSummary, UnixTime,
};

/// What went wrong at the store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Disk full, locked, connection lost: goes on later.
    #[error("{doing}: {what}")]
    Unavailable {
        /// What was being done.
        doing: String,
        /// What the database said.
        what: String,
    },
    /// The URL names a database that infill does not know.
    #[error("{doing}: {what}")]
    Unsupported {
        /// What was being done.
        doing: String,
        /// What is wrong with the URL.
        what: String,
    },
    /// Another daemon leads on this database now: whatever this one wanted is out of date.
    #[error("{doing}: another daemon has taken over")]
    Deposed {
        /// What was being done.
        doing: String,
    },
    /// The database holds something that we cannot read, or has an unknown schema.
    #[error("{doing}: {what}")]
    Corrupt {
        /// What was being done.
        doing: String,
        /// What was found.
        what: String,
    },
}

impl StoreError {
    /// Whether the same call may succeed later.
    pub fn is_transient(&self) -> bool {
        matches!(self, StoreError::Unavailable { .. })
    }
}

/// What became of the lead that [`open`](super::open) gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeadStanding {
    /// This process leads, and nobody waits to take over.
    Alone,
    /// This process leads, and another waits to take over.
    Watched,
}

/// One round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoundRecord {
    /// When.
    pub at: UnixTime,
    /// What was decided.
    pub plan: Plan,
    /// Why.
    pub report: RoundReport,
    /// Whether it was carried out.
    pub acted: bool,
}

impl RoundRecord {
    /// The round in a line.
    pub fn to_summary(&self) -> RoundSummary {
        RoundSummary::new(self.at, self.acted, &self.plan, &self.report)
    }
}

/// Which rounds are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundsFilter {
    /// None later than this; `None` for the newest.
    pub until: Option<UnixTime>,
    /// At most so many.
    pub limit: u32,
}

/// The moments since when things are kept: what is older is deleted. And how many, where that is bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetentionLimits {
    /// Rounds, generations, ended leads, gaps and measurements.
    pub rounds: UnixTime,
    /// Profiles, since something was last learned of them.
    pub profiles: UnixTime,
    /// Jobs that have ended, since then.
    pub ended: UnixTime,
    /// What nodes were used for.
    pub hours: UnixTime,
    /// Users' names on sums of node-time.
    pub users: UnixTime,
    /// Most profiles of a user, the last changed ones.
    pub profiles_a_user: u32,
}

impl RetentionLimits {
    /// Everything is kept.
    #[cfg(test)]
    pub(crate) fn all() -> RetentionLimits {
        let [rounds, profiles, ended, hours, users] = [UnixTime(i64::MIN); 5];
        RetentionLimits { rounds, profiles, ended, hours, users, profiles_a_user: u32::MAX }
    }
}

/// How much of a user's profiles there is room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProfileQuota {
    /// Profiles.
    pub profiles: u64,
    /// Bytes of all that was measured of them, as it is kept.
    pub bytes: u64,
}

/// Whose profiles there is no room for, and what they would come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaExceeded {
    /// The user.
    pub user: String,
    /// What the user would have.
    pub would_be: ProfileQuota,
}

/// Throughput measured during a stretch of one generation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// The profile to which it counts.
    pub key: ProfileKey,
    /// The lead's job id.
    pub job: JobId,
    /// Number of nodes.
    pub nodes: u32,
    /// Samples done.
    pub samples: f64,
    /// Seconds measured.
    pub secs: f64,
    /// Whether the size was held only to measure it.
    pub probe: bool,
    /// End of the stretch.
    pub at: UnixTime,
}

/// Everything that infill keeps. Calls are batched; each is one transaction.
#[async_trait]
pub trait Store: Send + Sync {
    /// Whether this process still leads; cheap, to be asked every second. `Deposed` says that it does not,
    /// and no other error says so: a database that does not answer may or may not have let another daemon
    /// take over.
    async fn lead_standing(&self) -> Result<LeadStanding, StoreError>;
    /// Inserts or replaces these leads' records. Of one that has not ended, all that were submitted earlier
    /// under the same number have.
    async fn put_leads(&self, leads: &[LeadRecord]) -> Result<(), StoreError>;
    /// Records of all leads that have not ended, by job id.
    async fn open_leads(&self) -> Result<Vec<LeadRecord>, StoreError>;
    /// Adds generations; one that is there already stays.
    async fn add_generations(&self, generations: &[GenerationRecord]) -> Result<(), StoreError>;
    /// Generations of the leads that have had this number, oldest first.
    async fn list_generations(&self, job: JobId) -> Result<Vec<GenerationRecord>, StoreError>;
    /// Hands out `count` order numbers that were never handed out before, none below `least`; returns the
    /// first.
    async fn next_orders(&self, count: u64, least: u64) -> Result<u64, StoreError>;
    /// Adds a round.
    async fn add_round(&self, round: &RoundRecord) -> Result<(), StoreError>;
    /// The newest of the rounds asked for, newest first. Each is read and let go: a round on a large machine
    /// has a hundred kilobytes.
    async fn list_rounds(&self, asked: &RoundsFilter) -> Result<Vec<RoundSummary>, StoreError>;
    /// The last round at this moment or before it; `None` where nothing is kept from so far back.
    async fn round_at(&self, at: UnixTime) -> Result<Option<RoundRecord>, StoreError>;
    /// Adds ended gaps.
    async fn add_gaps(&self, gaps: &[EndedGap]) -> Result<(), StoreError>;
    /// The newest ended gaps, oldest first, at most `limit`.
    async fn recent_gaps(&self, limit: u32) -> Result<Vec<EndedGap>, StoreError>;
    /// Adds jobs that have ended; one that is there already, by its number and submission, stays. Returns how
    /// many are new.
    async fn add_ended_jobs(&self, jobs: &[EndedJob]) -> Result<u64, StoreError>;
    /// The jobs that ended last, oldest first, at most `limit`.
    async fn recent_ended_jobs(&self, limit: u32) -> Result<Vec<EndedJob>, StoreError>;
    /// Inserts or replaces what nodes were used for in an hour, and its sums, which are kept for ever.
    async fn put_hour(&self, hour: &PackedHour, sums: &NodeUsageSecs) -> Result<(), StoreError>;
    /// The hours that began from `from` on and before `to`, the earliest first, at most `limit`.
    async fn hours_between(
        &self,
        from: UnixTime,
        to: UnixTime,
        limit: u32,
    ) -> Result<Vec<PackedHour>, StoreError>;
    /// The sums of the hours that began from `from` on and before `to`, the earliest first, at most `limit`.
    async fn usage_by_hour(
        &self,
        from: UnixTime,
        to: UnixTime,
        limit: u32,
    ) -> Result<Vec<(UnixTime, NodeUsageSecs)>, StoreError>;
    /// Inserts or replaces what became of node-time.
    async fn put_node_time(&self, rows: &[NodeTimeRow]) -> Result<(), StoreError>;
    /// What became of the node-time of the hours that began from `from` on and before `to`, of each account,
    /// user and type of nodes in all; ordered by these.
    async fn sum_node_time(&self, from: UnixTime, to: UnixTime) -> Result<Vec<NodeTimeRow>, StoreError>;
    /// The same by the hour, of everybody together, the earliest first, at most `limit`.
    async fn node_time_by_hour(
        &self,
        from: UnixTime,
        to: UnixTime,
        limit: u32,
    ) -> Result<Vec<(UnixTime, NodeTimeUsage)>, StoreError>;
    /// Adds main jobs that started where ours were; one that is there already stays.
    async fn add_delays(&self, delays: &[MainDelay]) -> Result<(), StoreError>;
    /// Those that started from `from` on and before `to`, the earliest first, at most `limit`.
    async fn delays_between(
        &self,
        from: UnixTime,
        to: UnixTime,
        limit: u32,
    ) -> Result<Vec<MainDelay>, StoreError>;
    /// Adds measurements. Where the store has no such profile yet, it gets one without points, so that what
    /// was measured is listed and can be forgotten.
    async fn add_measurements(&self, measurements: &[Measurement]) -> Result<(), StoreError>;
    /// The newest measurements of a profile, oldest first, at most `limit`.
    async fn recent_measurements(&self, key: &ProfileKey, limit: u32)
    -> Result<Vec<Measurement>, StoreError>;
    /// Inserts or replaces profiles.
    async fn put_profiles(&self, profiles: &[Profile]) -> Result<(), StoreError>;
    /// Inserts or replaces profiles that somebody brings: all of them, or none where one of their users would
    /// have more than there is room for.
    async fn import_profiles(
        &self,
        profiles: &[Profile],
        room: &ProfileQuota,
    ) -> Result<Result<(), QuotaExceeded>, StoreError>;
    /// Profiles that a filter names, the last changed first, at most `limit`.
    async fn find_profiles(&self, filter: &ProfileFilter, limit: u32) -> Result<Vec<Profile>, StoreError>;
    /// Deletes the profiles that a filter names, with their measurements; returns how many profiles.
    async fn forget_profiles(&self, filter: &ProfileFilter) -> Result<u64, StoreError>;
    /// A small setting that outlives the daemon, such as the administrator's last order.
    async fn get_setting(&self, key: &str) -> Result<Option<String>, StoreError>;
    /// Writes a setting.
    async fn put_setting(&self, key: &str, value: &str) -> Result<(), StoreError>;
    /// Deletes what is older than it is to be kept; returns how many rows.
    async fn prune_history(&self, since: &RetentionLimits) -> Result<u64, StoreError>;
}
