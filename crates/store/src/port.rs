//! The trait that each database's adapter implements, and the types of its arguments and results.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use infill_model::{
    EndedGap, EndedJob, GenerationRecord, JobId, LeadRecord, MainDelay, NodeTimeRow, NodeTimeUsage,
    NodeUsageSecs, PackedHour, Plan, Profile, ProfileFilter, ProfileKey, RoundReport, RoundSummary, UnixTime,
    UserId,
};

/// Why a call to the store failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The disk is full, the database is locked, or the connection is lost. The call may succeed later.
    #[error("{doing}: {what}")]
    Unavailable {
        /// The failed operation, such as "writing leads".
        doing: String,
        /// The database's message.
        what: String,
    },
    /// The URL names a database that infill does not support.
    #[error("{doing}: {what}")]
    Unsupported {
        /// The failed operation, such as "opening the store".
        doing: String,
        /// What is wrong with the URL or the server.
        what: String,
    },
    /// Another daemon leads on this database now. Whatever this daemon wanted to write is out of date.
    #[error("{doing}: another daemon has taken over")]
    Deposed {
        /// The failed operation, such as "writing leads".
        doing: String,
    },
    /// The database holds something unreadable, or has an unknown schema.
    #[error("{doing}: {what}")]
    Corrupt {
        /// The failed operation, such as "reading leads".
        doing: String,
        /// What was found, in words.
        what: String,
    },
}

impl StoreError {
    /// Whether the same call may succeed later.
    pub fn is_transient(&self) -> bool {
        matches!(self, StoreError::Unavailable { .. })
    }
}

/// Whether another daemon waits to take over the lead that [`open_store`](super::open_store) gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeadStanding {
    /// This process leads, and no other process waits to take over.
    Alone,
    /// This process leads, and another process waits to take over.
    Watched,
}

/// One round with its plan and report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoundRecord {
    /// When the round was planned.
    pub at: UnixTime,
    /// The nodes that each job gets.
    pub plan: Plan,
    /// The reasons for the plan.
    pub report: RoundReport,
    /// Whether the plan was carried out.
    pub acted: bool,
}

impl RoundRecord {
    /// The summary of the round, without its plan and report.
    pub fn to_summary(&self) -> RoundSummary {
        RoundSummary::new(self.at, self.acted, &self.plan, &self.report)
    }
}

/// Selects the rounds of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundsFilter {
    /// The latest time of a round, inclusive. `None` does not limit it.
    pub until: Option<UnixTime>,
    /// Largest number of rounds.
    pub limit: u32,
}

/// How far back and how much history is kept. Records older than these times are deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetentionLimits {
    /// For rounds, generations, ended leads, gaps and measurements.
    pub rounds: UnixTime,
    /// For profiles, by the time of their last update.
    pub profiles: UnixTime,
    /// For ended jobs, by the time of their end.
    pub ended: UnixTime,
    /// For the hours that say what nodes were used for.
    pub hours: UnixTime,
    /// For users' names on sums of node-time. The sums themselves stay.
    pub users: UnixTime,
    /// Largest number of profiles of a user. The last changed ones are kept.
    pub profiles_a_user: u32,
}

impl RetentionLimits {
    /// Limits that keep everything.
    #[cfg(test)]
    pub(crate) fn all() -> RetentionLimits {
        let [rounds, profiles, ended, hours, users] = [UnixTime(i64::MIN); 5];
        RetentionLimits { rounds, profiles, ended, hours, users, profiles_a_user: u32::MAX }
    }
}

/// How much a user's profiles may take up, or would take up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProfileQuota {
    /// Number of profiles.
    pub profiles: u64,
    /// Bytes of their measured points, costs, stops and unfit sizes, as the store keeps them.
    pub bytes: u64,
}

/// A user whose imported profiles would exceed the quota.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaExceeded {
    /// The user's name.
    pub user: String,
    /// What the user's profiles would take up after the import.
    pub would_be: ProfileQuota,
}

