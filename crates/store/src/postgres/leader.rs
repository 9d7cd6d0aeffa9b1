//! Who leads: of all daemons on one database the one whose session holds an advisory lock.
//!
//! The session is a connection of its own on which nothing is done but to look whether it is still there, so
//! that slow statements don't look like a lost lead. The server ends it when it has been silent for
//! [`MAX_SILENCE`]: then a leader that was stopped, or that the network has cut off, leads no more, and the
//! next in the queue does. Such a leader may come back and not know. Therefore each leader raises the
//! **epoch** in the table `leader`, and every transaction that writes first looks whether the epoch is still
//! its own ([`super::SqlStore::begin`]). What a daemon does outside the database is fenced by
//! `daemon::leadership`, which lets nothing be done or said once the last look is too old.
//!
//! A leader that has lost its session takes it up again if nobody has led in between: then what it has in
//! memory is still the truth.

use std::time::Duration;

use sqlx::ConnectOptions as _;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::failure::classify_error;
use crate::port::{LeadStanding, StoreError};
use crate::schema;

/// The advisory lock: "infill" in ASCII. Nobody else's in a database that is infill's own.
const LOCK_KEY: i64 = 0x696e_6669_6c6c;

/// The server ends a leader's session that has said nothing for so long. More than
/// [`infill_daemon::leadership::LEADER_LEASE`], so that the leader knows first.
pub(crate) const MAX_SILENCE: Duration = Duration::from_secs(6);

/// Wait for the lock before asking again: the connection might be dead.
const LOCK_TIMEOUT: &str = "10s";

/// Longest time for connecting, and for a look.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// Pause of a daemon that stands by and has lost the database.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

const LEADING: &str = "leading on the store";

/// SQLSTATE of a statement that has reached its time limit.
const STATEMENT_TIMEOUT: &str = "57014";

/// This process's lead.
pub(super) struct LeaderSession {
    options: PgConnectOptions,
    epoch: i64,
    session: Mutex<Option<PgConnection>>,
}

impl LeaderSession {
    /// Waits for the lead, and brings the schema up to date before the first write. `stand_by` is called once
    /// if another process leads.
    ///
    /// # Errors
    /// Whatever happens before that. A daemon that stands by waits for its database however long it is away.
    pub(super) async fn wait_for_lead(
        options: PgConnectOptions,
        stand_by: impl FnOnce() + Send,
    ) -> Result<LeaderSession, StoreError> {
        let silence = format!("{}s", MAX_SILENCE.as_secs());
        let limits = [("statement_timeout", LOCK_TIMEOUT), ("idle_session_timeout", silence.as_str())];
        // Waiting for a lock is slow by nature, and no news.
        let options = options.options(limits).disable_statement_logging();
        let mut session = open_session(&options).await?;
        if !try_lock(&mut session).await? {
            stand_by();
            session = wait_for_lock(session, &options).await;
        }
        let epoch = raise_epoch(&mut session).await?;
        Ok(LeaderSession { options, epoch, session: Mutex::new(Some(session)) })
    }

    /// The number of this lead.
    pub(super) fn epoch(&self) -> i64 {
        self.epoch
    }

    /// Looks whether the lock is still ours and whether others wait for it; takes it up again if the session
    /// is lost.
    pub(super) async fn check_standing(&self) -> Result<LeadStanding, StoreError> {
        let mut slot = self.session.lock().await;
        let mut session = match slot.take() {
            Some(session) => session,
            None => self.take_up_again().await?,
        };
        // A session that does not answer is dropped, and with it the lock, if it still had it.
        let watched = within_timeout(has_waiters(&mut session)).await?;
        *slot = Some(session);
        Ok(if watched { LeadStanding::Watched } else { LeadStanding::Alone })
    }

    async fn take_up_again(&self) -> Result<PgConnection, StoreError> {
        let mut session = open_session(&self.options).await?;
        let locked = try_lock(&mut session).await?;
        let epoch: i64 =
            within_timeout(sqlx::query_scalar("SELECT epoch FROM leader").fetch_one(&mut session)).await?;
        if epoch != self.epoch {
            return Err(StoreError::Deposed { doing: LEADING.to_owned() });
        }
        if !locked {
            let what = "the lead is somebody's, or still held by our lost connection".to_owned();
            return Err(StoreError::Unavailable { doing: LEADING.to_owned(), what });
        }
        tracing::info!("leads again: nobody else has in between");
        Ok(session)
    }
}

/// Whether anybody waits for the lock.
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

/// Waits in the server's queue, which gives us the lock in the moment in which its holder's session ends.
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

/// Brings the schema up to date, which only the leader may, and begins a new epoch. Waits for transactions of
/// the last one, which hold its row.
async fn raise_epoch(session: &mut PgConnection) -> Result<i64, StoreError> {
    let error = |e: sqlx::Error| classify_error(LEADING, &e);
    sqlx::query("SET statement_timeout = 0").execute(&mut *session).await.map_err(error)?;
    schema::build_migrator(&schema::POSTGRES)
        .run_direct(None, &mut *session, false)
        .await
        .map_err(|e| schema::migration_error(LEADING, e, classify_error))?;
    sqlx::query("RESET statement_timeout").execute(&mut *session).await.map_err(error)?;
    let raise = "UPDATE leader SET epoch = epoch + 1 RETURNING epoch";
    sqlx::query_scalar(raise).fetch_one(session).await.map_err(error)
}

async fn open_session(options: &PgConnectOptions) -> Result<PgConnection, StoreError> {
    within_timeout(options.connect()).await
}

async fn within_timeout<T>(call: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, StoreError> {
    match timeout(ANSWER_TIMEOUT, call).await {
        Ok(result) => result.map_err(|e| classify_error(LEADING, &e)),
        Err(_) => {
            let what = format!("no answer within {} s", ANSWER_TIMEOUT.as_secs());
            Err(StoreError::Unavailable { doing: LEADING.to_owned(), what })
        }
    }
}
