//! A main queue of which the jobs are known: replays their starts and ends, and plans what waits.
//!
//! Where the log names no nodes, a job that starts gets, of the nodes that no main job uses, first those that backfill had
//! planned for it, then those that are planned for nobody or latest, lowest numbers first: as Slurm would.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use super::backfill::{self, PlannedJob, Timeline, Waiting};
use super::{Moment, NodeIx, Planned, Taken};
use crate::model::NodeName;
use crate::model::trace::{JobLog, LoggedJob};

/// Limit of a job that has none, s: backfill believes that it takes a day.
const NO_LIMIT_SECS: i64 = 86_400;

/// Replays a job log on a machine that is empty at first.
#[derive(Clone, Debug)]
pub struct LogQueue {
    names: Vec<NodeName>,
    /// By start.
    jobs: Vec<LoggedJob>,
    /// Nodes that the log names, by job; empty where it names none.
    named: Vec<Vec<NodeIx>>,
    /// Indices of jobs by submission.
    by_submit: Vec<usize>,
    next_start: usize,
    next_submit: usize,
    ends: BinaryHeap<Reverse<(i64, usize)>>,
    /// Submitted jobs that have not started, by submission.
    waiting: BTreeSet<(i64, usize)>,
    /// Running job of each node.
    user: Vec<Option<usize>>,
    held: BTreeMap<usize, Vec<NodeIx>>,
    plan: Vec<PlannedJob>,
    plan_number: u64,
    first_planned: Vec<Option<Planned>>,
    /// Nodes that jobs should have had but could not, for others had them.
    pub short: u64,
}

impl LogQueue {
    /// A log on a machine of `nodes` nodes; by default as many as the log says, or as its jobs need at once.
    pub fn new(log: &JobLog, nodes: Option<usize>) -> Self {
        let mut known: Vec<NodeName> = log.jobs.iter().flat_map(|j| j.node_list.iter().cloned()).collect();
        known.sort_by(NodeName::cmp_natural);
        known.dedup();
        let total = nodes.or(log.nodes_total.map(|n| n as usize)).unwrap_or_else(|| most_at_once(&log.jobs));
        let names = if known.is_empty() { numbered(total) } else { known };
        let numbers: BTreeMap<&NodeName, NodeIx> = names.iter().zip(0..).collect();
        let of = |j: &LoggedJob| j.node_list.iter().filter_map(|n| numbers.get(n).copied()).collect();
        let named = log.jobs.iter().map(of).collect();
        let mut by_submit: Vec<usize> = (0..log.jobs.len()).collect();
        by_submit.sort_by_key(|i| (log.jobs[*i].submit, *i));
        let count = names.len();
        LogQueue {
            names,
            jobs: log.jobs.clone(),
            named,
            by_submit,
            next_start: 0,
            next_submit: 0,
            ends: BinaryHeap::new(),
            waiting: BTreeSet::new(),
            user: vec![None; count],
            held: BTreeMap::new(),
            plan: Vec::new(),
            plan_number: 0,
            first_planned: vec![None; count],
            short: 0,
        }
    }

    pub(super) fn names(&self) -> &[NodeName] {
        &self.names
    }

    pub(super) fn span(&self) -> (i64, i64) {
        let start = self.jobs.first().map_or(0, |j| j.start);
        let end = self.jobs.iter().map(|j| j.start).max().unwrap_or(start);
        // After the last start the machine only empties: that is the end of the log, not of the queue.
        (start, end)
    }

    pub(super) fn plan(&self) -> (&[PlannedJob], u64) {
        (&self.plan, self.plan_number)
    }

    pub(super) fn planned(&self, node: NodeIx) -> Option<Planned> {
        *self.first_planned.get(node as usize)?
    }

    pub(super) fn next(&self) -> Option<i64> {
        let start = self.jobs.get(self.next_start).map(|j| j.start);
        let submit = self.by_submit.get(self.next_submit).map(|i| self.jobs[*i].submit);
        let end = self.ends.peek().map(|Reverse((at, _))| *at);
        start.into_iter().chain(submit).chain(end).min()
    }

