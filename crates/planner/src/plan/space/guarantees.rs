//! What promises make of the first step. A job that holds what makes its promise keeps at least that. One
//! that does not is brought there in this round, if free nodes and what others hold above their least are
//! enough: the first in line for which they are; nobody is parked for it. While another one waits for changes
//! under way, nobody grows beyond the least onto nodes of its types.
//!
//! All of it forbids options in the first step, and leaves a schedule to start from in which each job either
//! keeps what it holds or shrinks.

use super::cost;
use super::decision::{DecisionSpace, JobSpace, Schedule};
use super::job_option::{JobOption, OptionFamily};
use super::slots::job_excludes;
use infill_model::{Gap, JobId, MalleableJob, NodeType, UnixTime};
use rustc_hash::FxHashMap;

/// Forbids what breaks promises.
pub(crate) fn apply_guarantees(space: &mut DecisionSpace<'_>) {
    if space.steps.is_empty() || space.problem.drain {
        return;
    }
    let (kept, short): (Vec<usize>, Vec<usize>) =
        guarantee_queue(space).into_iter().partition(|job| holds_guarantee(space, *job));
    for job in &kept {
        forbid_below_guarantee(space, *job);
    }
    space.promises.kept = kept;
    let ground = (!short.is_empty()).then(|| DonorPool::from_space(space, &short));
    let brought = |ground: &DonorPool| {
        short.iter().find_map(|job| Some((*job, bring_to_guarantee(space, *job, ground)?)))
    };
    let found = ground.as_ref().and_then(brought);
    if let Some((job, first)) = &found {
        forbid_below_guarantee(space, *job);
        space.promises.kept.push(*job);
        space.promises.first.clone_from(first);
        park_nobody(space, *job);
    }
    let is_brought = |job: &usize| found.as_ref().is_some_and(|(brought, _)| brought == job);
    let waiting: Vec<usize> = short.into_iter().filter(|job| !is_brought(job)).collect();
    if !waiting.is_empty() {
        reserve_nodes(space, &waiting);
    }
}

/// Forbids to park those who can keep some of what they hold while a job is brought to its promise.
fn park_nobody(space: &mut DecisionSpace<'_>, brought: usize) {
    let base = space.base_schedule();
    for (at, job) in space.jobs.iter_mut().enumerate().filter(|(at, _)| *at != brought) {
        if base[at].first().is_some_and(|option| job.options[*option].nodes > 0) {
            job.options[0].now = false;
        }
    }
}

/// Jobs that are promised something and may run, in the order of submission.
fn guarantee_queue(space: &DecisionSpace<'_>) -> Vec<usize> {
    let may_run = |job: &MalleableJob| {
        let waits = job.held.is_empty() && job.turn.is_some_and(|turn| turn.queue_position().is_some());
        job.active_guarantee().is_some() && !space.problem.is_barred(job) && !waits
    };
    let mut found: Vec<usize> = (0..space.jobs.len()).filter(|at| may_run(space.jobs[*at].job)).collect();
    found.sort_by_key(|at: &usize| -> (UnixTime, JobId) {
        let job = space.jobs[*at].job;
        (job.submitted_at, job.id)
    });
    found
}

/// Whether an option makes what its job is promised.
fn meets_guarantee(space: &DecisionSpace<'_>, job: usize, spec: &JobOption) -> bool {
    let promise = space.jobs[job].job.active_guarantee();
    promise.is_some_and(|p| p.is_enough(&space.types[spec.node_type], &spec.exec_plan, spec.nodes))
}

/// Whether a job makes its promise as it is, or with what it can keep where it cannot stay so.
fn holds_guarantee(space: &DecisionSpace<'_>, job: usize) -> bool {
    let JobSpace { options, can_stay, .. } = &space.jobs[job];
    options
        .iter()
        .filter(|spec: &&JobOption| if *can_stay { spec.keeps && spec.now } else { spec.keeps_some() })
        .any(|spec| meets_guarantee(space, job, spec))
}

/// Forbids in the first step what makes less than the promise.
fn forbid_below_guarantee(space: &mut DecisionSpace<'_>, job: usize) {
    let less: Vec<bool> =
        space.jobs[job].options.iter().map(|spec| !meets_guarantee(space, job, spec)).collect();
    for (spec, less) in space.jobs[job].options.iter_mut().zip(less) {
        spec.now &= !less;
    }
}

/// The fewest nodes of a type that a job has while others are to have theirs: its smallest size that is known
/// to run, or that makes its promise.
fn min_nodes_of(job: &MalleableJob, node_type: &NodeType) -> u32 {
    let least = job
        .sizes
        .up_to(u32::MAX)
        .into_iter()
        .find(|nodes: &u32| cost::best_rate(job, node_type, *nodes).is_some())
        .unwrap_or(job.sizes.min());
    let promised = job.active_guarantee().and_then(|promise| promise.min_nodes_on(node_type));
    least.max(promised.unwrap_or(0))
}

