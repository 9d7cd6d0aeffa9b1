//! How often somebody may ask for something: at once a few times, and then once more with each moment that
//! has gone by.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Most askers that are remembered.
const MAX_TRACKED_USERS: usize = 10_000;

/// What one asker may still ask for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TokenBucket {
    calls: f64,
    at: Instant,
}

/// How many calls there may be at once, and how long it takes until there may be one more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RateLimit {
    /// Calls at once, 1 at least.
    pub burst: u32,
    /// Time to one more.
    pub every: Duration,
}

impl TokenBucket {
    /// Of somebody who has not asked yet.
    pub fn new(rate: RateLimit, now: Instant) -> TokenBucket {
        TokenBucket { calls: f64::from(rate.burst), at: now }
    }

    /// Takes a call off.
    ///
    /// # Errors
    /// How long it takes until there is one.
    pub fn try_take(&mut self, rate: RateLimit, now: Instant) -> Result<(), Duration> {
        let passed = now.saturating_duration_since(self.at).as_secs_f64() / rate.every.as_secs_f64();
        *self = TokenBucket { calls: (self.calls + passed).min(f64::from(rate.burst)), at: now };
        if self.calls < 1.0 {
            return Err(rate.every.mul_f64(1.0 - self.calls));
        }
        self.calls -= 1.0;
        Ok(())
    }

    fn is_full(&self, rate: RateLimit, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.at).as_secs_f64() / rate.every.as_secs_f64();
        self.calls + passed >= f64::from(rate.burst)
    }
}

/// What each user may still ask for.
#[derive(Debug)]
pub(crate) struct UserRateLimiter {
    rate: RateLimit,
    askers: Mutex<BTreeMap<u32, TokenBucket>>,
}

impl UserRateLimiter {
    /// Nobody has asked yet.
    pub fn new(rate: RateLimit) -> UserRateLimiter {
        UserRateLimiter { rate, askers: Mutex::default() }
    }

    /// Takes a call off what this user has.
    ///
    /// # Errors
    /// How long it takes until there is one.
    pub fn try_take(&self, user: u32, now: Instant) -> Result<(), Duration> {
        // Each change replaces a value: a thread that panicked leaves them whole.
        let mut askers = self.askers.lock().unwrap_or_else(PoisonError::into_inner);
        if askers.len() >= MAX_TRACKED_USERS {
            // Whoever has all of it is as good as new.
            askers.retain(|_, budget| !budget.is_full(self.rate, now));
        }
        if askers.len() >= MAX_TRACKED_USERS && !askers.contains_key(&user) {
            return Err(self.rate.every);
        }
        askers.entry(user).or_insert_with(|| TokenBucket::new(self.rate, now)).try_take(self.rate, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: RateLimit = RateLimit { burst: 3, every: Duration::from_secs(2) };

    #[test]
    fn a_few_at_once_and_then_one_a_while() {
        let allowance = UserRateLimiter::new(RATE);
        let began = Instant::now();
        let at = |millis| began + Duration::from_millis(millis);
        for _ in 0..3 {
            assert_eq!(allowance.try_take(7, began), Ok(()));
        }
        assert_eq!(allowance.try_take(7, at(500)), Err(Duration::from_millis(1500)));
        assert_eq!(allowance.try_take(8, at(500)), Ok(()), "another's is their own");
        assert_eq!([2000, 2001].map(|t| allowance.try_take(7, at(t)).is_ok()), [true, false]);
        // After a long time there are no more than at first.
        assert_eq!(
            [0, 0, 0, 0].map(|_| allowance.try_take(7, at(99_000)).is_ok()),
            [true, true, true, false]
        );
    }

    #[test]
    fn askers_without_end_take_no_memory_without_end() {
        let allowance = UserRateLimiter::new(RATE);
        let began = Instant::now();
        let askers = || u32::try_from(allowance.askers.lock().unwrap().len()).unwrap();
        for user in 0..20_000 {
            let _ = allowance.try_take(user, began);
        }
        assert_eq!(askers(), 10_000);
        assert!(allowance.try_take(20_001, began).is_err(), "none is forgotten for another");
        assert!(allowance.try_take(20_001, began + Duration::from_secs(60)).is_ok());
        assert_eq!(askers(), 1);
    }
}
