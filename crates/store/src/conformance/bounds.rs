//! Bounds on what users can have kept, and on how long their names are.

use super::{key, ok, profile, prune_before, same};
use crate::port::{ProfileQuota, QuotaExceeded, RetentionLimits, Store};
use infill_model::{NodeTimeKey, NodeTimeRow, NodeTimeUsage, Profile, ProfileFilter, UnixTime};

/// Later than all that the tests before have left.
const LATE: i64 = 400_000_000;

/// Seconds in an hour, and hours in a month, as they are summed up at a time.
const HOUR: i64 = 3600;
const MONTH: i64 = 31 * 24 * HOUR;

async fn names(store: &dyn Store, user: &str) -> Result<Vec<String>, String> {
    let filter = ProfileFilter { user: Some(user.to_owned()), ..ProfileFilter::default() };
    let mut names: Vec<String> =
        ok(store.find_profiles(&filter, 99).await)?.into_iter().map(|p| p.key.name).collect();
    names.sort_unstable();
    Ok(names)
}

/// A user brings so many profiles and bytes, and no more.
pub(super) async fn brought(store: &dyn Store) -> Result<(), String> {
    let brought = |name: &str, at| -> Profile { profile(key("ann", name), 1.0, at) };
    let room = |profiles, bytes| ProfileQuota { profiles, bytes };
    let a = brought("a", LATE);
    let b = brought("b", LATE + 1);
    let c = brought("c", LATE + 2);
    let wide = room(2, 1_000_000);
    same("two of two", &ok(store.import_profiles(&[a.clone(), b.clone()], &wide).await)?, &Ok(()))?;
    same(
        "the same again",
        &ok(store.import_profiles(&[b.clone(), b.clone(), a.clone()], &wide).await)?,
        &Ok(()),
    )?;
    let refused = ok(store.import_profiles(&[a.clone(), c.clone()], &wide).await)?;
    let three = refused.map_err(|QuotaExceeded { user, would_be }| (user, would_be.profiles));
    same("a third one", &three, &Err(("ann".to_owned(), 3)))?;
    same("none of them is there", &names(store, "ann").await?, &vec!["a".to_owned(), "b".to_owned()])?;
    let other = Profile { key: key("bea", "c"), ..c.clone() };
    same("another's are another's", &ok(store.import_profiles(&[other], &wide).await)?, &Ok(()))?;
    let Err(full) = ok(store.import_profiles(&[c], &room(9, 1)).await)? else {
        return Err("a byte is enough".to_owned());
    };
    let bytes = full.would_be.bytes;
    same("so many bytes", &(100..10_000).contains(&bytes), &true)?;
    let again = ok(store.import_profiles(std::slice::from_ref(&a), &room(9, bytes)).await)?;
    same("what is replaced takes no room", &again, &Ok(()))?;
    let grown = Profile { points: a.points.repeat(20), ..a };
    let refused = ok(store.import_profiles(&[grown], &room(9, bytes)).await)?;
    same("but what is larger does", &refused.is_err(), &true)?;
    let trim = RetentionLimits { profiles_a_user: 1, ..RetentionLimits::all() };
    same("the last changed one stays", &ok(store.prune_history(&trim).await)?, &1)?;
    same("of each user", &names(store, "ann").await?, &vec!["b".to_owned()])?;
    same("of another, too", &names(store, "bea").await?, &vec!["c".to_owned()])?;
    ok(prune_before(store, 0, LATE + 9, 0).await)?;
    same("all is gone", &names(store, "ann").await?, &vec![])
}

fn spent(from: i64, account: &str, user: &str, useful_secs: f64) -> NodeTimeRow {
    let [account, user, node_type] = [account, user, "cpu"].map(str::to_owned);
    let spent = NodeTimeUsage { useful_secs, gpu_secs: 2.0 * useful_secs, ..NodeTimeUsage::default() };
    NodeTimeRow { key: NodeTimeKey { from: UnixTime(from), account, user, node_type }, spent }
}

/// Users' names go from old hours; what the hours add up to stays.
pub(super) async fn users(store: &dyn Store) -> Result<(), String> {
    let since = |users| RetentionLimits { users: UnixTime(users), ..RetentionLimits::all() };
    // Of the tests before.
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
    same("an hour is not over", &ok(store.prune_history(&since(LATE)).await)?, &0)?;
    same("names are there", &all().await?.len(), &4)?;
    // A month at a time: the last hour's turn comes next.
    same("rows with a name", &ok(store.prune_history(&since(later + 1)).await)?, &4)?;
    let left = vec![spent(LATE, "a", "", 23.0), spent(later, "a", "ann", 32.0), spent(LATE, "b", "", 8.0)];
    same("without names, but for the last", &all().await?, &left)?;
    same("and the last", &ok(store.prune_history(&since(later + 1)).await)?, &1)?;
    same("none is left", &all().await?.iter().all(|row| row.key.user.is_empty()), &true)?;
    same("hours add up as before", &hours().await?, &before)?;
    same("nothing is left to do", &ok(store.prune_history(&since(later + 1)).await)?, &0)
}
