//! A cache of unpacked hours of node uses. It reads them from the store, and unpacks each finished hour once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::timeline;
use crate::timeline::{HOUR_SECS, UsageHour, hour_of};
use infill_model::{NodeUsageSecs, PackedHour, UnixTime};
use infill_store::{Store, StoreError};

/// Most hours that are cached. On a large cluster each takes some hundred kilobytes.
const MAX_CACHED_HOURS: usize = 96;

const DAY_SECS: i64 = 86_400;

/// Hours that are read in one query.
const HOURS_PER_READ: usize = 12;

/// An hour may reach the store this long after its end, seconds. Until then, a missing hour is not cached as
/// missing.
const WRITE_DELAY_SECS: i64 = HOUR_SECS;

/// Unpacked hours. Those that were not used for the longest time are dropped first.
#[derive(Debug, Default)]
pub struct HourCache {
    cached: Mutex<CachedHours>,
}

#[derive(Debug, Default)]
struct CachedHours {
    /// Hours by their begins.
    hours: BTreeMap<UnixTime, CachedHour>,
    /// Number of requests so far.
    requests: u64,
}

#[derive(Debug)]
struct CachedHour {
    /// `None` where the store has nothing.
    hour: Option<Arc<UsageHour>>,
    /// Number of the last request that used it.
    last_used: u64,
}

/// A requested stretch of time, and the hours of it that need no store.
#[derive(Clone, Debug)]
pub struct HoursRequest {
    /// The present hour, and the hours that wait for the store.
    pub recent: Vec<Arc<UsageHour>>,
    /// Begin of the stretch.
    pub from: UnixTime,
    /// End of the stretch.
    pub to: UnixTime,
    /// The present time.
    pub now: UnixTime,
    /// How long the store keeps hours, days.
    pub keep_days: u32,
}

impl HoursRequest {
    /// The begins of the hours that must be read from the store. The present hour is not there yet.
    fn stored_begins(&self) -> Vec<UnixTime> {
        let oldest = UnixTime(self.now.0 - (i64::from(self.keep_days) + 1) * DAY_SECS);
        let begins = hour_begins(self.from.max(oldest), self.to.min(hour_of(self.now)));
        begins.filter(|begin| self.recent.iter().all(|hour| hour.from != *begin)).collect()
    }

    /// The recent hours that reach into the stretch.
    fn recent_hours(&self) -> impl Iterator<Item = &Arc<UsageHour>> {
        self.recent.iter().filter(|hour| hour.from < self.to && hour.from + HOUR_SECS > self.from)
    }
}

