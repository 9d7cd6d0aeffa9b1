//! How promises restrict the first step. A job that holds what makes its promised rate keeps at least that. A
//! job below its promised rate is brought there in this round, if free nodes and what others hold above their
//! minimum are enough. This happens for the first job in line for which they are; no job is parked for it.
//! While another job waits for changes under way, no job grows beyond its minimum onto nodes of its types.
//!
//! The module forbids options in the first step. It leaves a schedule to start from in which each job either
//! keeps what it holds or shrinks.

use super::cost;
use super::decision::{DecisionSpace, JobSpace, Schedule};
use super::job_option::{JobOption, OptionFamily};
use super::slots::job_excludes;
use infill_model::{JobId, MalleableJob, NodeName, NodeType, UnixTime};
use rustc_hash::FxHashMap;

/// Forbids the options of the first step that break promises.
pub(crate) fn apply_guarantees(space: &mut DecisionSpace<'_>) {
    if space.steps.is_empty() || space.problem.drain {
        return;
    }
    let (kept, short): (Vec<usize>, Vec<usize>) =
        guarantee_queue(space).into_iter().partition(|job| holds_guarantee(space, *job));
    for job in &kept {
        forbid_below_guarantee(space, *job);
    }
    space.promises.jobs = kept;
    let brought = first_within_reach(space, &short);
    if let Some((job, first)) = &brought {
        forbid_below_guarantee(space, *job);
        space.promises.jobs.push(*job);
        space.promises.first.clone_from(first);
        forbid_parking(space, *job);
    }
    let mut waiting = short;
    waiting.retain(|job| brought.as_ref().is_none_or(|(brought, _)| brought != job));
    if !waiting.is_empty() {
        reserve_nodes(space, &waiting);
    }
}

/// The first of the jobs below their promised rate that can be brought there, with the options that do it.
fn first_within_reach(space: &DecisionSpace<'_>, short: &[usize]) -> Option<(usize, Vec<(usize, usize)>)> {
    if short.is_empty() {
        return None;
    }
    let pool = DonorPool::from_space(space, short);
    short.iter().find_map(|job| Some((*job, bring_to_guarantee(space, *job, &pool)?)))
}

/// Forbids to park the jobs that can keep some of what they hold while job `brought` gets its promised rate.
fn forbid_parking(space: &mut DecisionSpace<'_>, brought: usize) {
    let base = space.base_schedule();
    for (at, job) in space.jobs.iter_mut().enumerate().filter(|(at, _)| *at != brought) {
        if base[at].first().is_some_and(|option| job.options[*option].nodes > 0) {
            job.options[0].now = false;
        }
    }
}

/// Jobs that have a promise and may run, in the order of submission.
fn guarantee_queue(space: &DecisionSpace<'_>) -> Vec<usize> {
    let mut found: Vec<usize> = (0..space.jobs.len())
        .filter(|at| {
            let job = space.jobs[*at].job;
            let waits = job.held.is_empty() && job.turn.is_some_and(|turn| turn.queue_position().is_some());
            job.active_guarantee().is_some() && !space.problem.is_barred(job) && !waits
        })
        .collect();
    found.sort_by_key(|at| -> (UnixTime, JobId) {
        let job = space.jobs[*at].job;
        (job.submitted_at, job.id)
    });
    found
}

/// Whether an option reaches the promised rate of its job.
fn meets_guarantee(space: &DecisionSpace<'_>, job: usize, spec: &JobOption) -> bool {
    let promise = space.jobs[job].job.active_guarantee();
    promise.is_some_and(|p| p.is_enough(&space.types[spec.node_type], &spec.exec_plan, spec.nodes))
}

/// Whether a job reaches its promised rate as it is, or with what it can keep where it cannot stay as it is.
fn holds_guarantee(space: &DecisionSpace<'_>, job: usize) -> bool {
    let JobSpace { options, can_stay, .. } = &space.jobs[job];
    options
        .iter()
        .filter(|spec| if *can_stay { spec.keeps && spec.now } else { spec.keeps_some() })
        .any(|spec| meets_guarantee(space, job, spec))
}

/// Forbids the options of the first step that stay below the promised rate.
fn forbid_below_guarantee(space: &mut DecisionSpace<'_>, job: usize) {
    let meets: Vec<bool> =
        space.jobs[job].options.iter().map(|spec| meets_guarantee(space, job, spec)).collect();
    for (spec, meets) in space.jobs[job].options.iter_mut().zip(meets) {
        spec.now &= meets;
    }
}

