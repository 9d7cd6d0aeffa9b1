//! What was made for somebody and is the same for all who ask for the same before the next look at Slurm:
//! made once, and given to each.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tokio::sync::OnceCell;

use infill_model::UnixTime;

/// Most that are kept at a time: others are made for one alone.
const MAX_CACHED: usize = 32;

/// An answer, made or in the making.
pub(crate) type CachedAnswer = Arc<OnceCell<Bytes>>;

/// See the module's text.
#[derive(Debug)]
pub struct AnswerCache<K> {
    known: Mutex<(UnixTime, HashMap<K, CachedAnswer>)>,
}

impl<K> Default for AnswerCache<K> {
    fn default() -> Self {
        AnswerCache { known: Mutex::new((UnixTime(0), HashMap::new())) }
    }
}

impl<K: Eq + Hash> AnswerCache<K> {
    /// The place of an answer as of a moment; those of another moment are forgotten.
    pub fn entry_for(&self, seen: UnixTime, key: K) -> CachedAnswer {
        // Values are replaced at once: a thread that panicked leaves them whole.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.0 != seen {
            *known = (seen, HashMap::new());
        }
        if known.1.len() >= MAX_CACHED && !known.1.contains_key(&key) {
            return CachedAnswer::default();
        }
        known.1.entry(key).or_default().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_answer_is_made_once_a_look() {
        let answers = AnswerCache::default();
        let made = async |seen, key, text: &'static str| {
            let answer = answers.entry_for(UnixTime(seen), key);
            answer.get_or_init(async || Bytes::from_static(text.as_bytes())).await.clone()
        };
        assert_eq!(made(1, 7, "a").await, "a");
        assert_eq!(made(1, 7, "b").await, "a");
        assert_eq!(made(1, 8, "c").await, "c");
        assert_eq!(made(2, 7, "d").await, "d");
        for key in 100..100 + 2 * MAX_CACHED {
            made(2, key, "x").await;
        }
        assert_eq!(answers.known.lock().unwrap().1.len(), MAX_CACHED);
        assert_eq!(made(2, 1000, "y").await, "y", "for one alone");
    }
}
