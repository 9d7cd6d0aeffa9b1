//! Bounds on how much the store keeps for a user, and on how long it keeps users' names.

mod forget;

use super::{key, ok, profile, prune_before, same};
use crate::port::{ProfileQuota, QuotaExceeded, RetentionLimits, Store};
use infill_model::{NodeTimeKey, NodeTimeRow, NodeTimeUsage, Profile, ProfileFilter, UnixTime};

/// Later than all that the earlier tests have left.
const LATE: i64 = 400_000_000;

/// Seconds in an hour.
const HOUR: i64 = 3600;

/// Seconds of the hours whose users are summed up at a time.
const MONTH: i64 = 31 * 24 * HOUR;

async fn names(store: &dyn Store, user: &str) -> Result<Vec<String>, String> {
    let filter = ProfileFilter { user: Some(user.to_owned()), ..ProfileFilter::default() };
    let mut names: Vec<String> =
        ok(store.find_profiles(&filter, 99).await)?.into_iter().map(|p| p.key.name).collect();
    names.sort_unstable();
    Ok(names)
}

/// A user can import profiles up to the quota in number and bytes.
pub(super) async fn imports(store: &dyn Store) -> Result<(), String> {
    let a = profile(key("ann", "a"), 1.0, LATE);
    let b = profile(key("ann", "b"), 1.0, LATE + 1);
    let c = profile(key("ann", "c"), 1.0, LATE + 2);
    let two = ProfileQuota { profiles: 2, bytes: 1_000_000 };
    same("two of two profiles", &ok(store.import_profiles(&[a.clone(), b.clone()], &two).await)?, &Ok(()))?;
    same(
        "the same profiles again",
        &ok(store.import_profiles(&[b.clone(), b.clone(), a.clone()], &two).await)?,
        &Ok(()),
    )?;
    let refused = ok(store.import_profiles(&[a.clone(), c.clone()], &two).await)?;
    let three = refused.map_err(|QuotaExceeded { user, would_be }| (user, would_be.profiles));
    same("a third profile", &three, &Err(("ann".to_owned(), 3)))?;
    same("a refused import", &names(store, "ann").await?, &vec!["a".to_owned(), "b".to_owned()])?;
    let other = Profile { key: key("bea", "c"), ..c.clone() };
    same("another user's quota", &ok(store.import_profiles(&[other], &two).await)?, &Ok(()))?;
    let one_byte = ProfileQuota { profiles: 9, bytes: 1 };
    let Err(full) = ok(store.import_profiles(&[c], &one_byte).await)? else {
        return Err("a quota of one byte is enough for a profile".to_owned());
    };
    let bytes = full.would_be.bytes;
    same("bytes of three profiles", &(100..10_000).contains(&bytes), &true)?;
    let quota = ProfileQuota { profiles: 9, bytes };
    let again = ok(store.import_profiles(std::slice::from_ref(&a), &quota).await)?;
    same("a replaced profile", &again, &Ok(()))?;
    let grown = Profile { points: a.points.repeat(20), ..a };
    let refused = ok(store.import_profiles(&[grown], &quota).await)?;
    same("a larger profile is refused", &refused.is_err(), &true)?;
    let trim = RetentionLimits { profiles_a_user: 1, ..RetentionLimits::all() };
    same("all but each user's last changed", &ok(store.prune_history(&trim).await)?, &1)?;
    same("ann's last changed", &names(store, "ann").await?, &vec!["b".to_owned()])?;
    same("bea's last changed", &names(store, "bea").await?, &vec!["c".to_owned()])?;
    ok(prune_before(store, 0, LATE + 9, 0).await)?;
    same("all profiles are pruned", &names(store, "ann").await?, &vec![])
}

fn spent(from: i64, account: &str, user: &str, useful_secs: f64) -> NodeTimeRow {
    let [account, user, node_type] = [account, user, "cpu"].map(str::to_owned);
    let spent = NodeTimeUsage { useful_secs, gpu_secs: 2.0 * useful_secs, ..NodeTimeUsage::default() };
    NodeTimeRow { key: NodeTimeKey { from: UnixTime(from), account, user, node_type }, spent }
}

/// Users' names are removed from old hours, and on request; the sums of the hours stay.
pub(super) async fn users(store: &dyn Store) -> Result<(), String> {
    let since = |users| RetentionLimits { users: UnixTime(users), ..RetentionLimits::all() };
    // Removes the names that the earlier tests have left.
    while ok(store.prune_history(&since(LATE)).await)? > 0 {}
    let second = LATE + HOUR;
    let later = LATE + MONTH;
    let rows = [
        spent(LATE, "a", "ann", 1.0),
        spent(LATE, "a", "bea", 2.0),
        spent(LATE, "a", "", 4.0),
        spent(LATE, "b", "ann", 8.0),
        spent(second, "a", "ann", 16.0),
        spent(later, "a", "ann", 32.0),
    ];
    ok(store.put_node_time(&rows).await)?;
    let all = async || ok(store.sum_node_time(UnixTime(LATE), UnixTime(i64::MAX)).await);
    let hours = async || ok(store.node_time_by_hour(UnixTime(LATE), UnixTime(i64::MAX), 9).await);
    let before = hours().await?;
    same("no hour is old enough", &ok(store.prune_history(&since(LATE)).await)?, &0)?;
    same("the names are kept", &all().await?.len(), &4)?;
    // One call handles a month, so the last hour needs another call.
    same("rows with a name", &ok(store.prune_history(&since(later + 1)).await)?, &4)?;
    let left = vec![spent(LATE, "a", "", 23.0), spent(later, "a", "ann", 32.0), spent(LATE, "b", "", 8.0)];
    same("only the last hour has a name", &all().await?, &left)?;
    same("the last hour's name", &ok(store.prune_history(&since(later + 1)).await)?, &1)?;
    same("no name is left", &all().await?.iter().all(|row| row.key.user.is_empty()), &true)?;
    same("hours add up as before", &hours().await?, &before)?;
    same("nothing is left to do", &ok(store.prune_history(&since(later + 1)).await)?, &0)?;
    forget::forget_user(store).await
}
