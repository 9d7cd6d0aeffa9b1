//! One step from what is towards what the planner wants.

use std::collections::BTreeSet;

use crate::model::{Exit, JobPlan, NodeName, Placement, UnixTime, WindowEnd, WingOrder};

use super::{
    Effect, LEAVING_SECS, LOST_SECS, Machine, Outcome, Phase, SETTLE_SECS, SILENT_SECS, STOP_MARGIN_SECS,
    Settings, Wing, start_limit_mins,
};

/// A node that the planner gives to the job anew, with what ends its window: nodes with the same known end
/// make one wing, others one each, because Slurm preempts whole jobs.
#[allow(missing_debug_implementations, reason = "closures have no text")]
pub struct Ground<'a> {
    /// Tells the end of a node's window.
    pub window: &'a dyn Fn(&NodeName) -> WindowEnd,
    /// Whether the node can be taken now (nothing of ours is still on it).
    pub free: &'a dyn Fn(&NodeName) -> bool,
}

/// Hands out order numbers that were never used before.
pub trait OrderNumbers {
    /// The next number; `None` when the store could not give more: then nothing is ordered.
    fn next(&mut self) -> Option<u64>;
}

impl Machine {
    /// Takes in what the planner wants and orders the wings that are missing.
    pub fn set_target(
        &mut self,
        plan: &JobPlan,
        ground: &Ground<'_>,
        orders: &mut dyn OrderNumbers,
        settings: &Settings,
        now: UnixTime,
        out: &mut Outcome,
    ) {
        if matches!(self.phase, Phase::Ending { .. } | Phase::Ended) {
            return;
        }
        self.target = Some(plan.clone());
        self.take_settings(settings);
        // The plan may be older than the last word of an agent whose node Slurm takes.
        let leaving: Vec<NodeName> =
            self.workers.iter().filter(|(_, w)| w.leaving).map(|(n, _)| n.clone()).collect();
        leaving.iter().for_each(|n| self.untarget(n));
        let Some(plan) = self.target.clone() else { return };
        self.blocked = plan.nodes.first().is_some_and(|p| !(ground.free)(&p.node));
        let lead_is_here = plan.nodes.first().is_some_and(|p| self.lead_node() == Some(&p.node))
            && self.workers.values().any(|w| w.slurm_job == self.job && !w.leaving);
        if !lead_is_here || matches!(self.phase, Phase::Requeueing | Phase::Launching { .. }) {
            return;
        }
        if self.orders_after.is_some_and(|t| t > now) {
            return;
        }
        let held = self.occupied();
        let missing: Vec<&Placement> = plan
            .nodes
            .iter()
            .skip(1)
            .filter(|p| !held.contains_key(&p.node) && (ground.free)(&p.node))
            .collect();
        for block in blocks(&missing, ground) {
            let Some(number) = orders.next() else {
                out.notes.push("no order number to be had: nothing was ordered".to_owned());
                return;
            };
            self.order(number, &block, settings, now);
        }
    }

    fn take_settings(&mut self, settings: &Settings) {
        self.start_patience = settings.lead_start_secs;
        self.wing_patience = settings.wing_start_secs;
        self.backoff_first = settings.backoff_secs;
        self.backoff_longest = settings.backoff_max_secs;
    }

    fn order(&mut self, number: u64, block: &[&Placement], settings: &Settings, now: UnixTime) {
        let lease = block.iter().map(|p| p.lease_until).min().unwrap_or(now);
        let some = |s: &str| (!s.is_empty()).then(|| s.to_owned());
        let order = WingOrder {
            order: number,
            nodes: block.iter().map(|p| p.node.clone()).collect(),
            time_limit_mins: start_limit_mins(lease.secs_since(now)),
            partition: settings.partition.clone(),
            qos: settings.qos.clone().or_else(|| some(&self.lead_qos)),
            account: some(&self.account),
            gres: some(&self.gres),
        };
        let wing = Wing { order, ordered_at: now, job: None, batch_host: None, seen_running: false };
        self.wings.insert(number, wing);
    }

