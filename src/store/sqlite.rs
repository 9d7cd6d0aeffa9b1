//! The SQLite adapter: one file in WAL mode, readable by its owner only.

use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::str::FromStr as _;
use std::time::Duration;

use async_trait::async_trait;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteRow, SqliteSynchronous,
};
use sqlx::{Row as _, Sqlite, Transaction};

use super::{
    GapRecord, GenerationRecord, LeadRecord, Measurement, RoundRecord, Store, StoreError, corrupt, decode,
    encode, unavailable,
};
use crate::model::{ExecPlan, JobId, NodeName, NodeType, Profile, UnixTime};

/// How long a statement waits for another process (a backup, `infill plan --local`) to let go of the file.
const BUSY: Duration = Duration::from_secs(5);

/// SQLite writes one at a time; a few connections let readers go on meanwhile.
const CONNECTIONS: u32 = 4;

/// The setting that counts orders.
const NEXT_ORDER: &str = "next_order";

/// A store in one SQLite file.
#[derive(Debug)]
pub struct SqliteStore {
    pool: SqlitePool,
}

impl SqliteStore {
    /// Opens or creates the file that `url` (`sqlite:/path/file.db`) names and brings its schema up to date.
    ///
    /// # Errors
    /// Unavailable when the file cannot be opened; corrupt when it is no database of ours or of a newer version.
    pub async fn open(url: &str) -> Result<Self, StoreError> {
        let doing = || format!("opening the store {url}");
        let options = SqliteConnectOptions::from_str(url).map_err(|e| corrupt(doing(), e))?;
        let options = options
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Normal)
            .busy_timeout(BUSY);
        private_file(options.get_filename()).map_err(|e| unavailable(doing(), e))?;
        let pool = SqlitePoolOptions::new()
            .max_connections(CONNECTIONS)
            .acquire_timeout(BUSY)
            .connect_with(options)
            .await
            .map_err(|e| unavailable(doing(), e))?;
        sqlx::migrate!("migrations/sqlite").run(&pool).await.map_err(|e| corrupt(doing(), e))?;
        Ok(SqliteStore { pool })
    }

    async fn begin(&self, doing: &str) -> Result<Transaction<'static, Sqlite>, StoreError> {
        // IMMEDIATE: a transaction that will write asks for the lock first, and waits instead of failing half-way.
        self.pool.begin_with("BEGIN IMMEDIATE").await.map_err(|e| unavailable(doing, e))
    }
}

/// Creates the file and its folder so that only their owner can read them: profiles name users' programs.
fn private_file(path: &Path) -> std::io::Result<()> {
    if path.as_os_str().is_empty() || path == Path::new(":memory:") {
        return Ok(());
    }
    if let Some(parent) = path.parent().filter(|p| !p.as_os_str().is_empty() && !p.exists()) {
        std::fs::DirBuilder::new().recursive(true).mode(0o750).create(parent)?;
    }
    std::fs::OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path)?;
    Ok(())
}

/// Reads rows; one that cannot be read is left out with a warning, and stays in the database.
fn readable<T>(
    doing: &str,
    rows: &[SqliteRow],
    read: impl Fn(&SqliteRow) -> Result<T, StoreError>,
) -> Vec<T> {
    let read_one = |row| match read(row) {
        Ok(value) => Some(value),
        Err(e) => {
            tracing::warn!("{doing}: left out a row: {e}");
            None
        }
    };
    rows.iter().filter_map(read_one).collect()
}

fn column<'r, T>(row: &'r SqliteRow, name: &str) -> Result<T, StoreError>
where
    T: sqlx::Decode<'r, Sqlite> + sqlx::Type<Sqlite>,
{
    row.try_get(name).map_err(|e| corrupt(format!("reading column {name}"), e))
}

fn time(row: &SqliteRow, name: &str) -> Result<UnixTime, StoreError> {
    column::<i64>(row, name).map(UnixTime)
}

fn number<T: TryFrom<i64>>(row: &SqliteRow, name: &str) -> Result<T, StoreError> {
    let value: i64 = column(row, name)?;
    T::try_from(value)
        .map_err(|_| corrupt(format!("reading column {name}"), format!("{value} is out of range")))
}

fn json<T: DeserializeOwned>(row: &SqliteRow, name: &str) -> Result<T, StoreError> {
    decode(name, &column::<String>(row, name)?)
}

