//! Decides when the next round begins.
//!
//! Each round begins with a full dump of slurmctld. Users can request rounds through their agents. So the
//! pause between rounds depends on how long a dump takes.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// Shortest pause between the end of a dump and the next round.
const MIN_PAUSE: Duration = Duration::from_millis(300);

/// Shortest time between the begins of two dumps, unless the configured interval is shorter.
const MIN_DISTANCE: Duration = Duration::from_secs(1);

/// The pause after a dump in units of the dump's duration. So slurmctld spends at most about a tenth of its
/// time on infill.
const PAUSE_PER_DUMP: u32 = 10;

/// Rounds that one user's agents may request at once. One more is allowed after each interval.
const REQUESTS_A_USER: f64 = 3.0;

/// Most users whose requests are counted.
const MAX_USERS: usize = 10_000;

/// How urgent a requested round is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RoundUrgency {
    /// There is something to plan: an agent said hello, or a job runs at another speed.
    Ordinary,
    /// A job leaves nodes, or an administrator gave a command.
    Urgent,
}

/// The rounds that one user's agents may still request.
#[derive(Clone, Copy, Debug)]
struct RequestBudget {
    requests: f64,
    /// When `requests` was computed.
    updated_at: Instant,
}

/// A dump of slurmctld.
#[derive(Clone, Copy, Debug)]
struct Dump {
    began: Instant,
    took: Duration,
}

/// Computes when rounds begin. Pure: callers pass the time.
#[derive(Debug)]
struct RoundPace {
    interval: Duration,
    last_dump: Option<Dump>,
    /// When the last round began.
    began: Option<Instant>,
    /// The most urgent request since the last round began.
    requested: Option<RoundUrgency>,
    users: BTreeMap<u32, RequestBudget>,
}

impl RoundPace {
    fn new(interval: Duration) -> RoundPace {
        RoundPace { interval, last_dump: None, began: None, requested: None, users: BTreeMap::new() }
    }

    /// Accepts or refuses a request. Refuses a user who requests too often, and a request that changes
    /// nothing.
    fn accept_request(&mut self, urgency: RoundUrgency, user: Option<u32>, now: Instant) -> bool {
        if let Some(user) = user {
            if self.users.len() >= MAX_USERS {
                self.users.clear();
            }
            let full = RequestBudget { requests: REQUESTS_A_USER, updated_at: now };
            let budget = self.users.entry(user).or_insert(full);
            let passed = now.saturating_duration_since(budget.updated_at);
            let earned = passed.as_secs_f64() / self.interval.as_secs_f64();
            let requests = (budget.requests + earned).min(REQUESTS_A_USER);
            *budget = RequestBudget { requests, updated_at: now };
            if budget.requests < 1.0 {
                return false;
            }
            // A request that changes nothing costs nothing.
            if self.requested >= Some(urgency) {
                return false;
            }
            budget.requests -= 1.0;
        }
        self.requested = self.requested.max(Some(urgency));
        true
    }

    /// When the next round may begin.
    fn next_start(&self, now: Instant) -> Instant {
        let Some(began) = self.began else { return now };
        let dump = self.last_dump.unwrap_or(Dump { began, took: Duration::ZERO });
        let dump_end = dump.began + dump.took;
        let pause = (dump.took * PAUSE_PER_DUMP).clamp(MIN_PAUSE, self.interval.max(MIN_PAUSE));
        let after_pause = dump_end + pause;
        let earliest = (dump_end + MIN_PAUSE).max(dump.began + MIN_DISTANCE.min(self.interval));
        match self.requested {
            Some(RoundUrgency::Urgent) => earliest,
            Some(RoundUrgency::Ordinary) => earliest.max(after_pause),
            None => earliest.max(after_pause).max(began + self.interval),
        }
    }

    fn begin_round(&mut self, now: Instant) {
        self.began = Some(now);
        self.requested = None;
    }
}

/// Wakes the round loop.
#[derive(Debug)]
pub struct RoundTrigger {
    pace: Mutex<RoundPace>,
    requested: Notify,
}

impl RoundTrigger {
    /// A trigger for rounds at this interval without requests.
    pub fn new(interval: Duration) -> RoundTrigger {
        RoundTrigger { pace: Mutex::new(RoundPace::new(interval)), requested: Notify::new() }
    }

    /// Each change replaces values, so a thread that panicked leaves them consistent.
    fn lock_pace(&self) -> MutexGuard<'_, RoundPace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests a round. `user`: whose agent requests it; `None` for the daemon itself and administrators.
    pub fn request_round(&self, urgency: RoundUrgency, user: Option<u32>) {
        if self.lock_pace().accept_request(urgency, user, Instant::now()) {
            self.requested.notify_one();
        }
    }

