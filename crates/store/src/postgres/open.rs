//! Connects to PostgreSQL: which database, how many connections, and how long anything may take.

use std::str::FromStr;
use std::time::Duration;

use sqlx::ConnectOptions as _;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::SqlStore;
use super::failure::classify_error;
use super::leader::LeaderSession;
use super::sql::within;
use crate::port::StoreError;

/// Connections for the round, the executor and the API. PostgreSQL runs a process for each connection.
const CONNECTIONS: u32 = 4;

/// Longest wait for a free connection. After that the database counts as away, and the round goes on without
/// it.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(3);

/// The first version that ends silent sessions (`idle_session_timeout`), as `server_version_num`.
const OLDEST_VERSION: u32 = 140_000;

/// Limits after which the server ends a statement or transaction by itself. Without them a daemon that is
/// stopped halfway through a transaction would keep another from taking over.
const SESSION_LIMITS: [(&str, &str); 3] =
    [("statement_timeout", "10s"), ("lock_timeout", "5s"), ("idle_in_transaction_session_timeout", "3s")];

/// Connects to the database of a `postgres:` URL and waits until this process leads on it. Calls `stand_by`
/// once if another process leads.
pub(crate) async fn open(url: &str, stand_by: impl FnOnce() + Send) -> Result<SqlStore, StoreError> {
    let options = parse_url(url)?;
    let leader = LeaderSession::wait_for_lead(options.clone(), stand_by).await?;
    let readers = PgPoolOptions::new()
        .max_connections(CONNECTIONS)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        .connect_lazy_with(options.options(SESSION_LIMITS));
    Ok(SqlStore { readers, leader })
}

/// The server's version as it shows it, such as `16.4`.
pub(crate) async fn server_version(url: &str) -> Result<String, StoreError> {
    let doing = "asking PostgreSQL for its version";
    let ask = async {
        let mut session = parse_url(url)?.connect().await.map_err(|e| classify_error(doing, &e))?;
        let words = "SELECT current_setting('server_version'), current_setting('server_version_num')";
        let version: Result<(String, String), _> = sqlx::query_as(words).fetch_one(&mut session).await;
        version.map_err(|e| classify_error(doing, &e))
    };
    let (words, number) = within(doing, ask).await?;
    if number.parse().unwrap_or(0) < OLDEST_VERSION {
        let what = format!("the server has version {words}; infill needs version 14 or newer");
        return Err(StoreError::Unsupported { doing: doing.to_owned(), what });
    }
    Ok(words)
}

fn parse_url(url: &str) -> Result<PgConnectOptions, StoreError> {
    let options =
        PgConnectOptions::from_str(url).map_err(|e| classify_error("reading the store's URL", &e))?;
    // Notices, such as that a table exists already, are for people at a terminal.
    Ok(options.application_name("infill").options([("client_min_messages", "warning")]))
}
