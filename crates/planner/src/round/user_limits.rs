//! The administrator's limits on the number of jobs that train, and on what each user's jobs have.
//!
//! Before anything is planned, jobs beyond a limit are blocked: those that hold nodes come first, then those
//! that wait longest. A user's nodes are divided among the user's jobs, by smaller sizes.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::demand;
use super::usable_gaps::UsableCount;
use crate::plan::SiteLimits;
use infill_model::{AllowedSizes, JobFacts, JobId, SchedulingState, StartBlocker, UnixTime, UserId};

/// What a round knows besides the jobs.
#[derive(Clone, Copy)]
pub(super) struct LimitContext<'a> {
    /// The limits.
    pub limits: &'a SiteLimits,
    /// The moment of the round.
    pub now: UnixTime,
}

/// The facts with the sizes and states that the limits allow. `usable` counts the nodes that a job could use.
/// `is_behind` says whether it waits behind others and is not planned in this round.
pub(super) fn within_limits<'f>(
    facts: &'f [JobFacts],
    context: LimitContext<'_>,
    mut usable: impl FnMut(&JobFacts) -> UsableCount,
    is_behind: impl Fn(JobId) -> bool,
) -> Cow<'f, [JobFacts]> {
    if !context.limits.has_job_limits() {
        return Cow::Borrowed(facts);
    }
    let mut order: Vec<usize> = (0..facts.len())
        .filter(|index| is_planned(&facts[*index], context.now) && !is_behind(facts[*index].job))
        .collect();
    order.sort_by_cached_key(|index| rank(&facts[*index], usable(&facts[*index])));
    let mut limited = facts.to_vec();
    let mut admission = Admission::new(context.limits);
    for index in order {
        if let Err(blocker) = admission.admit(index, &facts[index]) {
            limited[index].scheduling_state = SchedulingState::Blocked(blocker);
        }
    }
    for (index, sizes) in admission.into_sizes(facts) {
        limited[index].sizes = sizes;
    }
    Cow::Owned(limited)
}

/// Whether this round may give the job nodes, or leave it those that it has.
fn is_planned(facts: &JobFacts, now: UnixTime) -> bool {
    let is_busy = facts.scheduling_state == SchedulingState::Busy;
    !facts.ending && (is_busy || demand::may_start(&facts.scheduling_state, now))
}

/// Which jobs come first: those in the middle of a change, those that hold nodes, those that could start on
/// free nodes, those that have waited longest. Jobs for which there are too few nodes, even if no other job
/// had them, come last: they must not take another job's place.
fn rank(facts: &JobFacts, usable: UsableCount) -> (bool, bool, bool, bool, UnixTime, JobId) {
    let is_busy = facts.scheduling_state == SchedulingState::Busy;
    let holds = lent_places(facts) > 0;
    let least = min_lent(facts) * unit(facts);
    let fits = least <= u64::from(usable.free);
    let may_fit = least <= u64::from(usable.all);
    (!is_busy, !holds, !may_fit, !fits, facts.waits_since.unwrap_or(facts.submitted_at), facts.job)
}

/// Places that each of its nodes takes.
fn unit(facts: &JobFacts) -> u64 {
    u64::from(facts.location.places_per_node.max(1))
}

/// Own nodes of a main job. They are part of its sizes, and count for no limit.
fn own_nodes(facts: &JobFacts) -> u32 {
    u32::try_from(facts.location.own.len()).unwrap_or(u32::MAX)
}

/// Nodes or places that the job holds, without its own.
fn lent_places(facts: &JobFacts) -> u64 {
    let own = &facts.location.own;
    let lent = facts.location.held.iter().filter(|held| !own.contains(&held.node)).count();
    lent as u64 * unit(facts)
}

/// Nodes of its smallest size, without its own.
fn min_lent(facts: &JobFacts) -> u64 {
    u64::from(facts.sizes.min().saturating_sub(own_nodes(facts)))
}

/// A job of a user whose nodes are limited, and its largest size so far.
#[derive(Clone, Copy)]
struct SizedJob {
    index: usize,
    size: u32,
}

/// What one user's jobs have so far.
#[derive(Default)]
struct UserShare {
    jobs: u32,
    places: u64,
    /// Jobs that may be changed, in their order.
    sized: Vec<SizedJob>,
}

/// Jobs that may train, one after the other.
struct Admission<'a> {
    limits: &'a SiteLimits,
    jobs: u32,
    users: BTreeMap<UserId, UserShare>,
}

impl<'a> Admission<'a> {
    fn new(limits: &'a SiteLimits) -> Admission<'a> {
        Admission { limits, jobs: 0, users: BTreeMap::new() }
    }

    /// Lets a job train at its smallest size.
    ///
    /// # Errors
    /// The limit that forbids it.
    fn admit(&mut self, index: usize, facts: &JobFacts) -> Result<(), StartBlocker> {
        let limits = self.limits;
        let share = self.users.entry(facts.user).or_default();
        if facts.scheduling_state == SchedulingState::Busy {
            self.jobs += 1;
            share.jobs += 1;
            share.places += lent_places(facts);
            return Ok(());
        }
        if let Some(max) = limits.max_jobs.filter(|max| self.jobs >= *max) {
            return Err(StartBlocker::JobLimit { max });
        }
        if let Some(max) = limits.max_jobs_a_user.filter(|max| share.jobs >= *max) {
            return Err(StartBlocker::UserJobLimit { max });
        }
        let least = min_lent(facts) * unit(facts);
        if let Some(max) = limits.max_nodes_a_user.filter(|max| share.places + least > u64::from(*max)) {
            return Err(StartBlocker::UserNodeLimit { max, needs: least });
        }
        self.jobs += 1;
        share.jobs += 1;
        share.places += least;
        share.sized.push(SizedJob { index, size: facts.sizes.min().max(own_nodes(facts)) });
        Ok(())
    }

    /// The sizes of each job whose user is limited. What is left after the smallest sizes goes to the job
    /// that has least, again and again.
    fn into_sizes(self, facts: &[JobFacts]) -> Vec<(usize, AllowedSizes)> {
        let Some(max) = self.limits.max_nodes_a_user else { return Vec::new() };
        let mut sizes = Vec::new();
        for mut share in self.users.into_values() {
            let mut left = u64::from(max).saturating_sub(share.places);
            let mut smallest: BinaryHeap<Reverse<(u64, usize)>> =
                share.sized.iter().zip(0..).map(|(job, at)| Reverse((job.lent(facts), at))).collect();
            while let Some(Reverse((has, at))) = smallest.pop() {
                let job = &mut share.sized[at];
                let Some(next) = next_size(&facts[job.index].sizes, job.size) else { continue };
                let more = u64::from(next - job.size) * unit(&facts[job.index]);
                if more <= left {
                    left -= more;
                    job.size = next;
                    smallest.push(Reverse((has + more, at)));
                }
            }
            sizes.extend(
                share.sized.iter().map(|job| (job.index, facts[job.index].sizes.capped_at(job.size))),
            );
        }
        sizes
    }
}

impl SizedJob {
    fn lent(&self, facts: &[JobFacts]) -> u64 {
        let facts = &facts[self.index];
        u64::from(self.size.saturating_sub(own_nodes(facts))) * unit(facts)
    }
}

/// The next larger size.
fn next_size(sizes: &AllowedSizes, size: u32) -> Option<u32> {
    match sizes {
        AllowedSizes::Range { max, .. } => size.checked_add(1).filter(|next| next <= max),
        AllowedSizes::Set(all) => all.get(all.partition_point(|n| *n <= size)).copied(),
    }
}
