//! Commands that stay alive over changes: their state on each worker, newcomers, and possible members.

use infill_model::{AgentEvent, CommandExit, NodeName, RescaleMode, UnixTime};

use super::effect::StepOutcome;
use super::job_lifecycle::JobLifecycle;
use super::phase::{JobPhase, StopReason};
use super::settings::{JOIN_SECS, LifecycleSettings, MAX_WARM_SECS, SILENT_SECS, WARM_SECS, WARM_TIMES};
use super::worker::{LiveState, WorkerAgent};

/// Longest credible standstill of a member, seconds: long before, a restart replaces the change.
const MAX_STANDSTILL_SECS: f64 = 3600.0;

impl JobLifecycle {
    /// Applies an agent's event about a command that stays alive.
    pub(super) fn handle_live_event(
        &mut self,
        node: &NodeName,
        event: &AgentEvent,
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        let number = self.generation.number;
        match *event {
            AgentEvent::Ready { .. } => self.handle_ready(node, now),
            AgentEvent::Store { generation, port, ref secret } if generation == number => {
                let store = self.generation.store.as_mut().filter(|s| s.node == *node);
                if let Some(store) = store {
                    let is_first_report = store.port.is_none();
                    store.port = Some(port);
                    store.secret = secret.clone();
                    // Members may have received the secret by the next report, so only the first one sets it.
                    if is_first_report {
                        self.generation.secret = self.shared_secret(self.phase.members());
                    }
                }
            }
            AgentEvent::Joined { generation, secs } if generation == number => self.handle_joined(node, secs),
            AgentEvent::Failed { generation } if generation == number => {
                if let Some(worker) = self.workers.get_mut(node) {
                    worker.step_failed_at.get_or_insert(now);
                }
                self.start_roll_call(now);
            }
            AgentEvent::Stuck { generation } if generation == number => self.start_roll_call(now),
            AgentEvent::Failed { generation } | AgentEvent::Stuck { generation }
                if generation < number && self.is_waiting_for_step() =>
            {
                self.start_roll_call(now);
            }
            AgentEvent::Hopeless { generation, ref why } if generation == number => {
                self.handle_hopeless(node, why, now, out);
            }
            _ => {}
        }
    }

    /// The command on `node` is ready to join a generation.
    fn handle_ready(&mut self, node: &NodeName, now: UnixTime) {
        let number = self.generation.number;
        if let Some(worker) = self.workers.get_mut(node)
            && worker.live != LiveState::Member(number)
            && !matches!(worker.live, LiveState::Ready { .. })
        {
            let began = if let LiveState::Warming { since } = worker.live { since } else { self.since };
            let warm_secs = now.secs_since(began).max(0.0) as u32;
            self.counts.warm_secs = self.counts.warm_secs.max(warm_secs);
            worker.live = LiveState::Ready { since: now };
        }
    }

    /// How long a newcomer may take to be ready, seconds.
    fn warm_limit_secs(&self) -> f64 {
        (WARM_TIMES * f64::from(self.counts.warm_secs)).clamp(WARM_SECS, MAX_WARM_SECS)
    }

    /// The command on `node` has joined the present generation, after a standstill of `secs`.
    fn handle_joined(&mut self, node: &NodeName, secs: f64) {
        let number = self.generation.number;
        let lead = self.job;
        let is_member = self.phase.members().contains(node);
        let is_regrouping = matches!(self.phase, JobPhase::Regrouping { .. });
        let Some(worker) = self.workers.get_mut(node).filter(|_| is_member) else { return };
        // A repeated report does not resolve a failed step.
        if worker.live != LiveState::Member(number) {
            worker.live = LiveState::Member(number);
            worker.step_failed_at = None;
        }
        let is_credible = (0.0..=MAX_STANDSTILL_SECS).contains(&secs);
        worker.standstill_secs = (is_regrouping && is_credible).then_some(secs);
        if worker.slurm_job != lead {
            self.backoff.reset_after_wing();
            self.obstacles.shortage = None;
        }
    }

    /// Asks all workers for a sign of life, because a step has failed or lasts suspiciously long.
    fn start_roll_call(&mut self, now: UnixTime) {
        let calls = self.generation.last_roll_call.map_or(0, |(calls, _)| calls);
        let is_recent = self
            .generation
            .last_roll_call
            .is_some_and(|(_, called_at)| now.secs_since(called_at) < SILENT_SECS);
        let is_live = matches!(&self.phase, JobPhase::Running { members } if self.is_live_on(members));
        if (is_live || self.is_waiting_for_step()) && !is_recent {
            self.generation.last_roll_call = Some((calls.saturating_add(1), now));
            for worker in self.workers.values_mut() {
                worker.answered = false;
            }
        }
    }