fn lead(row: &SqliteRow) -> Result<LeadRecord, StoreError> {
    Ok(LeadRecord {
        job: JobId(number(row, "job")?),
        submitted_at: time(row, "submitted_at")?,
        updated_at: time(row, "updated_at")?,
        ended: column::<i64>(row, "ended")? != 0,
        state: json(row, "state")?,
    })
}

fn generation(row: &SqliteRow) -> Result<GenerationRecord, StoreError> {
    Ok(GenerationRecord {
        job: JobId(number(row, "job")?),
        generation: number(row, "generation")?,
        started_at: time(row, "started_at")?,
        nodes: json(row, "nodes")?,
        why: column(row, "why")?,
    })
}

fn round(row: &SqliteRow) -> Result<RoundRecord, StoreError> {
    Ok(RoundRecord {
        at: time(row, "at")?,
        plan: json(row, "plan")?,
        report: json(row, "report")?,
        acted: column::<i64>(row, "acted")? != 0,
    })
}

fn gap(row: &SqliteRow) -> Result<GapRecord, StoreError> {
    Ok(GapRecord {
        node: NodeName::new(column::<String>(row, "node")?),
        node_type: NodeType::new(column::<String>(row, "node_type")?),
        start: time(row, "start_at")?,
        end: time(row, "end_at")?,
        taken: column::<i64>(row, "taken")? != 0,
        block: number(row, "block")?,
        planned: json(row, "planned")?,
    })
}

fn measurement(row: &SqliteRow) -> Result<Measurement, StoreError> {
    Ok(Measurement {
        signature: column(row, "signature")?,
        node_type: NodeType::new(column::<String>(row, "node_type")?),
        exec_plan: ExecPlan(column(row, "exec_plan")?),
        nodes: number(row, "nodes")?,
        samples: column(row, "samples")?,
        secs: column(row, "secs")?,
        at: time(row, "at")?,
    })
}

fn profile(row: &SqliteRow) -> Result<Profile, StoreError> {
    Ok(Profile {
        signature: column(row, "signature")?,
        node_type: NodeType::new(column::<String>(row, "node_type")?),
        exec_plan: ExecPlan(column(row, "exec_plan")?),
        curve: json(row, "curve")?,
        costs: json(row, "costs")?,
        updated_at: time(row, "updated_at")?,
    })
}

fn text(value: &impl Serialize) -> Result<String, StoreError> {
    encode(value)
}

#[async_trait]
impl Store for SqliteStore {
    async fn put_leads(&self, leads: &[LeadRecord]) -> Result<(), StoreError> {
        const DOING: &str = "storing malleable jobs";
        let mut tx = self.begin(DOING).await?;
        for l in leads {
            sqlx::query(
                "INSERT INTO lead (job, submitted_at, updated_at, ended, state) VALUES (?, ?, ?, ?, ?)
                 ON CONFLICT (job) DO UPDATE SET submitted_at = excluded.submitted_at,
                 updated_at = excluded.updated_at, ended = excluded.ended, state = excluded.state",
            )
            .bind(i64::from(l.job.0))
            .bind(l.submitted_at.0)
            .bind(l.updated_at.0)
            .bind(i64::from(l.ended))
            .bind(text(&l.state)?)
            .execute(&mut *tx)
            .await
            .map_err(|e| unavailable(DOING, e))?;
        }
        tx.commit().await.map_err(|e| unavailable(DOING, e))
    }

    async fn open_leads(&self) -> Result<Vec<LeadRecord>, StoreError> {
        const DOING: &str = "reading malleable jobs";
        let query = sqlx::query("SELECT * FROM lead WHERE ended = 0 ORDER BY job");
        let rows = query.fetch_all(&self.pool).await.map_err(|e| unavailable(DOING, e))?;
        Ok(readable(DOING, &rows, lead))
    }

    async fn lead(&self, job: JobId) -> Result<Option<LeadRecord>, StoreError> {
        const DOING: &str = "reading a malleable job";
        let query = sqlx::query("SELECT * FROM lead WHERE job = ?").bind(i64::from(job.0));
        let row = query.fetch_optional(&self.pool).await.map_err(|e| unavailable(DOING, e))?;
        row.as_ref().map(lead).transpose()
    }

    async fn add_generations(&self, generations: &[GenerationRecord]) -> Result<(), StoreError> {
        const DOING: &str = "storing generations";
        let mut tx = self.begin(DOING).await?;
        for g in generations {
            sqlx::query(
                "INSERT INTO generation (job, generation, started_at, nodes, why) VALUES (?, ?, ?, ?, ?)
                 ON CONFLICT DO NOTHING",
            )
            .bind(i64::from(g.job.0))
            .bind(i64::try_from(g.generation).unwrap_or(i64::MAX))
            .bind(g.started_at.0)
            .bind(text(&g.nodes)?)
            .bind(&g.why)
            .execute(&mut *tx)
            .await
            .map_err(|e| unavailable(DOING, e))?;
        }
        tx.commit().await.map_err(|e| unavailable(DOING, e))
    }

