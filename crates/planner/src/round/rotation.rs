//! Whose turn it is to hold nodes while more jobs want nodes than there are nodes for.
//!
//! An exchange of one job for another costs node time: the job that leaves saves, and the job that comes
//! starts and warms up. So a job that got nodes keeps its smallest size for a turn, unless the main queue
//! takes the nodes. A job pays for its start and its parking once a turn. With
//!
//! ```text
//! length = (start_secs + down_secs) / MAX_LOSS
//! ```
//!
//! exchanges cost at most that share of the node time, 1 %. While jobs wait that never had nodes, a turn is
//! [`node_claim::FIRST_SHARE`] of that: each job causes this once.
//!
//! When a turn has ended, the nodes go to the job that has had least. Users come by their shares: each may
//! have turns for the nodes that its share entitles it to, or for one job if that is more. Among the jobs of
//! one user, those that never had nodes come first, then those with the fewest node-seconds. A job that
//! arrives counts as having had as much as the job with the fewest, like the virtual time of a fair
//! scheduler.
//!
//! If the objective is completion, jobs with well-known remaining work come by that instead: shortest
//! remaining time first, and least attained service first for the others. A job that has waited for
//! [`PATIENCE_SECS`] comes before all jobs that are not new. A job whose turn has ended goes on while no
//! other job wants its nodes.
//!
//! A job that was promised a rate comes before all turns. Turns are given out on the nodes that promises
//! leave.

mod node_claim;
mod user_queue;

use std::collections::{BTreeMap, BTreeSet};

use infill_model::{JobFacts, JobId, QueuePosition, TurnState, UnixTime};
pub(super) use node_claim::NodeClaim;
use user_queue::{UserQueue, divide_by_share};

/// A job that has got nodes this many times without training counts as having had its first turn.
const MAX_FIRST: u32 = 2;

/// Number of waiting jobs for each node that are candidates of a round: they may use what no other job can.
const WAITING_A_NODE: u32 = 4;

/// Bounds of the number of waiting jobs that are candidates.
const WAITING_LIMITS: (u32, u32) = (32, 256);

/// Seconds from the moment at which a job's turn comes until it has nodes.
const BEGINS_SECS: i64 = 5;

/// Margin of an exchange, as a share of a turn's node-seconds. A waiting job must have had that much less
/// than a job whose turn has ended, or have that much less remaining work, to replace it.
const EXCHANGE_MARGIN: f64 = 0.5;

/// A job that has waited longer than this comes before jobs that will end sooner, seconds.
const PATIENCE_SECS: f64 = 21_600.0;

/// The most turns that a job counts as behind the job of its user that has had most. If [`MAX_PARTS`] on
/// either side of the mean are more, these.
const MAX_BEHIND: f64 = 8.0;

/// Longest time between two snapshots that counts, seconds. A longer one was not observed.
const MAX_SECS: f64 = 7_200.0;

/// A job is one part behind the mean of its user's jobs for an equal share of all nodes over this many
/// seconds. It then counts [`WEIGHT_STEP`] times as much. A job that has had more counts less.
const PART_SECS: f64 = 3_600.0;

/// Factor on the weight for each part behind the mean, see [`PART_SECS`].
const WEIGHT_STEP: f64 = 1.03;

/// The largest number of such parts that count.
const MAX_PARTS: f64 = 4.0;

/// Steps in which a part counts, so that weights do not change in every round.
const PART_STEPS: f64 = 2.0;

/// What is remembered of a job from snapshot to snapshot.
#[derive(Clone, Debug, Default)]
struct TurnAccount {
    /// Node-seconds that it counts as having had.
    had_secs: f64,
    /// When it got the nodes that it holds; `None` while it holds none.
    since: Option<UnixTime>,
    /// Whether it holds nodes that no job before it in line could use. It has no turn then, and gives the
    /// nodes up once such a job can use them.
    fills: bool,
    /// Number of times that it has begun to hold nodes.
    turns: u32,
    /// Whether it has ever trained.
    has_trained: bool,
}