/// A user whose rows are to be deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserToForget {
    /// The login name.
    pub name: String,
    /// The user id; `None` if the account is gone. Leads are found by it.
    pub uid: Option<UserId>,
    /// Node-time of hours from this moment on keeps the name, because it is still written.
    pub before: UnixTime,
}

/// How many rows that named a user were deleted, or lost the name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForgottenRows {
    /// Profiles, with their measurements.
    pub profiles: u64,
    /// Jobs that have ended.
    pub ended_jobs: u64,
    /// Rows of node-time, now without the name.
    pub node_time: u64,
    /// Records of ended malleable jobs, with their generations.
    pub leads: u64,
    /// Rows of node-time that still have the name.
    pub kept_node_time: u64,
}

/// Throughput of a job at one size: a row of the history of its profile. The daemon sums a job's consecutive
/// measured stretches of the same profile and size until they make about a minute.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// The profile to which it counts.
    pub key: ProfileKey,
    /// The lead's job id.
    pub job: JobId,
    /// Number of nodes, the same in all of its stretches.
    pub nodes: u32,
    /// Samples done during its stretches.
    pub samples: f64,
    /// Sum of the lengths of its stretches, seconds.
    pub secs: f64,
    /// Whether the size was held only to measure it.
    pub probe: bool,
    /// End of its last stretch.
    pub at: UnixTime,
}

