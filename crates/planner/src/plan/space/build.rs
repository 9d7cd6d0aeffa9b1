//! Builds the decision space of a problem: slots, options, ties, gains, limits.

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
use infill_model::{Gap, MalleableJob, NodeName, NodeType, SwitchId};

/// The unit of tie-breaking bonuses, as a share of the largest value in the round. It is far above rounding
/// errors and far below the value of a node-second.
const TIE_SHARE: f64 = 1e-7;

/// Tie shares of an option that keeps nodes.
const TIES_FOR_KEEPING: f64 = 2.0;

/// Tie shares of an option that changes nothing.
const TIES_FOR_STAYING: f64 = 0.5;

/// Tie shares of the job that has waited longest.
const TIES_FOR_AGE: f64 = 1.0;

/// The most that ties add to the score of a job, as a share of the largest value in the round.
pub(crate) const MAX_TIES: f64 = TIE_SHARE * (TIES_FOR_KEEPING + TIES_FOR_STAYING + TIES_FOR_AGE);

impl<'a> DecisionSpace<'a> {
    /// The decision space of a problem.
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
            shared_counts: SharedCounts::default(),
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
        let block = job.places_per_node.max(1) as usize;
        let lead = job.lead_node.as_ref().filter(|node| self.problem.held_gap(job, node).is_some());
        let Some(lead) = lead.and_then(|node| self.slots_of(node)).filter(|slots| slots.len() == block)
        else {
            return Vec::new();
        };
        let node_type = self.slots[lead[0]].node_type;
        let mut order: Vec<KeptSlots> = Vec::new();
        for held in &job.held {
            let Some(slots) = self.slots_of(&held.node).filter(|slots| slots.len() == block) else {
                continue;
            };
            let own = slots.iter().map(|i| &self.slots[*i]);
            if own.clone().all(|slot| slot.node_type == node_type && self.is_kept(job, slot.gap)) {
                let lasts = own.map(|slot| slot.lasts).min().unwrap_or(0);
                order.push(KeptSlots { slots, lasts });
            }
        }
        order.dedup();
        order.sort_by(|a, b| {
            let by_rank = self.keep_rank(a, &lead).cmp(&self.keep_rank(b, &lead));
            by_rank.then_with(|| compare_stability(self.first_gap(b), self.first_gap(a)))
        });
        let has_places = order.first().is_some_and(|kept| self.first_gap(kept).node.is_place());
        if has_places { self.order_by_host(order, &lead) } else { order }
    }

    /// The order in which places of nodes are kept. Among places that last equally long and are equally near,
    /// those on the lead's host come first, then the hosts with most of them. So when some places go, the
    /// rest is on few hosts.
    fn order_by_host(&self, mut order: Vec<KeptSlots>, lead: &[usize]) -> Vec<KeptSlots> {
        let Some(first) = order.first().map(|kept| &self.first_gap(kept).node) else { return order };
        let mut hosts: BTreeMap<(usize, NodeName), (usize, usize)> = BTreeMap::new();
        for (at, kept) in order.iter().enumerate() {
            let host = self.first_gap(kept).node.host();
            hosts.entry((kept.lasts, host)).or_insert((0, at)).0 += 1;
        }
        order.sort_by_cached_key(|kept| {
            let node = &self.first_gap(kept).node;
            let (places, at) = hosts.get(&(kept.lasts, node.host())).copied().unwrap_or_default();
            let is_on_other_host = !node.shares_host_with(first);
            (self.keep_rank(kept, lead), is_on_other_host, Reverse(places), at)
        });
        order
    }

    /// Rank of a held node, the smallest is kept longest: the lead's node, then the longest-lasting nodes,
    /// then those at the lead's switch.
    fn keep_rank(&self, kept: &KeptSlots, lead: &[usize]) -> (bool, Reverse<usize>, bool) {
        let is_far = self.leaf_switch(&kept.slots) != self.leaf_switch(lead);
        (kept.slots != lead, Reverse(kept.lasts), is_far)
    }

    fn leaf_switch(&self, slots: &[usize]) -> Option<SwitchId> {
        self.problem.topology?.leaf_of(&self.slots[*slots.first()?].gap.node)
    }

    fn first_gap(&self, kept: &KeptSlots) -> &'a Gap {
        self.slots[kept.slots[0]].gap
    }

    /// Adds the bonuses that break ties: for keeping what a job has, then for the job that has waited
    /// longest.
    fn add_ties(&mut self) {
        let secs = self.steps.total_secs();
        let best =
            self.jobs.iter().map(|j| j.options.iter().map(|o| o.rate).fold(0.0, f64::max) * j.job.weight);
        let unit = TIE_SHARE * secs * best.fold(0.0, f64::max);
        let mut by_age: Vec<usize> = (0..self.jobs.len()).collect();
        by_age.sort_by_key(|i| (self.jobs[*i].job.submitted_at, self.jobs[*i].job.id));
        let count = by_age.len().max(1) as f64;
        for (rank, job) in by_age.into_iter().enumerate() {
            let age_share = TIES_FOR_AGE * (1.0 - rank as f64 / count);
            for spec in &mut self.jobs[job].options {
                let keeping = if spec.keeps { TIES_FOR_KEEPING } else { 0.0 };
                let staying = if spec.family == OptionFamily::Stay { TIES_FOR_STAYING } else { 0.0 };
                let waiting = if spec.nodes > 0 { age_share } else { 0.0 };
                spec.first_cost -= unit * (keeping + staying + waiting);
            }
        }
    }

    /// Fills in what each option earns in each step.
    fn add_gains(&mut self) {
        for job in 0..self.jobs.len() {
            let options = self.jobs[job].options.len();
            let mut gains = Vec::with_capacity(self.steps.len() * options);
            for step in 0..self.steps.len() {
                gains.extend((0..options).map(|option| self.option_gain(job, step, option)));
            }
            self.jobs[job].gains = StepTable::new(options, gains);
        }
    }

    /// What an option earns in a step; −∞ where it is not allowed.
    fn option_gain(&self, job: usize, step: usize, option: usize) -> f64 {
        if !self.is_allowed(job, option, step) {
            return f64::NEG_INFINITY;
        }
        if step == 0 { self.first_gain(job, option) } else { self.later_gain(job, option, step) }
    }
}
