//! When the next round begins. Each begins with a full dump of slurmctld, and users can ask for rounds by
//! what their agents say: so rounds keep a distance that follows what a dump costs.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// Rounds never follow each other sooner, counted from the end of a dump.
const SHORTEST_PAUSE: Duration = Duration::from_millis(300);

/// Dumps never begin more often than this, unless the configured interval is shorter.
const SHORTEST_DISTANCE: Duration = Duration::from_secs(1);

/// How much longer than a dump the pause after it is: slurmctld spends a tenth of its time on us at most.
const PAUSE_PER_COST: u32 = 10;

/// Rounds that one user's agents may ask for at once; one more with each interval that goes by.
const CALLS_OF_A_USER: f64 = 3.0;

/// Most users of whom it is remembered how often they called.
const MOST_USERS: usize = 10_000;

/// Why a round is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RoundUrgency {
    /// Something is to be planned: an agent came, a job runs at another speed.
    Ordinary,
    /// Nodes are left, or an administrator gave an order.
    Urgent,
}

/// What one user's agents may still ask for.
#[derive(Clone, Copy, Debug)]
struct RequestBudget {
    calls: f64,
    at: Instant,
}

/// When rounds begin: pure, but for its moments.
#[derive(Debug)]
struct RoundPace {
    interval: Duration,
    /// When the last dump began, and how long it took.
    last: Option<(Instant, Duration)>,
    /// When the last round began.
    began: Option<Instant>,
    called: Option<RoundUrgency>,
    users: BTreeMap<u32, RequestBudget>,
}

impl RoundPace {
    fn new(interval: Duration) -> RoundPace {
        RoundPace { interval, last: None, began: None, called: None, users: BTreeMap::new() }
    }

    /// Takes in a call. Says no to a user who calls too often: the next round comes by itself.
    fn accept_request(&mut self, call: RoundUrgency, user: Option<u32>, now: Instant) -> bool {
        if let Some(user) = user {
            if self.users.len() >= MOST_USERS {
                self.users.clear();
            }
            let fresh = RequestBudget { calls: CALLS_OF_A_USER, at: now };
            let budget = self.users.entry(user).or_insert(fresh);
            let earned = now.saturating_duration_since(budget.at).as_secs_f64() / self.interval.as_secs_f64();
            *budget = RequestBudget { calls: (budget.calls + earned).min(CALLS_OF_A_USER), at: now };
            if budget.calls < 1.0 {
                return false;
            }
            // A call that changes nothing costs nothing.
            if self.called >= Some(call) {
                return false;
            }
            budget.calls -= 1.0;
        }
        self.called = self.called.max(Some(call));
        true
    }

    /// When the next round may begin.
    fn next_start(&self, now: Instant) -> Instant {
        let Some(began) = self.began else { return now };
        let (dumped, cost) = self.last.unwrap_or((began, Duration::ZERO));
        let pause = (cost * PAUSE_PER_COST).clamp(SHORTEST_PAUSE, self.interval.max(SHORTEST_PAUSE));
        let costly = dumped + cost + pause;
        let floor = (dumped + cost + SHORTEST_PAUSE).max(dumped + SHORTEST_DISTANCE.min(self.interval));
        match self.called {
            Some(RoundUrgency::Urgent) => floor,
            Some(RoundUrgency::Ordinary) => floor.max(costly),
            None => floor.max(costly).max(began + self.interval),
        }
    }

    fn begin_round(&mut self, now: Instant) {
        self.began = Some(now);
        self.called = None;
    }
}

/// The round loop's bell.
#[derive(Debug)]
pub struct RoundTrigger {
    pace: Mutex<RoundPace>,
    bell: Notify,
}

impl RoundTrigger {
    /// For rounds at this interval when nobody calls.
    pub fn new(interval: Duration) -> RoundTrigger {
        RoundTrigger { pace: Mutex::new(RoundPace::new(interval)), bell: Notify::new() }
    }

    /// Each change replaces values: a thread that panicked leaves them whole.
    fn lock_pace(&self) -> MutexGuard<'_, RoundPace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for a round, in the name of a user if it is one who asks.
    pub fn request_round(&self, call: RoundUrgency, user: Option<u32>) {
        if self.lock_pace().accept_request(call, user, Instant::now()) {
            self.bell.notify_one();
        }
    }

    /// Notes what a dump cost.
    pub fn record_dump(&self, began: Instant, cost: Duration) {
        self.lock_pace().last = Some((began, cost));
    }