/// The shares and the usage of users.
pub(super) struct UserShares<'a> {
    /// Configured share of a user.
    pub share: &'a dyn Fn(&str) -> f64,
    /// Node-seconds that a user has used lately.
    pub used_secs: &'a dyn Fn(&str) -> f64,
}

/// Node-seconds of jobs, and whose turn it is.
#[derive(Clone, Debug, Default)]
pub(super) struct TurnRotation {
    accounts: BTreeMap<JobId, TurnAccount>,
    turns: BTreeMap<JobId, TurnState>,
    /// Whether jobs with their turn need nodes that other jobs want or hold.
    is_under_pressure: bool,
    factors: BTreeMap<JobId, f64>,
    /// Number of waiting jobs that are candidates of a round.
    max_waiting: u32,
    at: UnixTime,
}

impl TurnRotation {
    /// Adds what jobs have held since the last snapshot.
    pub fn ingest_jobs(&mut self, jobs: &[JobFacts], now: UnixTime) {
        let before = self.at;
        let passed = now.secs_since(self.at);
        self.at = now;
        let secs = if (0.0..=MAX_SECS).contains(&passed) { passed } else { 0.0 };
        let here: BTreeSet<JobId> = jobs.iter().map(|job| job.job).collect();
        self.accounts.retain(|job, _| here.contains(job));
        let least = self.least_by_user(jobs);
        for job in jobs {
            let user = job.program.user.as_str();
            let account = self.accounts.entry(job.job).or_insert_with(|| TurnAccount {
                had_secs: least.get(user).copied().unwrap_or(0.0),
                ..TurnAccount::default()
            });
            let nodes = job.location.held.len().saturating_sub(job.location.own.len()) as f64;
            account.had_secs += nodes * f64::from(job.location.places_per_node.max(1)) * secs;
            account.has_trained |= job.running.is_some();
            if job.location.held.is_empty() {
                account.since = None;
            } else if account.since.is_none() {
                let since = job.since.max(before).min(now);
                account.since = Some(since);
                account.turns = account.turns.saturating_add(1);
                account.fills = self.turns.get(&job.job).is_some_and(|turn| turn.queue_position().is_some());
            }
        }
    }

