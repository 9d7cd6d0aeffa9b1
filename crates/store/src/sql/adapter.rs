//! The store's calls: reading with any connection, writing in one transaction each.

use async_trait::async_trait;
use sqlx::QueryBuilder;
use sqlx::query::Query;

use super::{Adapter, Arguments, Db, Row, bounds, failed, filter, rows, text, within, write};
use crate::port::{
    KeptSince, LeadStanding, Measurement, NoRoom, ProfileRoom, RoundRecord, RoundsAsked, Store, StoreError,
};
use infill_model::{
    EndedGap, EndedJob, GenerationRecord, JobId, LeadRecord, MainDelay, NodeTimeRow, NodeTimeUsage,
    NodeUsageSecs, PackedHour, Profile, ProfileFilter, ProfileKey, RoundSummary, UnixTime,
};

/// Does `$work` in one transaction `$tx` of the store `$store`: all of it happens or nothing.
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

/// What became of node-time from $1 on and before $2: these columns, and sums by `$by`, at most $3 of them.
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

impl Adapter {
    /// All rows of a query that can be read.
    async fn read<T>(
        &self,
        table: &'static str,
        query: Query<'_, Db, Arguments>,
        read: fn(&Row) -> Result<T, rows::Bad>,
    ) -> Result<Vec<T>, StoreError> {
        let doing = format!("reading {table}");
        let rows = async { query.fetch_all(&self.readers).await.map_err(|e| failed(&doing, &e)) };
        Ok(rows::readable(table, &within(&doing, rows).await?, read))
    }

    /// First which rounds, then one after the other: all at once may be a hundred megabytes.
    async fn summaries(&self, asked: &RoundsAsked) -> Result<Vec<RoundSummary>, StoreError> {
        let RoundsAsked { until, limit } = *asked;
        let query = sqlx::query(
            "SELECT id FROM rounds WHERE planned_at <= $1 ORDER BY planned_at DESC, id DESC LIMIT $2",
        );
        let query = query.bind(until.map_or(i64::MAX, |t| t.0)).bind(i64::from(limit));
        let mut summaries = Vec::new();
        for id in self.read("rounds", query, rows::id).await? {
            let query = sqlx::query("SELECT * FROM rounds WHERE id = $1").bind(id);
            summaries.extend(self.read("rounds", query, rows::round).await?.iter().map(RoundRecord::summary));
        }
        Ok(summaries)
    }
}

#[async_trait]
impl Store for Adapter {
    async fn standing(&self) -> Result<LeadStanding, StoreError> {
        self.stands().await
    }

    async fn put_leads(&self, leads: &[LeadRecord]) -> Result<(), StoreError> {
        written!(self, "writing leads", |tx| write::leads(&mut tx, leads))
    }

    async fn open_leads(&self) -> Result<Vec<LeadRecord>, StoreError> {
        let query = sqlx::query("SELECT * FROM leads WHERE NOT ended ORDER BY job, submitted_at");
        self.read("leads", query, rows::lead).await
    }

    async fn add_generations(&self, generations: &[GenerationRecord]) -> Result<(), StoreError> {
        written!(self, "writing generations", |tx| write::generations(&mut tx, generations))
    }

    async fn generations(&self, job: JobId) -> Result<Vec<GenerationRecord>, StoreError> {
        let query = sqlx::query("SELECT * FROM generations WHERE job = $1 ORDER BY started_at, generation");
        self.read("generations", query.bind(i64::from(job.0)), rows::generation).await
    }

    async fn next_orders(&self, count: u64, least: u64) -> Result<u64, StoreError> {
        written!(self, "counting orders", |tx| write::next_orders(&mut tx, count, least))
    }

    async fn add_round(&self, round: &RoundRecord) -> Result<(), StoreError> {
        written!(self, "writing a round", |tx| write::round(&mut tx, round))
    }

    async fn rounds(&self, asked: &RoundsAsked) -> Result<Vec<RoundSummary>, StoreError> {
        within("reading rounds", self.summaries(asked)).await
    }

    async fn round_at(&self, at: UnixTime) -> Result<Option<RoundRecord>, StoreError> {
        let query = sqlx::query(
            "SELECT * FROM rounds WHERE planned_at <= $1 ORDER BY planned_at DESC, id DESC LIMIT 1",
        );
        Ok(self.read("rounds", query.bind(at.0), rows::round).await?.pop())
    }

    async fn add_gaps(&self, gaps: &[EndedGap]) -> Result<(), StoreError> {
        written!(self, "writing gaps", |tx| write::gaps(&mut tx, gaps))
    }

    async fn gaps(&self, limit: u32) -> Result<Vec<EndedGap>, StoreError> {
        let query = sqlx::query("SELECT * FROM gaps ORDER BY ended_at DESC, id DESC LIMIT $1");
        let mut gaps = self.read("gaps", query.bind(i64::from(limit)), rows::gap).await?;
        gaps.reverse();
        Ok(gaps)
    }

    async fn add_ended(&self, jobs: &[EndedJob]) -> Result<u64, StoreError> {
        written!(self, "writing ended jobs", |tx| write::ended(&mut tx, jobs))
    }

    async fn ended(&self, limit: u32) -> Result<Vec<EndedJob>, StoreError> {
        let query = sqlx::query(
            "SELECT * FROM ended_jobs ORDER BY ended_at DESC, job DESC, submitted_at DESC LIMIT $1",
        );
        let mut jobs = self.read("ended_jobs", query.bind(i64::from(limit)), rows::ended).await?;
        jobs.reverse();
        Ok(jobs)
    }

