//! Implements the store's calls. Reads use any connection; each write is one transaction.

use async_trait::async_trait;
use sqlx::QueryBuilder;
use sqlx::query::Query;

use super::{
    SqlArguments, SqlDatabase, SqlRow, SqlStore, bounds, classify_error, filter, forget, rows, storable_text,
    within, write,
};
use crate::port::{
    ForgottenRows, LeadStanding, Measurement, ProfileQuota, QuotaExceeded, RetentionLimits, RoundRecord,
    RoundsFilter, Store, StoreError, UserToForget,
};
use infill_model::{
    EndedGap, EndedJob, GenerationRecord, JobId, LeadRecord, MainDelay, NodeTimeRow, NodeTimeUsage,
    NodeUsageSecs, PackedHour, Profile, ProfileFilter, ProfileKey, RoundSummary, UnixTime,
};

/// Runs `$work` in one transaction `$tx` of the store `$store`: all of it happens or nothing.
macro_rules! written {
    ($store:expr, $doing:expr, |$tx:ident| $work:expr) => {
        within($doing, async {
            let mut $tx = $store.begin($doing).await?;
            let result = $work.await;
            $store.end($tx, result, $doing).await
        })
        .await
    };
}

/// The query for node-time from $1 on and before $2: these columns, and sums by `$by`, at most $3 rows.
macro_rules! spent_by {
    ($columns:literal, $by:literal) => {
        concat!(
            "SELECT ",
            $columns,
            ", SUM(useful_secs) AS useful_secs, SUM(rescale_secs) AS rescale_secs,
             SUM(preempted_secs) AS preempted_secs, SUM(probing_secs) AS probing_secs, SUM(gpu_secs) AS gpu_secs
             FROM node_time WHERE began_at >= $1 AND began_at < $2 GROUP BY ",
            $by,
            " ORDER BY ",
            $by,
            " LIMIT $3"
        )
    };
}

impl SqlStore {
    /// The rows of a query. Skips rows that cannot be read.
    async fn read_rows<T>(
        &self,
        table: &'static str,
        query: Query<'_, SqlDatabase, SqlArguments>,
        read: fn(&SqlRow) -> Result<T, rows::RowError>,
    ) -> Result<Vec<T>, StoreError> {
        let doing = format!("reading {table}");
        let rows = async { query.fetch_all(&self.readers).await.map_err(|e| classify_error(&doing, &e)) };
        Ok(rows::read_valid(table, &within(&doing, rows).await?, read))
    }

    /// First reads the ids of the rounds, then one round after the other: all at once may be a hundred
    /// megabytes.
    async fn read_summaries(&self, filter: &RoundsFilter) -> Result<Vec<RoundSummary>, StoreError> {
        let RoundsFilter { until, limit } = *filter;
        let query = sqlx::query(
            "SELECT id FROM rounds WHERE planned_at <= $1 ORDER BY planned_at DESC, id DESC LIMIT $2",
        );
        let query = query.bind(until.map_or(i64::MAX, |t| t.0)).bind(i64::from(limit));
        let mut summaries = Vec::new();
        for id in self.read_rows("rounds", query, rows::read_id).await? {
            let query = sqlx::query("SELECT * FROM rounds WHERE id = $1").bind(id);
            summaries.extend(
                self.read_rows("rounds", query, rows::read_round).await?.iter().map(RoundRecord::to_summary),
            );
        }
        Ok(summaries)
    }
}

#[async_trait]
impl Store for SqlStore {
    async fn lead_standing(&self) -> Result<LeadStanding, StoreError> {
        self.lead_state().await
    }

    async fn put_leads(&self, leads: &[LeadRecord]) -> Result<(), StoreError> {
        written!(self, "writing leads", |tx| write::write_leads(&mut tx, leads))
    }

    async fn open_leads(&self) -> Result<Vec<LeadRecord>, StoreError> {
        let query = sqlx::query("SELECT * FROM leads WHERE NOT ended ORDER BY job, submitted_at");
        self.read_rows("leads", query, rows::read_lead).await
    }

    async fn add_generations(&self, generations: &[GenerationRecord]) -> Result<(), StoreError> {
        written!(self, "writing generations", |tx| write::write_generations(&mut tx, generations))
    }

    async fn list_generations(&self, job: JobId) -> Result<Vec<GenerationRecord>, StoreError> {
        let query = sqlx::query("SELECT * FROM generations WHERE job = $1 ORDER BY started_at, generation");
        self.read_rows("generations", query.bind(i64::from(job.0)), rows::read_generation).await
    }

