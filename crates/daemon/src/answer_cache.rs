//! A cache of answers that are the same for all readers until the next snapshot. Each is made once.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tokio::sync::OnceCell;

use infill_model::UnixTime;

/// Most answers that are cached at a time. Any further answer is made for its reader alone.
const MAX_CACHED: usize = 32;

/// An answer that is ready or being made.
pub(crate) type CachedAnswer = Arc<OnceCell<Bytes>>;

/// Answers by their keys, all as of one snapshot.
#[derive(Debug)]
pub struct AnswerCache<K> {
    /// The time of the snapshot, and the answers made from it.
    answers: Mutex<(UnixTime, HashMap<K, CachedAnswer>)>,
}

impl<K> Default for AnswerCache<K> {
    fn default() -> Self {
        AnswerCache { answers: Mutex::new((UnixTime(0), HashMap::new())) }
    }
}

impl<K: Eq + Hash> AnswerCache<K> {
    /// The cell of the answer for `key` as of the snapshot of `seen`. Answers of another snapshot are
    /// dropped.
    pub fn entry_for(&self, seen: UnixTime, key: K) -> CachedAnswer {
        // Values are replaced at once, so a thread that panicked leaves them consistent.
        let mut guard = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        if guard.0 != seen {
            *guard = (seen, HashMap::new());
        }
        let answers = &mut guard.1;
        if answers.len() >= MAX_CACHED && !answers.contains_key(&key) {
            return CachedAnswer::default();
        }
        answers.entry(key).or_default().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answer of the cache, which is `text` if it is not made yet.
    async fn answer(cache: &AnswerCache<usize>, seen: i64, key: usize, text: &'static str) -> Bytes {
        let cell = cache.entry_for(UnixTime(seen), key);
        cell.get_or_init(async || Bytes::from_static(text.as_bytes())).await.clone()
    }

    #[tokio::test]
    async fn an_answer_is_made_once_a_snapshot() {
        let cache = AnswerCache::default();
        assert_eq!(answer(&cache, 1, 7, "a").await, "a");
        assert_eq!(answer(&cache, 1, 7, "b").await, "a");
        assert_eq!(answer(&cache, 1, 8, "c").await, "c");
        assert_eq!(answer(&cache, 2, 7, "d").await, "d");
        for key in 100..100 + 2 * MAX_CACHED {
            answer(&cache, 2, key, "x").await;
        }
        assert_eq!(cache.answers.lock().unwrap().1.len(), MAX_CACHED);
        assert_eq!(answer(&cache, 2, 1000, "y").await, "y", "a full cache still answers");
    }
}
