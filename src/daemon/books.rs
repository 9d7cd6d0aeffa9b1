//! History: written after each round, kept in memory while the store is away, thrown away where it is old.

use anyhow::Context as _;

use super::rounds::GAPS_TO_LEARN_FROM;
use super::{Context, executor, now};
use crate::model::{EndedGap, UnixTime};
use crate::store::{Measurement, RoundRecord, StoreError};

/// Rows of any kind that wait in memory while the store is away: an hour of a job that reports every second,
/// and some megabytes.
pub const MAX_WAITING_ROWS: usize = 10_000;

/// Rounds that wait: each may have a hundred kilobytes.
pub const MAX_WAITING_ROUNDS: usize = 100;

/// Seconds in a day.
const DAY_SECS: i64 = 86_400;

/// History that is to be written.
#[derive(Default)]
struct Pages {
    rounds: Vec<RoundRecord>,
    gaps: Vec<EndedGap>,
    measurements: Vec<Measurement>,
}

/// Writes what waits, one kind after the other. What fails waits for the next time.
pub async fn write(context: &Context) {
    // Whoever deletes profiles meanwhile would get their measurements back.
    let _turn = context.saving.lock().await;
    let mut pages = {
        let mut world = context.world.lock();
        Pages {
            rounds: std::mem::take(&mut world.rounds),
            gaps: std::mem::take(&mut world.ended_gaps),
            measurements: world.measurements.drain(..).collect(),
        }
    };
    if let Err(e) = write_pages(context, &mut pages).await {
        executor::store_failed(context, &e);
        put_pages_back(context, pages);
    }
}

/// Writes page after page; those that are left could not be written.
async fn write_pages(context: &Context, pages: &mut Pages) -> Result<(), StoreError> {
    while let Some(round) = pages.rounds.first() {
        settle(context, "rounds", 1, context.store.add_round(round).await)?;
        pages.rounds.remove(0);
    }
    if !pages.gaps.is_empty() {
        settle(context, "gaps", pages.gaps.len(), context.store.add_gaps(&pages.gaps).await)?;
        pages.gaps.clear();
    }
    if !pages.measurements.is_empty() {
        let result = context.store.add_measurements(&pages.measurements).await;
        settle(context, "measurements", pages.measurements.len(), result)?;
        pages.measurements.clear();
    }
    Ok(())
}

/// What the store will never take is given up, so that it does not hold up the rest for ever.
fn settle(
    context: &Context,
    kind: &'static str,
    rows: usize,
    result: Result<(), StoreError>,
) -> Result<(), StoreError> {
    match result {
        Err(e @ StoreError::Corrupt { .. }) => {
            tracing::error!(kind, rows, "history is given up, for the store refuses it: {e}");
            context.world.lock().lose(kind, rows);
            Ok(())
        }
        result => result,
    }
}

fn put_pages_back(context: &Context, pages: Pages) {
    let mut world = context.world.lock();
    let mut measurements: Vec<_> = world.measurements.drain(..).collect();
    let lost = [
        ("rounds", put_back(&mut world.rounds, pages.rounds, MAX_WAITING_ROUNDS)),
        ("gaps", put_back(&mut world.ended_gaps, pages.gaps, MAX_WAITING_ROWS)),
        ("measurements", put_back(&mut measurements, pages.measurements, MAX_WAITING_ROWS)),
    ];
    world.measurements = measurements.into();
    lost.into_iter().for_each(|(kind, rows)| world.lose(kind, rows));
}

/// Puts rows back before those that came meanwhile. Of more than `most` the oldest go; returns how many.
pub fn put_back<T>(waiting: &mut Vec<T>, mut rows: Vec<T>, most: usize) -> usize {
    rows.append(waiting);
    let lost = rows.len().saturating_sub(most);
    rows.drain(..lost);
    *waiting = rows;
    lost
}

/// Learns from history and forgets what is old.
pub async fn keep(context: &Context) {
    let days_ago = |days: u32| UnixTime(now().0 - i64::from(days) * DAY_SECS);
    let (days, profile_days) = (context.config.daemon.keep_days, context.config.store.keep_profile_days);
    let result = async {
        let gaps = context.store.gaps(GAPS_TO_LEARN_FROM).await.context("reading gap history")?;
        context.world.lock().learn(&gaps);
        let pruned = context.store.prune(days_ago(days), days_ago(profile_days)).await;
        let rows = pruned.context("deleting old rows")?;
        tracing::debug!(rows, "old rows deleted");
        Ok::<(), anyhow::Error>(())
    };
    if let Err(e) = result.await {
        tracing::warn!("the books could not be kept: {e:#}");
    }
}

#[cfg(test)]
mod tests {
    use super::put_back;

    #[test]
    fn what_could_not_be_written_comes_first_again_and_the_oldest_go() {
        let mut waiting = vec![4, 5];
        assert_eq!(put_back(&mut waiting, vec![1, 2, 3], 5), 0);
        assert_eq!(waiting, [1, 2, 3, 4, 5]);
        assert_eq!(put_back(&mut waiting, vec![-1, 0], 5), 2);
        assert_eq!(waiting, [1, 2, 3, 4, 5]);
    }
}