    /// Moves on as far as possible now.
    pub fn step(&mut self, now: UnixTime, out: &mut Outcome) {
        // Each pass moves at most one phase on; a cycle Stopping → Idle → Running needs three.
        for _ in 0..4 {
            let before = self.phase.clone();
            match self.phase.clone() {
                Phase::Queued => self.step_queued(now, out),
                Phase::Launching { node } => self.step_launching(&node, now, out),
                Phase::Idle => self.step_idle(now, out),
                Phase::Running { members } => self.step_running(&members, now, out),
                Phase::Stopping { members, failed, lost, untold } => {
                    self.lost = lost;
                    let failed = failed.filter(|_| !lost);
                    self.step_stopping(&members, failed, untold, now, out);
                }
                Phase::Requeueing => {
                    self.attempt(Effect::RequeueHold { job: self.job }, now, out);
                }
                Phase::Ending { .. } | Phase::Ended => {}
            }
            if self.phase == before {
                break;
            }
        }
        self.tidy_wings(now, out);
    }

    fn step_queued(&mut self, now: UnixTime, out: &mut Outcome) {
        let Some(first) = self.target.as_ref().and_then(|t| t.nodes.first()).cloned() else { return };
        if self.blocked || self.backoff_until.is_some_and(|t| t > now) {
            return;
        }
        // Our own wing must be off the node first.
        if self.wings.values().any(|w| w.order.nodes.contains(&first.node)) {
            return;
        }
        let limit = start_limit_mins(first.lease_until.secs_since(now));
        self.attempt(Effect::Launch { job: self.job, node: first.node.clone(), limit_mins: limit }, now, out);
        self.enter(Phase::Launching { node: first.node }, now);
    }

    /// A lead on its way (or whose script has not come to `infill run` yet) is called back if its node is not
    /// wanted.
    fn step_launching(&mut self, node: &NodeName, now: UnixTime, out: &mut Outcome) {
        let Some(target) = &self.target else { return };
        if target.nodes.first().is_some_and(|p| p.node == *node) {
            return;
        }
        out.notes.push(format!("called the lead back from {node}"));
        self.enter(Phase::Requeueing, now);
    }

    fn step_idle(&mut self, now: UnixTime, out: &mut Outcome) {
        let Some(lead) = self.lead_node().cloned() else { return };
        // Slurm takes the lead: it will show the job requeued in a moment.
        if self.workers.get(&lead).is_some_and(|w| w.leaving) {
            return;
        }
        let Some(target) = &self.target else { return };
        if target.nodes.first().is_none_or(|p| p.node != lead) {
            let aim = if target.nodes.is_empty() { "back after it was parked" } else { "moved" };
            self.why = aim.to_owned();
            self.enter(Phase::Requeueing, now);
            return;
        }
        let ready = self.ready_members(&lead, now);
        // What the planner gave but is not here yet (its wings may not even be ordered) is worth a moment.
        let incomplete = target.nodes.len() > ready.len();
        if incomplete && now.secs_since(self.since) < SETTLE_SECS {
            return;
        }
        let waiting = self.wings_under_way(now);
        let size = self.allowed().up_to(ready.len() as u32).last().copied();
        match size {
            Some(size) => self.start(ready.into_iter().take(size as usize).collect(), now, out),
            None if waiting => {}
            // Not enough for the smallest size, and nothing on its way: give back what is held.
            None => {
                self.why = "too few nodes for the smallest size".to_owned();
                self.backoff_until = self.orders_after.or(Some(now.plus_secs(SETTLE_SECS)));
                if let Some(t) = &mut self.target {
                    t.nodes.clear();
                }
            }
        }
    }

    /// Nodes that could be in the next generation: the lead's first, then by name.
    fn ready_members(&self, lead: &NodeName, now: UnixTime) -> Vec<NodeName> {
        let wing_ready = |n: &NodeName| {
            n != lead
                && self.wants_wing_on(n)
                && self
                    .workers
                    .get(n)
                    .is_some_and(|w| !w.leaving && now.secs_since(w.last_seen) < SILENT_SECS)
        };
        let wings = self.workers.keys().filter(|n| wing_ready(n)).cloned();
        std::iter::once(lead.clone()).chain(wings).collect()
    }

    fn wings_under_way(&self, now: UnixTime) -> bool {
        self.wings.values().any(|w| {
            now.secs_since(w.ordered_at) < self.wing_patience
                && w.order.nodes.iter().any(|n| !self.workers.contains_key(n) && self.wants_wing_on(n))
        })
    }

    fn start(&mut self, members: Vec<NodeName>, now: UnixTime, out: &mut Outcome) {
        let Some(lead) = members.first().and_then(|n| self.workers.get(n)) else { return };
        self.master = Some((lead.address.clone(), lead.port));
        self.generation += 1;
        self.exec_plan = self.target.as_ref().map(|t| t.exec_plan.clone()).unwrap_or_default();
        for worker in self.workers.values_mut() {
            worker.stopped = None;
        }
        if self.generation > 1 && !self.retrying {
            self.rescales += 1;
        }
        self.retrying = false;
        self.last_change = Some(now);
        if !std::mem::take(&mut self.lost) {
            self.rescaled_at = Some(now);
        }
        let why = std::mem::take(&mut self.why);
        out.started = Some((self.generation, members.clone(), why));
        self.enter(Phase::Running { members }, now);
    }

