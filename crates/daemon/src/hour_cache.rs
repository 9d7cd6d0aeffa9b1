//! What nodes were used for, as far back as the store has it. Hours that are over are unpacked once and kept
//! for those who ask next.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::timeline;
use crate::timeline::{HOUR_SECS, UsageHour, hour_of};
use infill_model::{NodeUsageSecs, PackedHour, UnixTime};
use infill_store::{Store, StoreError};

/// Most hours that are kept unpacked: on a large machine some hundred kilobytes each.
const MAX_CACHED_HOURS: usize = 96;

const DAY_SECS: i64 = 86_400;

/// Hours that are read at once.
const HOURS_PER_READ: usize = 12;

/// An hour of which the store has nothing may still be on its way there for so long after its end, seconds.
const WRITE_DELAY_SECS: i64 = HOUR_SECS;

/// See the module's text. Those longest not asked for make room.
#[derive(Debug, Default)]
pub struct HourCache {
    known: Mutex<CachedHours>,
}

#[derive(Debug, Default)]
struct CachedHours {
    /// By their begins; `None` where the store has nothing.
    hours: BTreeMap<UnixTime, (Option<Arc<UsageHour>>, u64)>,
    /// How often somebody has asked.
    asked: u64,
}

/// A stretch of time that is asked about, and what is known of it without the store.
#[derive(Clone, Debug)]
pub struct HoursRequest {
    /// The hour that is under way, and those that wait for the store.
    pub recent: Vec<Arc<UsageHour>>,
    /// Begin.
    pub from: UnixTime,
    /// End.
    pub to: UnixTime,
    /// The moment.
    pub now: UnixTime,
    /// For how long the store keeps hours, days.
    pub keep_days: u32,
}

impl HoursRequest {
    /// The begins of the hours that the store may have. The present one is only known here.
    fn stored_begins(&self) -> Vec<UnixTime> {
        let oldest = UnixTime(self.now.0 - (i64::from(self.keep_days) + 1) * DAY_SECS);
        let is_known = |begin: &UnixTime| self.recent.iter().any(|hour| hour.from == *begin);
        let hours = hour_begins(self.from.max(oldest), self.to.min(hour_of(self.now)));
        hours.filter(|begin| !is_known(begin)).collect()
    }

    /// What is known without it, the earliest first.
    fn recent_hours(&self) -> impl Iterator<Item = &Arc<UsageHour>> {
        self.recent.iter().filter(|hour| hour.from < self.to && hour.from + HOUR_SECS > self.from)
    }
}

impl HourCache {
    /// The hours that reach into a stretch of time, the earliest first.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn hours_between(
        &self,
        store: &dyn Store,
        stretch: HoursRequest,
    ) -> Result<Vec<Arc<UsageHour>>, StoreError> {
        let over = self.load_stored(store, &stretch).await?;
        let recent = stretch.recent_hours().map(|hour| (hour.from, hour.clone()));
        // One that waits for the store may be from before one that is there.
        Ok(over.into_iter().chain(recent).collect::<BTreeMap<_, _>>().into_values().collect())
    }

    /// Each value is replaced at once: a thread that panicked leaves all whole.
    fn lock_hours(&self) -> MutexGuard<'_, CachedHours> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of the hours that are over, and what the store has of the others.
    async fn load_stored(
        &self,
        store: &dyn Store,
        stretch: &HoursRequest,
    ) -> Result<Vec<(UnixTime, Arc<UsageHour>)>, StoreError> {
        let over = stretch.stored_begins();
        let mut found = self.find_cached(&over);
        let missing: Vec<UnixTime> = over.into_iter().filter(|begin| !found.contains_key(begin)).collect();
        for some in missing.chunks(HOURS_PER_READ) {
            let first = some[0];
            let last = some[some.len() - 1];
            let reach = (last.0 - first.0) / HOUR_SECS + 1;
            let packed = store.hours_between(first, last + 1, reach as u32).await?;
            let read = tokio::task::spawn_blocking(move || unpack_hours(&packed)).await.unwrap_or_default();
            self.cache_hours(some, &read, stretch.now);
            found.extend(some.iter().map(|begin| (*begin, read.get(begin).cloned())));
        }
        Ok(found.into_iter().filter_map(|(begin, hour)| Some((begin, hour?))).collect())
    }

    fn find_cached(&self, begins: &[UnixTime]) -> BTreeMap<UnixTime, Option<Arc<UsageHour>>> {
        let mut known = self.lock_hours();
        known.asked += 1;
        let asked = known.asked;
        let recalled = begins.iter().filter_map(|begin| {
            let (value, used) = known.hours.get_mut(begin)?;
            *used = asked;
            Some((*begin, value.clone()))
        });
        recalled.collect()
    }

    /// Keeps what the store had of these hours, if that will not change.
    fn cache_hours(&self, asked: &[UnixTime], read: &BTreeMap<UnixTime, Arc<UsageHour>>, now: UnixTime) {
        let mut known = self.lock_hours();
        let used = known.asked;
        for begin in asked {
            let hour = read.get(begin);
            let is_whole = hour.is_some_and(|hour| i64::from(hour.secs) >= HOUR_SECS);
            if is_whole || *begin + HOUR_SECS + WRITE_DELAY_SECS < now {
                known.hours.insert(*begin, (hour.cloned(), used));
            }
        }
        while known.hours.len() > MAX_CACHED_HOURS {
            let oldest = known.hours.iter().min_by_key(|(_, (_, used))| *used).map(|(begin, _)| *begin);
            let Some(oldest) = oldest else { return };
            known.hours.remove(&oldest);
        }
    }
}