    /// Whether a change has begun for which the members first end their step. A member that is lost meanwhile
    /// delays all members: some wait for it in the old generation, and the others in the new one.
    fn is_waiting_for_step(&self) -> bool {
        matches!(&self.phase, JobPhase::Regrouping { regroup, .. } if !regroup.urgent)
    }

    /// Whether the command is alive on this worker, in any generation, and can become a member.
    pub(super) fn is_live_worker(worker: &WorkerAgent) -> bool {
        matches!(worker.live, LiveState::Member(_) | LiveState::Ready { .. })
            && worker.stopped.is_none()
            && !worker.leaving
    }

    /// Whether the command is alive in the present generation on all of these nodes; false for no nodes.
    pub(super) fn is_live_on(&self, nodes: &[NodeName]) -> bool {
        let in_generation = LiveState::Member(self.generation.number);
        !nodes.is_empty()
            && nodes.iter().all(|node| {
                let worker = self.workers.get(node);
                worker.is_some_and(|w| w.live == in_generation && w.stopped.is_none())
            })
    }

    /// How the job would change its size now.
    pub fn rescale_mode(&self) -> RescaleMode {
        match &self.phase {
            JobPhase::Running { members } if self.is_live_on(members) => RescaleMode::Live,
            JobPhase::Regrouping { .. } => RescaleMode::Live,
            _ => RescaleMode::Restart,
        }
    }

    /// Reduces these nodes to the largest allowed size, and keeps the lead's node. `None` if no size fits, or
    /// if the command is not alive on all of them.
    pub(super) fn fit_live_members(&self, mut nodes: Vec<NodeName>) -> Option<Vec<NodeName>> {
        let all_live = nodes.iter().all(|n| self.workers.get(n).is_some_and(JobLifecycle::is_live_worker));
        let size = self.allowed_sizes().up_to(nodes.len() as u32).last().copied()? as usize;
        let lead_rank = nodes.iter().position(|n| Some(n) == self.lead_node());
        if let Some(rank) = lead_rank.filter(|rank| *rank >= size) {
            nodes.swap(rank, size - 1);
        }
        nodes.truncate(size);
        all_live.then_some(nodes)
    }

    /// Whether the other members live on without these nodes, so that the job need not stop.
    pub(super) fn survives_loss(&self, lost: &[NodeName], now: UnixTime) -> bool {
        match &self.phase {
            JobPhase::Running { members } => {
                let loses_member = lost.iter().any(|n| members.contains(n));
                let left: Vec<NodeName> = members.iter().filter(|n| !lost.contains(n)).cloned().collect();
                loses_member && self.is_live_on(&left) && self.survivors_of(members, lost, now).is_some()
            }
            JobPhase::Regrouping { .. } => true,
            _ => false,
        }
    }

    /// Whether a member is lost to the others, or will be in a moment.
    pub(super) fn is_failed_member(&self, node: &NodeName) -> bool {
        let Some(worker) = self.workers.get(node) else { return true };
        worker.leaving || worker.stopped.is_some_and(|exit| exit.asked || exit.code != 0)
    }

    /// Why a member was lost, as text and as the reason of a restart.
    pub(super) fn describe_loss(&self, node: &NodeName) -> (String, StopReason) {
        match self.workers.get(node) {
            Some(w) if w.leaving => (format!("Slurm took {node} back"), StopReason::Lost),
            Some(WorkerAgent { stopped: Some(CommandExit { code, asked: false, .. }), .. }) if *code != 0 => {
                let why = format!("the command failed with code {code} on {node}");
                (why, StopReason::Failed { code: *code })
            }
            Some(_) => (format!("{node} fell silent"), StopReason::Lost),
            None => (format!("{node} was lost"), StopReason::Lost),
        }
    }

