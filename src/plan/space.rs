//! The decision space of a round: what each job may do in each step, what that earns, and what it uses.
//!
//! Nodes of one type are interchangeable but for their windows. Every idle node is free from now until its window ends,
//! so what is available only shrinks, and counting nodes is enough: counts can be laid on real nodes without migration
//! (see `extract`). What a job holds now has its own windows; so an option says how many of those nodes it keeps.

use std::collections::BTreeMap;

use super::options::{self, Family, Spec};
use super::steps::Steps;
use super::{Problem, cost};
use crate::model::{Gap, MalleableJob, NodeName, NodeType};

/// Share of the largest value in the round by which ties are broken: far above rounding errors, far below anything that
/// a node-second is worth.
const TIE_SHARE: f64 = 1e-7;

/// A limit on what all jobs use together in one step.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    /// What it limits.
    pub of: Resource,
    /// The step.
    pub step: usize,
    /// Most that may be used.
    pub most: u32,
}

/// What can run short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// Nodes of a type that last through the step.
    Nodes(usize),
    /// Those of them on which a job may start: not those that only their holder may still use, because the window
    /// is too short for others.
    StartNodes(usize),
    /// Nodes of a type that lie outside a set which some jobs must avoid, for those jobs.
    Allowed(usize),
    /// Voluntary changes, in the first step.
    Changes,
}

/// A node as the planner counts it.
#[derive(Clone, Copy, Debug)]
pub struct Slot<'a> {
    /// The gap.
    pub gap: &'a Gap,
    /// Index of its type.
    pub node_type: usize,
    /// Number of steps it lasts through, at least 1.
    pub lasts: usize,
    /// Whether jobs that do not hold it may take it.
    pub startable: bool,
}

/// One job's part of the space.
#[derive(Clone, Debug)]
pub struct JobSpace<'a> {
    /// The job.
    pub job: &'a MalleableJob,
    /// Options; the first is to hold nothing.
    pub options: Vec<Spec>,
    /// Held nodes in the order in which they are kept: the lead's, then the longest-lasting. Empty for a job that
    /// holds nothing, or whose lead must leave.
    pub kept_order: Vec<usize>,
    /// Whether a change would be the job's own choice: it could keep all that it holds.
    pub can_stay: bool,
    /// Weighted samples that a change must gain at least.
    pub reluctance: f64,
    /// What each option uses of each limit: `uses[option][step]` lists (limit, amount).
    pub uses: Vec<Vec<Vec<(usize, u32)>>>,
    /// What going over from each option to each other one costs between two steps, row by row.
    changes: Vec<f64>,
}

impl JobSpace<'_> {
    /// Weighted samples lost by going over from one option to another between two steps.
    pub fn change_cost(&self, from: usize, to: usize) -> f64 {
        self.changes.get(from * self.options.len() + to).copied().unwrap_or(0.0)
    }

    fn compute_changes(&mut self) {
        let cost = |from: usize, to: usize| {
            let change = self.options[from].change_to(&self.options[to], from == to);
            let loss = change.loss(&self.job.costs, self.options[to].rate) * self.job.weight;
            loss + if change.takes_nodes() { self.reluctance } else { 0.0 }
        };
        let count = self.options.len();
        self.changes = (0..count * count).map(|i| cost(i / count, i % count)).collect();
    }
}

/// The decision space. Busy jobs are not in it; what they hold is not available to others.
#[derive(Clone, Debug)]
pub struct Space<'a> {
    /// The problem.
    pub problem: &'a Problem<'a>,
    /// The steps.
    pub steps: Steps,
    /// Node types.
    pub types: Vec<NodeType>,
    /// Usable nodes, sorted by name; none of a busy job.
    pub slots: Vec<Slot<'a>>,
    /// Jobs that may change, by id.
    pub jobs: Vec<JobSpace<'a>>,
    /// Limits.
    pub limits: Vec<Limit>,
}

