//! Token buckets: a user may make a few calls at once, and then one more after each further interval.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Most users that are remembered.
const MAX_TRACKED_USERS: usize = 10_000;

/// The calls that one user may still make.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TokenBucket {
    calls: f64,
    /// When `calls` was computed.
    updated_at: Instant,
}

/// How many calls may come at once, and how long it takes until one more may come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RateLimit {
    /// Most calls at once. At least 1.
    pub burst: u32,
    /// Time after which one more call is allowed.
    pub every: Duration,
}

impl TokenBucket {
    /// A full bucket.
    pub fn new(rate: RateLimit, now: Instant) -> TokenBucket {
        TokenBucket { calls: f64::from(rate.burst), updated_at: now }
    }

    /// Takes one call.
    ///
    /// # Errors
    /// How long it takes until a call is allowed.
    pub fn try_take(&mut self, rate: RateLimit, now: Instant) -> Result<(), Duration> {
        let earned = self.earned_calls(rate, now);
        *self = TokenBucket { calls: (self.calls + earned).min(f64::from(rate.burst)), updated_at: now };
        if self.calls < 1.0 {
            return Err(rate.every.mul_f64(1.0 - self.calls));
        }
        self.calls -= 1.0;
        Ok(())
    }

    fn is_full(&self, rate: RateLimit, now: Instant) -> bool {
        self.calls + self.earned_calls(rate, now) >= f64::from(rate.burst)
    }

    /// Calls that became allowed since the last update, a fraction included.
    fn earned_calls(&self, rate: RateLimit, now: Instant) -> f64 {
        now.saturating_duration_since(self.updated_at).as_secs_f64() / rate.every.as_secs_f64()
    }
}

/// The calls that each user may still make.
#[derive(Debug)]
pub(crate) struct UserRateLimiter {
    rate: RateLimit,
    buckets: Mutex<BTreeMap<u32, TokenBucket>>,
}

impl UserRateLimiter {
    /// A limiter that has seen no user yet.
    pub fn new(rate: RateLimit) -> UserRateLimiter {
        UserRateLimiter { rate, buckets: Mutex::default() }
    }

    /// Takes one of this user's calls.
    ///
    /// # Errors
    /// How long it takes until a call is allowed.
    pub fn try_take(&self, user: u32, now: Instant) -> Result<(), Duration> {
        // Each change replaces a value, so a thread that panicked leaves them consistent.
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= MAX_TRACKED_USERS {
            // A full bucket is the same as a new one.
            buckets.retain(|_, bucket| !bucket.is_full(self.rate, now));
        }
        if buckets.len() >= MAX_TRACKED_USERS && !buckets.contains_key(&user) {
            return Err(self.rate.every);
        }
        buckets.entry(user).or_insert_with(|| TokenBucket::new(self.rate, now)).try_take(self.rate, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: RateLimit = RateLimit { burst: 3, every: Duration::from_secs(2) };

    #[test]
    fn a_few_calls_at_once_and_then_one_per_interval() {
        let limiter = UserRateLimiter::new(RATE);
        let start = Instant::now();
        for _ in 0..3 {
            assert_eq!(limiter.try_take(7, start), Ok(()));
        }
        let half_a_second = start + Duration::from_millis(500);
        assert_eq!(limiter.try_take(7, half_a_second), Err(Duration::from_millis(1500)));
        assert_eq!(limiter.try_take(8, half_a_second), Ok(()), "each user has calls of their own");
        let after = [2000, 2001].map(|millis| start + Duration::from_millis(millis));
        assert_eq!(after.map(|now| limiter.try_take(7, now).is_ok()), [true, false]);
        // After a long time there are no more than at first.
        let much_later = start + Duration::from_secs(99);
        assert_eq!([0; 4].map(|_| limiter.try_take(7, much_later).is_ok()), [true, true, true, false]);
    }

    #[test]
    fn any_number_of_users_takes_bounded_memory() {
        let limiter = UserRateLimiter::new(RATE);
        let start = Instant::now();
        for user in 0..20_000 {
            let _ = limiter.try_take(user, start);
        }
        assert_eq!(limiter.buckets.lock().unwrap().len(), 10_000);
        assert!(limiter.try_take(20_001, start).is_err(), "no user is forgotten for another");
        assert!(limiter.try_take(20_001, start + Duration::from_secs(60)).is_ok());
        assert_eq!(limiter.buckets.lock().unwrap().len(), 1);
    }
}
