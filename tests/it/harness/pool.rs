//! Who may have a cluster next, and the clusters that wait for another test.
//!
//! All tests ask at once, in threads of their own. The longest ones go first, so that the suite does not end
//! with one test that runs alone.

use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Instant;

use super::cluster::{self, Cluster};
use super::slurm::Slurm;

/// Tests that take the longest, longest first. `target/times.tsv` says how long each test took.
const LONGEST: &[&str] = &[];

/// Clusters that wait for a test. Each one's daemons need memory and a little time.
const MOST_IDLE: usize = 6;

struct Pool {
    /// The one that waited longest comes first.
    idle: Vec<Cluster>,
    lent: usize,
    next_number: usize,
    waiting: Vec<Rank>,
}

/// A test's place in the order: its place among the longest, then the order in which tests came.
type Rank = (usize, usize);

/// What a test gets that may have a cluster.
pub struct Turn {
    /// A number that no other cluster of this process has.
    pub number: usize,
    /// How long it waited, seconds.
    pub waited_secs: f64,
}

static POOL: Mutex<Pool> =
    Mutex::new(Pool { idle: Vec::new(), lent: 0, next_number: 0, waiting: Vec::new() });
static CHANGED: Condvar = Condvar::new();

fn pool() -> MutexGuard<'static, Pool> {
    POOL.lock().unwrap_or_else(|e| e.into_inner())
}

/// The name that the test harness gave this thread.
pub fn test_name() -> String {
    std::thread::current().name().unwrap_or("unknown").to_owned()
}

/// Waits until this test may have a cluster.
pub fn enter() -> Turn {
    let asked_at = Instant::now();
    let name = test_name();
    let place = LONGEST.iter().position(|longest| *longest == name).unwrap_or(LONGEST.len());
    let mut pool = pool();
    pool.next_number += 1;
    let number = pool.next_number;
    let rank = (place, number);
    pool.waiting.push(rank);
    while pool.lent >= cluster::capacity() || pool.waiting.iter().any(|other| *other < rank) {
        pool = CHANGED.wait(pool).unwrap_or_else(|e| e.into_inner());
    }
    pool.waiting.retain(|other| *other != rank);
    pool.lent += 1;
    CHANGED.notify_all();
    Turn { number, waited_secs: asked_at.elapsed().as_secs_f64() }
}

/// A cluster that waits and was made in this way.
pub fn idle(slurm: &Slurm) -> Option<Cluster> {
    let mut pool = pool();
    let place = pool.idle.iter().rposition(|cluster| cluster.slurm == *slurm)?;
    Some(pool.idle.remove(place))
}

/// Lets the next test have a cluster, and keeps this one for a test that needs the same. Returns clusters that
/// are too many, to be ended.
pub fn leave(kept: Option<Cluster>) -> Vec<Cluster> {
    let mut pool = pool();
    pool.idle.extend(kept);
    pool.lent -= 1;
    CHANGED.notify_all();
    let surplus = pool.idle.len().saturating_sub(MOST_IDLE);
    pool.idle.drain(..surplus).collect()
}
