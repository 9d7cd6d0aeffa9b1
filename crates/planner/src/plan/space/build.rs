//! Lays out the decision space of a problem: slots, options, ties, gains, limits.

use std::cell::OnceCell;
use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::blocks::Blocks;
use super::changes::Changes;
use super::decision::{JobSpace, Kept, Promises, SharedCounts, Space};
use super::problem::Problem;
use super::promises;
use super::shares::Shares;
use super::slots::{self, stability};
use super::spec::Family;
use super::steps::Steps;
use super::table::Table;
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

impl<'a> Space<'a> {
    /// Lays out the space of a problem.
    pub fn of(problem: &'a Problem<'a>) -> Self {
        let steps = Steps::of(problem);
        let mut types: Vec<NodeType> = problem.gaps.gaps.iter().map(|g| g.node_type.clone()).collect();
        types.sort();
        types.dedup();
        let (slots, slot_of) = slots::of(problem, &steps, &types);
        let supply = slots::supply(&slots, types.len(), steps.len());
        let (jobs, limits, limit_at) = (Vec::new(), Vec::new(), Vec::new());
        let (blocks, by_stability) = (Blocks::of(problem, &slots), OnceCell::new());
        let shares = Shares::of(problem, &steps, &types, &slots);
        let mut space = Space {
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
            promises: Promises::default(),
            by_stability,
            counted: SharedCounts::default(),
        };
        let mut jobs: Vec<_> = problem.jobs.iter().filter(|j| !problem.is_busy(j)).collect();
        jobs.sort_by_key(|j| j.id);
        space.jobs = jobs.iter().map(|job| space.job_space(job)).collect();
        space.add_ties();
        limits::add(&mut space);
        promises::apply(&mut space);
        space.add_gains();
        space
    }

    fn job_space(&self, job: &'a MalleableJob) -> JobSpace<'a> {
        let kept_order = self.kept_order(job);
        let can_stay = cost::can_stay(self.problem, &self.steps, job);
        let reluctance = cost::reluctance(self.problem, &self.steps, job);
        let mut space = JobSpace {
            job,
            options: Vec::new(),
            kept_order,
            can_stay,
            reluctance,
            demands: Vec::new(),
            changes: Changes::default(),
            gains: Table::default(),
        };
        space.options = options::of(self, &space);
        space.changes = Changes::of(job, &space.options, reluctance);
        space
    }

    /// Held nodes in the order in which a job keeps them.
    fn kept_order(&self, job: &MalleableJob) -> Vec<Kept> {
        let lead = job.lead_node.as_ref().filter(|node| self.problem.held_gap(job, node).is_some());
        let is_one = |slots: &Vec<usize>| slots.len() == job.block.max(1) as usize;
        let Some(lead) = lead.and_then(|node| self.slots_of(node)).filter(is_one) else {
            return Vec::new();
        };
        let node_type = self.slots[lead[0]].node_type;
        let own = |i: &usize| self.slots[*i].node_type == node_type && self.is_kept(job, self.slots[*i].gap);
        let lasts = |slots: &[usize]| slots.iter().map(|i| self.slots[*i].lasts).min().unwrap_or(0);
        let is_whole = |slots: &Vec<usize>| slots.len() == job.block.max(1) as usize && slots.iter().all(own);
        let held = job.held.iter().filter_map(|h| self.slots_of(&h.node)).filter(is_whole);
        let mut order: Vec<Kept> = held.map(|slots| Kept { lasts: lasts(&slots), slots }).collect();
        order.dedup();
        let leaf = |slots: &[usize]| self.problem.topology?.leaf_of(&self.slots[*slots.first()?].gap.node);
        let near = leaf(&lead);
        order.sort_by(|a, b| {
            let is_far = |kept: &Kept| leaf(&kept.slots) != near;
            let key = |kept: &Kept| (kept.slots != lead, Reverse(kept.lasts), is_far(kept));
            let gap = |kept: &Kept| self.slots[kept.slots[0]].gap;
            key(a).cmp(&key(b)).then_with(|| stability(gap(b), gap(a)))
        });
        let node = |kept: &Kept| &self.slots[kept.slots[0]].gap.node;
        let Some(first) = order.first().map(node).filter(|node| node.is_place()) else { return order };
        // Of parts of nodes that last equally long, and are equally near, those on the lead's host come
        // first, then the hosts with most of them: what is left when some go is on few hosts.
        let is_far = |kept: &Kept| leaf(&kept.slots) != near;
        let mut hosts: BTreeMap<(usize, NodeName), (usize, usize)> = BTreeMap::new();
        let host = |kept: &Kept| (kept.lasts, node(kept).host());
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
        let value = |j: &JobSpace<'_>| j.options.iter().map(|o| o.rate).fold(0.0, f64::max) * j.job.weight;
        let unit = TIE_SHARE * secs * self.jobs.iter().map(value).fold(0.0, f64::max);
        let mut by_age: Vec<usize> = (0..self.jobs.len()).collect();
        by_age.sort_by_key(|i| (self.jobs[*i].job.submitted_at, self.jobs[*i].job.id));
        let count = by_age.len().max(1) as f64;
        for (rank, job) in by_age.into_iter().enumerate() {
            let age_share = TIES_FOR_AGE * (1.0 - rank as f64 / count);
            for spec in &mut self.jobs[job].options {
                let keeping = if spec.keeps { TIES_FOR_KEEPING } else { 0.0 };
                let staying = if spec.family == Family::Stay { TIES_FOR_STAYING } else { 0.0 };
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
            Table::new(options, gains.collect())
        };
        let tables: Vec<Table> = (0..self.jobs.len()).map(table).collect();
        self.jobs.iter_mut().zip(tables).for_each(|(job, gains)| job.gains = gains);
    }
}
