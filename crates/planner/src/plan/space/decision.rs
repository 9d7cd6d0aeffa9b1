//! The decision space of a round: what each job may do in each step, what that earns, and what it uses.
//!
//! Nodes of one type are interchangeable but for their windows. Every idle node is free from now until its
//! window ends, so what is available only shrinks, and counting nodes is enough: counts can be laid on real
//! nodes without migration (see `extract`). What a job holds now has its own windows; so an option says how
//! many of those nodes it keeps.

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

/// A node that a job holds: its slots, several where it is a block.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct KeptSlots {
    /// Its slots.
    pub slots: Vec<usize>,
    /// Number of steps that all of them last through.
    pub lasts: usize,
}

/// One job's part of the space.
#[derive(Clone, Debug)]
pub(crate) struct JobSpace<'a> {
    /// The job.
    pub job: &'a MalleableJob,
    /// Options; the first is to hold nothing.
    pub options: Vec<JobOption>,
    /// Held nodes in the order in which they are kept: the lead's, then the longest-lasting. Empty for a job
    /// that holds nothing, or whose lead must leave.
    pub kept_order: Vec<KeptSlots>,
    /// Whether a change would be the job's own choice: it could keep all that it holds.
    pub can_stay: bool,
    /// Weighted samples that a change must gain at least.
    pub reluctance: f64,
    /// What the options use of what can run short.
    pub demands: Vec<ResourceDemand>,
    /// What going over from each option to each other one costs between two steps.
    pub changes: ChangeCosts,
    /// What each option earns in each step, without the changes between steps; −∞ where it is not allowed.
    pub gains: StepTable,
}

impl JobSpace<'_> {
    /// Weighted samples lost by going over from one option to another between two steps.
    pub(crate) fn change_cost(&self, from: usize, to: usize) -> f64 {
        self.changes.cost_between(from, to)
    }
}

/// The decision space. Busy jobs are not in it; what they hold is not available to others.
#[derive(Clone, Debug)]
pub(crate) struct DecisionSpace<'a> {
    /// The problem.
    pub problem: &'a PlanningProblem<'a>,
    /// The steps.
    pub steps: TimeSteps,
    /// Node types.
    pub types: Vec<NodeType>,
    /// Usable nodes, sorted by name; none of a busy job.
    pub slots: Vec<NodeSlot<'a>>,
    /// The slot of each gap that is one.
    pub slot_of: Vec<Option<usize>>,
    /// Nodes of each type in each step.
    pub supply: Vec<TypeSupply>,
    /// Blocks of several slots.
    pub blocks: BlockLayout,
    /// CPUs and memory of hosts, where workers take more of them than their places come with.
    pub shares: Option<HostShares>,
    /// Jobs that may change, by id.
    pub jobs: Vec<JobSpace<'a>>,
    /// Limits.
    pub limits: Vec<StepLimit>,
    /// For each step and resource its limit, where there is one.
    pub limit_at: Vec<Vec<Option<usize>>>,
    /// What promises make of the first step.
    pub promises: FirstStepGuarantees,
    /// See [`DecisionSpace::by_stability`].
    pub by_stability: OnceCell<Vec<usize>>,
    /// What was counted for some job, and holds for others.
    pub counted: SharedCounts,
}

/// Counts that jobs share, by the number of the list of nodes that they avoid (0 where that is empty).
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedCounts {
    /// See [`DecisionSpace::count_avoided`].
    avoided: RefCell<FxHashMap<usize, Rc<Vec<Vec<u32>>>>>,
    /// Blocks of a size, of each type of nodes, in each step, for jobs that hold nothing.
    blocks: RefCell<FxHashMap<(usize, BlockSize, usize), Vec<u32>>>,
}

/// What promises make of the first step.
#[derive(Clone, Debug, Default)]
pub(crate) struct FirstStepGuarantees {
    /// Jobs of the space that make what they are promised, whatever else is planned.
    pub kept: Vec<usize>,
    /// Options with which the schedule to start from differs from what is kept, in the first step: (job,
    /// option).
    pub first: Vec<(usize, usize)>,
}

/// For each job of the space its option in each step.
pub(crate) type Schedule = Vec<Vec<usize>>;

impl<'a> DecisionSpace<'a> {
    /// The slot of a node.
    pub fn slot_at(&self, node: &NodeName) -> Option<usize> {
        self.slot_of[self.problem.gap_index(node)?]
    }

    /// The slots of a node, several where it is a block; `None` unless all are there.
    pub(crate) fn slots_of(&self, node: &NodeName) -> Option<Vec<usize>> {
        node.single_places().iter().map(|part| self.slot_at(part)).collect()
    }

    /// A worker on these slots; `None` where CPUs and memory are not counted.
    pub(crate) fn worker_on(&self, slots: &[usize]) -> Option<WorkerPlaces> {
        WorkerPlaces::from_gaps(slots.iter().map(|slot| self.slots[*slot].gap))
    }

    /// Whether the job holds all of these slots.
    pub(crate) fn are_held(&self, job: &MalleableJob, slots: &[usize]) -> bool {
        slots.iter().all(|slot| self.is_kept(job, self.slots[*slot].gap))
    }