    async fn generations(&self, job: JobId) -> Result<Vec<GenerationRecord>, StoreError> {
        const DOING: &str = "reading generations";
        let sql = "SELECT * FROM generation WHERE job = ? ORDER BY started_at, generation";
        let query = sqlx::query(sql).bind(i64::from(job.0));
        let rows = query.fetch_all(&self.pool).await.map_err(|e| unavailable(DOING, e))?;
        Ok(readable(DOING, &rows, generation))
    }

    async fn next_orders(&self, count: u64) -> Result<u64, StoreError> {
        const DOING: &str = "taking order numbers";
        let mut tx = self.begin(DOING).await?;
        let query = sqlx::query("SELECT value FROM setting WHERE name = ?").bind(NEXT_ORDER);
        let row = query.fetch_optional(&mut *tx).await.map_err(|e| unavailable(DOING, e))?;
        let first = match row.map(|r| column::<String>(&r, "value")).transpose()? {
            Some(text) => text.parse::<u64>().map_err(|e| corrupt(DOING, e))?,
            None => 1,
        };
        sqlx::query("INSERT INTO setting (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value")
            .bind(NEXT_ORDER)
            .bind(first.saturating_add(count).to_string())
            .execute(&mut *tx)
            .await
            .map_err(|e| unavailable(DOING, e))?;
        tx.commit().await.map_err(|e| unavailable(DOING, e))?;
        Ok(first)
    }

    async fn add_round(&self, round: &RoundRecord) -> Result<(), StoreError> {
        const DOING: &str = "storing a round";
        sqlx::query("INSERT INTO round (at, acted, plan, report) VALUES (?, ?, ?, ?)")
            .bind(round.at.0)
            .bind(i64::from(round.acted))
            .bind(text(&round.plan)?)
            .bind(text(&round.report)?)
            .execute(&self.pool)
            .await
            .map(drop)
            .map_err(|e| unavailable(DOING, e))
    }

    async fn rounds(&self, limit: u32) -> Result<Vec<RoundRecord>, StoreError> {
        const DOING: &str = "reading rounds";
        let query = sqlx::query("SELECT * FROM round ORDER BY id DESC LIMIT ?").bind(i64::from(limit));
        let rows = query.fetch_all(&self.pool).await.map_err(|e| unavailable(DOING, e))?;
        Ok(readable(DOING, &rows, round))
    }

    async fn add_gaps(&self, gaps: &[GapRecord]) -> Result<(), StoreError> {
        const DOING: &str = "storing ended gaps";
        let mut tx = self.begin(DOING).await?;
        for g in gaps {
            sqlx::query(
                "INSERT INTO gap (node, node_type, start_at, end_at, taken, block, planned)
                 VALUES (?, ?, ?, ?, ?, ?, ?)",
            )
            .bind(g.node.as_str())
            .bind(g.node_type.as_str())
            .bind(g.start.0)
            .bind(g.end.0)
            .bind(i64::from(g.taken))
            .bind(i64::from(g.block))
            .bind(text(&g.planned)?)
            .execute(&mut *tx)
            .await
            .map_err(|e| unavailable(DOING, e))?;
        }
        tx.commit().await.map_err(|e| unavailable(DOING, e))
    }

    async fn gaps(&self, limit: u32) -> Result<Vec<GapRecord>, StoreError> {
        const DOING: &str = "reading ended gaps";
        let sql = "SELECT * FROM (SELECT * FROM gap ORDER BY id DESC LIMIT ?) ORDER BY id";
        let query = sqlx::query(sql).bind(i64::from(limit));
        let rows = query.fetch_all(&self.pool).await.map_err(|e| unavailable(DOING, e))?;
        Ok(readable(DOING, &rows, gap))
    }

    async fn add_measurements(&self, measurements: &[Measurement]) -> Result<(), StoreError> {
        const DOING: &str = "storing measurements";
        let mut tx = self.begin(DOING).await?;
        for m in measurements {
            sqlx::query(
                "INSERT INTO measurement (signature, node_type, exec_plan, nodes, samples, secs, at)
                 VALUES (?, ?, ?, ?, ?, ?, ?)",
            )
            .bind(&m.signature)
            .bind(m.node_type.as_str())
            .bind(&m.exec_plan.0)
            .bind(i64::from(m.nodes))
            .bind(m.samples)
            .bind(m.secs)
            .bind(m.at.0)
            .execute(&mut *tx)
            .await
            .map_err(|e| unavailable(DOING, e))?;
        }
        tx.commit().await.map_err(|e| unavailable(DOING, e))
    }