/// A job that holds more than its least.
struct NodeDonor {
    job: usize,
    /// The option with which it has no more.
    least: usize,
    /// Whether that is a change of its own choice.
    voluntary: bool,
    /// The nodes that it then gives up.
    given: Vec<Vec<usize>>,
}

/// What is there to bring a job to its promise, before anybody gives anything.
struct DonorPool {
    /// What is kept.
    base: Schedule,
    /// Who can give nodes: all but those who are short themselves.
    donors: Vec<NodeDonor>,
    /// Places of each type on which jobs may start and that nobody keeps.
    free: Vec<u32>,
}

impl DonorPool {
    fn from_space(space: &DecisionSpace<'_>, short: &[usize]) -> Self {
        let base = space.base_schedule();
        let donors = (0..space.jobs.len()).filter(|job| !short.contains(job));
        let donors = donors.filter_map(|job| find_donor(space, job, &base)).collect();
        let is_kept = kept_slots(space, &base);
        let mut free = vec![0; space.types.len()];
        let slots = space.slots.iter().zip(is_kept).filter(|(slot, is_kept)| slot.startable && !is_kept);
        slots.for_each(|(slot, _)| free[slot.node_type] += 1);
        DonorPool { base, donors, free }
    }

    /// Those who can give nodes of a type to a job, with the places that they give: first those that change
    /// anyway, then those that give most, and no more of these than may change.
    fn donors_for(
        &self,
        space: &DecisionSpace<'_>,
        taker: usize,
        node_type: usize,
    ) -> Vec<(&NodeDonor, u32)> {
        let avoids = |slot: &usize| job_excludes(space.jobs[taker].job, &space.slots[*slot].gap.node);
        let gives = |donor: &NodeDonor| {
            donor
                .given
                .iter()
                .filter(|slots: &&Vec<usize>| slots.iter().all(|s| space.slots[*s].startable && !avoids(s)))
                .map(|slots| slots.len() as u32)
                .sum()
        };
        let on_type = self.donors.iter().filter(|donor| donor.job != taker);
        let on_type = on_type.filter(|d| space.jobs[d.job].options[d.least].node_type == node_type);
        let mut found: Vec<(&NodeDonor, u32)> = on_type.map(|donor| (donor, gives(donor))).collect();
        found.retain(|(_, gives)| *gives > 0);
        found.sort_by_key(|(donor, gives)| (donor.voluntary, u32::MAX - gives, donor.job));
        let must = found.iter().filter(|(donor, _)| !donor.voluntary).count();
        found.truncate(must + space.problem.config.max_changes as usize);
        found
    }
}

fn find_donor(space: &DecisionSpace<'_>, job: usize, base: &Schedule) -> Option<NodeDonor> {
    let JobSpace { options, kept_order, .. } = &space.jobs[job];
    let now = &options[*base[job].first()?];
    let fewer = |spec: &JobOption| spec.keeps_some() && spec.nodes < now.nodes;
    let all = options.iter().enumerate().filter(|(_, spec)| fewer(spec));
    let (least, spec) = all.min_by_key(|(_, spec)| spec.nodes)?;
    let given = kept_order.get(spec.kept as usize..now.kept as usize)?;
    let given = given.iter().map(|kept| kept.slots.clone()).collect();
    Some(NodeDonor { job, least, voluntary: spec.voluntary, given })
}

/// The first options, where they differ from what is kept, with which a job comes to its promise.
fn bring_to_guarantee(
    space: &DecisionSpace<'_>,
    job: usize,
    ground: &DonorPool,
) -> Option<Vec<(usize, usize)>> {
    let promise = space.jobs[job].job.active_guarantee()?;
    let suits = |spec: &JobOption| {
        let least = promise.min_nodes_on(&space.types[spec.node_type]);
        spec.now && meets_guarantee(space, job, spec) && Some(spec.nodes) == least
    };
    let options = space.jobs[job].options.iter().enumerate();
    let mut ways: Vec<(u32, usize)> =
        options.filter(|(_, s)| suits(s)).map(|(at, s)| (s.nodes - s.kept, at)).collect();
    ways.sort_unstable();
    ways.into_iter().find_map(|(fresh, way)| {
        let node_type = space.jobs[job].options[way].node_type;
        let donors = ground.donors_for(space, job, node_type);
        let own: u32 = space.jobs[job].kept_order.iter().map(|kept| kept.slots.len() as u32).sum();
        let there = ground.free[node_type] + own + donors.iter().map(|(_, gives)| gives).sum::<u32>();
        if fresh * space.jobs[job].job.block.max(1) > there {
            return None;
        }
        let mut first = vec![(job, way)];
        if base_fits(space, &ground.base, &first) {
            return Some(first);
        }
        for (donor, _) in donors {
            first.push((donor.job, donor.least));
            if base_fits(space, &ground.base, &first) {
                return Some(first);
            }
        }
        None
    })
}

