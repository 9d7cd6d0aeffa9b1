//! Lays out the decision space of a problem: slots, options, ties, gains, limits.

use std::cell::OnceCell;
use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::blocks::BlockLayout;
use super::change_costs::ChangeCosts;
use super::decision::{DecisionSpace, FirstStepGuarantees, JobSpace, KeptSlots, SharedCounts};
use super::guarantees;
use super::host_shares::HostShares;
use super::job_option::OptionFamily;
use super::problem::PlanningProblem;
use super::slots::{self, compare_stability};
use super::step_table::StepTable;
use super::steps::TimeSteps;
use super::{cost, limits, options};
use infill_model::{MalleableJob, NodeName, NodeType};

/// Share of the largest value in the round by which ties are broken: far above rounding errors, far below
/// anything that a node-second is worth.
const TIE_SHARE: f64 = 1e-7;

/// Tie shares of an option that keeps nodes.
const TIES_FOR_KEEPING: f64 = 2.0;

/// Tie shares of an option that changes nothing.
const TIES_FOR_STAYING: f64 = 0.5;

/// Tie shares of the job that has waited longest.
const TIES_FOR_AGE: f64 = 1.0;

/// The most that ties add to the score of a job, as a share of the largest value in the round.
pub(crate) const MOST_TIES: f64 = TIE_SHARE * (TIES_FOR_KEEPING + TIES_FOR_STAYING + TIES_FOR_AGE);

impl<'a> DecisionSpace<'a> {
    /// Lays out the space of a problem.
    pub fn from_problem(problem: &'a PlanningProblem<'a>) -> Self {
        let steps = TimeSteps::from_problem(problem);
        let mut types: Vec<NodeType> = problem.gaps.gaps.iter().map(|g| g.node_type.clone()).collect();
        types.sort();
        types.dedup();
        let (slots, slot_of) = slots::find_slots(problem, &steps, &types);
        let supply = slots::count_supply(&slots, types.len(), steps.len());
        let jobs = Vec::new();
        let limits = Vec::new();
        let limit_at = Vec::new();
        let blocks = BlockLayout::from_slots(problem, &slots);
        let by_stability = OnceCell::new();
        let shares = HostShares::from_problem(problem, &steps, &types, &slots);
        let mut space = DecisionSpace {
            problem,
            steps,
            types,
            slots,
            slot_of,
            supply,
            blocks,
            shares,
            jobs,
            limits,
            limit_at,
            promises: FirstStepGuarantees::default(),
            by_stability,
            counted: SharedCounts::default(),
        };
        let mut jobs: Vec<_> = problem.jobs.iter().filter(|j| !problem.is_busy(j)).collect();
        jobs.sort_by_key(|j| j.id);
        space.jobs = jobs.iter().map(|job| space.job_space(job)).collect();
        space.add_ties();
        limits::add_limits(&mut space);
        guarantees::apply_guarantees(&mut space);
        space.add_gains();
        space
    }

