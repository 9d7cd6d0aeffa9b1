//! Bounds on how much the store keeps for a user, and on how long it keeps users' names.

use std::collections::BTreeMap;

use sqlx::{QueryBuilder, Row as _};

use super::rows::to_json;
use super::write::{self, SqlResult};
use super::{SqlConnection, filter, storable_text};
use crate::port::{ProfileQuota, QuotaExceeded, RetentionLimits};
use infill_model::{Profile, ProfileKey, UnixTime};

/// The bytes of a profile's columns that grow with its measurements.
const KEPT_BYTES: &str = "LENGTH(points) + LENGTH(costs) + LENGTH(stops) + LENGTH(unfit)";

/// Seconds in an hour.
const HOUR_SECS: i64 = 3600;

/// Setting that holds the moment before which users' names have been removed.
const FORGOTTEN_SETTING: &str = "users_forgotten";

/// Hours whose users are forgotten at a time, which takes at most a second.
const HOURS_AT_ONCE: i64 = 31 * 24;

/// Deletes what is too old and what exceeds its bound. Returns the number of deleted rows.
pub(super) async fn prune_all(tx: &mut SqlConnection, since: &RetentionLimits) -> SqlResult<u64> {
    let mut rows = write::prune_by_age(tx, since).await?;
    rows += trim_profiles(tx, since.profiles_a_user).await?;
    rows += forget_users(tx, since.users).await?;
    Ok(rows)
}

/// Inserts or replaces profiles if no user exceeds the quota with them.
pub(super) async fn import_profiles(
    tx: &mut SqlConnection,
    profiles: &[Profile],
    quota: &ProfileQuota,
) -> SqlResult<Result<(), QuotaExceeded>> {
    let mut by_user: BTreeMap<&str, BTreeMap<&ProfileKey, &Profile>> = BTreeMap::new();
    for profile in profiles {
        by_user.entry(&profile.key.user).or_default().insert(&profile.key, profile);
    }
    for (user, users_profiles) in by_user {
        let would_be = quota_with(tx, user, users_profiles.into_values()).await?;
        if would_be.profiles > quota.profiles || would_be.bytes > quota.bytes {
            return Ok(Err(QuotaExceeded { user: user.to_owned(), would_be }));
        }
    }
    write::write_profiles(tx, profiles).await.map(Ok)
}

/// What a user's profiles would take up with these added or replaced.
async fn quota_with(
    tx: &mut SqlConnection,
    user: &str,
    profiles: impl Iterator<Item = &Profile>,
) -> SqlResult<ProfileQuota> {
    let mut query = QueryBuilder::new("SELECT COUNT(*), CAST(COALESCE(SUM(");
    query
        .push(KEPT_BYTES)
        .push("), 0) AS BIGINT) FROM profiles WHERE owner = ")
        .push_bind(storable_text(user));
    let row = query.build().fetch_one(&mut *tx).await?;
    let mut count: i64 = row.try_get(0)?;
    let mut bytes: i64 = row.try_get(1)?;
    for profile in profiles {
        let mut query = QueryBuilder::new("SELECT CAST(");
        query.push(KEPT_BYTES).push(" AS BIGINT) FROM profiles WHERE TRUE");
        filter::push_key(&mut query, &profile.key);
        let replaced: Option<i64> = query.build_query_scalar().fetch_optional(&mut *tx).await?;
        count += i64::from(replaced.is_none());
        let parts = [
            to_json(&profile.points)?,
            to_json(&profile.costs)?,
            to_json(&profile.stops)?,
            to_json(&profile.unfit)?,
        ];
        let kept: usize = parts.iter().map(String::len).sum();
        bytes = bytes
            .saturating_sub(replaced.unwrap_or(0))
            .saturating_add(i64::try_from(kept).unwrap_or(i64::MAX));
    }
    Ok(ProfileQuota { profiles: to_unsigned(count), bytes: to_unsigned(bytes) })
}

/// 0 for a negative number.
fn to_unsigned(n: i64) -> u64 {
    u64::try_from(n).unwrap_or(0)
}

/// Deletes all but the last changed profiles of each user. Returns how many.
async fn trim_profiles(tx: &mut SqlConnection, most_of_a_user: u32) -> SqlResult<u64> {
    let delete = sqlx::query(
        "DELETE FROM profiles WHERE id IN (SELECT id FROM (SELECT id,
         ROW_NUMBER() OVER (PARTITION BY owner ORDER BY updated_at DESC, id DESC) AS place FROM profiles) AS ranked
         WHERE place > $1)",
    );
    Ok(delete.bind(i64::from(most_of_a_user)).execute(tx).await?.rows_affected())
}

/// Removes users' names from the node-time of hours that began before this moment. The sums by hour, account
/// and node type stay. Handles at most a month of hours at a time. Returns how many rows were deleted.
async fn forget_users(tx: &mut SqlConnection, before: UnixTime) -> SqlResult<u64> {
    // Hours before this moment were done by an earlier call.
    let setting: Option<String> = sqlx::query_scalar("SELECT content FROM settings WHERE name = $1")
        .bind(FORGOTTEN_SETTING)
        .fetch_optional(&mut *tx)
        .await?;
    let forgotten_until: i64 = setting.and_then(|text| text.parse().ok()).unwrap_or(i64::MIN);
    let first: Option<i64> = sqlx::query_scalar(
        "SELECT MIN(began_at) FROM node_time WHERE owner <> '' AND began_at >= $1 AND began_at < $2",
    )
    .bind(forgotten_until)
    .bind(before.0)
    .fetch_one(&mut *tx)
    .await?;
    let Some(first) = first else { return Ok(0) };
    let end = before.0.min(first.saturating_add(HOURS_AT_ONCE * HOUR_SECS));
    let rows = sum_up_users(tx, first, end).await?;
    write::write_setting(tx, FORGOTTEN_SETTING, &end.to_string()).await?;
    Ok(rows)
}

/// Replaces the users' rows of these hours by their sums. Returns how many rows had a name.
async fn sum_up_users(tx: &mut SqlConnection, from: i64, end: i64) -> SqlResult<u64> {
    // The sums are added to rows that already have no name.
    sqlx::query(
        "INSERT INTO node_time (began_at, account, owner, node_type, useful_secs, rescale_secs, preempted_secs,
         probing_secs, gpu_secs)
         SELECT began_at, account, '', node_type, SUM(useful_secs), SUM(rescale_secs), SUM(preempted_secs),
         SUM(probing_secs), SUM(gpu_secs)
         FROM node_time WHERE owner <> '' AND began_at >= $1 AND began_at < $2 GROUP BY began_at, account, node_type
         ON CONFLICT (began_at, account, owner, node_type) DO UPDATE SET
         useful_secs = node_time.useful_secs + excluded.useful_secs,
         rescale_secs = node_time.rescale_secs + excluded.rescale_secs,
         preempted_secs = node_time.preempted_secs + excluded.preempted_secs,
         probing_secs = node_time.probing_secs + excluded.probing_secs,
         gpu_secs = node_time.gpu_secs + excluded.gpu_secs",
    )
    .bind(from)
    .bind(end)
    .execute(&mut *tx)
    .await?;
    let delete = sqlx::query("DELETE FROM node_time WHERE owner <> '' AND began_at >= $1 AND began_at < $2");
    Ok(delete.bind(from).bind(end).execute(tx).await?.rows_affected())
}