/// The minimum of a job on a type: its smallest size with a known rate, or with its promised rate. Other jobs
/// get their promised nodes before the job gets more than this.
fn min_nodes_of(job: &MalleableJob, node_type: &NodeType) -> u32 {
    let least = job
        .sizes
        .up_to(u32::MAX)
        .into_iter()
        .find(|nodes| cost::best_rate(job, node_type, *nodes).is_some())
        .unwrap_or(job.sizes.min());
    let promised = job.active_guarantee().and_then(|promise| promise.min_nodes_on(node_type));
    least.max(promised.unwrap_or(0))
}

/// A job that holds more than its minimum.
struct NodeDonor {
    job: usize,
    /// The option with the fewest nodes that it can keep.
    smallest: usize,
    /// Whether it could also stay as it is.
    voluntary: bool,
    /// The slots of each node that it then gives up.
    given: Vec<Vec<usize>>,
}

/// The nodes that can bring a job to its promised rate.
struct DonorPool {
    /// The schedule in which each job keeps what it can.
    base: Schedule,
    /// Jobs that can give nodes: all except those that are below their own promised rate.
    donors: Vec<NodeDonor>,
    /// Places of each type on which jobs may start and that no job keeps.
    free: Vec<u32>,
}
impl DonorPool {
    fn from_space(space: &DecisionSpace<'_>, short: &[usize]) -> Self {
        let base = space.base_schedule();
        let donors = (0..space.jobs.len()).filter(|job| !short.contains(job));
        let donors = donors.filter_map(|job| find_donor(space, job, &base)).collect();
        let is_kept = kept_slots(space, &base);
        let mut free = vec![0; space.types.len()];
        for (slot, is_kept) in space.slots.iter().zip(is_kept) {
            if slot.startable && !is_kept {
                free[slot.node_type] += 1;
            }
        }
        DonorPool { base, donors, free }
    }

    /// Jobs that can give nodes of a type to a job, with the number of places that they give. Those that must
    /// change anyway come first, then those that give most, as many of these as may change in a round.
    fn donors_for(
        &self,
        space: &DecisionSpace<'_>,
        taker: usize,
        node_type: usize,
    ) -> Vec<(&NodeDonor, u32)> {
        let mut found: Vec<(&NodeDonor, u32)> = self
            .donors
            .iter()
            .filter(|donor| donor.job != taker)
            .filter(|donor| space.jobs[donor.job].options[donor.smallest].node_type == node_type)
            .map(|donor| (donor, donor.places_for(space, taker)))
            .filter(|(_, places)| *places > 0)
            .collect();
        found.sort_by_key(|(donor, places)| (donor.voluntary, u32::MAX - places, donor.job));
        let must = found.iter().filter(|(donor, _)| !donor.voluntary).count();
        found.truncate(must + space.problem.config.max_changes as usize);
        found
    }
}

impl NodeDonor {
    /// The number of places that it gives up and that another job can use.
    fn places_for(&self, space: &DecisionSpace<'_>, taker: usize) -> u32 {
        let taker = space.jobs[taker].job;
        self.given
            .iter()
            .filter(|slots| {
                slots.iter().all(|slot| {
                    let slot = &space.slots[*slot];
                    slot.startable && !job_excludes(taker, &slot.gap.node)
                })
            })
            .map(|slots| slots.len() as u32)
            .sum()
    }
}

fn find_donor(space: &DecisionSpace<'_>, job: usize, base: &Schedule) -> Option<NodeDonor> {
    let JobSpace { options, kept_order, .. } = &space.jobs[job];
    let now = &options[*base[job].first()?];
    let (smallest, spec) = options
        .iter()
        .enumerate()
        .filter(|(_, spec)| spec.keeps_some() && spec.nodes < now.nodes)
        .min_by_key(|(_, spec)| spec.nodes)?;
    let given = kept_order.get(spec.kept as usize..now.kept as usize)?;
    let given = given.iter().map(|kept| kept.slots.clone()).collect();
    Some(NodeDonor { job, smallest, voluntary: spec.voluntary, given })
}

