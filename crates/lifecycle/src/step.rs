//! One step from what is towards what the planner wants.

use std::collections::{BTreeMap, BTreeSet};

use infill_model::{NodeName, UnixTime};

use super::effect::{Effect, StepOutcome};
use super::job_lifecycle::{JobLifecycle, RendezvousStore};
use super::phase::{JobPhase, NextGeneration, StopReason};
use super::settings::{LOST_SECS, LifecycleSettings, SETTLE_SECS, SILENT_SECS};
use super::worker::{LiveState, Worker};

/// Each pass moves at most one phase on; a cycle Stopping → Idle → Running needs three.
const MOST_PASSES: usize = 4;

impl JobLifecycle {
    /// Moves on as far as possible now.
    pub fn step(&mut self, settings: &LifecycleSettings, now: UnixTime, out: &mut StepOutcome) {
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

    fn step_once(
        &mut self,
        phase: &JobPhase,
        settings: &LifecycleSettings,
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        if self.generation.away.is_some()
            && matches!(phase, JobPhase::Running { .. } | JobPhase::Regrouping { .. })
        {
            self.step_absence(settings, now, out);
            if self.phase != *phase {
                return;
            }
        }
        match phase {
            JobPhase::Queued { next } => self.step_queued(next, now, out),
            JobPhase::Launching { node, next } => self.step_launching(node, next, now, out),
            JobPhase::Idle { next } => self.step_idle(next, settings, now, out),
            JobPhase::Running { members } => self.step_running(members, settings, now, out),
            JobPhase::Stopping { members, reason, next } => {
                self.step_stopping(members, *reason, next, now, out)
            }
            JobPhase::Regrouping { members, regroup, next } => {
                self.step_regrouping(members, regroup, next, now, out);
            }
            JobPhase::Requeueing { .. } => {
                self.attempt_effect(Effect::RequeueHold { job: self.job }, now, out);
            }
            JobPhase::Ending { .. } | JobPhase::Ended => {}
        }
    }

    fn step_queued(&mut self, next: &NextGeneration, now: UnixTime, out: &mut StepOutcome) {
        let Some(target) = &self.target else { return };
        let Some(first) = target.plan.nodes.first().cloned() else { return };
        if target.blocked
            || self.backoff.start_barred_until(now).is_some()
            || self.obstacles.held_by.is_some()
        {
            return;
        }
        if self.obstacles.is_recently_requeued(now) || self.is_extension() {
            return;
        }
        // Our own wing must be off the node first.
        if self.wings.values().any(|w| w.order.nodes.contains(&first.node)) {
            return;
        }
        // A main job may have been planned there since the plan was made: the next one knows.
        let Some(limit_mins) = target.launch_limit_mins(&first, now) else { return };
        let limit_mins = self.capped_by_user_limit(limit_mins);
        let launch = Effect::Launch { job: self.job, node: first.node.clone(), limit_mins };
        // One that has just failed is asked for again in a moment, from here.
        if self.attempt_effect(launch, now, out) {
            self.enter_phase(JobPhase::Launching { node: first.node, next: next.clone() }, now);
        }
    }

    /// A lead on its way (or whose script has not come to `infill run` yet) is called back if its node is not
    /// wanted.
    fn step_launching(
        &mut self,
        node: &NodeName,
        next: &NextGeneration,
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        let Some(target) = &self.target else { return };
        if target.plan.nodes.first().is_some_and(|p| p.node == *node) {
            return;
        }
        out.notes.push(format!("called the lead back from {node}"));
        self.requeue_lead(next.clone(), now);
    }

    fn step_idle(
        &mut self,
        next: &NextGeneration,
        settings: &LifecycleSettings,
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
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
            self.requeue_lead(next.clone().with_reason("the lead's agent fell silent"), now);
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
            self.requeue_lead(next.clone().with_reason(aim), now);
            return;
        }
        let mut ready = self.ready_members(&lead, now);
        // What the planner gave but is not here yet (its wings may not even be ordered) is worth a moment.
        let incomplete = target.plan.nodes.len() > ready.len();
        if incomplete && now.secs_since(self.since) < SETTLE_SECS {
            return;
        }
        match self.allowed_sizes().up_to(ready.len() as u32).last() {
            Some(size) => {
                ready.truncate(*size as usize);
                self.start_generation(ready, next, now, out);
            }
            None if self.has_pending_wings(settings, now) => {}
            None => self.handle_too_few_nodes(next, now),
        }
    }

    /// Not enough for the smallest size, and nothing on its way. If no more was planned, the next plan may
    /// give more: a lead that was on its way for long claimed only its own node in the end. Else gives back
    /// what is held.
    fn handle_too_few_nodes(&mut self, next: &NextGeneration, now: UnixTime) {
        let planned = self.target.as_ref().map_or(0, |t| t.plan.nodes.len());
        if (planned as u32) < self.allowed_sizes().min() && !self.obstacles.seeks {
            self.await_new_plan();
            return;
        }
        self.phase = JobPhase::Idle { next: next.clone().with_reason("too few nodes for the smallest size") };
        self.backoff.start_after = self.backoff.order_after.or(Some(now.plus_secs(SETTLE_SECS)));
        if let Some(t) = &mut self.target {
            t.plan.nodes.clear();
        }
    }

