//! One step from what is towards what the planner wants.

use std::collections::{BTreeMap, BTreeSet};

use infill_model::{NodeName, UnixTime};

use super::effect::{Effect, Outcome};
use super::machine::{Machine, Store};
use super::phase::{Next, Phase, StopReason};
use super::settings::{LOST_SECS, SETTLE_SECS, SILENT_SECS, Settings};
use super::worker::{Live, Worker};

/// Each pass moves at most one phase on; a cycle Stopping → Idle → Running needs three.
const MOST_PASSES: usize = 4;

impl Machine {
    /// Moves on as far as possible now.
    pub fn step(&mut self, settings: &Settings, now: UnixTime, out: &mut Outcome) {
        // Whatever is wanted of a suspended lead, its agent cannot do it; and requeued it would lose its
        // work.
        if self.obstacles.suspended {
            return;
        }
        for _ in 0..MOST_PASSES {
            let before = self.phase.clone();
            self.step_once(&before, settings, now, out);
            if std::mem::discriminant(&self.phase) == std::mem::discriminant(&before) {
                break;
            }
        }
        self.tidy_wings(settings, now, out);
    }

    fn step_once(&mut self, phase: &Phase, settings: &Settings, now: UnixTime, out: &mut Outcome) {
        if self.generation.away.is_some() && matches!(phase, Phase::Running { .. } | Phase::Regrouping { .. })
        {
            self.step_away(settings, now, out);
            if self.phase != *phase {
                return;
            }
        }
        match phase {
            Phase::Queued { next } => self.step_queued(next, now, out),
            Phase::Launching { node, next } => self.step_launching(node, next, now, out),
            Phase::Idle { next } => self.step_idle(next, settings, now, out),
            Phase::Running { members } => self.step_running(members, settings, now, out),
            Phase::Stopping { members, reason, next } => self.step_stopping(members, *reason, next, now, out),
            Phase::Regrouping { members, regroup, next } => {
                self.step_regrouping(members, regroup, next, now, out);
            }
            Phase::Requeueing { .. } => {
                self.attempt(Effect::RequeueHold { job: self.job }, now, out);
            }
            Phase::Ending { .. } | Phase::Ended => {}
        }
    }

    fn step_queued(&mut self, next: &Next, now: UnixTime, out: &mut Outcome) {
        let Some(target) = &self.target else { return };
        let Some(first) = target.plan.nodes.first().cloned() else { return };
        if target.blocked || self.backoff.start_barred(now).is_some() || self.obstacles.held_by.is_some() {
            return;
        }
        if self.obstacles.is_just_back(now) || self.is_extension() {
            return;
        }
        // Our own wing must be off the node first.
        if self.wings.values().any(|w| w.order.nodes.contains(&first.node)) {
            return;
        }
        // A main job may have been planned there since the plan was made: the next one knows.
        let Some(limit_mins) = target.launch_limit_mins(&first, now) else { return };
        let limit_mins = self.within_limit(limit_mins);
        let launch = Effect::Launch { job: self.job, node: first.node.clone(), limit_mins };
        // One that has just failed is asked for again in a moment, from here.
        if self.attempt(launch, now, out) {
            self.enter(Phase::Launching { node: first.node, next: next.clone() }, now);
        }
    }

    /// A lead on its way (or whose script has not come to `infill run` yet) is called back if its node is not
    /// wanted.
    fn step_launching(&mut self, node: &NodeName, next: &Next, now: UnixTime, out: &mut Outcome) {
        let Some(target) = &self.target else { return };
        if target.plan.nodes.first().is_some_and(|p| p.node == *node) {
            return;
        }
        out.notes.push(format!("called the lead back from {node}"));
        self.requeue(next.clone(), now);
    }

    fn step_idle(&mut self, next: &Next, settings: &Settings, now: UnixTime, out: &mut Outcome) {
        if let Some(stage) = self.generation.away.as_ref().map(|away| away.stage) {
            self.idle_without_lead(stage, next, now);
            return;
        }
        let Some(lead) = self.lead_node().cloned() else { return };
        let Some(agent) = self.workers.get(&lead) else { return };
        let silent_secs = agent.silent_secs(now);
        // Slurm takes the lead: it will show the job requeued in a moment.
        if agent.leaving {
            return;
        }
        if silent_secs > LOST_SECS {
            self.requeue(next.clone().but("the lead's agent fell silent"), now);
            return;
        }
        if silent_secs > SILENT_SECS {
            return;
        }
        if next.retry && self.backoff.retry_barred(now) {
            return;
        }
        let Some(target) = &self.target else { return };
        if target.plan.nodes.first().is_none_or(|p| p.node != lead) {
            let aim = if target.plan.nodes.is_empty() { "back after it was parked" } else { "moved" };
            self.requeue(next.clone().but(aim), now);
            return;
        }
        let mut ready = self.ready_members(&lead, now);
        // What the planner gave but is not here yet (its wings may not even be ordered) is worth a moment.
        let incomplete = target.plan.nodes.len() > ready.len();
        if incomplete && now.secs_since(self.since) < SETTLE_SECS {
            return;
        }
        match self.allowed().up_to(ready.len() as u32).last() {
            Some(size) => {
                ready.truncate(*size as usize);
                self.start(ready, next, now, out);
            }
            None if self.wings_under_way(settings, now) => {}
            None => self.too_few(next, now),
        }
    }

