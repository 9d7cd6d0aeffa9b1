//! The store in PostgreSQL (14 or newer), for sites that run it and for a second daemon that stands by.

mod failure;
mod leader;
mod open;
#[path = "../sql/mod.rs"]
#[allow(clippy::duplicate_mod, reason = "compiled once for each database, whose types differ")]
mod sql;

use sqlx::postgres::{PgArguments, PgConnection, PgPool, PgRow, Postgres};
use sqlx::{Acquire as _, Transaction};

use self::failure::classify_error;
pub(super) use self::leader::MAX_SILENCE;
pub(super) use self::open::{open, server_version};

use super::port::{LeadStanding, StoreError};

type SqlDatabase = Postgres;
type SqlArguments = PgArguments;
type SqlConnection = PgConnection;
type SqlRow = PgRow;

/// A pool of connections, and the session that makes this process the leader.
pub(super) struct SqlStore {
    /// Connections for reading and writing.
    readers: PgPool,
    leader: leader::LeaderSession,
}

impl SqlStore {
    async fn lead_state(&self) -> Result<LeadStanding, StoreError> {
        self.leader.check_standing().await
    }

    /// Opens a transaction if this process still leads. No other daemon can take over until the transaction
    /// ends. A daemon that was stopped for a while finds its epoch out of date and writes nothing more.
    async fn begin(&self, doing: &str) -> Result<Transaction<'static, Postgres>, StoreError> {
        let mut tx = self.readers.begin().await.map_err(|e| classify_error(doing, &e))?;
        let own_epoch = sqlx::query("SELECT epoch FROM leader WHERE epoch = $1 FOR SHARE")
            .bind(self.leader.epoch())
            .fetch_optional(tx.acquire().await.map_err(|e| classify_error(doing, &e))?)
            .await
            .map_err(|e| classify_error(doing, &e))?;
        if own_epoch.is_none() {
            return Err(StoreError::Deposed { doing: doing.to_owned() });
        }
        Ok(tx)
    }

    /// Commits if the result is a success; otherwise rolls back.
    async fn end<T>(
        &self,
        tx: Transaction<'static, Postgres>,
        result: Result<T, sqlx::Error>,
        doing: &str,
    ) -> Result<T, StoreError> {
        let result = match result {
            Ok(value) => tx.commit().await.map(|()| value),
            Err(e) => {
                // If the connection is lost, the server rolls back by itself.
                let _ = tx.rollback().await;
                Err(e)
            }
        };
        result.map_err(|e| classify_error(doing, &e))
    }
}

#[cfg(test)]
mod tests;