    async fn put_hour(&self, hour: &PackedHour, sums: &NodeUsageSecs) -> Result<(), StoreError> {
        written!(self, "writing what nodes were used for", |tx| write::hour(&mut tx, hour, sums))
    }

    async fn hours(&self, from: UnixTime, to: UnixTime, limit: u32) -> Result<Vec<PackedHour>, StoreError> {
        let query = sqlx::query(
            "SELECT * FROM node_hours WHERE began_at >= $1 AND began_at < $2 ORDER BY began_at LIMIT $3",
        );
        self.read("node_hours", query.bind(from.0).bind(to.0).bind(i64::from(limit)), rows::hour).await
    }

    async fn uses_by_hour(
        &self,
        from: UnixTime,
        to: UnixTime,
        limit: u32,
    ) -> Result<Vec<(UnixTime, NodeUsageSecs)>, StoreError> {
        let query = sqlx::query(
            "SELECT * FROM node_uses WHERE began_at >= $1 AND began_at < $2 ORDER BY began_at LIMIT $3",
        );
        self.read("node_uses", query.bind(from.0).bind(to.0).bind(i64::from(limit)), rows::uses).await
    }

    async fn put_spent(&self, rows: &[NodeTimeRow]) -> Result<(), StoreError> {
        written!(self, "writing what became of node-time", |tx| write::spent(&mut tx, rows))
    }

    async fn spent(&self, from: UnixTime, to: UnixTime) -> Result<Vec<NodeTimeRow>, StoreError> {
        let query = sqlx::query(spent_by!(
            "account, owner, node_type, MIN(began_at) AS began_at",
            "account, owner, node_type"
        ));
        self.read("node_time", query.bind(from.0).bind(to.0).bind(i64::MAX), rows::spent_row).await
    }

    async fn spent_by_hour(
        &self,
        from: UnixTime,
        to: UnixTime,
        limit: u32,
    ) -> Result<Vec<(UnixTime, NodeTimeUsage)>, StoreError> {
        let query = sqlx::query(spent_by!("began_at", "began_at"));
        self.read("node_time", query.bind(from.0).bind(to.0).bind(i64::from(limit)), rows::spent_in_hour)
            .await
    }

    async fn add_delays(&self, delays: &[MainDelay]) -> Result<(), StoreError> {
        written!(self, "writing main jobs' delays", |tx| write::delays(&mut tx, delays))
    }

    async fn delays(&self, from: UnixTime, to: UnixTime, limit: u32) -> Result<Vec<MainDelay>, StoreError> {
        let query = sqlx::query(
            "SELECT * FROM main_delays WHERE started_at >= $1 AND started_at < $2 ORDER BY started_at, job LIMIT $3",
        );
        self.read("main_delays", query.bind(from.0).bind(to.0).bind(i64::from(limit)), rows::delay).await
    }

    async fn add_measurements(&self, measurements: &[Measurement]) -> Result<(), StoreError> {
        written!(self, "writing measurements", |tx| write::measurements(&mut tx, measurements))
    }

    async fn measurements(&self, key: &ProfileKey, limit: u32) -> Result<Vec<Measurement>, StoreError> {
        let mut newest = QueryBuilder::new(
            "SELECT measurements.*, owner, name, node_type, exec_plan, batch
             FROM measurements JOIN profiles ON profiles.id = measurements.profile WHERE TRUE",
        );
        filter::push_key(&mut newest, key);
        newest.push(" ORDER BY measured_at DESC, measurements.id DESC LIMIT ").push_bind(i64::from(limit));
        let mut measurements = self.read("measurements", newest.build(), rows::measurement).await?;
        measurements.reverse();
        Ok(measurements)
    }

    async fn put_profiles(&self, profiles: &[Profile]) -> Result<(), StoreError> {
        written!(self, "writing profiles", |tx| write::profiles(&mut tx, profiles))
    }

    async fn bring_profiles(
        &self,
        profiles: &[Profile],
        room: &ProfileRoom,
    ) -> Result<Result<(), NoRoom>, StoreError> {
        written!(self, "taking profiles in", |tx| bounds::brought(&mut tx, profiles, room))
    }

    async fn profiles(&self, filter: &ProfileFilter, limit: u32) -> Result<Vec<Profile>, StoreError> {
        let mut query = QueryBuilder::new("SELECT * FROM profiles WHERE TRUE");
        filter::push(&mut query, filter);
        query.push(" ORDER BY updated_at DESC, id DESC LIMIT ").push_bind(i64::from(limit));
        self.read("profiles", query.build(), rows::profile).await
    }

    async fn forget_profiles(&self, filter: &ProfileFilter) -> Result<u64, StoreError> {
        written!(self, "forgetting profiles", |tx| write::forget_profiles(&mut tx, filter))
    }

    async fn setting(&self, key: &str) -> Result<Option<String>, StoreError> {
        let query = sqlx::query("SELECT content FROM settings WHERE name = $1").bind(text(key));
        Ok(self.read("settings", query, rows::setting).await?.pop())
    }

    async fn put_setting(&self, key: &str, value: &str) -> Result<(), StoreError> {
        written!(self, "writing a setting", |tx| write::setting(&mut tx, key, value))
    }

    async fn prune(&self, since: &KeptSince) -> Result<u64, StoreError> {
        written!(self, "deleting old history", |tx| bounds::prune(&mut tx, since))
    }
}
