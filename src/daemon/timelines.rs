//! What nodes were used for, as far back as the store has it. Hours that are over are unpacked once and kept
//! for those who ask next.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::config::StoreConfig;
use crate::model::{PackedHour, UnixTime};
use crate::store::{Store, StoreError};
use crate::timeline::{self, HOUR_SECS, Hour, PARTS, hour_of};

/// Most hours that are kept unpacked: on a large machine some hundred kilobytes each.
const MOST_KEPT: usize = 96;

/// Most hours of which sums are kept: a month.
const MOST_SUMS: usize = 31 * 24;

const DAY_SECS: i64 = 86_400;

/// Hours that are read at once.
const AT_ONCE: usize = 12;

/// An hour of which the store has nothing may still be on its way there for so long after its end, seconds.
const ON_ITS_WAY_SECS: i64 = HOUR_SECS;

/// See the module's text.
#[derive(Debug)]
pub struct Timelines {
    hours: Kept<Arc<Hour>>,
    sums: Kept<[f64; PARTS]>,
}

impl Default for Timelines {
    fn default() -> Self {
        Timelines { hours: Kept::new(MOST_KEPT), sums: Kept::new(MOST_SUMS) }
    }
}

/// A stretch of time that is asked about, and what is known of it without the store.
#[derive(Clone, Debug)]
pub struct Stretch {
    /// The hour that is under way, and those that wait for the store.
    pub recent: Vec<Arc<Hour>>,
    /// Begin.
    pub from: UnixTime,
    /// End.
    pub to: UnixTime,
    /// The moment.
    pub now: UnixTime,
}

impl Stretch {
    /// As much of it as the store may have.
    pub fn kept(self, store: &StoreConfig) -> Stretch {
        let days = i64::from(store.keep_node_days) + 1;
        let from = self.from.max(UnixTime(self.now.0 - days * DAY_SECS));
        Stretch { from, to: self.to.min(self.now + HOUR_SECS), ..self }
    }

    /// The begins of the hours that the store is asked for. The present one is only known here.
    fn over(&self) -> Vec<UnixTime> {
        let present = begins(self.now, self.now + 1).next().unwrap_or(self.now);
        let is_known = |begin: &UnixTime| self.recent.iter().any(|hour| hour.from == *begin);
        begins(self.from, self.to).filter(|begin| *begin < present && !is_known(begin)).collect()
    }

    /// What is known without it, the earliest first.
    fn recent(&self) -> impl Iterator<Item = &Arc<Hour>> {
        self.recent.iter().filter(|hour| hour.from < self.to && hour.from + HOUR_SECS > self.from)
    }
}

impl Timelines {
    /// The hours that reach into a stretch of time, the earliest first.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn between(&self, store: &dyn Store, stretch: Stretch) -> Result<Vec<Arc<Hour>>, StoreError> {
        let over = self.hours.of(store, &stretch, Arc::new).await?;
        let recent = stretch.recent().map(|hour| (hour.from, hour.clone()));
        // One that waits for the store may be from before one that is there.
        Ok(over.into_iter().chain(recent).collect::<BTreeMap<_, _>>().into_values().collect())
    }

    /// The same hours' node-seconds by what they went into, with the begin of each.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn sums(
        &self,
        store: &dyn Store,
        stretch: Stretch,
    ) -> Result<Vec<(UnixTime, [f64; PARTS])>, StoreError> {
        let over = self.sums.of(store, &stretch, |hour| timeline::sums(&hour)).await?;
        let recent = stretch.recent().map(|hour| (hour.from, timeline::sums(hour)));
        Ok(over.into_iter().chain(recent).collect::<BTreeMap<_, _>>().into_iter().collect())
    }
}

/// Something of each hour that is over, by their begins; nothing where the store has nothing. Those longest
/// not asked for make room.
#[derive(Debug)]
struct Kept<T> {
    known: Mutex<Known<T>>,
    most: usize,
}