/// Options of the first step that differ from the base schedule and bring a job to its promised rate.
fn bring_to_guarantee(
    space: &DecisionSpace<'_>,
    job: usize,
    pool: &DonorPool,
) -> Option<Vec<(usize, usize)>> {
    let promise = space.jobs[job].job.active_guarantee()?;
    let mut ways: Vec<(u32, usize)> = space.jobs[job]
        .options
        .iter()
        .enumerate()
        .filter(|(_, spec)| spec.now && meets_guarantee(space, job, spec))
        .filter(|(_, spec)| Some(spec.nodes) == promise.min_nodes_on(&space.types[spec.node_type]))
        .map(|(at, spec)| (spec.nodes - spec.kept, at))
        .collect();
    ways.sort_unstable();
    ways.into_iter().find_map(|(fresh, way)| {
        let node_type = space.jobs[job].options[way].node_type;
        let donors = pool.donors_for(space, job, node_type);
        let own: u32 = space.jobs[job].kept_order.iter().map(|kept| kept.slots.len() as u32).sum();
        let available = pool.free[node_type] + own + donors.iter().map(|(_, places)| places).sum::<u32>();
        if fresh * space.jobs[job].job.places_per_node.max(1) > available {
            return None;
        }
        let mut first = vec![(job, way)];
        if base_fits(space, &pool.base, &first) {
            return Some(first);
        }
        for (donor, _) in donors {
            first.push((donor.job, donor.smallest));
            if base_fits(space, &pool.base, &first) {
                return Some(first);
            }
        }
        None
    })
}

/// Whether the base schedule with these first options keeps all limits, and leaves named nodes for what the
/// first job of the list takes.
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

/// Whether enough nodes are free for what a job takes in the first step while all other jobs take none.
fn has_seats(space: &DecisionSpace<'_>, schedule: &Schedule, job: usize) -> bool {
    let is_kept = kept_slots(space, schedule);
    let taker = space.jobs[job].job;
    let Some(spec) = schedule[job].first().and_then(|option| space.jobs[job].options.get(*option)) else {
        return false;
    };
    let block = taker.places_per_node.max(1);
    let lead = taker.lead_node.as_ref().filter(|_| spec.family == OptionFamily::Fresh);
    let lead_places = lead.map(NodeName::single_places).unwrap_or_default();
    let mut free_on: FxHashMap<_, u32> = FxHashMap::default();
    for (at, slot) in space.slots.iter().enumerate() {
        let is_free = slot.node_type == spec.node_type && slot.startable && !is_kept[at];
        // A block that it gives up is still occupied when the new one begins.
        let is_own = block > 1 && space.is_kept(taker, slot.gap);
        let is_lead = lead_places.contains(&slot.gap.node);
        if is_free && !is_own && !job_excludes(taker, &slot.gap.node) && !is_lead {
            let host = if block > 1 { Some(slot.gap.node.host()) } else { None };
            *free_on.entry(host).or_default() += 1;
        }
    }
    free_on.values().map(|places| places / block).sum::<u32>() >= spec.nodes - spec.kept
}

/// Forbids other jobs to take nodes beyond their minimum on the types that the waiting jobs need. Applies to
/// a waiting job only if the round has enough of its nodes at all.
fn reserve_nodes(space: &mut DecisionSpace<'_>, waiting: &[usize]) {
    // The jobs that wait for nodes of each type.
    let mut wanted: Vec<Vec<usize>> = vec![Vec::new(); space.types.len()];
    for waits in waiting {
        let job = space.jobs[*waits].job;
        let Some(promise) = job.active_guarantee() else { continue };
        let needs: Vec<Option<u32>> = space.types.iter().map(|t| promise.min_nodes_on(t)).collect();
        let can_be_met = needs
            .iter()
            .zip(&space.types)
            .any(|(needs, t)| needs.is_some_and(|nodes| nodes <= count_startable(space, job, t)));
        if !can_be_met {
            continue;
        }
        for (wanted, _) in wanted.iter_mut().zip(needs).filter(|(_, needs)| needs.is_some()) {
            wanted.push(*waits);
        }
    }
    let types = space.types.clone();
    for (at, other) in space.jobs.iter_mut().enumerate() {
        for (t, node_type) in types.iter().enumerate() {
            if wanted[t].iter().all(|waits| *waits == at) {
                continue;
            }
            let minimum = min_nodes_of(other.job, node_type);
            for spec in other.options.iter_mut().filter(|spec| spec.node_type == t) {
                if spec.nodes > spec.kept && spec.nodes > minimum {
                    spec.now = false;
                }
            }
        }
    }
}

/// The number of nodes of a type on which a job could start if no other job had any.
fn count_startable(space: &DecisionSpace<'_>, job: &MalleableJob, node_type: &NodeType) -> u32 {
    let problem = space.problem;
    let places = problem
        .gaps
        .gaps
        .iter()
        .filter(|gap| gap.node_type == *node_type)
        .filter(|gap| gap.usable_until.secs_since(problem.now) >= problem.min_window_secs)
        .filter(|gap| !job_excludes(job, &gap.node))
        .count();
    places as u32 / job.places_per_node.max(1)
}