impl HourCache {
    /// The hours that reach into the requested stretch, the earliest first.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn hours_between(
        &self,
        store: &dyn Store,
        request: HoursRequest,
    ) -> Result<Vec<Arc<UsageHour>>, StoreError> {
        let stored = self.load_stored(store, &request).await?;
        let recent = request.recent_hours().map(|hour| (hour.from, hour.clone()));
        // An hour that waits for the store may be earlier than one that is stored, so all are sorted.
        Ok(stored.into_iter().chain(recent).collect::<BTreeMap<_, _>>().into_values().collect())
    }

    /// Each value is replaced at once, so a thread that panicked leaves all consistent.
    fn lock_hours(&self) -> MutexGuard<'_, CachedHours> {
        self.cached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The finished hours: cached ones, and the others from the store.
    async fn load_stored(
        &self,
        store: &dyn Store,
        request: &HoursRequest,
    ) -> Result<Vec<(UnixTime, Arc<UsageHour>)>, StoreError> {
        let begins = request.stored_begins();
        let mut found = self.find_cached(&begins);
        let missing: Vec<UnixTime> = begins.into_iter().filter(|begin| !found.contains_key(begin)).collect();
        for chunk in missing.chunks(HOURS_PER_READ) {
            let first = chunk[0];
            let last = chunk[chunk.len() - 1];
            let max_hours = (last.0 - first.0) / HOUR_SECS + 1;
            let packed = store.hours_between(first, last + 1, max_hours as u32).await?;
            let unpacked =
                tokio::task::spawn_blocking(move || unpack_hours(&packed)).await.unwrap_or_default();
            self.cache_hours(chunk, &unpacked, request.now);
            found.extend(chunk.iter().map(|begin| (*begin, unpacked.get(begin).cloned())));
        }
        Ok(found.into_iter().filter_map(|(begin, hour)| Some((begin, hour?))).collect())
    }

    fn find_cached(&self, begins: &[UnixTime]) -> BTreeMap<UnixTime, Option<Arc<UsageHour>>> {
        let mut cached = self.lock_hours();
        cached.requests += 1;
        let request = cached.requests;
        let mut found = BTreeMap::new();
        for begin in begins {
            if let Some(entry) = cached.hours.get_mut(begin) {
                entry.last_used = request;
                found.insert(*begin, entry.hour.clone());
            }
        }
        found
    }

    /// Caches what the store had of these hours, if that will not change.
    fn cache_hours(&self, begins: &[UnixTime], read: &BTreeMap<UnixTime, Arc<UsageHour>>, now: UnixTime) {
        let mut cached = self.lock_hours();
        let last_used = cached.requests;
        for begin in begins {
            let hour = read.get(begin);
            let is_whole = hour.is_some_and(|hour| i64::from(hour.secs) >= HOUR_SECS);
            if is_whole || *begin + HOUR_SECS + WRITE_DELAY_SECS < now {
                cached.hours.insert(*begin, CachedHour { hour: hour.cloned(), last_used });
            }
        }
        while cached.hours.len() > MAX_CACHED_HOURS {
            let oldest = cached.hours.iter().min_by_key(|(_, entry)| entry.last_used);
            let Some(oldest) = oldest.map(|(begin, _)| *begin) else { return };
            cached.hours.remove(&oldest);
        }
    }
}

/// The begins of the hours that reach into a stretch of time.
fn hour_begins(from: UnixTime, to: UnixTime) -> impl Iterator<Item = UnixTime> {
    std::iter::successors(Some(hour_of(from)), |begin| Some(*begin + HOUR_SECS))
        .take_while(move |begin| *begin < to)
}

/// Unpacks hours, by their begins. Unreadable ones are logged and left out.
fn unpack_hours(packed: &[PackedHour]) -> BTreeMap<UnixTime, Arc<UsageHour>> {
    let mut hours = BTreeMap::new();
    for packed in packed {
        match UsageHour::unpack(packed) {
            Ok(hour) => drop(hours.insert(hour.from, Arc::new(hour))),
            Err(e) => tracing::warn!("cannot read what nodes were used for from {} on: {e}", packed.from),
        }
    }
    hours
}