    fn job_space(&self, job: &'a MalleableJob) -> JobSpace<'a> {
        let kept_order = self.kept_order(job);
        let can_stay = cost::can_stay(self.problem, &self.steps, job);
        let reluctance = cost::change_reluctance(self.problem, &self.steps, job);
        let mut space = JobSpace {
            job,
            options: Vec::new(),
            kept_order,
            can_stay,
            reluctance,
            demands: Vec::new(),
            changes: ChangeCosts::default(),
            gains: StepTable::default(),
        };
        space.options = options::job_options(self, &space);
        space.changes = ChangeCosts::between_options(job, &space.options, reluctance);
        space
    }

    /// Held nodes in the order in which a job keeps them.
    fn kept_order(&self, job: &MalleableJob) -> Vec<KeptSlots> {
        let lead = job.lead_node.as_ref().filter(|node| self.problem.held_gap(job, node).is_some());
        let Some(lead) = lead
            .and_then(|node| self.slots_of(node))
            .filter(|slots: &Vec<usize>| slots.len() == job.block.max(1) as usize)
        else {
            return Vec::new();
        };
        let node_type = self.slots[lead[0]].node_type;
        let own = |i: &usize| self.slots[*i].node_type == node_type && self.is_kept(job, self.slots[*i].gap);
        let lasts = |slots: &[usize]| slots.iter().map(|i| self.slots[*i].lasts).min().unwrap_or(0);
        let held =
            job.held.iter().filter_map(|h| self.slots_of(&h.node)).filter(|slots: &Vec<usize>| {
                slots.len() == job.block.max(1) as usize && slots.iter().all(own)
            });
        let mut order: Vec<KeptSlots> = held.map(|slots| KeptSlots { lasts: lasts(&slots), slots }).collect();
        order.dedup();
        let leaf = |slots: &[usize]| self.problem.topology?.leaf_of(&self.slots[*slots.first()?].gap.node);
        let near = leaf(&lead);
        order.sort_by(|a, b| {
            let is_far = |kept: &KeptSlots| leaf(&kept.slots) != near;
            let key = |kept: &KeptSlots| (kept.slots != lead, Reverse(kept.lasts), is_far(kept));
            let gap = |kept: &KeptSlots| self.slots[kept.slots[0]].gap;
            key(a).cmp(&key(b)).then_with(|| compare_stability(gap(b), gap(a)))
        });
        let node = |kept: &KeptSlots| &self.slots[kept.slots[0]].gap.node;
        let Some(first) = order.first().map(node).filter(|node| node.is_place()) else { return order };
        // Of parts of nodes that last equally long, and are equally near, those on the lead's host come
        // first, then the hosts with most of them: what is left when some go is on few hosts.
        let is_far = |kept: &KeptSlots| leaf(&kept.slots) != near;
        let mut hosts: BTreeMap<(usize, NodeName), (usize, usize)> = BTreeMap::new();
        let host = |kept: &KeptSlots| (kept.lasts, node(kept).host());
        for (at, kept) in order.iter().enumerate() {
            hosts.entry(host(kept)).or_insert((0, at)).0 += 1;
        }
        let mut by_host = order.clone();
        by_host.sort_by_cached_key(|kept| {
            let (parts, at) = hosts.get(&host(kept)).copied().unwrap_or_default();
            let of_host = (!node(kept).shares_host_with(first), Reverse(parts), at);
            (kept.slots != lead, Reverse(kept.lasts), is_far(kept), of_host)
        });
        by_host
    }

    /// Ties go to what is there already, then to the job that has waited longest.
    fn add_ties(&mut self) {
        let secs = self.steps.total_secs();
        let unit = TIE_SHARE
            * secs
            * self
                .jobs
                .iter()
                .map(|j: &JobSpace<'_>| j.options.iter().map(|o| o.rate).fold(0.0, f64::max) * j.job.weight)
                .fold(0.0, f64::max);
        let mut by_age: Vec<usize> = (0..self.jobs.len()).collect();
        by_age.sort_by_key(|i| (self.jobs[*i].job.submitted_at, self.jobs[*i].job.id));
        let count = by_age.len().max(1) as f64;
        for (rank, job) in by_age.into_iter().enumerate() {
            let age_share = TIES_FOR_AGE * (1.0 - rank as f64 / count);
            for spec in &mut self.jobs[job].options {
                let keeping = if spec.keeps { TIES_FOR_KEEPING } else { 0.0 };
                let staying = if spec.family == OptionFamily::Stay { TIES_FOR_STAYING } else { 0.0 };
                let calm = keeping + staying;
                spec.first_cost -= unit * (calm + if spec.nodes > 0 { age_share } else { 0.0 });
            }
        }
    }

    /// What each option earns in each step.
    fn add_gains(&mut self) {
        let steps = self.steps.len();
        let gain = |job: usize, step: usize, option: usize| match step {
            _ if !self.is_allowed(job, option, step) => f64::NEG_INFINITY,
            0 => self.first_gain(job, option),
            _ => self.later_gain(job, option, step),
        };
        let table = |job: usize| {
            let options = self.jobs[job].options.len();
            let gains = (0..steps).flat_map(|step| (0..options).map(move |o| gain(job, step, o)));
            StepTable::new(options, gains.collect())
        };
        let tables: Vec<StepTable> = (0..self.jobs.len()).map(table).collect();
        self.jobs.iter_mut().zip(tables).for_each(|(job, gains)| job.gains = gains);
    }
}
