//! Writing: each function's statements run inside one transaction that [`SqliteStore::begin`] opened.

use sqlx::SqliteConnection;
use sqlx::pool::PoolConnection;
use sqlx::sqlite::Sqlite;

use super::rows::{signed, to_json};
use super::{SqliteStore, failed};
use crate::model::{EndedGap, Profile, UnixTime};
use crate::store::{GenerationRecord, LeadRecord, Measurement, RoundRecord, StoreError};

/// Most rounds that are kept, besides what `prune` deletes by age: a day of rounds every five seconds. On a large
/// machine a round's report has a hundred kilobytes, so that these have up to 2 GB.
const MAX_ROUNDS: i64 = 20_000;

/// Name of the counter of order numbers.
const ORDERS: &str = "orders";

type Done<T> = Result<T, sqlx::Error>;

impl SqliteStore {
    /// Opens a transaction by hand. SQLite ends one by itself when the disk is full, which sqlx's own transactions do
    /// not notice: their connection would be of no more use.
    pub(super) async fn begin(&self, doing: &str) -> Result<PoolConnection<Sqlite>, StoreError> {
        // Taking the lock at once means that a commit never fails because somebody else wrote in between.
        const BEGIN: &str = "BEGIN IMMEDIATE";
        let mut connection = self.writer.acquire().await.map_err(|e| failed(doing, &e))?;
        if let Err(e) = sqlx::query(BEGIN).execute(&mut *connection).await {
            // A call that was given up half way has left its transaction open.
            if sqlx::query("ROLLBACK").execute(&mut *connection).await.is_err() {
                return Err(failed(doing, &e));
            }
            sqlx::query(BEGIN).execute(&mut *connection).await.map_err(|e| failed(doing, &e))?;
        }
        Ok(connection)
    }

    /// Commits if all went well; otherwise takes everything back.
    pub(super) async fn end<T>(
        &self,
        mut connection: PoolConnection<Sqlite>,
        result: Done<T>,
        doing: &str,
    ) -> Result<T, StoreError> {
        let result = match result {
            Ok(value) => sqlx::query("COMMIT").execute(&mut *connection).await.map(|_| value),
            Err(e) => Err(e),
        };
        if result.is_err() {
            // It fails if SQLite has rolled back already, which is just as well.
            let _ = sqlx::query("ROLLBACK").execute(&mut *connection).await;
        }
        result.map_err(|e| failed(doing, &e))
    }
}

pub(super) async fn leads(tx: &mut SqliteConnection, leads: &[LeadRecord]) -> Done<()> {
    for lead in leads {
        sqlx::query(
            "INSERT INTO leads (job, submitted_at, updated_at, ended, state) VALUES ($1, $2, $3, $4, $5)
             ON CONFLICT (job, submitted_at) DO UPDATE SET updated_at = excluded.updated_at,
             ended = excluded.ended, state = excluded.state",
        )
        .bind(i64::from(lead.job.0))
        .bind(lead.submitted_at.0)
        .bind(lead.updated_at.0)
        .bind(lead.ended)
        .bind(to_json(&lead.state)?)
        .execute(&mut *tx)
        .await?;
    }
    Ok(())
}

pub(super) async fn generations(tx: &mut SqliteConnection, generations: &[GenerationRecord]) -> Done<()> {
    for g in generations {
        sqlx::query(
            "INSERT INTO generations (job, generation, started_at, nodes, why) VALUES ($1, $2, $3, $4, $5)
             ON CONFLICT (job, generation) DO NOTHING",
        )
        .bind(i64::from(g.job.0))
        .bind(signed(g.generation))
        .bind(g.started_at.0)
        .bind(to_json(&g.nodes)?)
        .bind(&g.why)
        .execute(&mut *tx)
        .await?;
    }
    Ok(())
}

pub(super) async fn next_orders(tx: &mut SqliteConnection, count: u64) -> Done<u64> {
    let next: i64 = sqlx::query_scalar(
        "INSERT INTO counters (name, next) VALUES ($1, 1 + $2)
         ON CONFLICT (name) DO UPDATE SET next = counters.next + $2 RETURNING next",
    )
    .bind(ORDERS)
    .bind(signed(count))
    .fetch_one(tx)
    .await?;
    Ok(u64::try_from(next).unwrap_or(u64::MAX).saturating_sub(count))
}