    fn step_running(&mut self, members: &[NodeName], now: UnixTime, out: &mut Outcome) {
        let done = |n: &NodeName| self.workers.get(n).is_some_and(|w| w.stopped.is_some_and(|e| e.code == 0));
        if members.iter().all(done) {
            out.notes.push("the command has ended on all workers".to_owned());
            self.enter(Phase::Ending { code: 0 }, now);
            return;
        }
        let lost: Vec<NodeName> = members.iter().filter(|n| self.is_lost(n, now)).cloned().collect();
        if !lost.is_empty() {
            self.lose(&lost, &format!("{} fell silent", lost[0]), now);
            return;
        }
        let (Some(target), Some(lead)) = (self.target.clone(), members.first()) else { return };
        let wanted: BTreeSet<&NodeName> = target.nodes.iter().map(|p| &p.node).collect();
        let leaving: Vec<&NodeName> = members.iter().filter(|n| !wanted.contains(n)).collect();
        let moved = target.nodes.first().is_none_or(|p| p.node != *lead);
        let why = if target.exec_plan != self.exec_plan {
            Some(format!("execution plan {}", target.exec_plan.0))
        } else if moved {
            Some(if target.nodes.is_empty() { "parked".to_owned() } else { format!("{lead} must be left") })
        } else if let Some(first) = leaving.first() {
            Some(format!("shrunk by {} ({first} ...)", leaving.len()))
        } else {
            self.grown(lead, members, now)
        };
        if let Some(why) = why {
            self.why = why;
            self.enter(
                Phase::Stopping { members: members.to_vec(), failed: None, lost: false, untold: false },
                now,
            );
        }
    }

    fn is_lost(&self, node: &NodeName, now: UnixTime) -> bool {
        self.workers.get(node).is_none_or(|w| now.secs_since(w.last_seen) > LOST_SECS)
    }

    /// Whether it is time to take in workers that have arrived: all that were ordered are here, or given up.
    fn grown(&self, lead: &NodeName, members: &[NodeName], now: UnixTime) -> Option<String> {
        if self.wings_under_way(now) {
            return None;
        }
        let ready = self.ready_members(lead, now);
        let size = self.allowed().up_to(ready.len() as u32).last().copied()? as usize;
        (size > members.len()).then(|| format!("grown from {} to {size}", members.len()))
    }

    fn step_stopping(
        &mut self,
        members: &[NodeName],
        failed: Option<i32>,
        untold: bool,
        now: UnixTime,
        out: &mut Outcome,
    ) {
        let patience = f64::from(self.spec.grace_secs) + STOP_MARGIN_SECS;
        let over = now.secs_since(self.since) > patience;
        let silent = |n: &NodeName| {
            self.workers.get(n).is_none_or(|w| {
                let patience = if w.leaving { LEAVING_SECS } else { SILENT_SECS };
                w.stopped.is_none() && (over || now.secs_since(w.last_seen) > patience)
            })
        };
        let stopped = |n: &NodeName| self.workers.get(n).is_some_and(|w| w.stopped.is_some());
        if !members.iter().all(|n| stopped(n) || silent(n)) {
            return;
        }
        let gone: Vec<NodeName> = members.iter().filter(|n| !stopped(n)).cloned().collect();
        if !gone.is_empty() {
            out.notes.push(format!("gave up {} of {} workers that did not stop", gone.len(), members.len()));
        }
        let lead = members.first();
        self.drop_silent(&gone, lead, now);
        let own = if untold { self.own_end(members) } else { failed };
        match own.filter(|_| gone.is_empty()) {
            Some(0) => {
                out.notes.push("the command had ended on all workers".to_owned());
                self.enter(Phase::Ending { code: 0 }, now);
            }
            Some(code) => self.retry(code, now, out),
            None => self.enter(Phase::Idle, now),
        }
        if lead.is_some_and(|l| gone.contains(l)) {
            self.target = None;
            self.enter(Phase::Requeueing, now);
        }
    }