    /// For each user the fewest node-seconds that one of its jobs has had.
    fn least_by_user<'j>(&self, jobs: &'j [JobFacts]) -> BTreeMap<&'j str, f64> {
        let mut least = BTreeMap::new();
        for job in jobs {
            if let Some(account) = self.accounts.get(&job.job) {
                let fewest = least.entry(job.program.user.as_str()).or_insert(account.had_secs);
                *fewest = fewest.min(account.had_secs);
            }
        }
        least
    }

    /// Settles whose turn it is. `places` is the number of nodes or places.
    pub fn settle_turns(
        &mut self,
        claims: &[NodeClaim<'_>],
        places: u32,
        user_shares: &UserShares<'_>,
        now: UnixTime,
    ) {
        let part_secs = f64::from(places.max(1)) / (claims.len().max(1) as f64) * PART_SECS;
        self.catch_up(claims, part_secs);
        self.factors = self.weight_factors(claims, part_secs);
        let allocation = TurnAllocation::new(self, claims, places, user_shares, now);
        self.turns = allocation.hand_out_turns();
        let (min_waiting, max_waiting) = WAITING_LIMITS;
        self.max_waiting = places.saturating_mul(WAITING_A_NODE).clamp(min_waiting, max_waiting);
        for (job, turn) in &self.turns {
            let TurnState::Keeps { .. } = turn else { continue };
            if let Some(account) = self.accounts.get_mut(job).filter(|account| account.fills) {
                // The nodes that it fills are its own by now, so its turn begins.
                account.fills = false;
                account.since = Some(now);
            }
        }
        let held =
            claims.iter().map(|claim| claim.facts.location.held.len() as u32 * claim.block_size()).sum();
        let needed: u32 = claims
            .iter()
            .filter(|claim| self.turn_of(claim.facts.job) == Some(TurnState::Next))
            .map(NodeClaim::min_places)
            .fold(0, u32::saturating_add);
        let others_wait = self.turns.values().any(|turn| turn.queue_position().is_some());
        self.is_under_pressure = needed > 0 && (others_wait || needed > places.saturating_sub(held));
    }

    /// Limits how far a job falls behind: a job that could not run for long does not keep all others off.
    fn catch_up(&mut self, claims: &[NodeClaim<'_>], part_secs: f64) {
        let mut most: BTreeMap<&str, f64> = BTreeMap::new();
        for claim in claims {
            let had_secs = self.had_secs(claim.facts.job);
            let highest = most.entry(claim.user()).or_insert(had_secs);
            *highest = highest.max(had_secs);
        }
        for claim in claims {
            let turns_secs = MAX_BEHIND * claim.length_secs() * f64::from(claim.min_places());
            let behind = turns_secs.max(2.0 * MAX_PARTS * part_secs);
            let floor = most.get(claim.user()).map_or(0.0, |most| most - behind);
            if let Some(account) = self.accounts.get_mut(&claim.facts.job) {
                account.had_secs = account.had_secs.max(floor);
            }
        }
    }

    /// The weight factor of each job for what it has had, compared with the mean of its user's jobs.
    fn weight_factors(&self, claims: &[NodeClaim<'_>], part_secs: f64) -> BTreeMap<JobId, f64> {
        let mut of_user: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
        for claim in claims {
            let (sum, count) = of_user.entry(claim.user()).or_default();
            *sum += self.had_secs(claim.facts.job);
            *count += 1.0;
        }
        let mut factors = BTreeMap::new();
        for claim in claims {
            let (sum, count) = of_user.get(claim.user()).copied().unwrap_or((0.0, 1.0));
            let parts = (sum / count - self.had_secs(claim.facts.job)) / part_secs;
            let steps = (parts * PART_STEPS).round() / PART_STEPS;
            factors.insert(claim.facts.job, WEIGHT_STEP.powf(steps.clamp(-MAX_PARTS, MAX_PARTS)));
        }
        factors
    }

    fn had_secs(&self, job: JobId) -> f64 {
        self.accounts.get(&job).map_or(0.0, |account| account.had_secs)
    }

    /// The turn of a job, as the last snapshot settled it; `None` if it does not want nodes.
    pub fn turn_of(&self, job: JobId) -> Option<TurnState> {
        self.turns.get(&job).copied()
    }

    /// Whether jobs with their turn need nodes that other jobs want or hold. Without pressure, they get free
    /// nodes by value.
    pub fn has_pressure(&self) -> bool {
        self.is_under_pressure
    }

    /// A job's place in the line if too many jobs come before it, so that it is not part of a round.
    pub fn position_behind(&self, job: JobId) -> Option<QueuePosition> {
        self.turn_of(job)
            .and_then(TurnState::queue_position)
            .filter(|place| place.position > self.max_waiting)
    }

    /// The weight factor of a job, above 1 if it has had less than its user's other jobs, below 1 if more.
    pub fn weight_factor(&self, job: JobId) -> f64 {
        self.factors.get(&job).copied().unwrap_or(1.0)
    }

    /// When turns must be settled again: when the next turn ends for which a job waits, or when jobs whose
    /// turn has come have begun. `None` if neither will happen.
    pub fn next_end(&self, now: UnixTime) -> Option<UnixTime> {
        let waits = self.turns.values().any(|turn| turn.queue_position().is_some());
        let ends = self.turns.values().filter_map(|turn| match turn {
            TurnState::Keeps { until } => Some(*until).filter(|until| *until > now && waits),
            TurnState::Next => Some(now + BEGINS_SECS),
            TurnState::Over | TurnState::Waits(_) => None,
        });
        ends.min()
    }
}

/// One settling of turns: which jobs keep nodes, which come next, and how long the others wait.
struct TurnAllocation<'a> {
    claims: &'a [NodeClaim<'a>],
    /// Nodes or places that no job's turn keeps.
    left: u32,
    /// The jobs of each user.
    users: BTreeMap<&'a str, UserQueue>,
    /// Whether some job waits for its first turn.
    first_waits: bool,
    now: UnixTime,
    turns: BTreeMap<JobId, TurnState>,
}

