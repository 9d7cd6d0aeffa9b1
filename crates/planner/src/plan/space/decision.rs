//! The decision space of a round: what each job may do in each step, what that earns, and what it uses.
//!
//! Nodes of one type are interchangeable except for their windows. Every idle node is free from now until its
//! window ends, so the supply only shrinks. Counting nodes is therefore enough: placement can map the counts
//! to named nodes without migration (see `placement::extract`). Nodes that a job holds now have windows of
//! their own, so an option says how many of these nodes it keeps.

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::blocks::BlockLayout;
use super::change_costs::ChangeCosts;
use super::host_shares::HostShares;
use super::job_option::JobOption;
use super::problem::PlanningProblem;
use super::resource::{BlockSize, ResourceDemand, StepLimit};
use super::slots::{NodeSlot, TypeSupply, compare_stability, job_excludes};
use super::step_table::StepTable;
use super::steps::TimeSteps;
use super::worker_places::WorkerPlaces;
use infill_model::{ExcludedNodes, Gap, MalleableJob, NodeName, NodeType};

/// A node that a job holds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct KeptSlots {
    /// Its slots, several where it is a block.
    pub slots: Vec<usize>,
    /// Number of steps that all of them last through.
    pub lasts: usize,
}

/// One job's part of the space.
#[derive(Clone, Debug)]
pub(crate) struct JobSpace<'a> {
    pub job: &'a MalleableJob,
    /// Options of the job; the first one holds nothing.
    pub options: Vec<JobOption>,
    /// Held nodes in the order in which they are kept: the lead's, then the longest-lasting. Empty for a job
    /// that holds nothing, or whose lead must leave its node.
    pub kept_order: Vec<KeptSlots>,
    /// Whether it could keep all that it holds, so that a change is voluntary.
    pub can_stay: bool,
    /// Weighted samples that a voluntary change must gain beyond its cost.
    pub reluctance: f64,
    /// What the options use of each limited resource.
    pub demands: Vec<ResourceDemand>,
    /// The cost of a change from each option to each other one between two steps.
    pub changes: ChangeCosts,
    /// What each option earns in each step, without the changes between steps; −∞ where it is not allowed.
    pub gains: StepTable,
}

impl JobSpace<'_> {
    /// Weighted samples lost on a change from one option to another between two steps.
    pub(crate) fn change_cost(&self, from: usize, to: usize) -> f64 {
        self.changes.cost_between(from, to)
    }
}

/// The decision space. It has no busy jobs, and what they hold is not available to others.
#[derive(Clone, Debug)]
pub(crate) struct DecisionSpace<'a> {
    pub problem: &'a PlanningProblem<'a>,
    pub steps: TimeSteps,
    /// Node types, sorted.
    pub types: Vec<NodeType>,
    /// Usable nodes except those of busy jobs, sorted by name.
    pub slots: Vec<NodeSlot<'a>>,
    /// For each gap the index of its slot, where it has one.
    pub slot_of: Vec<Option<usize>>,
    /// For each type the number of nodes in each step.
    pub supply: Vec<TypeSupply>,
    /// Blocks of several slots.
    pub blocks: BlockLayout,
    /// CPUs and memory of hosts, where workers take more of them than their places come with.
    pub shares: Option<HostShares>,
    /// Jobs that may change, by id.
    pub jobs: Vec<JobSpace<'a>>,
    /// What jobs together may use in each step.
    pub limits: Vec<StepLimit>,
    /// For each step and resource the index of its limit, where it has one.
    pub limit_at: Vec<Vec<Option<usize>>>,
    /// How promises restrict the first step.
    pub promises: FirstStepGuarantees,
    /// See [`DecisionSpace::by_stability`].
    pub by_stability: OnceCell<Vec<usize>>,
    /// Counts for one job that hold for others too.
    pub shared_counts: SharedCounts,
}

/// Counts that jobs share, by the identity of their list of excluded nodes (0 where the list is empty).
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedCounts {
    /// See [`DecisionSpace::count_avoided`].
    avoided: RefCell<FxHashMap<usize, Rc<Vec<Vec<u32>>>>>,
    /// Blocks in each step for jobs that hold nothing, by list, block size and node type.
    blocks: RefCell<FxHashMap<(usize, BlockSize, usize), Vec<u32>>>,
}

/// How promises restrict the first step.
#[derive(Clone, Debug, Default)]
pub(crate) struct FirstStepGuarantees {
    /// Jobs of the space that keep their promised rate, whatever else is planned.
    pub jobs: Vec<usize>,
    /// Pairs of a job and its option in the first step, where the schedule to start from departs from what
    /// each job keeps.
    pub first: Vec<(usize, usize)>,
}

/// For each job of the space its option in each step.
pub(crate) type Schedule = Vec<Vec<usize>>;