    /// Waits for another plan, with what it has.
    pub(super) fn await_new_plan(&mut self) {
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

    pub(super) fn has_pending_wings(&self, settings: &LifecycleSettings, now: UnixTime) -> bool {
        self.wings.values().any(|w| {
            !w.is_late(settings, now)
                && w.order.nodes.iter().any(|n| !self.workers.contains_key(n) && self.wants_wing_on(n))
        })
    }

    fn start_generation(
        &mut self,
        members: Vec<NodeName>,
        next: &NextGeneration,
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        let Some(lead) = members.first().and_then(|n| self.workers.get(n)) else { return };
        self.generation.master = Some((lead.address.clone(), lead.port));
        self.generation.number = self.generation.number.saturating_add(1);
        self.generation.exec_plan =
            self.target.as_ref().map(|t| self.declared_plan(&t.plan.exec_plan).clone()).unwrap_or_default();
        self.generation.store = members.first().cloned().map(RendezvousStore::requested_on);
        self.generation.secret = None;
        self.generation.roll = None;
        for worker in self.workers.values_mut() {
            (worker.stopped, worker.progress_at) = (None, None);
            (worker.live, worker.doubt) = (LiveState::No, None);
        }
        if self.generation.number > 1 && !next.retry {
            self.counts.rescales += 1;
        }
        self.obstacles.trials.begin_generation();
        self.obstacles.seeks = false;
        self.last_change = Some(now);
        if !next.lost {
            self.rescaled_at = Some(now);
        }
        out.started = Some((self.generation.number, self.generation_nodes(&members), next.why.clone()));
        self.enter_phase(JobPhase::Running { members }, now);
    }

    fn step_running(
        &mut self,
        members: &[NodeName],
        settings: &LifecycleSettings,
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        if members
            .iter()
            .all(|n: &NodeName| self.workers.get(n).is_some_and(|w| w.stopped.is_some_and(|e| e.code == 0)))
        {
            self.finish_command(now, out);
            return;
        }
        let lost: Vec<NodeName> = members
            .iter()
            .filter(|n: &&NodeName| {
                self.is_lost(n, now) || self.is_failed_member(n) || self.missed_roll_call(n, now)
            })
            .cloned()
            .collect();
        if !lost.is_empty() {
            self.continue_after_loss(members, &lost, now, out);
            return;
        }
        if self.is_store_missing(now) {
            let reason = StopReason::Failed { code: 1 };
            let next = NextGeneration::for_reason("no store could be opened");
            self.enter_phase(JobPhase::Stopping { members: members.to_vec(), reason, next }, now);
            return;
        }
        if self.is_live_on(members) && !self.must_restart(members) {
            self.step_live(members, settings, now, out);
            return;
        }
        if let Some(why) = self.restart_reason(members, settings, now) {
            let reason = StopReason::Rescale;
            let next = NextGeneration::for_reason(why);
            self.enter_phase(JobPhase::Stopping { members: members.to_vec(), reason, next }, now);
        }
    }

    /// The command has ended on all workers. A lead that is away has to end, too: once it is back, the
    /// command finds in its checkpoint that all is done.
    pub(super) fn finish_command(&mut self, now: UnixTime, out: &mut StepOutcome) {
        out.notes.push("the command has ended on all workers".to_owned());
        match self.generation.away.as_ref().map(|away| away.stage) {
            None => self.enter_phase(JobPhase::Ending { code: 0 }, now),
            Some(stage) => {
                let next = NextGeneration::for_reason("the command ended while its lead was away");
                self.idle_without_lead(stage, &next, now);
            }
        }
    }

    /// A command that stays alive: no change of size stops it.
    fn step_live(
        &mut self,
        members: &[NodeName],
        settings: &LifecycleSettings,
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        if self.has_unresolved_failure(members, now) {
            self.regroup_same_members(members, now, out);
            return;
        }
        if self.target.is_some() {
            self.warm_newcomers(members, now, out);
        }
        // A change that begins before it is known who is lost would wait for whoever that is.
        if self.may_have_lost_member(members, now) {
            return;
        }
        if let Some((to, why)) = self.wanted_live_change(members, settings, now) {
            self.change_live_members(members, to, why, now, out);
        }
    }

    /// Whether a member is gone. One that Slurm shows running and that is only silent is doubted once those
    /// wait for it that are still heard: they told of progress before, and tell of none any more.
    fn is_lost(&self, node: &NodeName, now: UnixTime) -> bool {
        let Some(worker) = self.workers.get(node) else { return true };
        worker.silent_secs(now) > LOST_SECS
            && self.workers.values().any(|w: &Worker| {
                w.silent_secs(now) < SILENT_SECS
                    && w.progress_at.is_some_and(|t| now.secs_since(t) > LOST_SECS)
            })
    }

    /// Why the planner wants another generation than the one of these members, if it does.
    fn restart_reason(
        &self,
        members: &[NodeName],
        settings: &LifecycleSettings,
        now: UnixTime,
    ) -> Option<String> {
        let plan = &self.target.as_ref()?.plan;
        let lead = self.lead_node()?;
        let exec_plan = self.declared_plan(&plan.exec_plan);
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
            None => self.growth_reason(lead, members, settings, now),
        }
    }

    /// Whether it is time to take in workers that have arrived: all that were ordered are here, or given up.
    fn growth_reason(
        &self,
        lead: &NodeName,
        members: &[NodeName],
        settings: &LifecycleSettings,
        now: UnixTime,
    ) -> Option<String> {
        if self.has_pending_wings(settings, now) {
            return None;
        }
        let ready = self.ready_members(lead, now);
        let size = self.allowed_sizes().up_to(ready.len() as u32).last().copied()? as usize;
        let nodes = |members| self.generation_node_count(members);
        let plan = &self.target.as_ref()?.plan;
        let why = || format!("grown from {} to {}", nodes(members.len()), nodes(size));
        (size > members.len()).then(|| plan.with_probe_note(why(), size))
    }
}
