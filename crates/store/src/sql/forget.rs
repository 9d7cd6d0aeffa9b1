//! Forgets a user on request: deletes all rows that name the user, but keeps the sums of node-time.

use super::write::SqlResult;
use super::{SqlConnection, storable_text};
use crate::port::{ForgottenRows, UserToForget};

/// Deletes or sums up the user's rows. Open leads and the rows of hours from `before` on stay.
pub(super) async fn forget_user(tx: &mut SqlConnection, user: &UserToForget) -> SqlResult<ForgottenRows> {
    let name = storable_text(&user.name);
    Ok(ForgottenRows {
        profiles: delete_by_name(tx, "DELETE FROM profiles WHERE owner = $1", &name).await?,
        ended_jobs: delete_by_name(tx, "DELETE FROM ended_jobs WHERE owner = $1", &name).await?,
        node_time: sum_up_user(tx, &name, user.before.0).await?,
        leads: forget_leads(tx, user).await?,
        kept_node_time: count_kept(tx, &name).await?,
    })
}

async fn delete_by_name(tx: &mut SqlConnection, statement: &'static str, name: &str) -> SqlResult<u64> {
    Ok(sqlx::query(statement).bind(name).execute(tx).await?.rows_affected())
}

/// Moves the user's node-time to the rows without a name. Returns the number of rows that had the name.
async fn sum_up_user(tx: &mut SqlConnection, name: &str, before: i64) -> SqlResult<u64> {
    sqlx::query(
        "INSERT INTO node_time (began_at, account, owner, node_type, useful_secs, rescale_secs, preempted_secs,
         probing_secs, gpu_secs)
         SELECT began_at, account, '', node_type, useful_secs, rescale_secs, preempted_secs, probing_secs, gpu_secs
         FROM node_time WHERE owner = $1 AND began_at < $2
         ON CONFLICT (began_at, account, owner, node_type) DO UPDATE SET
         useful_secs = node_time.useful_secs + excluded.useful_secs,
         rescale_secs = node_time.rescale_secs + excluded.rescale_secs,
         preempted_secs = node_time.preempted_secs + excluded.preempted_secs,
         probing_secs = node_time.probing_secs + excluded.probing_secs,
         gpu_secs = node_time.gpu_secs + excluded.gpu_secs",
    )
    .bind(name)
    .bind(before)
    .execute(&mut *tx)
    .await?;
    let delete = sqlx::query("DELETE FROM node_time WHERE owner = $1 AND began_at < $2");
    Ok(delete.bind(name).bind(before).execute(tx).await?.rows_affected())
}

/// Deletes the user's ended leads with their generations. Job numbers are used again, so a generation belongs
/// to the last lead of its number that was submitted before it.
async fn forget_leads(tx: &mut SqlConnection, user: &UserToForget) -> SqlResult<u64> {
    let Some(uid) = user.uid else { return Ok(0) };
    let uid = i64::from(uid.0);
    sqlx::query(
        "DELETE FROM generations WHERE EXISTS (SELECT 1 FROM leads WHERE leads.job = generations.job
         AND leads.ended AND leads.user_id = $1 AND leads.submitted_at <= generations.started_at
         AND NOT EXISTS (SELECT 1 FROM leads AS later WHERE later.job = leads.job
         AND later.submitted_at > leads.submitted_at AND later.submitted_at <= generations.started_at))",
    )
    .bind(uid)
    .execute(&mut *tx)
    .await?;
    let delete = sqlx::query("DELETE FROM leads WHERE ended AND user_id = $1");
    Ok(delete.bind(uid).execute(tx).await?.rows_affected())
}

async fn count_kept(tx: &mut SqlConnection, name: &str) -> SqlResult<u64> {
    let kept: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM node_time WHERE owner = $1")
        .bind(name)
        .fetch_one(tx)
        .await?;
    Ok(u64::try_from(kept).unwrap_or(0))
}