    pub(super) fn advance(&mut self) -> Option<Moment> {
        let at = self.next()?;
        let mut moment = Moment { at, ..Moment::default() };
        while let Some(i) =
            self.by_submit.get(self.next_submit).copied().filter(|i| self.jobs[*i].submit <= at)
        {
            self.waiting.insert((self.jobs[i].submit, i));
            self.next_submit += 1;
        }
        while let Some(Reverse((_, job))) = self.ends.peek().copied().filter(|Reverse((end, _))| *end <= at) {
            self.ends.pop();
            for node in self.held.remove(&job).unwrap_or_default() {
                self.user[node as usize] = None;
                moment.freed.push(node);
            }
        }
        while self.jobs.get(self.next_start).is_some_and(|j| j.start <= at) {
            let taken = self.start(self.next_start);
            moment.taken.push(taken);
            self.next_start += 1;
        }
        // A node that one job leaves to the next is no gap.
        let retaken: BTreeSet<NodeIx> = moment.taken.iter().flat_map(|t| t.nodes.iter().copied()).collect();
        moment.freed.retain(|node| !retaken.contains(node));
        self.plan_ahead(at);
        Some(moment)
    }

    fn start(&mut self, job: usize) -> Taken {
        let logged = &self.jobs[job];
        self.waiting.remove(&(logged.submit, job));
        let nodes = if self.named[job].is_empty() { self.choose(job) } else { self.named[job].clone() };
        let free: Vec<NodeIx> = nodes.into_iter().filter(|n| self.user[*n as usize].is_none()).collect();
        self.short += (logged.nodes as usize).saturating_sub(free.len()) as u64;
        for node in &free {
            self.user[*node as usize] = Some(job);
        }
        let id = self.jobs[job].id;
        self.ends.push(Reverse((self.jobs[job].end, job)));
        self.held.insert(job, free.clone());
        Taken { job: id, nodes: free }
    }

    fn choose(&self, job: usize) -> Vec<NodeIx> {
        let (id, wanted) = (self.jobs[job].id, self.jobs[job].nodes as usize);
        let mut free: Vec<NodeIx> =
            (0..self.user.len()).filter(|n| self.user[*n].is_none()).map(|n| n as NodeIx).collect();
        let own: BTreeSet<NodeIx> =
            self.plan.iter().filter(|p| p.job == id).flat_map(|p| p.nodes.iter().copied()).collect();
        let later = |n: &NodeIx| Reverse(self.planned(*n).map_or(i64::MAX, |p| p.at));
        free.sort_by_key(|n| (!own.contains(n), later(n), *n));
        free.truncate(wanted);
        free
    }

    fn plan_ahead(&mut self, now: i64) {
        let mut free = Timeline::default();
        free.add(now, (0..self.user.len()).filter(|n| self.user[*n].is_none()).map(|n| n as NodeIx));
        for (job, nodes) in &self.held {
            let logged = &self.jobs[*job];
            let end = logged.start.saturating_add(logged.limit_secs.unwrap_or(NO_LIMIT_SECS));
            // What is over its limit may end at any moment.
            free.add(end.max(now + 1), nodes.iter().copied());
        }
        let waiting = |(_, i): &(i64, usize)| {
            let job = &self.jobs[*i];
            let limit_secs = job.limit_secs.unwrap_or(NO_LIMIT_SECS);
            Waiting { job: job.id, nodes: job.nodes as usize, limit_secs }
        };
        let plan = backfill::plan(now, self.waiting.iter().map(waiting), free);
        if plan != self.plan {
            self.plan = plan;
            self.plan_number += 1;
            self.first_planned.fill(None);
            for planned in &self.plan {
                for node in &planned.nodes {
                    let found = Planned { at: planned.start, job: planned.job };
                    let first = &mut self.first_planned[*node as usize];
                    *first = first.filter(|f| f.at <= found.at).or(Some(found));
                }
            }
        }
    }
}

/// Names for nodes that have none, such that they sort as they are numbered.
fn numbered(nodes: usize) -> Vec<NodeName> {
    let width = nodes.to_string().len();
    (1..=nodes).map(|n| NodeName::new(format!("n{n:0width$}"))).collect()
}

/// Most nodes that jobs hold at a time.
fn most_at_once(jobs: &[LoggedJob]) -> usize {
    let changes = jobs.iter().flat_map(|j| [(j.end, -i64::from(j.nodes)), (j.start, i64::from(j.nodes))]);
    let mut changes: Vec<(i64, i64)> = changes.collect();
    changes.sort_unstable();
    let mut held = 0;
    let most = changes.into_iter().map(|(_, change)| {
        held += change;
        held
    });
    most.max().unwrap_or(0).max(0) as usize
}