    /// Not enough for the smallest size, and nothing on its way. If no more was planned, the next plan may
    /// give more: a lead that was on its way for long claimed only its own node in the end. Else gives back
    /// what is held.
    fn too_few(&mut self, next: &Next, now: UnixTime) {
        let planned = self.target.as_ref().map_or(0, |t| t.plan.nodes.len());
        if (planned as u32) < self.allowed().min() && !self.obstacles.seeks {
            self.seek();
            return;
        }
        self.phase = Phase::Idle { next: next.clone().but("too few nodes for the smallest size") };
        self.backoff.start_after = self.backoff.order_after.or(Some(now.plus_secs(SETTLE_SECS)));
        if let Some(t) = &mut self.target {
            t.plan.nodes.clear();
        }
    }

    /// Waits for another plan, with what it has.
    pub(super) fn seek(&mut self) {
        self.obstacles.seeks = true;
        self.target = None;
    }

    /// Nodes that could be in the next generation: the lead's first, then in the plan's order.
    fn ready_members(&self, lead: &NodeName, now: UnixTime) -> Vec<NodeName> {
        let wings = self.workers.iter().filter(|(n, w)| {
            *n != lead && self.wants_wing_on(n) && !w.leaving && w.silent_secs(now) < SILENT_SECS
        });
        std::iter::once(lead).chain(self.in_plan_order(wings.map(|(n, _)| n))).cloned().collect()
    }