impl<'a> TurnAllocation<'a> {
    fn new(
        rotation: &'a TurnRotation,
        claims: &'a [NodeClaim<'a>],
        places: u32,
        user_shares: &UserShares<'_>,
        now: UnixTime,
    ) -> Self {
        let first_waits = claims.iter().any(|claim| rotation.is_new(claim));
        let users = BTreeMap::new();
        let mut allocation =
            TurnAllocation { claims, left: places, users, first_waits, now, turns: BTreeMap::new() };
        for (at, claim) in
            claims.iter().enumerate().filter(|(_, claim)| claim.is_waiting() || claim.holds_nodes())
        {
            let user = claim.user();
            let user_queue = allocation.users.entry(user).or_insert_with(|| UserQueue {
                share: (user_shares.share)(user).max(f64::MIN_POSITIVE),
                used_secs: (user_shares.used_secs)(user),
                ..UserQueue::default()
            });
            user_queue.wants += f64::from(claim.max_places());
            match rotation.settled_turn(claim, first_waits, now) {
                Some(turn) => {
                    user_queue.has = user_queue.has.saturating_add(claim.reserved_places());
                    allocation.left = allocation.left.saturating_sub(claim.reserved_places());
                    allocation.turns.insert(claim.facts.job, turn);
                }
                None => user_queue.queue.push(at),
            }
        }
        divide_by_share(allocation.users.values_mut().collect(), f64::from(places));
        for user_queue in allocation.users.values_mut() {
            // The key is computed once for each claim.
            user_queue.queue.sort_by_cached_key(|at| std::cmp::Reverse(rotation.rank(&claims[*at])));
        }
        allocation
    }

    /// Hands out turns, then places in the queue.
    fn hand_out_turns(mut self) -> BTreeMap<JobId, TurnState> {
        let mut waiting = Vec::new();
        while let Some(at) = self.take_next() {
            let claim = &self.claims[at];
            let job = claim.facts.job;
            if claim.min_places() > self.left {
                if claim.holds_nodes() {
                    self.turns.insert(job, TurnState::Over);
                } else {
                    // A job that needs many nodes waits until enough turns have ended, and others wait behind
                    // it.
                    self.left = 0;
                    waiting.push(at);
                }
                continue;
            }
            self.left -= claim.min_places();
            let turn =
                if claim.holds_nodes() { TurnState::Keeps { until: self.now } } else { TurnState::Next };
            self.turns.insert(job, turn);
        }
        self.line_up(&waiting);
        self.turns
    }

    /// The next job, of the user who has least for their share.
    fn take_next(&mut self) -> Option<usize> {
        let queues = self.users.values_mut().filter(|user_queue| !user_queue.queue.is_empty());
        let user_queue = queues.min_by(|a, b| a.compare_need(b))?;
        if user_queue.is_full() {
            // No user is entitled to more, so what is left goes by value.
            self.left = 0;
        }
        let at = user_queue.queue.pop()?;
        user_queue.has = user_queue.has.saturating_add(self.claims[at].min_places());
        Some(at)
    }

    /// Gives waiting jobs their places in line, in their order: as the turns of their user's jobs end, one
    /// after the other gets nodes.
    fn line_up(&mut self, waiting: &[usize]) {
        let queue_length = waiting.len() as u32;
        let mut ends: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        // A promise has no end for which others could wait.
        for claim in self.claims.iter().filter(|claim| claim.promised_places.is_none()) {
            let secs = match self.turns.get(&claim.facts.job) {
                Some(TurnState::Keeps { until }) => until.secs_since(self.now).max(0.0),
                Some(TurnState::Next) => claim.turn_secs(self.first_waits),
                Some(TurnState::Over | TurnState::Waits(_)) | None => continue,
            };
            ends.entry(claim.user()).or_default().push(secs);
        }
        ends.values_mut().for_each(|of_user| of_user.sort_by(f64::total_cmp));
        let mut before: BTreeMap<&str, usize> = BTreeMap::new();
        for (place, at) in waiting.iter().enumerate() {
            let claim = &self.claims[*at];
            let ahead = before.entry(claim.user()).or_default();
            let slots = ends.get(claim.user()).map_or(&[][..], Vec::as_slice);
            // A user without nodes waits for others' nodes as for a turn.
            let first = slots.get(*ahead % slots.len().max(1)).copied();
            let rounds = (*ahead / slots.len().max(1)) as f64;
            let turn_secs = claim.turn_secs(self.first_waits);
            let secs = first.unwrap_or(turn_secs) + rounds * turn_secs;
            *ahead += 1;
            let turn = TurnState::Waits(QueuePosition { position: place as u32 + 1, queue_length, secs });
            self.turns.insert(claim.facts.job, turn);
        }
    }
}