/// Whether the base with these first options keeps all limits, and leaves the nodes that the first of them
/// takes, by name.
fn base_fits(space: &DecisionSpace<'_>, base: &Schedule, first: &[(usize, usize)]) -> bool {
    let mut schedule = base.clone();
    for (job, option) in first {
        if let Some(begins) = schedule[*job].first_mut() {
            *begins = *option;
        }
    }
    let taker = first.first().map(|(job, _)| *job);
    space.is_feasible(&schedule) && taker.is_none_or(|job| has_seats(space, &schedule, job))
}

/// Whether each slot is kept by the job that holds it, in the first step.
fn kept_slots(space: &DecisionSpace<'_>, schedule: &Schedule) -> Vec<bool> {
    let mut is_kept = vec![false; space.slots.len()];
    for (job, path) in space.jobs.iter().zip(schedule) {
        let first = path.first().and_then(|option| job.options.get(*option));
        let kept = job.kept_order.iter().take(first.map_or(0, |spec| spec.kept as usize));
        kept.flat_map(|kept| &kept.slots).for_each(|slot| is_kept[*slot] = true);
    }
    is_kept
}

/// Whether there are nodes for what a job takes in the first step while all others take none.
fn has_seats(space: &DecisionSpace<'_>, schedule: &Schedule, job: usize) -> bool {
    let is_kept = kept_slots(space, schedule);
    let taker = space.jobs[job].job;
    let Some(spec) = schedule[job].first().and_then(|option| space.jobs[job].options.get(*option)) else {
        return false;
    };
    let block = taker.block.max(1);
    let lead = taker.lead_node.as_ref().filter(|_| spec.family == OptionFamily::Fresh);
    let is_lead = |slot: usize| lead.is_some_and(|l| l.single_places().contains(&space.slots[slot].gap.node));
    let mut free_on: FxHashMap<_, u32> = FxHashMap::default();
    for (at, slot) in space.slots.iter().enumerate() {
        let is_free = slot.node_type == spec.node_type && slot.startable && !is_kept[at];
        // A block that it gives up is still there when the new one begins.
        let is_own = block > 1 && space.is_kept(taker, slot.gap);
        if is_free && !is_own && !job_excludes(taker, &slot.gap.node) && !is_lead(at) {
            let host = if block > 1 { Some(slot.gap.node.host()) } else { None };
            *free_on.entry(host).or_default() += 1;
        }
    }
    free_on.values().map(|places| places / block).sum::<u32>() >= spec.nodes - spec.kept
}

/// Forbids others to take nodes beyond their least on the types that jobs wait for, as far as enough of them
/// are there at all.
fn reserve_nodes(space: &mut DecisionSpace<'_>, waiting: &[usize]) {
    // Who waits for nodes of each type: nobody, one, or several.
    let mut wanted: Vec<Vec<usize>> = vec![Vec::new(); space.types.len()];
    for waits in waiting {
        let job = space.jobs[*waits].job;
        let Some(promise) = job.active_guarantee() else { continue };
        let least = |t: &NodeType| promise.min_nodes_on(t);
        if space.types.iter().any(|t| least(t).is_some_and(|nodes| nodes <= count_startable(space, job, t))) {
            let of_use = wanted.iter_mut().zip(&space.types).filter(|(_, t)| least(t).is_some());
            of_use.for_each(|(wanted, _)| wanted.push(*waits));
        }
    }
    let types = space.types.clone();
    for (at, other) in space.jobs.iter_mut().enumerate() {
        for (t, node_type) in types.iter().enumerate() {
            if wanted[t].iter().all(|waits| *waits == at) {
                continue;
            }
            let least = min_nodes_of(other.job, node_type);
            let grows =
                |spec: &JobOption| spec.node_type == t && spec.nodes > spec.kept && spec.nodes > least;
            other.options.iter_mut().filter(|spec| grows(spec)).for_each(|spec| spec.now = false);
        }
    }
}

/// How many nodes of a type a job could start on if nobody else had any.
fn count_startable(space: &DecisionSpace<'_>, job: &MalleableJob, node_type: &NodeType) -> u32 {
    let problem = space.problem;
    let is_long = |gap: &Gap| gap.usable_until.secs_since(problem.now) >= problem.min_window_secs;
    let gaps = problem.gaps.gaps.iter().filter(|gap| gap.node_type == *node_type && is_long(gap));
    gaps.filter(|gap| !job_excludes(job, &gap.node)).count() as u32 / job.block.max(1)
}
