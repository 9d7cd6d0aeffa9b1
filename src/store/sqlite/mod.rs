//! The store in one SQLite file: write-ahead log, one writer, a few readers that never wait for it.

mod filter;
mod open;
mod rows;
mod write;

use async_trait::async_trait;
use sqlx::QueryBuilder;
use sqlx::sqlite::SqlitePool;

pub(super) use self::open::open;

use super::{GenerationRecord, LeadRecord, Measurement, ProfileFilter, RoundRecord, Store, StoreError};
use crate::model::{EndedGap, JobId, Profile, ProfileKey, UnixTime};

/// The file through two pools.
pub(super) struct SqliteStore {
    /// One connection, so that writers queue here and not at the file's lock.
    writer: SqlitePool,
    /// Read-only connections.
    readers: SqlitePool,
}

#[async_trait]
impl Store for SqliteStore {
    async fn put_leads(&self, leads: &[LeadRecord]) -> Result<(), StoreError> {
        const DOING: &str = "writing leads";
        let mut tx = self.begin(DOING).await?;
        let result = write::leads(&mut tx, leads).await;
        self.end(tx, result, DOING).await
    }

    async fn open_leads(&self) -> Result<Vec<LeadRecord>, StoreError> {
        let rows = sqlx::query("SELECT * FROM leads WHERE NOT ended ORDER BY job, submitted_at")
            .fetch_all(&self.readers)
            .await
            .map_err(|e| failed("reading leads", &e))?;
        Ok(rows::readable("leads", &rows, rows::lead))
    }

    async fn lead(&self, job: JobId) -> Result<Option<LeadRecord>, StoreError> {
        let rows = sqlx::query("SELECT * FROM leads WHERE job = $1 ORDER BY submitted_at DESC LIMIT 1")
            .bind(i64::from(job.0))
            .fetch_all(&self.readers)
            .await
            .map_err(|e| failed("reading a lead", &e))?;
        Ok(rows::readable("leads", &rows, rows::lead).pop())
    }

    async fn add_generations(&self, generations: &[GenerationRecord]) -> Result<(), StoreError> {
        const DOING: &str = "writing generations";
        let mut tx = self.begin(DOING).await?;
        let result = write::generations(&mut tx, generations).await;
        self.end(tx, result, DOING).await
    }

    async fn generations(&self, job: JobId) -> Result<Vec<GenerationRecord>, StoreError> {
        let rows = sqlx::query("SELECT * FROM generations WHERE job = $1 ORDER BY generation")
            .bind(i64::from(job.0))
            .fetch_all(&self.readers)
            .await
            .map_err(|e| failed("reading generations", &e))?;
        Ok(rows::readable("generations", &rows, rows::generation))
    }

    async fn next_orders(&self, count: u64) -> Result<u64, StoreError> {
        const DOING: &str = "counting orders";
        let mut tx = self.begin(DOING).await?;
        let result = write::next_orders(&mut tx, count).await;
        self.end(tx, result, DOING).await
    }

    async fn add_round(&self, round: &RoundRecord) -> Result<(), StoreError> {
        const DOING: &str = "writing a round";
        let mut tx = self.begin(DOING).await?;
        let result = write::round(&mut tx, round).await;
        self.end(tx, result, DOING).await
    }

    async fn rounds(&self, limit: u32) -> Result<Vec<RoundRecord>, StoreError> {
        let rows = sqlx::query("SELECT * FROM rounds ORDER BY id DESC LIMIT $1")
            .bind(i64::from(limit))
            .fetch_all(&self.readers)
            .await
            .map_err(|e| failed("reading rounds", &e))?;
        Ok(rows::readable("rounds", &rows, rows::round))
    }

    async fn add_gaps(&self, gaps: &[EndedGap]) -> Result<(), StoreError> {
        const DOING: &str = "writing gaps";
        let mut tx = self.begin(DOING).await?;
        let result = write::gaps(&mut tx, gaps).await;
        self.end(tx, result, DOING).await
    }

    async fn gaps(&self, limit: u32) -> Result<Vec<EndedGap>, StoreError> {
        let mut rows = sqlx::query("SELECT * FROM gaps ORDER BY ended_at DESC, id DESC LIMIT $1")
            .bind(i64::from(limit))
            .fetch_all(&self.readers)
            .await
            .map_err(|e| failed("reading gaps", &e))?;
        rows.reverse();
        Ok(rows::readable("gaps", &rows, rows::gap))
    }