    /// Waits until the next round may begin.
    pub async fn wait_for_round(&self) {
        loop {
            let now = Instant::now();
            let at = self.lock_pace().next_start(now);
            if at <= now {
                return self.lock_pace().begin_round(now);
            }
            // Woken or not, it looks again.
            let _ = tokio::time::timeout_at(at.into(), self.bell.notified()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Plays rounds for `secs` seconds: `calls` says who calls at each step of 50 ms. When each dump began,
    /// in milliseconds.
    fn dumps(
        interval_ms: u32,
        cost_ms: u32,
        secs: u32,
        calls: impl Fn(u32) -> Vec<(RoundUrgency, Option<u32>)>,
    ) -> Vec<u32> {
        let start = Instant::now();
        let mut pace = RoundPace::new(MS * interval_ms);
        let mut began = Vec::new();
        let mut busy_until = 0;
        for ms in (0..secs * 1000).step_by(50) {
            let now = start + MS * ms;
            for (call, user) in calls(ms) {
                pace.accept_request(call, user, now);
            }
            if ms >= busy_until && pace.next_start(now) <= now {
                pace.begin_round(now);
                pace.last = Some((now, MS * cost_ms));
                busy_until = ms + cost_ms;
                began.push(ms);
            }
        }
        began
    }

    fn shortest(began: &[u32]) -> u32 {
        began.windows(2).map(|w| w[1] - w[0]).min().unwrap_or(u32::MAX)
    }

    #[test]
    fn users_who_leave_in_a_loop_get_one_dump_a_second_at_most() {
        let began =
            dumps(5000, 20, 60, |_| (0..50).map(|u| (RoundUrgency::Urgent, Some(u))).collect::<Vec<_>>());
        assert!(began.len() <= 61 && shortest(&began) >= 1000, "{began:?}");
        // One of them alone has soon used up what is theirs.
        let began = dumps(5000, 20, 60, |_| vec![(RoundUrgency::Urgent, Some(7))]);
        assert!(began.len() <= 12 + 12 + 4, "{} rounds: {began:?}", began.len());
    }

    #[test]
    fn what_is_not_urgent_waits_for_ten_times_what_a_dump_costs() {
        let crowd = |_| (0..50).map(|u| (RoundUrgency::Ordinary, Some(u))).collect::<Vec<_>>();
        assert_eq!(shortest(&dumps(5000, 20, 60, crowd)), 1000);
        assert_eq!(shortest(&dumps(5000, 200, 60, crowd)), 2200);
        assert_eq!(
            shortest(&dumps(5000, 1000, 60, crowd)),
            6000,
            "no longer than an interval after the dump"
        );
        let leavers = |_| (0..50).map(|u| (RoundUrgency::Urgent, Some(u))).collect::<Vec<_>>();
        assert_eq!(shortest(&dumps(5000, 1000, 60, leavers)), 1300);
    }

    #[test]
    fn after_a_quiet_time_a_call_is_heard_at_once() {
        for call in [RoundUrgency::Ordinary, RoundUrgency::Urgent] {
            let began = dumps(5000, 100, 9, |ms| if ms == 3000 { vec![(call, Some(1))] } else { vec![] });
            assert_eq!(began, [0, 3000, 8000], "{call:?}");
        }
        assert_eq!(dumps(5000, 100, 11, |_| vec![]), [0, 5000, 10_000]);
    }

    #[test]
    fn one_user_does_not_use_up_what_is_anothers() {
        let calls = |ms| match ms {
            3900 => vec![(RoundUrgency::Urgent, Some(2))],
            0..3000 => vec![(RoundUrgency::Urgent, Some(1))],
            _ => vec![],
        };
        assert!(dumps(60_000, 20, 5, calls).contains(&3900));
    }

    #[test]
    fn an_interval_below_a_second_is_the_administrators_choice() {
        let began = dumps(500, 20, 10, |_| vec![(RoundUrgency::Ordinary, Some(1))]);
        assert_eq!(shortest(&began), 500);
    }

    #[tokio::test]
    async fn the_bell_wakes_who_waits() {
        let waking = RoundTrigger::new(Duration::from_secs(60));
        waking.wait_for_round().await;
        waking.record_dump(Instant::now() - Duration::from_secs(2), Duration::from_millis(1));
        let waiting = waking.wait_for_round();
        let calling = async { waking.request_round(RoundUrgency::Urgent, None) };
        let both = async { tokio::join!(waiting, calling) };
        tokio::time::timeout(Duration::from_secs(5), both).await.unwrap();
    }
}