/// For each job of the space its option in each step.
pub type Schedule = Vec<Vec<usize>>;

impl<'a> Space<'a> {
    /// Lays out the space of a problem.
    pub fn of(problem: &'a Problem<'a>) -> Self {
        let steps = Steps::of(problem);
        let mut types: Vec<NodeType> = problem.gaps.gaps.iter().map(|g| g.node_type.clone()).collect();
        types.sort();
        types.dedup();
        let slots = slots(problem, &steps, &types);
        let mut space = Space { problem, steps, types, slots, jobs: Vec::new(), limits: Vec::new() };
        let mut jobs: Vec<_> = problem.jobs.iter().filter(|j| !problem.is_busy(j)).collect();
        jobs.sort_by_key(|j| j.id);
        space.jobs = jobs.iter().map(|job| space.job_space(job)).collect();
        space.add_ties();
        space.add_limits();
        space
    }

    /// The slot of a node.
    pub fn slot(&self, node: &NodeName) -> Option<usize> {
        self.slots.binary_search_by(|s| s.gap.node.cmp(node)).ok()
    }

    /// Nodes of a type that last through a step and that the job may start on.
    pub fn available(&self, job: &MalleableJob, node_type: usize, step: usize) -> u32 {
        let fits = |s: &&Slot<'_>| {
            s.node_type == node_type
                && s.lasts > step
                && (self.is_kept(job, s.gap) || (s.startable && !excludes(job, &s.gap.node)))
        };
        self.slots.iter().filter(fits).count() as u32
    }

    /// Whether the job holds the node.
    pub fn is_kept(&self, job: &MalleableJob, gap: &Gap) -> bool {
        gap.holder == Some(job.id)
    }

    /// Weighted samples of a job's option in the first step, less what the change to it costs, with ties broken.
    pub fn first_gain(&self, job: usize, option: usize) -> f64 {
        let spec = &self.jobs[job].options[option];
        spec.rate * self.jobs[job].job.weight * self.steps.secs(0) - spec.first_cost
    }

    /// Weighted samples of a job's option in a later step, without the change to it.
    pub fn later_gain(&self, job: usize, option: usize, step: usize) -> f64 {
        self.jobs[job].options[option].rate * self.jobs[job].job.weight * self.steps.secs(step)
    }

    /// The score of a schedule: what the solver maximises.
    pub fn score(&self, schedule: &Schedule) -> f64 {
        (0..self.jobs.len()).map(|job| self.path_score(job, &schedule[job])).sum()
    }

    /// One job's part of the score.
    pub fn path_score(&self, job: usize, path: &[usize]) -> f64 {
        let mut score = path.first().map_or(0.0, |option| self.first_gain(job, *option));
        for (step, pair) in path.windows(2).enumerate() {
            score += self.later_gain(job, pair[1], step + 1) - self.jobs[job].change_cost(pair[0], pair[1]);
        }
        score
    }

    /// Whether a schedule keeps all limits, and each option is allowed where it is used.
    pub fn is_feasible(&self, schedule: &Schedule) -> bool {
        let allowed = |(job, path): (usize, &Vec<usize>)| {
            path.len() == self.steps.len()
                && path.iter().enumerate().all(|(step, option)| self.is_allowed(job, *option, step))
        };
        schedule.len() == self.jobs.len()
            && schedule.iter().enumerate().all(allowed)
            && self.left(schedule).iter().all(|left| *left >= 0)
    }

    /// Whether a job may use an option in a step, other jobs apart.
    pub fn is_allowed(&self, job: usize, option: usize, step: usize) -> bool {
        self.jobs[job]
            .options
            .get(option)
            .is_some_and(|spec| step < spec.lasts && (step > 0 || spec.now) && (step == 0 || spec.later))
    }

    /// What a schedule leaves of each limit.
    pub fn left(&self, schedule: &Schedule) -> Vec<i64> {
        let mut left: Vec<i64> = self.limits.iter().map(|limit| i64::from(limit.most)).collect();
        for (job, path) in schedule.iter().enumerate() {
            self.take(&mut left, job, path, 1);
        }
        left
    }

    /// Subtracts `sign` times what a job's path uses.
    pub fn take(&self, left: &mut [i64], job: usize, path: &[usize], sign: i64) {
        for (step, option) in path.iter().enumerate() {
            for (limit, amount) in &self.jobs[job].uses[*option][step] {
                left[*limit] -= sign * i64::from(*amount);
            }
        }
    }

    fn job_space(&self, job: &'a MalleableJob) -> JobSpace<'a> {
        let kept_order = self.kept_order(job);
        let can_stay = cost::can_stay(self.problem, &self.steps, job);
        let reluctance = self.problem.config.hysteresis * cost::present_value(self.problem, &self.steps, job);
        let mut space = JobSpace {
            job,
            options: Vec::new(),
            kept_order,
            can_stay,
            reluctance,
            uses: Vec::new(),
            changes: Vec::new(),
        };
        space.options = options::of(self, &space);
        space.compute_changes();
        space
    }

    /// Held nodes in the order in which a job keeps them.
    fn kept_order(&self, job: &MalleableJob) -> Vec<usize> {
        let Some(lead) = job.lead_node.as_ref().and_then(|node| self.slot(node)) else { return Vec::new() };
        if self.problem.held_gap(job, &self.slots[lead].gap.node).is_none() {
            return Vec::new();
        }
        let node_type = self.slots[lead].node_type;
        let mut order: Vec<usize> = (0..self.slots.len())
            .filter(|i| self.slots[*i].node_type == node_type && self.is_kept(job, self.slots[*i].gap))
            .filter(|i| self.problem.held_gap(job, &self.slots[*i].gap.node).is_some())
            .collect();
        order.sort_by(|a, b| {
            let key = |i: usize| (i != lead, std::cmp::Reverse(self.slots[i].lasts));
            key(*a).cmp(&key(*b)).then_with(|| stability(self.slots[*b].gap, self.slots[*a].gap))
        });
        order
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
            let age_share = 1.0 - rank as f64 / count;
            for spec in &mut self.jobs[job].options {
                let calm =
                    if spec.keeps { 2.0 } else { 0.0 } + if spec.family == Family::Stay { 0.5 } else { 0.0 };
                spec.first_cost -= unit * (calm + if spec.nodes > 0 { age_share } else { 0.0 });
            }
        }
    }

    fn add_limits(&mut self) {
        let avoided = self.avoided_sets();
        let mut limits = Vec::new();
        for step in 0..self.steps.len() {
            for node_type in 0..self.types.len() {
                let lasting = |s: &&Slot<'_>| s.node_type == node_type && s.lasts > step;
                let count = |f: &dyn Fn(&Slot<'_>) -> bool| {
                    self.slots.iter().filter(lasting).filter(|s| f(s)).count() as u32
                };
                let (all, startable) = (count(&|_| true), count(&|s| s.startable));
                limits.push((Limit { of: Resource::Nodes(node_type), step, most: all }, None));
                if startable < all {
                    let of = Resource::StartNodes(node_type);
                    limits.push((Limit { of, step, most: startable }, None));
                }
                for (set, jobs) in &avoided {
                    let most = count(&|s| set.binary_search(&s.gap.node).is_err());
                    if most < all {
                        let of = Resource::Allowed(node_type);
                        limits.push((Limit { of, step, most }, Some(jobs.clone())));
                    }
                }
            }
        }
        if !self.problem.drain && !self.steps.is_empty() {
            let most = self.problem.config.max_changes;
            limits.push((Limit { of: Resource::Changes, step: 0, most }, None));
        }
        for job in 0..self.jobs.len() {
            self.jobs[job].uses = self.uses(job, &limits);
        }
        self.limits = limits.into_iter().map(|(limit, _)| limit).collect();
    }

    /// Each distinct set of nodes that jobs must avoid, with the jobs that avoid at least these.
    fn avoided_sets(&self) -> BTreeMap<Vec<NodeName>, Vec<usize>> {
        let mut sets: BTreeMap<Vec<NodeName>, Vec<usize>> = BTreeMap::new();
        for space in self.jobs.iter().filter(|j| !j.job.excluded.is_empty()) {
            sets.entry(space.job.excluded.clone()).or_default();
        }
        for (set, jobs) in &mut sets {
            let avoids = |i: &usize| set.iter().all(|node| excludes(self.jobs[*i].job, node));
            *jobs = (0..self.jobs.len()).filter(avoids).collect();
        }
        sets
    }

    /// What each option of a job uses in each step.
    fn uses(&self, job: usize, limits: &[(Limit, Option<Vec<usize>>)]) -> Vec<Vec<Vec<(usize, u32)>>> {
        let space = &self.jobs[job];
        let use_of = |spec: &Spec, limit: &Limit, jobs: &Option<Vec<usize>>| -> u32 {
            let kept = space.kept_order.iter().take(spec.kept as usize).map(|i| &self.slots[*i]);
            match limit.of {
                Resource::Nodes(t) if t == spec.node_type => spec.nodes,
                Resource::StartNodes(t) if t == spec.node_type => {
                    spec.nodes - kept.filter(|s| !s.startable).count() as u32
                }
                Resource::Allowed(t)
                    if t == spec.node_type && jobs.as_ref().is_some_and(|jobs| jobs.contains(&job)) =>
                {
                    spec.nodes - kept.filter(|s| excludes(space.job, &s.gap.node)).count() as u32
                }
                Resource::Changes => u32::from(spec.voluntary),
                _ => 0,
            }
        };
        let of_step = |spec: &Spec, step: usize| {
            let here = limits.iter().enumerate().filter(|(_, (limit, _))| limit.step == step);
            here.map(|(i, (limit, jobs))| (i, use_of(spec, limit, jobs))).filter(|(_, n)| *n > 0).collect()
        };
        space
            .options
            .iter()
            .map(|spec| (0..self.steps.len()).map(|step| of_step(spec, step)).collect())
            .collect()
    }
}

