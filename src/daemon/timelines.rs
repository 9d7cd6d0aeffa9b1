//! What nodes were used for, as far back as the store has it. Hours that are over are unpacked once and kept
//! for those who ask next.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::model::{PackedHour, UnixTime};
use crate::store::{Store, StoreError};
use crate::timeline::{HOUR_SECS, Hour};

/// Most hours that are kept unpacked: on a large machine some hundred kilobytes each.
const MOST_KEPT: usize = 96;

/// An hour of which the store has nothing may still be on its way there for so long after its end, seconds.
const ON_ITS_WAY_SECS: i64 = HOUR_SECS;

/// See the module's text.
#[derive(Debug, Default)]
pub struct Timelines {
    /// By their begins; `None` where the store has nothing.
    over: Mutex<BTreeMap<UnixTime, Option<Arc<Hour>>>>,
}

impl Timelines {
    /// The hours that reach into a stretch of time, the earliest first; `under_way` is the present one.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn between(
        &self,
        store: &dyn Store,
        under_way: Option<Hour>,
        from: UnixTime,
        to: UnixTime,
        now: UnixTime,
    ) -> Result<Vec<Arc<Hour>>, StoreError> {
        let present = under_way.as_ref().map_or(now, |hour| hour.from);
        let begins = || begins(from, to).filter(|begin| *begin < present);
        let missing: Vec<UnixTime> = begins().filter(|begin| !self.knows(*begin)).collect();
        if let (Some(first), Some(last)) = (missing.first(), missing.last()) {
            let packed = store.hours(*first, *last + 1, missing.len() as u32).await?;
            let unpacked = tokio::task::spawn_blocking(move || unpack(&packed)).await.unwrap_or_default();
            self.keep(&missing, unpacked, now);
        }
        let over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
        let mut hours: Vec<Arc<Hour>> =
            begins().filter_map(|begin| over.get(&begin).cloned().flatten()).collect();
        hours.extend(under_way.filter(|hour| hour.from < to && hour.from + HOUR_SECS > from).map(Arc::new));
        Ok(hours)
    }

    fn knows(&self, begin: UnixTime) -> bool {
        self.over.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&begin)
    }

    /// Keeps what the store had of these hours; the earliest of all make room.
    fn keep(&self, asked: &[UnixTime], mut found: BTreeMap<UnixTime, Arc<Hour>>, now: UnixTime) {
        let mut over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
        for begin in asked {
            let hour = found.remove(begin);
            let is_settled = hour.is_some() || *begin + HOUR_SECS + ON_ITS_WAY_SECS < now;
            if is_settled {
                over.insert(*begin, hour);
            }
        }
        while over.len() > MOST_KEPT.max(asked.len()) {
            over.pop_first();
        }
    }
}

/// The begins of the hours that reach into a stretch of time.
fn begins(from: UnixTime, to: UnixTime) -> impl Iterator<Item = UnixTime> {
    let first = from.0 - from.0.rem_euclid(HOUR_SECS);
    std::iter::successors(Some(UnixTime(first)), |begin| Some(*begin + HOUR_SECS))
        .take_while(move |begin| *begin < to)
}

/// Those that can be read.
fn unpack(packed: &[PackedHour]) -> BTreeMap<UnixTime, Arc<Hour>> {
    let read = |packed: &PackedHour| match Hour::unpack(packed) {
        Ok(hour) => Some((hour.from, Arc::new(hour))),
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
    use crate::timeline::{NodeUse, Recorder};

    /// Hours of one node that is idle, from this moment on.
    fn hours(from: i64, count: i64) -> Vec<Hour> {
        let mut recorder = Recorder::default();
        let idle = || std::iter::once((NodeName::new("n1"), NodeUse::Idle));
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
            let under_way = Some(hours(7200 + 5 * 3600, 1).remove(0));
            let (from, to) = (UnixTime(from), UnixTime(to));
            let found = timelines.between(store.as_ref(), under_way, from, to, now).await.unwrap();
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

    #[test]
    fn what_is_kept_is_bounded() {
        let (timelines, now) = (Timelines::default(), UnixTime(10_000_000));
        let asked: Vec<UnixTime> = (0..MOST_KEPT as i64 * 2).map(|hour| UnixTime(hour * HOUR_SECS)).collect();
        asked.iter().for_each(|begin| timelines.keep(&[*begin], BTreeMap::new(), now));
        assert!(!timelines.knows(asked[0]) && timelines.knows(asked[asked.len() - 1]));
        assert_eq!(timelines.over.lock().unwrap().len(), MOST_KEPT);
    }
}