    /// The lead's slot, or the first of its block.
    pub(crate) fn lead_slot(&self, job: &JobSpace<'_>) -> Option<&NodeSlot<'a>> {
        job.kept_order.first().and_then(|kept| self.slots.get(*kept.slots.first()?))
    }

    /// Nodes of a type that last through each step and that the job may have: those on which jobs may start,
    /// less those it must avoid, and what it holds.
    pub fn available_nodes(&self, job: &MalleableJob, node_type: usize) -> Vec<u32> {
        if job.block > 1 {
            return self.blocks_for(job, node_type);
        }
        let mut count: Vec<u32> = self.supply[node_type].startable.clone();
        if !job.excluded.is_empty() {
            let avoided = self.count_avoided(&job.excluded);
            count.iter_mut().zip(&avoided[node_type]).for_each(|(n, avoided)| *n -= avoided);
        }
        for slot in self
            .held_slots(job)
            .into_iter()
            .filter(|i: &usize| {
                self.slots[*i].node_type == node_type && self.is_kept(job, self.slots[*i].gap)
            })
            .map(|i| &self.slots[i])
        {
            if !slot.startable || job_excludes(job, &slot.gap.node) {
                count.iter_mut().take(slot.lasts).for_each(|n| *n += 1);
            }
        }
        count
    }

    /// Nodes of each type that last through each step and on which jobs may start, of those on a list. Jobs
    /// that avoid the same nodes have one list.
    fn count_avoided(&self, list: &ExcludedNodes) -> Rc<Vec<Vec<u32>>> {
        let count = || {
            let mut count = vec![vec![0; self.steps.len()]; self.types.len()];
            let slots = list.iter().filter_map(|node| self.slot_at(node)).map(|i| &self.slots[i]);
            for slot in slots.filter(|slot| slot.startable) {
                count[slot.node_type].iter_mut().take(slot.lasts).for_each(|n| *n += 1);
            }
            Rc::new(count)
        };
        self.counted.avoided.borrow_mut().entry(list.list_id()).or_insert_with(count).clone()
    }

    /// As [`DecisionSpace::available_nodes`], for a job whose nodes are blocks.
    fn blocks_for(&self, job: &MalleableJob, node_type: usize) -> Vec<u32> {
        let count = |step: usize| {
            self.blocks.count_blocks(job.block, |i| {
                let slot = &self.slots[i];
                let free = || slot.startable && !job_excludes(job, &slot.gap.node);
                slot.node_type == node_type && slot.lasts > step && (self.is_kept(job, slot.gap) || free())
            })
        };
        let count = || (0..self.steps.len()).map(count).collect();
        if !job.held.is_empty() {
            return count();
        }
        let kind = (job.excluded.list_id(), job.block, node_type);
        self.counted.blocks.borrow_mut().entry(kind).or_insert_with(count).clone()
    }

    /// Slots of the nodes that a job holds by its own account, each once.
    pub fn held_slots(&self, job: &MalleableJob) -> Vec<usize> {
        let parts = job.held.iter().flat_map(|h| h.node.single_places());
        let mut held: Vec<usize> = parts.filter_map(|part| self.slot_at(&part)).collect();
        held.dedup();
        held
    }

    /// Whether the job holds the node.
    pub fn is_kept(&self, job: &MalleableJob, gap: &Gap) -> bool {
        gap.holder == Some(job.id)
    }

    /// Weighted samples of a job's option in the first step, less what the change to it costs, with ties
    /// broken.
    pub(crate) fn first_gain(&self, job: usize, option: usize) -> f64 {
        let spec = &self.jobs[job].options[option];
        spec.rate * self.jobs[job].job.weight * self.steps.secs(0) - spec.first_cost
    }

    /// Weighted samples of a job's option in a later step, without the change to it.
    pub(crate) fn later_gain(&self, job: usize, option: usize, step: usize) -> f64 {
        self.jobs[job].options[option].rate * self.jobs[job].job.weight * self.steps.secs(step)
    }

    /// How many places an option takes: its nodes, or what they are blocks of.
    pub fn places_used(&self, job: usize, option: usize) -> f64 {
        let JobSpace { job, options, .. } = &self.jobs[job];
        f64::from(options[option].nodes) * f64::from(job.block.max(1))
    }

    /// The score of a schedule: what the solver maximises.
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

    /// The schedule to start from: jobs keep what they hold through the first step and then nothing, or if it
    /// is their turn, or makes their promise, the most of it that lasts; others hold nothing. Where a job is
    /// brought to its promise, it and those who give nodes have what that takes. Nobody else uses the budget,
    /// so that taking a job out and putting it back is always possible.
    pub(crate) fn base_schedule(&self) -> Schedule {
        let steps = self.steps.len();
        let path = |job: &JobSpace<'_>| {
            let options = &job.options;
            let keeps = options.iter().position(|o| o.keeps && o.now);
            let keeps = keeps
                .or_else(|| options.iter().rposition(|o| o.keeps_some() && !options[0].now))
                .unwrap_or(0);
            (0..steps).map(|step| if step == 0 { keeps } else { 0 }).collect()
        };
        let mut schedule: Schedule = self.jobs.iter().map(path).collect();
        for (job, option) in &self.promises.first {
            schedule[*job].iter_mut().take(1).for_each(|first| *first = *option);
        }
        schedule
    }

    /// Whether a schedule keeps all limits, and each option is allowed where it is used.
    pub(crate) fn is_feasible(&self, schedule: &Schedule) -> bool {
        schedule.len() == self.jobs.len()
            && schedule.iter().enumerate().all(|(job, path): (usize, &Vec<usize>)| {
                path.len() == self.steps.len()
                    && path.iter().enumerate().all(|(step, option)| self.is_allowed(job, *option, step))
            })
            && self.limits_left(schedule).iter().all(|left| *left >= 0)
    }

    /// Whether a job may use an option in a step, other jobs apart.
    pub(crate) fn is_allowed(&self, job: usize, option: usize, step: usize) -> bool {
        self.jobs[job]
            .options
            .get(option)
            .is_some_and(|spec| step < spec.lasts && (step > 0 || spec.now) && (step == 0 || spec.later))
    }

    /// What a schedule leaves of each limit.
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

    /// What a job's option uses in a step: (limit, amount).
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