/// Orders gaps by how long they will stay: known or counted-on end, then expectation, then place in Slurm's order.
///
/// Slurm fills nodes of equal weight in the order of its configuration, lowest first, so the highest stays free longest.
pub fn stability(a: &Gap, b: &Gap) -> std::cmp::Ordering {
    let by_end = a.usable_until.cmp(&b.usable_until);
    by_end.then(a.expected_secs.total_cmp(&b.expected_secs)).then_with(|| a.node.cmp_natural(&b.node))
}

/// Whether the job must avoid the node.
pub fn excludes(job: &MalleableJob, node: &NodeName) -> bool {
    job.excluded.binary_search(node).is_ok()
}

/// All nodes that last through the first step, except those of busy jobs.
fn slots<'a>(problem: &'a Problem<'a>, steps: &Steps, types: &[NodeType]) -> Vec<Slot<'a>> {
    let busy: Vec<_> = problem.jobs.iter().filter(|j| problem.is_busy(j)).map(|j| j.id).collect();
    let known: Vec<_> = problem.jobs.iter().map(|j| j.id).collect();
    let slot = |gap: &'a Gap| {
        let lasts = steps.through(gap.usable_until);
        let node_type = types.binary_search(&gap.node_type).ok()?;
        let long = gap.usable_until.secs_since(problem.now) >= problem.min_window_secs;
        // A node whose holder we do not plan is somebody else's.
        let foreign = gap.holder.is_some_and(|h| busy.contains(&h) || !known.contains(&h));
        (lasts > 0 && !foreign).then_some(Slot { gap, node_type, lasts, startable: long })
    };
    problem.gaps.gaps.iter().filter_map(slot).collect()
}