    /// These nodes in the plan's order, in which those on one switch follow each other.
    pub(super) fn in_plan_order<'n>(&self, nodes: impl Iterator<Item = &'n NodeName>) -> Vec<&'n NodeName> {
        let planned = self.target.iter().flat_map(|t| &t.plan.nodes).map(|p| &p.node);
        let places: BTreeMap<&NodeName, usize> = planned.zip(0..).collect();
        let mut nodes: Vec<&NodeName> = nodes.collect();
        nodes.sort_by_key(|node| places.get(node).copied().unwrap_or(usize::MAX));
        nodes
    }

    pub(super) fn wings_under_way(&self, settings: &Settings, now: UnixTime) -> bool {
        self.wings.values().any(|w| {
            !w.is_late(settings, now)
                && w.order.nodes.iter().any(|n| !self.workers.contains_key(n) && self.wants_wing_on(n))
        })
    }

    fn start(&mut self, members: Vec<NodeName>, next: &Next, now: UnixTime, out: &mut Outcome) {
        let Some(lead) = members.first().and_then(|n| self.workers.get(n)) else { return };
        self.generation.master = Some((lead.address.clone(), lead.port));
        self.generation.number = self.generation.number.saturating_add(1);
        self.generation.exec_plan =
            self.target.as_ref().map(|t| self.declared(&t.plan.exec_plan).clone()).unwrap_or_default();
        self.generation.store = members.first().cloned().map(Store::asked_of);
        self.generation.secret = None;
        self.generation.roll = None;
        for worker in self.workers.values_mut() {
            (worker.stopped, worker.progress_at) = (None, None);
            (worker.live, worker.doubt) = (Live::No, None);
        }
        if self.generation.number > 1 && !next.retry {
            self.counts.rescales += 1;
        }
        self.obstacles.trials.begin();
        self.obstacles.seeks = false;
        self.last_change = Some(now);
        if !next.lost {
            self.rescaled_at = Some(now);
        }
        out.started = Some((self.generation.number, self.all_nodes(&members), next.why.clone()));
        self.enter(Phase::Running { members }, now);
    }

    fn step_running(&mut self, members: &[NodeName], settings: &Settings, now: UnixTime, out: &mut Outcome) {
        let done = |n: &NodeName| self.workers.get(n).is_some_and(|w| w.stopped.is_some_and(|e| e.code == 0));
        if members.iter().all(done) {
            self.has_ended(now, out);
            return;
        }
        let is_lost =
            |n: &&NodeName| self.is_lost(n, now) || self.has_fallen(n) || self.misses_the_roll(n, now);
        let lost: Vec<NodeName> = members.iter().filter(is_lost).cloned().collect();
        if !lost.is_empty() {
            self.go_on_after_loss(members, &lost, now, out);
            return;
        }
        if self.has_no_store(now) {
            let (reason, next) = (StopReason::Failed { code: 1 }, Next::because("no store could be opened"));
            self.enter(Phase::Stopping { members: members.to_vec(), reason, next }, now);
            return;
        }
        if self.lives_on(members) && !self.must_restart(members) {
            self.step_alive(members, settings, now, out);
            return;
        }
        if let Some(why) = self.change_wanted(members, settings, now) {
            let (reason, next) = (StopReason::Rescale, Next::because(why));
            self.enter(Phase::Stopping { members: members.to_vec(), reason, next }, now);
        }
    }

    /// The command has ended on all workers. A lead that is away has to end, too: once it is back, the
    /// command finds in its checkpoint that all is done.
    pub(super) fn has_ended(&mut self, now: UnixTime, out: &mut Outcome) {
        out.notes.push("the command has ended on all workers".to_owned());
        match self.generation.away.as_ref().map(|away| away.stage) {
            None => self.enter(Phase::Ending { code: 0 }, now),
            Some(stage) => {
                let next = Next::because("the command ended while its lead was away");
                self.idle_without_lead(stage, &next, now);
            }
        }
    }

    /// A command that stays alive: no change of size stops it.
    fn step_alive(&mut self, members: &[NodeName], settings: &Settings, now: UnixTime, out: &mut Outcome) {
        if self.doubts(members, now) {
            self.meet_again(members, now, out);
            return;
        }
        if self.target.is_some() {
            self.greet(members, now, out);
        }
        // A change that begins before it is known who is lost would wait for whoever that is.
        if self.may_miss_somebody(members, now) {
            return;
        }
        if let Some((to, why)) = self.wanted_alive(members, settings, now) {
            self.change_alive(members, to, why, now, out);
        }
    }

    /// Whether a member is gone. One that Slurm shows running and that is only silent is doubted once those
    /// wait for it that are still heard: they told of progress before, and tell of none any more.
    fn is_lost(&self, node: &NodeName, now: UnixTime) -> bool {
        let Some(worker) = self.workers.get(node) else { return true };
        let waits = |w: &Worker| {
            w.silent_secs(now) < SILENT_SECS && w.progress_at.is_some_and(|t| now.secs_since(t) > LOST_SECS)
        };
        worker.silent_secs(now) > LOST_SECS && self.workers.values().any(waits)
    }

    /// Why the planner wants another generation than the one of these members, if it does.
    fn change_wanted(&self, members: &[NodeName], settings: &Settings, now: UnixTime) -> Option<String> {
        let (plan, lead) = (&self.target.as_ref()?.plan, self.lead_node()?);
        let exec_plan = self.declared(&plan.exec_plan);
        if *exec_plan != self.generation.exec_plan {
            return Some(plan.with_probe_note(format!("execution plan {}", exec_plan.0), plan.nodes.len()));
        }
        match plan.nodes.first() {
            None => return Some("parked".to_owned()),
            Some(first) if first.node != *lead => {
                return Some(plan.with_probe_note(format!("{lead} must be left"), plan.nodes.len()));
            }
            // The job stays as it is until it is back.
            Some(_) if self.generation.away.is_some() => return None,
            Some(_) => {}
        }
        let wanted: BTreeSet<&NodeName> = plan.nodes.iter().map(|p| &p.node).collect();
        let leaving: Vec<&NodeName> = members.iter().filter(|n| !wanted.contains(n)).collect();
        match leaving.first() {
            Some(first) => {
                let why = format!("shrunk by {} ({first} ...)", leaving.len());
                Some(plan.with_probe_note(why, members.len() - leaving.len()))
            }
            None => self.grown(lead, members, settings, now),
        }
    }

    /// Whether it is time to take in workers that have arrived: all that were ordered are here, or given up.
    fn grown(
        &self,
        lead: &NodeName,
        members: &[NodeName],
        settings: &Settings,
        now: UnixTime,
    ) -> Option<String> {
        if self.wings_under_way(settings, now) {
            return None;
        }
        let ready = self.ready_members(lead, now);
        let size = self.allowed().up_to(ready.len() as u32).last().copied()? as usize;
        let nodes = |members| self.nodes_of(members);
        let plan = &self.target.as_ref()?.plan;
        let why = || format!("grown from {} to {}", nodes(members.len()), nodes(size));
        (size > members.len()).then(|| plan.with_probe_note(why(), size))
    }
}
