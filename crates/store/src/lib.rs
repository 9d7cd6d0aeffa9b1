//! Keeps what Slurm forgets: generations, rounds with their reports, profiles, measurements, gap history,
//! jobs that have ended, and an administrator's orders.
//!
//! There is one trait, an adapter for each database, and one conformance suite for all adapters.

#[cfg(test)]
mod conformance;
mod port;
mod postgres;
mod schema;
mod sqlite;
#[cfg(test)]
mod upgrades;

use std::sync::Arc;

pub use port::{
    ForgottenRows, LeadStanding, Measurement, ProfileQuota, QuotaExceeded, RetentionLimits, RoundRecord,
    RoundsFilter, Store, StoreError, UserToForget,
};

/// How long a leader's session with PostgreSQL may be silent. After that the server ends the session, and the
/// next daemon leads.
pub const POSTGRES_SILENCE: std::time::Duration = postgres::MAX_SILENCE;

/// Opens the database that a URL names, brings its schema up to date, and makes this process the leader on
/// it.
///
/// - `sqlite:/path/file.db` is created if it does not exist. A second daemon is refused. `sqlite::memory:` is
///   for tests.
/// - `postgres://user:password@host/database`, or `postgres:///database?host=/directory` for a Unix socket.
///   If another daemon leads, this calls `stand_by` once and waits until the other daemon has gone.
///
/// # Errors
/// `Unsupported` for another kind of URL, `Corrupt` for a database that is not infill's or that a newer
/// infill wrote, `Unavailable` for anything that may pass.
pub async fn open_store(url: &str, stand_by: impl FnOnce() + Send) -> Result<Arc<dyn Store>, StoreError> {
    // Errors show only the scheme: the rest may hold a password.
    match url.split_once(':').map_or(url, |(scheme, _)| scheme) {
        "sqlite" => Ok(Arc::new(sqlite::open(url).await?)),
        "postgres" | "postgresql" => Ok(Arc::new(postgres::open(url, stand_by).await?)),
        scheme => Err(StoreError::Unsupported {
            doing: "opening the store".to_owned(),
            what: format!(
                "{scheme:?} is not a known kind of database: expected sqlite:/path/file.db or postgres://host/database"
            ),
        }),
    }
}

/// The version of the server that a `postgres:` URL names. Does not change which daemon leads.
///
/// # Errors
/// If the server does not answer, refuses the connection, or is too old.
pub async fn postgres_version(url: &str) -> Result<String, StoreError> {
    postgres::server_version(url).await
}