/// Node-seconds of the hours that begin in a stretch of time, with the begin of each. Sums go back to the
/// first use of the store. `recent`: the hours that the store may not have yet.
///
/// # Errors
/// When the store does not answer.
pub(crate) async fn usage_by_hour(
    store: &dyn Store,
    recent: &[Arc<UsageHour>],
    from: UnixTime,
    to: UnixTime,
) -> Result<Vec<(UnixTime, NodeUsageSecs)>, StoreError> {
    let max_hours = u32::try_from(to.0.saturating_sub(from.0) / HOUR_SECS + 1).unwrap_or(u32::MAX);
    let stored = store.usage_by_hour(from, to, max_hours).await?;
    let recent = recent.iter().filter(|hour| (from..to).contains(&hour.from));
    let recent = recent.map(|hour| (hour.from, timeline::sum_hour(hour)));
    Ok(stored.into_iter().chain(recent).collect::<BTreeMap<_, _>>().into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::{HourRecorder, NodeUse, ObservedUse};
    use infill_model::NodeName;

    /// `count` hours of one idle node. The first begins at `from`.
    fn hours(from: i64, count: i64) -> Vec<UsageHour> {
        let mut recorder = HourRecorder::default();
        let mut hours = Vec::new();
        for minute in 0..=count * 60 {
            let idle = ObservedUse { node: NodeName::new("n1"), used: NodeUse::Idle, since: None };
            hours.extend(recorder.record_uses(UnixTime(from + 60 * minute), std::iter::once(idle)));
        }
        hours
    }

    #[tokio::test]
    async fn hours_are_read_from_the_store_once() {
        let store = infill_store::open_store("sqlite::memory:", || ()).await.unwrap();
        let all = hours(7200, 5);
        let packed: Vec<PackedHour> = all.iter().map(|hour| hour.pack().unwrap()).collect();
        for hour in &packed[..2] {
            store.put_hour(hour, &NodeUsageSecs::default()).await.unwrap();
        }
        let cache = HourCache::default();
        let between = async |from: i64, to: i64| -> Vec<i64> {
            let request = HoursRequest {
                recent: vec![Arc::new(hours(7200 + 5 * 3600, 1).remove(0))],
                from: UnixTime(from),
                to: UnixTime(to),
                now: UnixTime(7200 + 5 * 3600 + 600),
                keep_days: 30,
            };
            let found = cache.hours_between(store.as_ref(), request).await.unwrap();
            found.iter().map(|hour| (hour.from.0 - 7200) / 3600).collect()
        };
        assert_eq!(between(7300, 100_000).await, [0, 1, 5]);
        assert_eq!(between(11_000, 14_000).await, [1]);
        // A missing hour that ended long ago stays missing. A recent one may still arrive and is read again.
        for hour in &packed[2..] {
            store.put_hour(hour, &NodeUsageSecs::default()).await.unwrap();
        }
        assert_eq!(between(0, 100_000).await, [0, 1, 4, 5]);
    }

    #[tokio::test]
    async fn sums_come_from_the_store_and_from_recent_hours() {
        let store = infill_store::open_store("sqlite::memory:", || ()).await.unwrap();
        let all = hours(7200, 3);
        for hour in &all[..2] {
            store.put_hour(&hour.pack().unwrap(), &timeline::sum_hour(hour)).await.unwrap();
        }
        let mut shorter = all[1].clone();
        shorter.secs = 60;
        let recent = [Arc::new(shorter), Arc::new(all[2].clone())];
        let found = usage_by_hour(store.as_ref(), &recent, UnixTime(7200), UnixTime(18_000)).await.unwrap();
        let idle: Vec<(i64, f64)> = found.iter().map(|(begin, used)| (begin.0, used.idle_secs)).collect();
        assert_eq!(idle, [(7200, 3600.0), (10_800, 60.0), (14_400, 3600.0)]);
    }

    #[tokio::test]
    async fn an_hour_that_goes_on_is_read_again_until_it_is_whole() {
        let store = infill_store::open_store("sqlite::memory:", || ()).await.unwrap();
        let cache = HourCache::default();
        let now = UnixTime(7200 + 3600 + 5);
        let whole = hours(7200, 1).remove(0);
        let request = HoursRequest { recent: Vec::new(), from: UnixTime(7200), to: now, now, keep_days: 30 };
        let mut part = whole.clone();
        part.secs = 3540;
        store.put_hour(&part.pack().unwrap(), &NodeUsageSecs::default()).await.unwrap();
        assert_eq!(cache.hours_between(store.as_ref(), request.clone()).await.unwrap()[0].secs, 3540);
        store.put_hour(&whole.pack().unwrap(), &NodeUsageSecs::default()).await.unwrap();
        assert_eq!(cache.hours_between(store.as_ref(), request.clone()).await.unwrap()[0].secs, 3600);
        // An hour that waits for the store is newer than the stored one.
        part.secs = 7;
        let request = HoursRequest { recent: vec![Arc::new(part)], ..request };
        assert_eq!(cache.hours_between(store.as_ref(), request).await.unwrap()[0].secs, 7);
    }

    #[test]
    fn the_cache_is_bounded_and_keeps_the_hours_of_the_last_requests() {
        let cache = HourCache::default();
        let now = UnixTime(10_000_000);
        let begins: Vec<UnixTime> = (0..192).map(|hour| UnixTime(hour * HOUR_SECS)).collect();
        for begin in begins.iter().rev() {
            cache.find_cached(&[*begin]);
            cache.cache_hours(&[*begin], &BTreeMap::new(), now);
        }
        let cached = cache.lock_hours();
        assert!(cached.hours.contains_key(&begins[0]) && !cached.hours.contains_key(&begins[191]));
        assert_eq!(cached.hours.len(), 96);
    }
}