/// Everything that infill keeps. Calls take batches; each call is one transaction.
#[async_trait]
pub trait Store: Send + Sync {
    /// Whether this process still leads. Cheap enough to be called every second. Only the error `Deposed`
    /// means that it does not lead any more: a database that does not answer may or may not have let another
    /// daemon take over.
    async fn lead_standing(&self) -> Result<LeadStanding, StoreError>;
    /// Inserts or replaces these leads' records. A record that has not ended marks all earlier submissions
    /// under the same job number as ended.
    async fn put_leads(&self, leads: &[LeadRecord]) -> Result<(), StoreError>;
    /// Records of all leads that have not ended, by job id.
    async fn open_leads(&self) -> Result<Vec<LeadRecord>, StoreError>;
    /// Adds generations. Does not replace existing ones.
    async fn add_generations(&self, generations: &[GenerationRecord]) -> Result<(), StoreError>;
    /// Generations of the leads that have had this number, oldest first.
    async fn list_generations(&self, job: JobId) -> Result<Vec<GenerationRecord>, StoreError>;
    /// The last generations of all leads that began from `from` on and before `to`, oldest first, at most
    /// `limit`.
    async fn generations_between(
        &self,
        from: UnixTime,
        to: UnixTime,
        limit: u32,
    ) -> Result<Vec<GenerationRecord>, StoreError>;
    /// The number of generations that began in this stretch of time and were not the first of their lead.
    async fn count_rescales(&self, from: UnixTime, to: UnixTime) -> Result<u64, StoreError>;
    /// Hands out `count` consecutive wing numbers, all new and none below `least`. Returns the first.
    async fn next_wing_numbers(&self, count: u64, least: u64) -> Result<u64, StoreError>;
    /// Adds a round. If several rounds have the same time, [`Store::round_at`] returns the one added last.
    async fn add_round(&self, round: &RoundRecord) -> Result<(), StoreError>;
    /// Summaries of the rounds that the filter selects, newest first. Reads one round at a time: a round on a
    /// large machine has a hundred kilobytes.
    async fn list_rounds(&self, filter: &RoundsFilter) -> Result<Vec<RoundSummary>, StoreError>;
    /// The last round at this moment or before it. `None` if nothing from that time is kept.
    async fn round_at(&self, at: UnixTime) -> Result<Option<RoundRecord>, StoreError>;
    /// Adds ended gaps.
    async fn add_gaps(&self, gaps: &[EndedGap]) -> Result<(), StoreError>;
    /// The newest ended gaps, oldest first, at most `limit`.
    async fn recent_gaps(&self, limit: u32) -> Result<Vec<EndedGap>, StoreError>;
    /// Adds jobs that have ended. Does not replace existing ones with the same number and submission time.
    /// Returns how many are new.
    async fn add_ended_jobs(&self, jobs: &[EndedJob]) -> Result<u64, StoreError>;
    /// The jobs that ended last, oldest first, at most `limit`.
    async fn recent_ended_jobs(&self, limit: u32) -> Result<Vec<EndedJob>, StoreError>;
    /// Inserts or replaces an hour that says what nodes were used for, and its sums. The sums are never
    /// deleted.
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
    /// Inserts or replaces rows of node-time: how the time on nodes was spent, by hour, account, user and
    /// node type.
    async fn put_node_time(&self, rows: &[NodeTimeRow]) -> Result<(), StoreError>;
    /// The node-time of the hours that began from `from` on and before `to`: one sum for each account, user
    /// and node type, ordered by these.
    async fn sum_node_time(&self, from: UnixTime, to: UnixTime) -> Result<Vec<NodeTimeRow>, StoreError>;
    /// Like [`Store::sum_node_time`], but one sum for each hour, the earliest first, at most `limit`.
    async fn node_time_by_hour(
        &self,
        from: UnixTime,
        to: UnixTime,
        limit: u32,
    ) -> Result<Vec<(UnixTime, NodeTimeUsage)>, StoreError>;
    /// Adds the delays of main jobs that started on nodes which malleable jobs had. Does not replace existing
    /// ones.
    async fn add_delays(&self, delays: &[MainDelay]) -> Result<(), StoreError>;
    /// The delays of main jobs that started from `from` on and before `to`, the earliest first, at most
    /// `limit`.
    async fn delays_between(
        &self,
        from: UnixTime,
        to: UnixTime,
        limit: u32,
    ) -> Result<Vec<MainDelay>, StoreError>;
    /// Adds measurements. If the store does not have their profile yet, adds one without points, so that the
    /// profile is listed and can be forgotten.
    async fn add_measurements(&self, measurements: &[Measurement]) -> Result<(), StoreError>;
    /// The newest measurements of a profile, oldest first, at most `limit`.
    async fn recent_measurements(&self, key: &ProfileKey, limit: u32)
    -> Result<Vec<Measurement>, StoreError>;
    /// Inserts or replaces profiles.
    async fn put_profiles(&self, profiles: &[Profile]) -> Result<(), StoreError>;
    /// Inserts or replaces imported profiles: all of them, or none if one of their users would exceed the
    /// quota.
    async fn import_profiles(
        &self,
        profiles: &[Profile],
        quota: &ProfileQuota,
    ) -> Result<Result<(), QuotaExceeded>, StoreError>;
    /// Profiles that the filter selects, the last changed first, at most `limit`.
    async fn find_profiles(&self, filter: &ProfileFilter, limit: u32) -> Result<Vec<Profile>, StoreError>;
    /// Deletes the profiles that the filter selects, with their measurements. Returns how many profiles.
    async fn forget_profiles(&self, filter: &ProfileFilter) -> Result<u64, StoreError>;
    /// Deletes all rows that name a user: profiles with their measurements, ended jobs, ended leads with
    /// their generations. Node-time stays, without the name.
    async fn forget_user(&self, user: &UserToForget) -> Result<ForgottenRows, StoreError>;
    /// A small setting that outlives the daemon, such as the administrator's last order. `None` if it was
    /// never written.
    async fn get_setting(&self, key: &str) -> Result<Option<String>, StoreError>;
    /// Inserts or replaces a setting.
    async fn put_setting(&self, key: &str, value: &str) -> Result<(), StoreError>;
    /// Deletes the history that these limits do not keep. Returns the number of deleted rows.
    async fn prune_history(&self, since: &RetentionLimits) -> Result<u64, StoreError>;
}
