//! Moves a job from its present state towards the planner's target.

use std::collections::{BTreeMap, BTreeSet};

use infill_model::{NodeName, UnixTime};

use super::effect::{Effect, StepOutcome};
use super::job_lifecycle::{JobLifecycle, RendezvousStore};
use super::phase::{JobPhase, NextGeneration, StopReason};
use super::settings::{LOST_SECS, LifecycleSettings, SETTLE_SECS, SILENT_SECS};
use super::worker::LiveState;

/// Largest number of passes in a step. Each pass moves on by at most one phase, and the cycle
/// Stopping → Assembling → Running needs three.
const MAX_PASSES: usize = 4;

impl JobLifecycle {
    /// Moves on as far as possible now.
    pub fn step(&mut self, settings: &LifecycleSettings, now: UnixTime, out: &mut StepOutcome) {
        // The agent of a suspended lead cannot act, and a requeue would lose the lead's work.
        if self.obstacles.suspended {
            return;
        }
        for _ in 0..MAX_PASSES {
            let before = self.phase.clone();
            self.step_once(&before, settings, now, out);
            if std::mem::discriminant(&self.phase) == std::mem::discriminant(&before) {
                break;
            }
        }
        self.tidy_wings(settings, now, out);
    }

    /// Moves on by at most one phase. `phase` is a copy of the present phase.
    fn step_once(
        &mut self,
        phase: &JobPhase,
        settings: &LifecycleSettings,
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        if self.generation.lead_absence.is_some()
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
            JobPhase::Assembling { next } => self.step_assembling(next, settings, now, out),
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

    /// Launches a queued lead if its target says so and nothing prevents it.
    fn step_queued(&mut self, next: &NextGeneration, now: UnixTime, out: &mut StepOutcome) {
        let Some(target) = &self.target else { return };
        let Some(first) = target.plan.nodes.first().cloned() else { return };
        if target.blocked
            || self.backoff.start_barred_until(now).is_some()
            || self.obstacles.held_by.is_some()
        {
            return;
        }
        if self.obstacles.is_recently_requeued(now) || self.is_extended_main_job() {
            return;
        }
        // The job's own wing must leave the node first.
        if self.wings.values().any(|w| w.order.nodes.contains(&first.node)) {
            return;
        }
        // Slurm may have planned a main job there since the plan was made. The next plan allows for it.
        let Some(limit_mins) = target.launch_limit_mins(&first, now) else { return };
        let limit_mins = self.capped_by_user_limit(limit_mins);
        let launch = Effect::Launch { job: self.job, node: first.node.clone(), limit_mins };
        // After a failed launch the job stays queued, and a later step launches it again.
        if self.attempt_effect(launch, now, out) {
            self.enter_phase(JobPhase::Launching { node: first.node, next: next.clone() }, now);
        }
    }

    /// Calls a launched lead back if the target no longer has its node. Its agent has not said hello yet.
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

    /// Starts the next generation once enough members are ready, or requeues the lead.
    fn step_assembling(
        &mut self,
        next: &NextGeneration,
        settings: &LifecycleSettings,
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        if let Some(stage) = self.generation.lead_absence.as_ref().map(|away| away.stage) {
            self.assembling_without_lead(stage, next, now);
            return;
        }
        let Some(lead) = self.lead_node().cloned() else { return };
        let Some(agent) = self.workers.get(&lead) else { return };
        let silent_secs = agent.silent_secs(now);
        // Slurm takes the lead's node back: it will show the lead requeued in a moment.
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
            let why = if target.plan.nodes.is_empty() { "back after it was parked" } else { "moved" };
            self.requeue_lead(next.clone().with_reason(why), now);
            return;
        }
        let mut ready = self.ready_members(&lead, now);
        // Waits a moment for planned nodes without an agent. Their wings may not even be ordered yet.
        let is_incomplete = target.plan.nodes.len() > ready.len();
        if is_incomplete && now.secs_since(self.since) < SETTLE_SECS {
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

    /// Handles too few nodes for the smallest size, with no wings pending. If the target has no more nodes,
    /// the job waits for the next plan, which may give more: a lead that took long to start claimed only its
    /// own node in the end. Otherwise the job gives its nodes back.
    fn handle_too_few_nodes(&mut self, next: &NextGeneration, now: UnixTime) {
        let planned = self.target.as_ref().map_or(0, |t| t.plan.nodes.len());
        if (planned as u32) < self.allowed_sizes().min() && !self.obstacles.awaits_new_plan {
            self.await_new_plan();
            return;
        }
        self.phase =
            JobPhase::Assembling { next: next.clone().with_reason("too few nodes for the smallest size") };
        self.backoff.start_after = self.backoff.order_after.or(Some(now.plus_secs(SETTLE_SECS)));
        if let Some(t) = &mut self.target {
            t.plan.nodes.clear();
        }
    }

    /// Keeps the job's nodes and waits for another plan.
    pub(super) fn await_new_plan(&mut self) {
        self.obstacles.awaits_new_plan = true;
        self.target = None;
    }

    /// Nodes that can be members of the next generation: the lead's first, then the wings' in the plan's
    /// order.
    fn ready_members(&self, lead: &NodeName, now: UnixTime) -> Vec<NodeName> {
        let wings = self.workers.iter().filter(|(n, w)| {
            *n != lead && self.wants_wing_on(n) && !w.leaving && w.silent_secs(now) < SILENT_SECS
        });
        let wings = self.in_plan_order(wings.map(|(node, _)| node));
        std::iter::once(lead).chain(wings).cloned().collect()
    }

    /// Sorts nodes in the plan's order, in which nodes on the same switch are adjacent.
    pub(super) fn in_plan_order<'n>(&self, nodes: impl Iterator<Item = &'n NodeName>) -> Vec<&'n NodeName> {
        let planned = self.target.iter().flat_map(|t| &t.plan.nodes).map(|p| &p.node);
        let positions: BTreeMap<&NodeName, usize> = planned.zip(0..).collect();
        let mut nodes: Vec<&NodeName> = nodes.collect();
        nodes.sort_by_key(|node| positions.get(node).copied().unwrap_or(usize::MAX));
        nodes
    }