#[derive(Debug)]
struct Known<T> {
    hours: BTreeMap<UnixTime, (Option<T>, u64)>,
    /// How often somebody has asked.
    asked: u64,
}

impl<T: Clone + Send + 'static> Kept<T> {
    fn new(most: usize) -> Kept<T> {
        Kept { known: Mutex::new(Known { hours: BTreeMap::new(), asked: 0 }), most }
    }

    /// Each value is replaced at once: a thread that panicked leaves all whole.
    fn known(&self) -> MutexGuard<'_, Known<T>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of the hours that are over, and what the store has of the others.
    async fn of(
        &self,
        store: &dyn Store,
        stretch: &Stretch,
        make: fn(Hour) -> T,
    ) -> Result<Vec<(UnixTime, T)>, StoreError> {
        let over = stretch.over();
        let mut found = self.recall(&over);
        let missing: Vec<UnixTime> = over.into_iter().filter(|begin| !found.contains_key(begin)).collect();
        for some in missing.chunks(AT_ONCE) {
            let (first, last) = (some[0], some[some.len() - 1]);
            let reach = (last.0 - first.0) / HOUR_SECS + 1;
            let packed = store.hours(first, last + 1, reach as u32).await?;
            let read = tokio::task::spawn_blocking(move || unpack(&packed, make)).await.unwrap_or_default();
            self.keep(some, &read, stretch.now);
            found.extend(some.iter().map(|begin| (*begin, read.get(begin).map(|(_, value)| value.clone()))));
        }
        Ok(found.into_iter().filter_map(|(begin, value)| Some((begin, value?))).collect())
    }

    fn recall(&self, begins: &[UnixTime]) -> BTreeMap<UnixTime, Option<T>> {
        let mut known = self.known();
        known.asked += 1;
        let asked = known.asked;
        let recalled = begins.iter().filter_map(|begin| {
            let (value, used) = known.hours.get_mut(begin)?;
            *used = asked;
            Some((*begin, value.clone()))
        });
        recalled.collect()
    }

    /// Keeps what the store had of these hours (with the seconds that were looked at), if that will not change.
    fn keep(&self, asked: &[UnixTime], read: &BTreeMap<UnixTime, (u32, T)>, now: UnixTime) {
        let mut known = self.known();
        let used = known.asked;
        for begin in asked {
            let hour = read.get(begin);
            let is_whole = hour.is_some_and(|(secs, _)| i64::from(*secs) >= HOUR_SECS);
            if is_whole || *begin + HOUR_SECS + ON_ITS_WAY_SECS < now {
                known.hours.insert(*begin, (hour.map(|(_, value)| value.clone()), used));
            }
        }
        while known.hours.len() > self.most {
            let oldest = known.hours.iter().min_by_key(|(_, (_, used))| *used).map(|(begin, _)| *begin);
            let Some(oldest) = oldest else { return };
            known.hours.remove(&oldest);
        }
    }
}

/// The begins of the hours that reach into a stretch of time.
fn begins(from: UnixTime, to: UnixTime) -> impl Iterator<Item = UnixTime> {
    std::iter::successors(Some(hour_of(from)), |begin| Some(*begin + HOUR_SECS))
        .take_while(move |begin| *begin < to)
}