    async fn add_measurements(&self, measurements: &[Measurement]) -> Result<(), StoreError> {
        const DOING: &str = "writing measurements";
        let mut tx = self.begin(DOING).await?;
        let result = write::measurements(&mut tx, measurements).await;
        self.end(tx, result, DOING).await
    }

    async fn measurements(&self, key: &ProfileKey, limit: u32) -> Result<Vec<Measurement>, StoreError> {
        let newest = "SELECT measurements.*, owner, name, node_type, exec_plan, batch
             FROM measurements JOIN profiles ON profiles.id = measurements.profile
             WHERE owner = $1 AND name = $2 AND node_type = $3 AND exec_plan = $4 AND batch = $5
             ORDER BY measured_at DESC, measurements.id DESC LIMIT $6";
        let mut rows = sqlx::query(newest)
            .bind(&key.user)
            .bind(&key.name)
            .bind(key.node_type.as_str())
            .bind(&key.exec_plan.0)
            .bind(key.batch.word())
            .bind(i64::from(limit))
            .fetch_all(&self.readers)
            .await
            .map_err(|e| failed("reading measurements", &e))?;
        rows.reverse();
        Ok(rows::readable("measurements", &rows, rows::measurement))
    }

    async fn put_profiles(&self, profiles: &[Profile]) -> Result<(), StoreError> {
        const DOING: &str = "writing profiles";
        let mut tx = self.begin(DOING).await?;
        let result = write::profiles(&mut tx, profiles).await;
        self.end(tx, result, DOING).await
    }

    async fn profiles(&self, filter: &ProfileFilter, limit: u32) -> Result<Vec<Profile>, StoreError> {
        let mut query = QueryBuilder::new("SELECT * FROM profiles WHERE TRUE");
        filter::push(&mut query, filter);
        query.push(" ORDER BY updated_at DESC, id DESC LIMIT ").push_bind(i64::from(limit));
        let rows = query.build().fetch_all(&self.readers).await;
        let rows = rows.map_err(|e| failed("reading profiles", &e))?;
        Ok(rows::readable("profiles", &rows, rows::profile))
    }

    async fn forget_profiles(&self, filter: &ProfileFilter) -> Result<u64, StoreError> {
        const DOING: &str = "forgetting profiles";
        let mut query = QueryBuilder::new("DELETE FROM profiles WHERE TRUE");
        filter::push(&mut query, filter);
        let mut tx = self.begin(DOING).await?;
        let result = query.build().execute(&mut *tx).await.map(|done| done.rows_affected());
        self.end(tx, result, DOING).await
    }

    async fn setting(&self, key: &str) -> Result<Option<String>, StoreError> {
        sqlx::query_scalar("SELECT content FROM settings WHERE name = $1")
            .bind(key)
            .fetch_optional(&self.readers)
            .await
            .map_err(|e| failed("reading a setting", &e))
    }

    async fn put_setting(&self, key: &str, value: &str) -> Result<(), StoreError> {
        const DOING: &str = "writing a setting";
        let mut tx = self.begin(DOING).await?;
        let result = write::setting(&mut tx, key, value).await;
        self.end(tx, result, DOING).await
    }

    async fn prune(&self, before: UnixTime, profiles_before: UnixTime) -> Result<u64, StoreError> {
        const DOING: &str = "deleting old history";
        let mut tx = self.begin(DOING).await?;
        let result = write::prune(&mut tx, before, profiles_before).await;
        self.end(tx, result, DOING).await
    }
}

/// SQLite's result codes for a damaged file and for one that is no database.
const DAMAGED: [i64; 2] = [11, 26];

/// What SQLite said, sorted into what passes and what does not.
fn failed(doing: &str, e: &sqlx::Error) -> StoreError {
    let (doing, what) = (doing.to_owned(), e.to_string());
    let damaged = match e {
        sqlx::Error::Database(e) => {
            // The low byte is the kind of the error; the rest says more about it.
            let code = e.code().and_then(|c| c.parse::<i64>().ok()).map(|c| c & 0xff);
            code.is_some_and(|c| DAMAGED.contains(&c))
        }
        sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) | sqlx::Error::ColumnNotFound(_) => true,
        _ => false,
    };
    if damaged { StoreError::Corrupt { doing, what } } else { StoreError::Unavailable { doing, what } }
}

#[cfg(test)]
mod tests;