    /// Whether a wanted wing may still arrive: it is not late, and an agent of it has not said hello.
    pub(super) fn has_pending_wings(&self, settings: &LifecycleSettings, now: UnixTime) -> bool {
        self.wings.values().any(|w| {
            !w.is_late(settings, self.spec.setup_secs, now)
                && w.order.nodes.iter().any(|n| !self.workers.contains_key(n) && self.wants_wing_on(n))
        })
    }

    /// Begins the next generation with these members, the lead first. Their directives become `Run`.
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
        let exec_plan = self.target.as_ref().map(|t| self.declared_plan(&t.plan.exec_plan).clone());
        self.generation.exec_plan = exec_plan.unwrap_or_default();
        self.generation.store = members.first().cloned().map(RendezvousStore::requested_on);
        self.generation.secret = None;
        self.generation.last_roll_call = None;
        for worker in self.workers.values_mut() {
            worker.stopped = None;
            worker.progress_at = None;
            worker.live = LiveState::No;
            worker.step_failed_at = None;
        }
        if self.generation.number > 1 && !next.retry {
            self.counts.rescales += 1;
        }
        self.obstacles.trials.begin_generation();
        self.obstacles.awaits_new_plan = false;
        self.last_change = Some(now);
        if !next.lost {
            self.rescaled_at = Some(now);
        }
        out.started = Some((self.generation.number, self.generation_nodes(&members), next.why.clone()));
        self.enter_phase(JobPhase::Running { members }, now);
    }

    /// Ends, stops or changes the running generation, if its members or its target require it.
    fn step_running(
        &mut self,
        members: &[NodeName],
        settings: &LifecycleSettings,
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        let all_succeeded = members.iter().all(|node| {
            let exit = self.workers.get(node).and_then(|w| w.stopped);
            exit.is_some_and(|exit| exit.code == 0)
        });
        if all_succeeded {
            self.finish_command(now, out);
            return;
        }
        let lost = members.iter().filter(|node| {
            self.is_lost(node, now) || self.is_failed_member(node) || self.missed_roll_call(node, now)
        });
        let lost: Vec<NodeName> = lost.cloned().collect();
        if !lost.is_empty() {
            self.continue_after_loss(members, &lost, now, out);
            return;
        }
        if self.is_store_missing(now) {
            let reason = StopReason::Failed { code: 1 };
            let next = NextGeneration::for_reason("the rendezvous store could not be opened");
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

    /// The command has ended on all workers. An absent lead must end, too: once it is back, the command finds
    /// in its checkpoint that the training is complete.
    pub(super) fn finish_command(&mut self, now: UnixTime, out: &mut StepOutcome) {
        out.notes.push("the command has ended on all workers".to_owned());
        match self.generation.lead_absence.as_ref().map(|away| away.stage) {
            None => self.enter_phase(JobPhase::Ending { code: 0 }, now),
            Some(stage) => {
                let next = NextGeneration::for_reason("the command ended while its lead was away");
                self.assembling_without_lead(stage, &next, now);
            }
        }
    }

    /// Moves a command that stays alive towards its target. Changes of size do not stop such a command.
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
        // A change that begins now could wait for a member that is already lost.
        if self.may_have_lost_member(members, now) {
            return;
        }
        if let Some((to, why)) = self.wanted_live_change(members, settings, now) {
            self.change_live_members(members, to, why, now, out);
        }
    }

    /// Whether a member is lost. Slurm may show a silent member running. It counts as lost once the other
    /// members seem to wait for it: they send heartbeats, but no longer report progress as they did before.
    fn is_lost(&self, node: &NodeName, now: UnixTime) -> bool {
        let Some(worker) = self.workers.get(node) else { return true };
        let another_waits = self.workers.values().any(|other| {
            other.silent_secs(now) < SILENT_SECS
                && other.progress_at.is_some_and(|at| now.secs_since(at) > LOST_SECS)
        });
        worker.silent_secs(now) > LOST_SECS && another_waits
    }

    /// Why the target needs a restart with other members or another execution plan; `None` if it does not.
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
            // The job stays as it is until its lead is back.
            Some(_) if self.generation.lead_absence.is_some() => return None,
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

    /// Why to restart with more members: enough workers have arrived for a larger size, and no wing is
    /// pending.
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
        if size <= members.len() {
            return None;
        }
        let plan = &self.target.as_ref()?.plan;
        let present_nodes = self.generation_node_count(members.len());
        let next_nodes = self.generation_node_count(size);
        Some(plan.with_probe_note(format!("grown from {present_nodes} to {next_nodes}"), size))
    }
}