/// Those that can be read, with the seconds that were looked at.
fn unpack<T>(packed: &[PackedHour], make: fn(Hour) -> T) -> BTreeMap<UnixTime, (u32, T)> {
    let read = |packed: &PackedHour| match Hour::unpack(packed) {
        Ok(hour) => Some((hour.from, (hour.secs, make(hour)))),
        Err(e) => {
            tracing::warn!("what nodes were used for from {} on cannot be read: {e}", packed.from);
            None
        }
    };
    packed.iter().filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::NodeName;
    use crate::timeline::{NodeUse, Recorder, Seen};

    /// Hours of one node that is idle, from this moment on.
    fn hours(from: i64, count: i64) -> Vec<Hour> {
        let mut recorder = Recorder::default();
        let idle = || {
            let (node, used) = (NodeName::new("n1"), NodeUse::Idle);
            std::iter::once(Seen { node, used, since: None })
        };
        let looks = (0..=count * 60).map(|minute| from + 60 * minute);
        looks.flat_map(|at| recorder.look(UnixTime(at), idle())).collect()
    }

    #[tokio::test]
    async fn hours_come_from_the_store_once() {
        let store = crate::store::open("sqlite::memory:", || ()).await.unwrap();
        let all = hours(7200, 5);
        let packed: Vec<PackedHour> = all.iter().map(|hour| hour.pack().unwrap()).collect();
        for hour in &packed[..2] {
            store.put_hour(hour).await.unwrap();
        }
        let (timelines, now) = (Timelines::default(), UnixTime(7200 + 5 * 3600 + 600));
        let between = async |from: i64, to: i64| -> Vec<i64> {
            let recent = vec![Arc::new(hours(7200 + 5 * 3600, 1).remove(0))];
            let stretch = Stretch { recent, from: UnixTime(from), to: UnixTime(to), now };
            let sums = timelines.sums(store.as_ref(), stretch.clone()).await.unwrap();
            let found = timelines.between(store.as_ref(), stretch).await.unwrap();
            let sums: Vec<(UnixTime, f64)> =
                sums.iter().map(|(begin, sums)| (*begin, sums.iter().sum())).collect();
            let whole: Vec<(UnixTime, f64)> =
                found.iter().map(|hour| (hour.from, f64::from(hour.secs))).collect();
            assert_eq!(sums, whole, "of one idle node");
            found.iter().map(|hour| (hour.from.0 - 7200) / 3600).collect()
        };
        assert_eq!(between(7300, 100_000).await, [0, 1, 5]);
        assert_eq!(between(11_000, 14_000).await, [1]);
        // What is over for long is settled; what may be on its way is asked for again.
        for hour in &packed[2..] {
            store.put_hour(hour).await.unwrap();
        }
        assert_eq!(between(0, 100_000).await, [0, 1, 4, 5]);
    }

    #[tokio::test]
    async fn an_hour_that_goes_on_is_read_again_until_it_is_whole() {
        let store = crate::store::open("sqlite::memory:", || ()).await.unwrap();
        let (timelines, now) = (Timelines::default(), UnixTime(7200 + 3600 + 5));
        let whole = hours(7200, 1).remove(0);
        let stretch = || Stretch { recent: Vec::new(), from: UnixTime(7200), to: now, now };
        let secs = async || timelines.between(store.as_ref(), stretch()).await.unwrap()[0].secs;
        let after = |secs| {
            let mut hour = whole.clone();
            hour.secs = secs;
            hour
        };
        store.put_hour(&after(3540).pack().unwrap()).await.unwrap();
        assert_eq!(secs().await, 3540);
        store.put_hour(&whole.pack().unwrap()).await.unwrap();
        assert_eq!(secs().await, 3600);
        // What waits for the store is better than what is there.
        let waits = Stretch { recent: vec![Arc::new(after(7))], ..stretch() };
        assert_eq!(timelines.between(store.as_ref(), waits).await.unwrap()[0].secs, 7);
    }

    #[test]
    fn what_is_kept_is_bounded_and_what_was_asked_for_last_stays() {
        let (kept, now) = (Kept::<u8>::new(96), UnixTime(10_000_000));
        let asked: Vec<UnixTime> = (0..192).map(|hour| UnixTime(hour * HOUR_SECS)).collect();
        for begin in asked.iter().rev() {
            kept.recall(&[*begin]);
            kept.keep(&[*begin], &BTreeMap::new(), now);
        }
        assert!(kept.known().hours.contains_key(&asked[0]) && !kept.known().hours.contains_key(&asked[191]));
        assert_eq!(kept.known().hours.len(), 96);
    }
}
