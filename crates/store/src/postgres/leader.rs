//! Which of all daemons on one database leads: the one whose session holds an advisory lock.
//!
//! The session is a separate connection that is only used for checking whether it is still there. Slow
//! statements therefore don't look like a lost lead. The server ends the session after [`MAX_SILENCE`] of
//! silence. A leader that was stopped, or that the network has cut off, then no longer leads, and the next
//! daemon in the queue does. Such a leader may come back without knowing that it was deposed. Therefore each
//! leader raises the **epoch** in the table `leader`, and every transaction that writes first checks that the
//! epoch is still its own ([`super::SqlStore::begin`]). `daemon::leadership` fences what a daemon does
//! outside the database: it lets the daemon do and say nothing once the last check is too old.
//!
//! A leader that has lost its session opens a new one if no other daemon has led in between: what it holds in
//! memory is then still valid.

use std::time::Duration;

use sqlx::ConnectOptions as _;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::failure::classify_error;
use crate::port::{LeadStanding, StoreError};
use crate::schema;

/// The key of the advisory lock: "infill" in ASCII. No one else uses it in a database that is infill's own.
const LOCK_KEY: i64 = 0x696e_6669_6c6c;

/// The server ends a leader's session after this much silence. It is longer than
/// `infill_daemon::leadership::LEADER_LEASE`, so that the leader notices first.
pub(crate) const MAX_SILENCE: Duration = Duration::from_secs(6);

/// How long one statement waits for the lock. A daemon that stands by then asks again, because the connection
/// might be dead.
const LOCK_TIMEOUT: &str = "10s";

/// Longest time for connecting, and for one check.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// Pause between attempts of a daemon that stands by and has lost the database.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

const LEADING: &str = "leading on the store";

/// SQLSTATE of a statement that has reached its time limit.
const STATEMENT_TIMEOUT: &str = "57014";

/// The session with which this process leads.
pub(super) struct LeaderSession {
    options: PgConnectOptions,
    epoch: i64,
    /// `None` after the connection was lost.
    session: Mutex<Option<PgConnection>>,
}

impl LeaderSession {
    /// Waits for the lead, and brings the schema up to date before the first write. Calls `stand_by` once if
    /// another process leads.
    ///
    /// # Errors
    /// Whatever fails before this daemon stands by. From then on it waits for its database without limit.
    pub(super) async fn wait_for_lead(
        options: PgConnectOptions,
        stand_by: impl FnOnce() + Send,
    ) -> Result<LeaderSession, StoreError> {
        let silence = format!("{}s", MAX_SILENCE.as_secs());
        let limits = [("statement_timeout", LOCK_TIMEOUT), ("idle_session_timeout", silence.as_str())];
        // Waiting for a lock is slow by nature and not worth a log line.
        let options = options.options(limits).disable_statement_logging();
        let mut session = open_session(&options).await?;
        if !try_lock(&mut session).await? {
            stand_by();
            session = wait_for_lock(session, &options).await;
        }
        let epoch = raise_epoch(&mut session).await?;
        Ok(LeaderSession { options, epoch, session: Mutex::new(Some(session)) })
    }

    /// The epoch that this process began.
    pub(super) fn epoch(&self) -> i64 {
        self.epoch
    }

    /// Checks that the lock is still ours and whether others wait for it. Opens a new session if the last one
    /// is lost.
    pub(super) async fn check_standing(&self) -> Result<LeadStanding, StoreError> {
        let mut slot = self.session.lock().await;
        let mut session = match slot.take() {
            Some(session) => session,
            None => self.reopen_session().await?,
        };
        // A session that does not answer is dropped, and with it the lock, if it still held it.
        let watched = within_timeout(has_waiters(&mut session)).await?;
        *slot = Some(session);
        Ok(if watched { LeadStanding::Watched } else { LeadStanding::Alone })
    }

    /// Opens a session and takes the lock again.
    ///
    /// # Errors
    /// `Deposed` if another daemon has led in between, `Unavailable` if the lock is taken.
    async fn reopen_session(&self) -> Result<PgConnection, StoreError> {
        let mut session = open_session(&self.options).await?;
        let locked = try_lock(&mut session).await?;
        let epoch: i64 =
            within_timeout(sqlx::query_scalar("SELECT epoch FROM leader").fetch_one(&mut session)).await?;
        if epoch != self.epoch {
            return Err(StoreError::Deposed { doing: LEADING.to_owned() });
        }
        if !locked {
            let what = "another daemon, or our lost connection, holds the lock".to_owned();
            return Err(StoreError::Unavailable { doing: LEADING.to_owned(), what });
        }
        tracing::info!("this daemon leads again; no other daemon has led in between");
        Ok(session)
    }
}

/// Whether another session waits for the lock.
async fn has_waiters(session: &mut PgConnection) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
         AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
         AND (classid::bigint << 32) + objid::bigint = $1)",
    )
    .bind(LOCK_KEY)
    .fetch_one(session)
    .await
}

async fn try_lock(session: &mut PgConnection) -> Result<bool, StoreError> {
    within_timeout(sqlx::query_scalar("SELECT pg_try_advisory_lock($1)").bind(LOCK_KEY).fetch_one(session))
        .await
}

/// Waits in the server's queue for the lock. The server grants it when the holder's session ends.
async fn wait_for_lock(session: PgConnection, options: &PgConnectOptions) -> PgConnection {
    let mut session = Some(session);
    loop {
        let mut present = match session.take() {
            Some(session) => session,
            None => match open_session(options).await {
                Ok(session) => session,
                Err(e) => {
                    tracing::debug!("standing by without the store: {e}");
                    tokio::time::sleep(RETRY_PAUSE).await;
                    continue;
                }
            },
        };
        match sqlx::query("SELECT pg_advisory_lock($1)").bind(LOCK_KEY).execute(&mut present).await {
            Ok(_) => return present,
            Err(e)
                if e.as_database_error().and_then(|e| e.code()).is_some_and(|c| c == STATEMENT_TIMEOUT) =>
            {
                session = Some(present);
            }
            Err(e) => {
                tracing::debug!("standing by without the store: {e}");
                tokio::time::sleep(RETRY_PAUSE).await;
            }
        }
    }
}

/// Brings the schema up to date, which only the leader may do, and begins a new epoch. Waits for transactions
/// of the last epoch, which hold its row.
async fn raise_epoch(session: &mut PgConnection) -> Result<i64, StoreError> {
    sqlx::query("SET statement_timeout = 0").execute(&mut *session).await.map_err(leading_error)?;
    schema::build_migrator(&schema::POSTGRES)
        .run_direct(None, &mut *session, false)
        .await
        .map_err(|e| schema::migration_error(LEADING, e, classify_error))?;
    sqlx::query("RESET statement_timeout").execute(&mut *session).await.map_err(leading_error)?;
    let raise = "UPDATE leader SET epoch = epoch + 1 RETURNING epoch";
    sqlx::query_scalar(raise).fetch_one(session).await.map_err(leading_error)
}

fn leading_error(e: sqlx::Error) -> StoreError {
    classify_error(LEADING, &e)
}

async fn open_session(options: &PgConnectOptions) -> Result<PgConnection, StoreError> {
    within_timeout(options.connect()).await
}

async fn within_timeout<T>(call: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, StoreError> {
    match timeout(ANSWER_TIMEOUT, call).await {
        Ok(result) => result.map_err(leading_error),
        Err(_) => {
            let what = format!("no answer within {} s", ANSWER_TIMEOUT.as_secs());
            Err(StoreError::Unavailable { doing: LEADING.to_owned(), what })
        }
    }
}