impl TurnRotation {
    /// Whether a job waits for its first turn. A job that never trains finally waits like any other.
    fn is_new(&self, claim: &NodeClaim<'_>) -> bool {
        claim.is_waiting()
            && self
                .accounts
                .get(&claim.facts.job)
                .is_none_or(|account| !account.has_trained && account.turns < MAX_FIRST)
    }

    /// The end of the turn of a job that holds nodes; `None` if it has no turn.
    fn turn_ends(&self, claim: &NodeClaim<'_>, first_waits: bool) -> Option<UnixTime> {
        let account =
            self.accounts.get(&claim.facts.job).filter(|account| claim.holds_nodes() && !account.fills)?;
        let since = account.since?;
        Some(since + claim.turn_secs(first_waits).ceil() as i64)
    }

    /// The turn of a job that does not queue: its turn goes on, or it was promised its nodes.
    fn settled_turn(&self, claim: &NodeClaim<'_>, first_waits: bool, now: UnixTime) -> Option<TurnState> {
        let ends = self.turn_ends(claim, first_waits).filter(|until| *until > now);
        let until = ends.or(claim.promised_places.map(|_| now))?;
        Some(if claim.holds_nodes() { TurnState::Keeps { until } } else { TurnState::Next })
    }

    /// Rank of a job among its user's jobs, the smallest comes first: by its remaining work where that counts
    /// and is known, else by the node-seconds that it has had.
    fn rank(&self, claim: &NodeClaim<'_>) -> (bool, i64, UnixTime, JobId) {
        let job = claim.facts.job;
        let is_new = self.is_new(claim);
        let advantage = if claim.holds_nodes() {
            EXCHANGE_MARGIN * claim.length_secs() * f64::from(claim.min_places())
        } else {
            0.0
        };
        let had_secs = if is_new { 0.0 } else { self.had_secs(job) };
        let secs = claim.left_secs.unwrap_or(had_secs) - advantage;
        let comes_first = is_new || self.has_waited_long(claim);
        (!comes_first, secs.round() as i64, claim.facts.submitted_at, job)
    }

    fn has_waited_long(&self, claim: &NodeClaim<'_>) -> bool {
        let since = claim.facts.waits_since.filter(|_| claim.is_waiting());
        since.is_some_and(|since| self.at.secs_since(since) > PATIENCE_SECS)
    }
}

#[cfg(test)]
mod tests;