    /// The code with which the command ended by itself: that of the first member that failed, or 0 if none
    /// did and nobody was asked to stop.
    fn own_end(&self, members: &[NodeName]) -> Option<i32> {
        let exits: Vec<Exit> = members.iter().filter_map(|n| self.workers.get(n)?.stopped).collect();
        let failed = exits.iter().find(|e| !e.asked && e.code != 0).map(|e| e.code);
        failed.or_else(|| exits.iter().all(|e| !e.asked).then_some(0))
    }

    fn drop_silent(&mut self, gone: &[NodeName], lead: Option<&NodeName>, now: UnixTime) {
        let wings: Vec<NodeName> = gone.iter().filter(|n| Some(*n) != lead).cloned().collect();
        self.drop_nodes(&wings, "a worker fell silent", now);
    }

    fn retry(&mut self, code: i32, now: UnixTime, out: &mut Outcome) {
        if self.restarts >= self.spec.max_restarts {
            out.notes.push(format!("the command failed with code {code} after {} restarts", self.restarts));
            self.enter(Phase::Ending { code }, now);
            return;
        }
        self.restarts += 1;
        self.retrying = true;
        out.notes.push(format!("restart {} of {} after code {code}", self.restarts, self.spec.max_restarts));
        self.enter(Phase::Idle, now);
    }

    /// Gives back wings that nobody wants any more, and those that never came.
    fn tidy_wings(&mut self, now: UnixTime, out: &mut Outcome) {
        let members: BTreeSet<NodeName> = match &self.phase {
            Phase::Running { members } | Phase::Stopping { members, .. } => members.iter().cloned().collect(),
            _ => BTreeSet::new(),
        };
        let all_go = matches!(self.phase, Phase::Ending { .. } | Phase::Ended)
            || (self.phase == Phase::Queued && self.target.is_none());
        for order in self.wings.keys().copied().collect::<Vec<_>>() {
            self.tidy_wing(order, all_go, &members, now, out);
        }
    }

    fn tidy_wing(
        &mut self,
        order: u64,
        all_go: bool,
        members: &BTreeSet<NodeName>,
        now: UnixTime,
        out: &mut Outcome,
    ) {
        let Some(wing) = self.wings.get(&order).cloned() else { return };
        let nodes = &wing.order.nodes;
        if nodes.iter().any(|n| members.contains(n)) {
            return;
        }
        let late = now.secs_since(wing.ordered_at) > self.wing_patience;
        let keep: Vec<NodeName> =
            nodes.iter().filter(|n| !all_go && self.wants_wing_on(n)).cloned().collect();
        let came = |n: &NodeName| self.workers.contains_key(n);
        let Some(job) = wing.job else {
            // Not submitted yet: an order that nobody wants, or that nobody took, is simply withdrawn.
            if keep.is_empty() || late {
                self.wings.remove(&order);
                nodes.iter().for_each(|n| self.untarget(n));
            }
            return;
        };
        let stuck = late && !keep.iter().all(came);
        let on_host = wing.batch_host.as_ref().is_none_or(|h| keep.contains(h));
        if keep.is_empty() || stuck || !on_host {
            if stuck {
                out.notes.push(format!("wing {job} did not come up in time: cancelled"));
            }
            // One that waited in the queue met a limit or the main queue; one that ran met something on its
            // nodes.
            if stuck && wing.seen_running {
                out.strikes.extend(nodes.iter().map(|n| (n.clone(), "a wing did not come up".to_owned())));
            }
            nodes.iter().for_each(|n| self.untarget(n));
            self.attempt(Effect::CancelWing { job }, now, out);
        } else if keep.len() < nodes.len() {
            let gone: Vec<NodeName> = nodes.iter().filter(|n| !keep.contains(n)).cloned().collect();
            self.attempt(Effect::ShrinkWing { job, keep: keep.clone() }, now, out);
            gone.iter().for_each(|n| drop(self.workers.remove(n)));
            if let Some(w) = self.wings.get_mut(&order) {
                w.order.nodes = keep;
            }
        }
    }
}

/// Groups new nodes into wings: one for each known window end, one for each node without.
fn blocks<'a>(missing: &[&'a Placement], ground: &Ground<'_>) -> Vec<Vec<&'a Placement>> {
    let mut known: Vec<(UnixTime, Vec<&Placement>)> = Vec::new();
    let mut out = Vec::new();
    for p in missing {
        match (ground.window)(&p.node) {
            WindowEnd::Known { at, .. } => match known.iter_mut().find(|(end, _)| *end == at) {
                Some((_, block)) => block.push(p),
                None => known.push((at, vec![p])),
            },
            WindowEnd::Unknown => out.push(vec![*p]),
        }
    }
    out.extend(known.into_iter().map(|(_, block)| block));
    out
}