/// The begins of the hours that reach into a stretch of time.
fn hour_begins(from: UnixTime, to: UnixTime) -> impl Iterator<Item = UnixTime> {
    std::iter::successors(Some(hour_of(from)), |begin| Some(*begin + HOUR_SECS))
        .take_while(move |begin| *begin < to)
}

/// Those that can be read, by their begins.
fn unpack_hours(packed: &[PackedHour]) -> BTreeMap<UnixTime, Arc<UsageHour>> {
    let read = |packed: &PackedHour| match UsageHour::unpack(packed) {
        Ok(hour) => Some((hour.from, Arc::new(hour))),
        Err(e) => {
            tracing::warn!("what nodes were used for from {} on cannot be read: {e}", packed.from);
            None
        }
    };
    packed.iter().filter_map(read).collect()
}

/// Node-seconds of the hours that begin in a stretch of time, with the begin of each: as far back as there
/// has been a store. `recent`: what it may not have yet.
///
/// # Errors
/// When the store does not answer.
pub(crate) async fn usage_by_hour(
    store: &dyn Store,
    recent: &[Arc<UsageHour>],
    from: UnixTime,
    to: UnixTime,
) -> Result<Vec<(UnixTime, NodeUsageSecs)>, StoreError> {
    let most = u32::try_from(to.0.saturating_sub(from.0) / HOUR_SECS + 1).unwrap_or(u32::MAX);
    let kept = store.usage_by_hour(from, to, most).await?;
    let recent = recent.iter().filter(|hour| (from..to).contains(&hour.from));
    let recent = recent.map(|hour| (hour.from, timeline::sum_hour(hour)));
    Ok(kept.into_iter().chain(recent).collect::<BTreeMap<_, _>>().into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::{HourRecorder, NodeUse, ObservedUse};
    use infill_model::NodeName;

    /// Hours of one node that is idle, from this moment on.
    fn hours(from: i64, count: i64) -> Vec<UsageHour> {
        let mut recorder = HourRecorder::default();
        let idle = || {
            let node = NodeName::new("n1");
            let used = NodeUse::Idle;
            std::iter::once(ObservedUse { node, used, since: None })
        };
        let looks = (0..=count * 60).map(|minute| from + 60 * minute);
        looks.flat_map(|at| recorder.record_uses(UnixTime(at), idle())).collect()
    }

    #[tokio::test]
    async fn hours_come_from_the_store_once() {
        let store = infill_store::open_store("sqlite::memory:", || ()).await.unwrap();
        let all = hours(7200, 5);
        let packed: Vec<PackedHour> = all.iter().map(|hour| hour.pack().unwrap()).collect();
        for hour in &packed[..2] {
            store.put_hour(hour, &NodeUsageSecs::default()).await.unwrap();
        }
        let timelines = HourCache::default();
        let now = UnixTime(7200 + 5 * 3600 + 600);
        let between = async |from: i64, to: i64| -> Vec<i64> {
            let recent = vec![Arc::new(hours(7200 + 5 * 3600, 1).remove(0))];
            let from = UnixTime(from);
            let to = UnixTime(to);
            let stretch = HoursRequest { recent, from, to, now, keep_days: 30 };
            let found = timelines.hours_between(store.as_ref(), stretch).await.unwrap();
            found.iter().map(|hour| (hour.from.0 - 7200) / 3600).collect()
        };
        assert_eq!(between(7300, 100_000).await, [0, 1, 5]);
        assert_eq!(between(11_000, 14_000).await, [1]);
        // What is over for long is settled; what may be on its way is asked for again.
        for hour in &packed[2..] {
            store.put_hour(hour, &NodeUsageSecs::default()).await.unwrap();
        }
        assert_eq!(between(0, 100_000).await, [0, 1, 4, 5]);
    }

    #[tokio::test]
    async fn sums_are_those_of_the_store_and_of_what_it_may_not_have() {
        let store = infill_store::open_store("sqlite::memory:", || ()).await.unwrap();
        let all = hours(7200, 3);
        for hour in &all[..2] {
            store.put_hour(&hour.pack().unwrap(), &timeline::sum_hour(hour)).await.unwrap();
        }
        let mut less = all[1].clone();
        less.secs = 60;
        let recent = [Arc::new(less), Arc::new(all[2].clone())];
        let found = usage_by_hour(store.as_ref(), &recent, UnixTime(7200), UnixTime(18_000)).await.unwrap();
        let idle: Vec<(i64, f64)> = found.iter().map(|(begin, used)| (begin.0, used.idle_secs)).collect();
        assert_eq!(idle, [(7200, 3600.0), (10_800, 60.0), (14_400, 3600.0)]);
    }

    #[tokio::test]
    async fn an_hour_that_goes_on_is_read_again_until_it_is_whole() {
        let store = infill_store::open_store("sqlite::memory:", || ()).await.unwrap();
        let timelines = HourCache::default();
        let now = UnixTime(7200 + 3600 + 5);
        let whole = hours(7200, 1).remove(0);
        let stretch =
            || HoursRequest { recent: Vec::new(), from: UnixTime(7200), to: now, now, keep_days: 30 };
        let secs = async || timelines.hours_between(store.as_ref(), stretch()).await.unwrap()[0].secs;
        let after = |secs| {
            let mut hour = whole.clone();
            hour.secs = secs;
            hour
        };
        store.put_hour(&after(3540).pack().unwrap(), &NodeUsageSecs::default()).await.unwrap();
        assert_eq!(secs().await, 3540);
        store.put_hour(&whole.pack().unwrap(), &NodeUsageSecs::default()).await.unwrap();
        assert_eq!(secs().await, 3600);
        // What waits for the store is better than what is there.
        let waits = HoursRequest { recent: vec![Arc::new(after(7))], ..stretch() };
        assert_eq!(timelines.hours_between(store.as_ref(), waits).await.unwrap()[0].secs, 7);
    }

    #[test]
    fn what_is_kept_is_bounded_and_what_was_asked_for_last_stays() {
        let kept = HourCache::default();
        let now = UnixTime(10_000_000);
        let asked: Vec<UnixTime> = (0..192).map(|hour| UnixTime(hour * HOUR_SECS)).collect();
        for begin in asked.iter().rev() {
            kept.find_cached(&[*begin]);
            kept.cache_hours(&[*begin], &BTreeMap::new(), now);
        }
        assert!(
            kept.lock_hours().hours.contains_key(&asked[0])
                && !kept.lock_hours().hours.contains_key(&asked[191])
        );
        assert_eq!(kept.lock_hours().hours.len(), 96);
    }
}
