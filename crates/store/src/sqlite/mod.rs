//! The store in one SQLite file: a write-ahead log, one writer, and a few readers that never wait for it.

mod failure;
mod lock;
mod open;
#[path = "../sql/mod.rs"]
#[allow(clippy::duplicate_mod, reason = "compiled once for each database, whose types differ")]
mod sql;

use sqlx::pool::PoolConnection;
use sqlx::sqlite::{Sqlite, SqliteArguments, SqliteConnection, SqlitePool, SqliteRow};

use self::failure::classify_error;
pub(super) use self::open::open;

use super::port::{LeadStanding, StoreError};

type SqlDatabase = Sqlite;
type SqlArguments = SqliteArguments;
type SqlConnection = SqliteConnection;
type SqlRow = SqliteRow;

/// The pools of connections to the file, and its lock.
pub(super) struct SqlStore {
    /// One connection, so that writers queue here and not at the file's lock.
    writer: SqlitePool,
    /// Read-only connections.
    readers: SqlitePool,
    /// Keeps other daemons away while this one lives. `None` for a database in memory.
    _lock: Option<lock::FileLock>,
}

impl SqlStore {
    /// Always `Alone`: a second daemon is refused and cannot stand by.
    async fn lead_state(&self) -> Result<LeadStanding, StoreError> {
        Ok(LeadStanding::Alone)
    }

    /// Opens a transaction by hand. SQLite ends a transaction by itself when the disk is full. sqlx's own
    /// transactions do not notice this, and their connection would be useless afterwards.
    async fn begin(&self, doing: &str) -> Result<PoolConnection<Sqlite>, StoreError> {
        // Takes the lock at once, so that a commit never fails because another process wrote in between.
        const BEGIN: &str = "BEGIN IMMEDIATE";
        let mut connection = self.writer.acquire().await.map_err(|e| classify_error(doing, &e))?;
        if let Err(e) = sqlx::query(BEGIN).execute(&mut *connection).await {
            // A call that was given up halfway has left its transaction open.
            if sqlx::query("ROLLBACK").execute(&mut *connection).await.is_err() {
                return Err(classify_error(doing, &e));
            }
            sqlx::query(BEGIN).execute(&mut *connection).await.map_err(|e| classify_error(doing, &e))?;
        }
        Ok(connection)
    }

    /// Commits if the result is a success; otherwise rolls back.
    async fn end<T>(
        &self,
        mut connection: PoolConnection<Sqlite>,
        result: Result<T, sqlx::Error>,
        doing: &str,
    ) -> Result<T, StoreError> {
        let result = match result {
            Ok(value) => sqlx::query("COMMIT").execute(&mut *connection).await.map(|_| value),
            Err(e) => Err(e),
        };
        if result.is_err() {
            // Fails if SQLite has already rolled back, which does no harm.
            let _ = sqlx::query("ROLLBACK").execute(&mut *connection).await;
        }
        result.map_err(|e| classify_error(doing, &e))
    }
}

#[cfg(test)]
mod tests;