    /// Workers that are not members, but that the planner wants.
    fn newcomers<'a>(
        &'a self,
        members: &'a [NodeName],
    ) -> impl Iterator<Item = (&'a NodeName, &'a WorkerAgent)> {
        self.workers.iter().filter(|(n, w)| !members.contains(n) && !w.leaving && self.is_expected(n, w))
    }

    /// Whether the job wants this worker as a member: a wing in the plan, or a lead that has come back.
    pub(super) fn is_expected(&self, node: &NodeName, worker: &WorkerAgent) -> bool {
        if self.is_lead(worker) { self.generation.lead_absence.is_none() } else { self.wants_wing_on(node) }
    }

    /// Lets newcomers start the command while the members train on. Gives up newcomers that take too long.
    pub(super) fn warm_newcomers(&mut self, members: &[NodeName], now: UnixTime, out: &mut StepOutcome) {
        let newcomers: Vec<(NodeName, LiveState)> =
            self.newcomers(members).map(|(n, w)| (n.clone(), w.live)).collect();
        for (node, live) in newcomers {
            match live {
                LiveState::Warming { since } if now.secs_since(since) > self.warm_limit_secs() => {
                    self.handle_newcomer_failure(&node, "its command did not come up in time", now, out);
                }
                LiveState::Warming { .. } | LiveState::Ready { .. } => {}
                LiveState::No | LiveState::Member(_) => {
                    if let Some(worker) = self.workers.get_mut(&node) {
                        worker.live = LiveState::Warming { since: now };
                        // The exit of its former command does not concern the next one.
                        worker.stopped = None;
                    }
                }
            }
        }
    }

    /// The command of a newcomer has ended.
    pub(super) fn handle_newcomer_end(
        &mut self,
        node: &NodeName,
        exit: CommandExit,
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        let Some(worker) = self.workers.get_mut(node) else { return };
        let previous = std::mem::take(&mut worker.live);
        let was_warming = matches!(previous, LiveState::Warming { .. } | LiveState::Ready { .. });
        if !exit.asked && !worker.leaving && was_warming {
            let why = format!("its command ended with code {} before it had a place", exit.code);
            self.handle_newcomer_failure(node, &why, now, out);
        }
    }

    /// A newcomer has failed, which does not disturb the members. Its node is blamed by the same rules as for
    /// commands that fail.
    fn handle_newcomer_failure(&mut self, node: &NodeName, why: &str, now: UnixTime, out: &mut StepOutcome) {
        out.notes.push(format!("{node}: {why}"));
        if self.obstacles.trials.blame_node(&[node]).is_some() {
            out.strikes.push((node.clone(), why.to_owned()));
        }
        self.obstacles.trials.shun_node(node, now);
        self.drop_nodes(std::slice::from_ref(node), why, now);
    }

    /// The members that the planner wants next, of those on which the command is alive, and why. `None` if
    /// the members stay as they are.
    pub(super) fn wanted_live_change(
        &self,
        members: &[NodeName],
        settings: &LifecycleSettings,
        now: UnixTime,
    ) -> Option<(Vec<NodeName>, String)> {
        let plan = &self.target.as_ref()?.plan;
        let mut wanted = self.planned_members(members);
        let leaving = members.len() - wanted.len();
        if leaving > 0 || self.is_time_to_join(members, settings, now) {
            let ready = self.newcomers(members).filter(|(_, worker)| {
                JobLifecycle::is_live_worker(worker) && worker.silent_secs(now) < SILENT_SECS
            });
            let ready = ready.map(|(node, _)| node);
            wanted.extend(self.in_plan_order(ready).into_iter().cloned());
        }
        let to = self.fit_live_members(wanted)?;
        if leaving == 0 && to.len() <= members.len() {
            return None;
        }
        let first_leaving = members.iter().find(|n| !to.contains(n)).filter(|_| leaving > 0);
        let why = match first_leaving {
            Some(first) => format!("shrunk by {leaving} ({first} ...)"),
            None => format!("grown from {} to {}", members.len(), to.len()),
        };
        let why = plan.with_probe_note(why, to.len());
        Some((to, why))
    }

    /// The members that stay in the plan, in their order.
    fn planned_members(&self, members: &[NodeName]) -> Vec<NodeName> {
        let lead = self.lead_node();
        members.iter().filter(|n| Some(*n) == lead || self.wants_wing_on(n)).cloned().collect()
    }

    /// Whether the target needs a restart even of a command that stays alive: another execution plan, another
    /// node for the lead, or too few nodes for the job.
    pub(super) fn must_restart(&self, members: &[NodeName]) -> bool {
        let Some(plan) = self.target.as_ref().map(|t| &t.plan) else { return false };
        let lead_moves = plan.nodes.first().map(|p| &p.node) != self.lead_node();
        let plan_changes = *self.declared_plan(&plan.exec_plan) != self.generation.exec_plan;
        let kept = self.planned_members(members).len() as u32;
        lead_moves || plan_changes || self.allowed_sizes().up_to(kept).is_empty()
    }

    /// Whether newcomers shall join now: all that were ordered are ready, or some have waited long enough for
    /// the others.
    fn is_time_to_join(&self, members: &[NodeName], settings: &LifecycleSettings, now: UnixTime) -> bool {
        let mut all_ready = true;
        let mut has_waited_long = false;
        for (_, worker) in self.newcomers(members) {
            match worker.live {
                LiveState::Ready { since } => has_waited_long |= now.secs_since(since) >= JOIN_SECS,
                _ => all_ready = false,
            }
        }
        has_waited_long || (all_ready && !self.has_pending_wings(settings, now))
    }
}