impl<'a> DecisionSpace<'a> {
    /// The slot of a node.
    pub fn slot_at(&self, node: &NodeName) -> Option<usize> {
        self.slot_of[self.problem.gap_index(node)?]
    }

    /// The slots of a node, several where it is a block; `None` unless each of its places has one.
    pub(crate) fn slots_of(&self, node: &NodeName) -> Option<Vec<usize>> {
        node.single_places().iter().map(|place| self.slot_at(place)).collect()
    }

    /// A worker on these slots; `None` where CPUs and memory are not counted on one of them.
    pub(crate) fn worker_on(&self, slots: &[usize]) -> Option<WorkerPlaces> {
        WorkerPlaces::from_gaps(slots.iter().map(|slot| self.slots[*slot].gap))
    }

    /// Whether the job holds all of these slots.
    pub(crate) fn are_held(&self, job: &MalleableJob, slots: &[usize]) -> bool {
        slots.iter().all(|slot| self.is_kept(job, self.slots[*slot].gap))
    }

    /// The slot of the lead's node, or the first slot of its block.
    pub(crate) fn lead_slot(&self, job: &JobSpace<'_>) -> Option<&NodeSlot<'a>> {
        job.kept_order.first().and_then(|kept| self.slots.get(*kept.slots.first()?))
    }

    /// For each step the number of nodes of a type that last through it and that the job may have: nodes on
    /// which jobs may start, without those that it must avoid, and the nodes that it holds.
    pub fn available_nodes(&self, job: &MalleableJob, node_type: usize) -> Vec<u32> {
        if job.places_per_node > 1 {
            return self.blocks_for(job, node_type);
        }
        let mut count: Vec<u32> = self.supply[node_type].startable.clone();
        if !job.excluded.is_empty() {
            let avoided = self.count_avoided(&job.excluded);
            count.iter_mut().zip(&avoided[node_type]).for_each(|(n, avoided)| *n -= avoided);
        }
        for slot in self.held_slots(job).into_iter().map(|i| &self.slots[i]) {
            let is_own = slot.node_type == node_type && self.is_kept(job, slot.gap);
            if is_own && (!slot.startable || job_excludes(job, &slot.gap.node)) {
                count.iter_mut().take(slot.lasts).for_each(|n| *n += 1);
            }
        }
        count
    }

    /// For each type and step the number of nodes on a list that last through the step and on which jobs may
    /// start. Jobs that avoid the same nodes share one list, and so this count.
    fn count_avoided(&self, list: &ExcludedNodes) -> Rc<Vec<Vec<u32>>> {
        let mut by_list = self.shared_counts.avoided.borrow_mut();
        let counts = by_list.entry(list.list_id()).or_insert_with(|| {
            let mut count = vec![vec![0; self.steps.len()]; self.types.len()];
            let slots = list.iter().filter_map(|node| self.slot_at(node)).map(|i| &self.slots[i]);
            for slot in slots.filter(|slot| slot.startable) {
                count[slot.node_type].iter_mut().take(slot.lasts).for_each(|n| *n += 1);
            }
            Rc::new(count)
        });
        counts.clone()
    }

    /// As [`DecisionSpace::available_nodes`], for a job whose nodes are blocks.
    fn blocks_for(&self, job: &MalleableJob, node_type: usize) -> Vec<u32> {
        if !job.held.is_empty() {
            return self.count_blocks(job, node_type);
        }
        let kind = (job.excluded.list_id(), job.places_per_node, node_type);
        let mut by_kind = self.shared_counts.blocks.borrow_mut();
        by_kind.entry(kind).or_insert_with(|| self.count_blocks(job, node_type)).clone()
    }

    /// For each step the number of blocks on the slots that last through it and that the job may use.
    fn count_blocks(&self, job: &MalleableJob, node_type: usize) -> Vec<u32> {
        let mut counts = Vec::with_capacity(self.steps.len());
        for step in 0..self.steps.len() {
            counts.push(self.blocks.count_blocks(job.places_per_node, |i| {
                let slot = &self.slots[i];
                slot.node_type == node_type
                    && slot.lasts > step
                    && (self.is_kept(job, slot.gap) || (slot.startable && !job_excludes(job, &slot.gap.node)))
            }));
        }
        counts
    }

    /// Slots of the nodes in the job's own list of held nodes, each once.
    pub fn held_slots(&self, job: &MalleableJob) -> Vec<usize> {
        let places = job.held.iter().flat_map(|h| h.node.single_places());
        let mut held: Vec<usize> = places.filter_map(|place| self.slot_at(&place)).collect();
        held.dedup();
        held
    }

    /// Whether the job holds the node, by the node's gap.
    pub fn is_kept(&self, job: &MalleableJob, gap: &Gap) -> bool {
        gap.holder == Some(job.id)
    }

    /// Weighted samples of a job's option in the first step, less the cost of the change to it, plus the
    /// bonus that breaks ties.
    pub(crate) fn first_gain(&self, job: usize, option: usize) -> f64 {
        let spec = &self.jobs[job].options[option];
        spec.rate * self.jobs[job].job.weight * self.steps.secs(0) - spec.first_cost
    }

    /// Weighted samples of a job's option in a later step, without the cost of the change to it.
    pub(crate) fn later_gain(&self, job: usize, option: usize, step: usize) -> f64 {
        self.jobs[job].options[option].rate * self.jobs[job].job.weight * self.steps.secs(step)
    }

    /// The number of places that an option takes: its nodes times their block.
    pub fn places_used(&self, job: usize, option: usize) -> f64 {
        let JobSpace { job, options, .. } = &self.jobs[job];
        f64::from(options[option].nodes) * f64::from(job.places_per_node.max(1))
    }

    /// The score of a schedule, which the solver maximises.
    pub fn score(&self, schedule: &Schedule) -> f64 {
        (0..self.jobs.len()).map(|job| self.path_score(job, &schedule[job])).sum()
    }

    /// One job's part of the score.
    pub(crate) fn path_score(&self, job: usize, path: &[usize]) -> f64 {
        let mut score = path.first().map_or(0.0, |option| self.first_gain(job, *option));
        for (step, pair) in path.windows(2).enumerate() {
            score += self.later_gain(job, pair[1], step + 1) - self.jobs[job].change_cost(pair[0], pair[1]);
        }
        score
    }

    /// The schedule to start from. Jobs keep what they hold through the first step and then nothing. Where a
    /// job cannot stay as it is and may not be parked, it keeps the most of it that lasts. Other jobs hold
    /// nothing. Where a job is brought to its promised rate, it and the jobs that give nodes have the options
    /// for that. No other job uses the budget, so taking a job out and putting it back is always possible.
    pub(crate) fn base_schedule(&self) -> Schedule {
        let steps = self.steps.len();
        let mut schedule: Schedule = Vec::with_capacity(self.jobs.len());
        for JobSpace { options, .. } in &self.jobs {
            let stay = options.iter().position(|o| o.keeps && o.now);
            let may_park = options[0].now;
            let largest_kept = options.iter().rposition(|o| o.keeps_some() && !may_park);
            let mut path = vec![0; steps];
            path.iter_mut().take(1).for_each(|first| *first = stay.or(largest_kept).unwrap_or(0));
            schedule.push(path);
        }
        for (job, option) in &self.promises.first {
            schedule[*job].iter_mut().take(1).for_each(|first| *first = *option);
        }
        schedule
    }

    /// Whether a schedule keeps all limits, and each option is allowed where it is used.
    pub(crate) fn is_feasible(&self, schedule: &Schedule) -> bool {
        schedule.len() == self.jobs.len()
            && schedule.iter().enumerate().all(|(job, path)| {
                path.len() == self.steps.len()
                    && path.iter().enumerate().all(|(step, option)| self.is_allowed(job, *option, step))
            })
            && self.limits_left(schedule).iter().all(|left| *left >= 0)
    }

    /// Whether a job may use an option in a step, whatever other jobs do.
    pub(crate) fn is_allowed(&self, job: usize, option: usize, step: usize) -> bool {
        self.jobs[job]
            .options
            .get(option)
            .is_some_and(|spec| step < spec.lasts && (step > 0 || spec.now) && (step == 0 || spec.later))
    }

    /// The amount that a schedule leaves of each limit; negative where the schedule exceeds it.
    pub fn limits_left(&self, schedule: &Schedule) -> Vec<i64> {
        let mut left: Vec<i64> = self.limits.iter().map(|limit| i64::from(limit.most)).collect();
        for (job, path) in schedule.iter().enumerate() {
            self.take_path(&mut left, job, path, 1);
        }
        left
    }

    /// Subtracts `sign` times what a job's path uses.
    pub fn take_path(&self, left: &mut [i64], job: usize, path: &[usize], sign: i64) {
        for (step, option) in path.iter().enumerate() {
            for (limit, amount) in self.option_uses(job, *option, step) {
                left[limit] -= sign * amount;
            }
        }
    }

    /// What a job's option uses in a step: pairs of limit and amount, amounts above 0 only.
    pub fn option_uses(&self, job: usize, option: usize, step: usize) -> impl Iterator<Item = (usize, i64)> {
        let demands = self.jobs[job].demands.iter();
        demands.filter_map(move |d| {
            let limit = self.limit_at[step][d.resource]?;
            Some((limit, d.amounts[option] as i64)).filter(|(_, amount)| *amount > 0)
        })
    }

    /// All slots, the most stable first.
    pub(crate) fn by_stability(&self) -> &[usize] {
        self.by_stability.get_or_init(|| {
            let mut order: Vec<usize> = (0..self.slots.len()).collect();
            order.sort_by(|a, b| compare_stability(self.slots[*b].gap, self.slots[*a].gap));
            order
        })
    }
}