    /// Records when the last dump began and how long it took.
    pub fn record_reading(&self, began: Instant, took: Duration) {
        self.lock_pace().last_dump = Some(Dump { began, took });
    }

    /// Waits until the next round may begin.
    pub async fn wait_for_round(&self) {
        loop {
            let now = Instant::now();
            let start = self.lock_pace().next_start(now);
            if start <= now {
                return self.lock_pace().begin_round(now);
            }
            // After a request or the timeout, the start is computed again.
            let _ = tokio::time::timeout_at(start.into(), self.requested.notified()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    type Requests = Vec<(RoundUrgency, Option<u32>)>;

    /// Simulates rounds for `secs` seconds. `requests` gives the requests at each step of 50 ms. Returns when
    /// each dump began, in milliseconds.
    fn dumps(interval_ms: u32, dump_ms: u32, secs: u32, requests: impl Fn(u32) -> Requests) -> Vec<u32> {
        let start = Instant::now();
        let mut pace = RoundPace::new(MS * interval_ms);
        let mut began = Vec::new();
        let mut busy_until = 0;
        for ms in (0..secs * 1000).step_by(50) {
            let now = start + MS * ms;
            for (urgency, user) in requests(ms) {
                pace.accept_request(urgency, user, now);
            }
            if ms >= busy_until && pace.next_start(now) <= now {
                pace.begin_round(now);
                pace.last_dump = Some(Dump { began: now, took: MS * dump_ms });
                busy_until = ms + dump_ms;
                began.push(ms);
            }
        }
        began
    }

    fn shortest(began: &[u32]) -> u32 {
        began.windows(2).map(|pair| pair[1] - pair[0]).min().unwrap_or(u32::MAX)
    }

    /// A request of each of fifty users.
    fn fifty_users(urgency: RoundUrgency) -> Requests {
        (0..50).map(|user| (urgency, Some(user))).collect()
    }

    #[test]
    fn users_who_leave_in_a_loop_get_at_most_one_dump_a_second() {
        let began = dumps(5000, 20, 60, |_| fifty_users(RoundUrgency::Urgent));
        assert!(began.len() <= 61 && shortest(&began) >= 1000, "{began:?}");
        // A single user's budget is soon used up.
        let began = dumps(5000, 20, 60, |_| vec![(RoundUrgency::Urgent, Some(7))]);
        assert!(began.len() <= 12 + 12 + 4, "{} rounds: {began:?}", began.len());
    }

    #[test]
    fn ordinary_requests_wait_for_ten_times_a_dump() {
        for (dump_ms, distance) in [(20, 1000), (200, 2200), (1000, 6000)] {
            let began = dumps(5000, dump_ms, 60, |_| fifty_users(RoundUrgency::Ordinary));
            assert_eq!(shortest(&began), distance, "a dump of {dump_ms} ms, a pause of at most the interval");
        }
        let urgent = dumps(5000, 1000, 60, |_| fifty_users(RoundUrgency::Urgent));
        assert_eq!(shortest(&urgent), 1300);
    }

    #[test]
    fn after_a_quiet_time_a_request_starts_a_round_at_once() {
        for urgency in [RoundUrgency::Ordinary, RoundUrgency::Urgent] {
            let began = dumps(5000, 100, 9, |ms| if ms == 3000 { vec![(urgency, Some(1))] } else { vec![] });
            assert_eq!(began, [0, 3000, 8000], "{urgency:?}");
        }
        assert_eq!(dumps(5000, 100, 11, |_| vec![]), [0, 5000, 10_000]);
    }

    #[test]
    fn one_user_does_not_use_up_the_budget_of_another() {
        let began = dumps(60_000, 20, 5, |ms| match ms {
            3900 => vec![(RoundUrgency::Urgent, Some(2))],
            0..3000 => vec![(RoundUrgency::Urgent, Some(1))],
            _ => vec![],
        });
        assert!(began.contains(&3900));
    }

    #[test]
    fn an_interval_below_a_second_is_the_administrators_choice() {
        let began = dumps(500, 20, 10, |_| vec![(RoundUrgency::Ordinary, Some(1))]);
        assert_eq!(shortest(&began), 500);
    }

    #[tokio::test]
    async fn a_request_wakes_the_round_loop() {
        let trigger = RoundTrigger::new(Duration::from_secs(60));
        trigger.wait_for_round().await;
        trigger.record_reading(Instant::now() - Duration::from_secs(2), Duration::from_millis(1));
        let waiting = trigger.wait_for_round();
        let requesting = async { trigger.request_round(RoundUrgency::Urgent, None) };
        let both = async { tokio::join!(waiting, requesting) };
        tokio::time::timeout(Duration::from_secs(5), both).await.unwrap();
    }
}