    async fn generations_between(
        &self,
        from: UnixTime,
        to: UnixTime,
        limit: u32,
    ) -> Result<Vec<GenerationRecord>, StoreError> {
        let query = sqlx::query(
            "SELECT * FROM generations WHERE started_at >= $1 AND started_at < $2
             ORDER BY started_at DESC, job DESC, generation DESC LIMIT $3",
        );
        let query = query.bind(from.0).bind(to.0).bind(i64::from(limit));
        let mut generations = self.read_rows("generations", query, rows::read_generation).await?;
        generations.reverse();
        Ok(generations)
    }

    async fn count_rescales(&self, from: UnixTime, to: UnixTime) -> Result<u64, StoreError> {
        let query = sqlx::query(
            "SELECT COUNT(*) AS n FROM generations WHERE started_at >= $1 AND started_at < $2 AND generation > 1",
        );
        let counts = self.read_rows("generations", query.bind(from.0).bind(to.0), rows::read_count).await?;
        Ok(counts.first().copied().unwrap_or(0))
    }

    async fn next_wing_numbers(&self, count: u64, least: u64) -> Result<u64, StoreError> {
        written!(self, "counting orders", |tx| write::allocate_orders(&mut tx, count, least))
    }

    async fn add_round(&self, round: &RoundRecord) -> Result<(), StoreError> {
        written!(self, "writing a round", |tx| write::write_round(&mut tx, round))
    }

    async fn list_rounds(&self, filter: &RoundsFilter) -> Result<Vec<RoundSummary>, StoreError> {
        within("reading rounds", self.read_summaries(filter)).await
    }

    async fn round_at(&self, at: UnixTime) -> Result<Option<RoundRecord>, StoreError> {
        let query = sqlx::query(
            "SELECT * FROM rounds WHERE planned_at <= $1 ORDER BY planned_at DESC, id DESC LIMIT 1",
        );
        Ok(self.read_rows("rounds", query.bind(at.0), rows::read_round).await?.pop())
    }

    async fn add_gaps(&self, gaps: &[EndedGap]) -> Result<(), StoreError> {
        written!(self, "writing gaps", |tx| write::write_gaps(&mut tx, gaps))
    }

    async fn recent_gaps(&self, limit: u32) -> Result<Vec<EndedGap>, StoreError> {
        let query = sqlx::query("SELECT * FROM gaps ORDER BY ended_at DESC, id DESC LIMIT $1");
        let mut gaps = self.read_rows("gaps", query.bind(i64::from(limit)), rows::read_gap).await?;
        gaps.reverse();
        Ok(gaps)
    }

    async fn add_ended_jobs(&self, jobs: &[EndedJob]) -> Result<u64, StoreError> {
        written!(self, "writing ended jobs", |tx| write::write_ended_jobs(&mut tx, jobs))
    }

    async fn recent_ended_jobs(&self, limit: u32) -> Result<Vec<EndedJob>, StoreError> {
        let query = sqlx::query(
            "SELECT * FROM ended_jobs ORDER BY ended_at DESC, job DESC, submitted_at DESC LIMIT $1",
        );
        let mut jobs =
            self.read_rows("ended_jobs", query.bind(i64::from(limit)), rows::read_ended_job).await?;
        jobs.reverse();
        Ok(jobs)
    }

    async fn put_hour(&self, hour: &PackedHour, sums: &NodeUsageSecs) -> Result<(), StoreError> {
        written!(self, "writing an hour of node use", |tx| write::write_hour(&mut tx, hour, sums))
    }

    async fn hours_between(
        &self,
        from: UnixTime,
        to: UnixTime,
        limit: u32,
    ) -> Result<Vec<PackedHour>, StoreError> {
        let query = sqlx::query(
            "SELECT * FROM node_hours WHERE began_at >= $1 AND began_at < $2 ORDER BY began_at LIMIT $3",
        );
        self.read_rows("node_hours", query.bind(from.0).bind(to.0).bind(i64::from(limit)), rows::read_hour)
            .await
    }

    async fn usage_by_hour(
        &self,
        from: UnixTime,
        to: UnixTime,
        limit: u32,
    ) -> Result<Vec<(UnixTime, NodeUsageSecs)>, StoreError> {
        let query = sqlx::query(
            "SELECT * FROM node_uses WHERE began_at >= $1 AND began_at < $2 ORDER BY began_at LIMIT $3",
        );
        self.read_rows("node_uses", query.bind(from.0).bind(to.0).bind(i64::from(limit)), rows::read_uses)
            .await
    }