pub(super) async fn round(tx: &mut SqliteConnection, round: &RoundRecord) -> Done<()> {
    let id: i64 = sqlx::query_scalar(
        "INSERT INTO rounds (planned_at, plan, report, acted) VALUES ($1, $2, $3, $4) RETURNING id",
    )
    .bind(round.at.0)
    .bind(to_json(&round.plan)?)
    .bind(to_json(&round.report)?)
    .bind(round.acted)
    .fetch_one(&mut *tx)
    .await?;
    sqlx::query("DELETE FROM rounds WHERE id <= $1").bind(id - MAX_ROUNDS).execute(tx).await.map(drop)
}

pub(super) async fn gaps(tx: &mut SqliteConnection, gaps: &[EndedGap]) -> Done<()> {
    for gap in gaps {
        sqlx::query(
            "INSERT INTO gaps (node, node_type, started_at, ended_at, taken, block, planned)
             VALUES ($1, $2, $3, $4, $5, $6, $7)",
        )
        .bind(gap.node.as_str())
        .bind(gap.node_type.as_str())
        .bind(gap.start.0)
        .bind(gap.end.0)
        .bind(gap.taken)
        .bind(i64::from(gap.block))
        .bind(to_json(&gap.planned)?)
        .execute(&mut *tx)
        .await?;
    }
    Ok(())
}

pub(super) async fn measurements(tx: &mut SqliteConnection, measurements: &[Measurement]) -> Done<()> {
    // SQLite keeps no NaN, and nobody could use one.
    for m in measurements.iter().filter(|m| m.samples.is_finite() && m.secs.is_finite()) {
        sqlx::query(
            "INSERT INTO measurements (signature, node_type, exec_plan, nodes, samples, secs, measured_at)
             VALUES ($1, $2, $3, $4, $5, $6, $7)",
        )
        .bind(&m.signature)
        .bind(m.node_type.as_str())
        .bind(&m.exec_plan.0)
        .bind(i64::from(m.nodes))
        .bind(m.samples)
        .bind(m.secs)
        .bind(m.at.0)
        .execute(&mut *tx)
        .await?;
    }
    Ok(())
}

pub(super) async fn profile(tx: &mut SqliteConnection, profile: &Profile) -> Done<()> {
    sqlx::query(
        "INSERT INTO profiles (signature, node_type, exec_plan, curve, costs, updated_at)
         VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (signature, node_type, exec_plan)
         DO UPDATE SET curve = excluded.curve, costs = excluded.costs, updated_at = excluded.updated_at",
    )
    .bind(&profile.signature)
    .bind(profile.node_type.as_str())
    .bind(&profile.exec_plan.0)
    .bind(to_json(&profile.curve)?)
    .bind(to_json(&profile.costs)?)
    .bind(profile.updated_at.0)
    .execute(tx)
    .await
    .map(drop)
}

pub(super) async fn setting(tx: &mut SqliteConnection, key: &str, value: &str) -> Done<()> {
    sqlx::query(
        "INSERT INTO settings (name, content) VALUES ($1, $2)
         ON CONFLICT (name) DO UPDATE SET content = excluded.content",
    )
    .bind(key)
    .bind(value)
    .execute(tx)
    .await
    .map(drop)
}

pub(super) async fn prune(tx: &mut SqliteConnection, before: UnixTime) -> Done<u64> {
    let mut rows = 0;
    for statement in [
        "DELETE FROM rounds WHERE planned_at < $1",
        "DELETE FROM generations WHERE started_at < $1",
        "DELETE FROM leads WHERE ended AND updated_at < $1",
        "DELETE FROM gaps WHERE ended_at < $1",
        "DELETE FROM measurements WHERE measured_at < $1",
    ] {
        rows += sqlx::query(statement).bind(before.0).execute(&mut *tx).await?.rows_affected();
    }
    Ok(rows)
}