    async fn measurements(&self, signature: &str, limit: u32) -> Result<Vec<Measurement>, StoreError> {
        const DOING: &str = "reading measurements";
        let sql =
            "SELECT * FROM (SELECT * FROM measurement WHERE signature = ? ORDER BY at DESC, id DESC LIMIT ?)
                   ORDER BY at, id";
        let query = sqlx::query(sql).bind(signature).bind(i64::from(limit));
        let rows = query.fetch_all(&self.pool).await.map_err(|e| unavailable(DOING, e))?;
        Ok(readable(DOING, &rows, measurement))
    }

    async fn put_profile(&self, p: &Profile) -> Result<(), StoreError> {
        const DOING: &str = "storing a profile";
        sqlx::query(
            "INSERT INTO profile (signature, node_type, exec_plan, curve, costs, updated_at) VALUES (?, ?, ?, ?, ?, ?)
             ON CONFLICT (signature, node_type, exec_plan) DO UPDATE SET curve = excluded.curve,
             costs = excluded.costs, updated_at = excluded.updated_at",
        )
        .bind(&p.signature)
        .bind(p.node_type.as_str())
        .bind(&p.exec_plan.0)
        .bind(text(&p.curve)?)
        .bind(text(&p.costs)?)
        .bind(p.updated_at.0)
        .execute(&self.pool)
        .await
        .map(drop)
        .map_err(|e| unavailable(DOING, e))
    }

    async fn profiles(&self, signature: &str) -> Result<Vec<Profile>, StoreError> {
        const DOING: &str = "reading profiles";
        let sql = "SELECT * FROM profile WHERE signature = ? ORDER BY node_type, exec_plan";
        let query = sqlx::query(sql).bind(signature);
        let rows = query.fetch_all(&self.pool).await.map_err(|e| unavailable(DOING, e))?;
        Ok(readable(DOING, &rows, profile))
    }

    async fn setting(&self, key: &str) -> Result<Option<String>, StoreError> {
        const DOING: &str = "reading a setting";
        let query = sqlx::query("SELECT value FROM setting WHERE name = ?").bind(key);
        let row = query.fetch_optional(&self.pool).await.map_err(|e| unavailable(DOING, e))?;
        row.map(|r| column(&r, "value")).transpose()
    }

    async fn put_setting(&self, key: &str, value: &str) -> Result<(), StoreError> {
        const DOING: &str = "storing a setting";
        sqlx::query("INSERT INTO setting (name, value) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value")
            .bind(key)
            .bind(value)
            .execute(&self.pool)
            .await
            .map(drop)
            .map_err(|e| unavailable(DOING, e))
    }

    async fn prune(&self, before: UnixTime) -> Result<u64, StoreError> {
        const DOING: &str = "deleting old rows";
        const DELETES: [&str; 5] = [
            "DELETE FROM round WHERE at < ?",
            "DELETE FROM generation WHERE started_at < ?",
            "DELETE FROM lead WHERE ended = 1 AND updated_at < ?",
            "DELETE FROM gap WHERE end_at < ?",
            "DELETE FROM measurement WHERE at < ?",
        ];
        let mut tx = self.begin(DOING).await?;
        let mut rows = 0;
        for sql in DELETES {
            let done = sqlx::query(sql).bind(before.0).execute(&mut *tx).await;
            rows += done.map_err(|e| unavailable(DOING, e))?.rows_affected();
        }
        tx.commit().await.map_err(|e| unavailable(DOING, e))?;
        Ok(rows)
    }
}

#[cfg(test)]
impl SqliteStore {
    /// Makes every connection's database full at its present size.
    pub(super) async fn limit_pages(&self) {
        let mut held = Vec::new();
        for _ in 0..CONNECTIONS {
            let mut connection = self.pool.acquire().await.unwrap();
            sqlx::query("PRAGMA max_page_count = 1").execute(&mut *connection).await.unwrap();
            held.push(connection);
        }
    }

    /// Runs a statement that leaves something unreadable.
    pub(super) async fn spoil(&self, sql: &'static str) {
        sqlx::query(sql).execute(&self.pool).await.unwrap();
    }
}