    async fn put_node_time(&self, rows: &[NodeTimeRow]) -> Result<(), StoreError> {
        written!(self, "writing node-time", |tx| write::write_node_time(&mut tx, rows))
    }

    async fn sum_node_time(&self, from: UnixTime, to: UnixTime) -> Result<Vec<NodeTimeRow>, StoreError> {
        let query = sqlx::query(spent_by!(
            "account, owner, node_type, MIN(began_at) AS began_at",
            "account, owner, node_type"
        ));
        self.read_rows("node_time", query.bind(from.0).bind(to.0).bind(i64::MAX), rows::read_node_time).await
    }

    async fn node_time_by_hour(
        &self,
        from: UnixTime,
        to: UnixTime,
        limit: u32,
    ) -> Result<Vec<(UnixTime, NodeTimeUsage)>, StoreError> {
        let query = sqlx::query(spent_by!("began_at", "began_at"));
        self.read_rows(
            "node_time",
            query.bind(from.0).bind(to.0).bind(i64::from(limit)),
            rows::read_hourly_node_time,
        )
        .await
    }

    async fn add_delays(&self, delays: &[MainDelay]) -> Result<(), StoreError> {
        written!(self, "writing main jobs' delays", |tx| write::write_delays(&mut tx, delays))
    }

    async fn delays_between(
        &self,
        from: UnixTime,
        to: UnixTime,
        limit: u32,
    ) -> Result<Vec<MainDelay>, StoreError> {
        let query = sqlx::query(
            "SELECT * FROM main_delays WHERE started_at >= $1 AND started_at < $2 ORDER BY started_at, job LIMIT $3",
        );
        self.read_rows("main_delays", query.bind(from.0).bind(to.0).bind(i64::from(limit)), rows::read_delay)
            .await
    }

    async fn add_measurements(&self, measurements: &[Measurement]) -> Result<(), StoreError> {
        written!(self, "writing measurements", |tx| write::write_measurements(&mut tx, measurements))
    }

    async fn recent_measurements(
        &self,
        key: &ProfileKey,
        limit: u32,
    ) -> Result<Vec<Measurement>, StoreError> {
        let mut newest = QueryBuilder::new(
            "SELECT measurements.*, owner, name, node_type, exec_plan, batch
             FROM measurements JOIN profiles ON profiles.id = measurements.profile WHERE TRUE",
        );
        filter::push_key(&mut newest, key);
        newest.push(" ORDER BY measured_at DESC, measurements.id DESC LIMIT ").push_bind(i64::from(limit));
        let mut measurements = self.read_rows("measurements", newest.build(), rows::read_measurement).await?;
        measurements.reverse();
        Ok(measurements)
    }

    async fn put_profiles(&self, profiles: &[Profile]) -> Result<(), StoreError> {
        written!(self, "writing profiles", |tx| write::write_profiles(&mut tx, profiles))
    }

    async fn import_profiles(
        &self,
        profiles: &[Profile],
        quota: &ProfileQuota,
    ) -> Result<Result<(), QuotaExceeded>, StoreError> {
        written!(self, "importing profiles", |tx| bounds::import_profiles(&mut tx, profiles, quota))
    }

    async fn find_profiles(&self, filter: &ProfileFilter, limit: u32) -> Result<Vec<Profile>, StoreError> {
        let mut query = QueryBuilder::new("SELECT * FROM profiles WHERE TRUE");
        filter::push_filter(&mut query, filter);
        query.push(" ORDER BY updated_at DESC, id DESC LIMIT ").push_bind(i64::from(limit));
        self.read_rows("profiles", query.build(), rows::read_profile).await
    }

    async fn forget_profiles(&self, filter: &ProfileFilter) -> Result<u64, StoreError> {
        written!(self, "forgetting profiles", |tx| write::forget_profiles(&mut tx, filter))
    }

    async fn forget_user(&self, user: &UserToForget) -> Result<ForgottenRows, StoreError> {
        written!(self, "forgetting a user", |tx| forget::forget_user(&mut tx, user))
    }

    async fn get_setting(&self, key: &str) -> Result<Option<String>, StoreError> {
        let query = sqlx::query("SELECT content FROM settings WHERE name = $1").bind(storable_text(key));
        Ok(self.read_rows("settings", query, rows::read_setting).await?.pop())
    }

    async fn put_setting(&self, key: &str, value: &str) -> Result<(), StoreError> {
        written!(self, "writing a setting", |tx| write::write_setting(&mut tx, key, value))
    }

    async fn prune_history(&self, since: &RetentionLimits) -> Result<u64, StoreError> {
        written!(self, "deleting old history", |tx| bounds::prune_all(&mut tx, since))
    }
}
