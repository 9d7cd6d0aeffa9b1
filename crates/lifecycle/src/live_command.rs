//! Commands that stay alive over changes: where they are, who comes, and who can be taken along.

use infill_model::{AgentEvent, CommandExit, NodeName, RescaleMode, UnixTime};

use super::effect::StepOutcome;
use super::job_lifecycle::JobLifecycle;
use super::phase::{JobPhase, StopReason};
use super::settings::{JOIN_SECS, LifecycleSettings, MOST_WARM_SECS, SILENT_SECS, WARM_SECS, WARM_TIMES};
use super::worker::{LiveState, Worker};

/// Nobody stands still for longer: by then a restart has taken the place of the change.
const LONGEST_STANDSTILL_SECS: f64 = 3600.0;

impl JobLifecycle {
    /// Takes in what an agent says of a command that stays alive.
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
                    let is_first = store.port.is_none();
                    (store.port, store.secret) = (Some(port), secret.clone());
                    if is_first {
                        // Some have heard of it by the next time.
                        self.generation.secret = self.shared_secret(self.phase.members());
                    }
                }
            }
            AgentEvent::Joined { generation, secs } if generation == number => self.handle_joined(node, secs),
            AgentEvent::Failed { generation } if generation == number => {
                if let Some(worker) = self.workers.get_mut(node) {
                    worker.doubt.get_or_insert(now);
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

    fn handle_ready(&mut self, node: &NodeName, now: UnixTime) {
        let number = self.generation.number;
        if let Some(worker) = self.workers.get_mut(node)
            && worker.live != LiveState::In(number)
            && !matches!(worker.live, LiveState::Ready { .. })
        {
            let began = if let LiveState::Warming { since } = worker.live { since } else { self.since };
            self.counts.warm_secs = self.counts.warm_secs.max(now.secs_since(began).max(0.0) as u32);
            worker.live = LiveState::Ready { since: now };
        }
    }

    /// Seconds that a newcomer gets to be ready.
    fn warm_limit(&self) -> f64 {
        (WARM_TIMES * f64::from(self.counts.warm_secs)).clamp(WARM_SECS, MOST_WARM_SECS)
    }

    fn handle_joined(&mut self, node: &NodeName, secs: f64) {
        let number = self.generation.number;
        let lead = self.job;
        let is_member = self.phase.members().contains(node);
        let is_change = matches!(self.phase, JobPhase::Regrouping { .. });
        let Some(worker) = self.workers.get_mut(node).filter(|_| is_member) else { return };
        if worker.live != LiveState::In(number) {
            // What is only said again clears up nothing.
            (worker.live, worker.doubt) = (LiveState::In(number), None);
        }
        worker.stood_secs =
            Some(secs).filter(|secs| is_change && (0.0..=LONGEST_STANDSTILL_SECS).contains(secs));
        if worker.slurm_job != lead {
            self.backoff.reset_after_wing();
            self.obstacles.shortage = None;
        }
    }

    /// A step lasts suspiciously long: whoever is there shall say so.
    fn start_roll_call(&mut self, now: UnixTime) {
        let called = self.generation.roll.map_or(0, |(times, _)| times);
        let lately = self.generation.roll.is_some_and(|(_, at)| now.secs_since(at) < SILENT_SECS);
        let runs = matches!(&self.phase, JobPhase::Running { members } if self.is_live_on(members));
        if (runs || self.is_waiting_for_step()) && !lately {
            self.generation.roll = Some((called.saturating_add(1), now));
            self.workers.values_mut().for_each(|w| w.answered = false);
        }
    }

    /// Whether a change has begun for which the members first end their step: one that is lost meanwhile
    /// holds all of them up, those who wait for it in their generation as well as those who wait for its
    /// successor.
    fn is_waiting_for_step(&self) -> bool {
        matches!(&self.phase, JobPhase::Regrouping { regroup, .. } if !regroup.urgent)
    }

    /// Whether the command is alive on this worker, in whatever generation, and may be taken along.
    pub(super) fn is_live_worker(worker: &Worker) -> bool {
        matches!(worker.live, LiveState::In(_) | LiveState::Ready { .. })
            && worker.stopped.is_none()
            && !worker.leaving
    }

    /// Whether the command stays alive on all of these nodes and is in the present generation.
    pub(super) fn is_live_on(&self, nodes: &[NodeName]) -> bool {
        !nodes.is_empty()
            && nodes.iter().all(|n| {
                self.workers.get(n).is_some_and(|w: &Worker| {
                    w.live == LiveState::In(self.generation.number) && w.stopped.is_none()
                })
            })
    }

    /// In which way the job would change its size now.
    pub fn rescale_mode(&self) -> RescaleMode {
        match &self.phase {
            JobPhase::Running { members } if self.is_live_on(members) => RescaleMode::Live,
            JobPhase::Regrouping { .. } => RescaleMode::Live,
            _ => RescaleMode::Restart,
        }
    }

    /// As many of these nodes as an allowed size has, the lead's among them if it is one, if the command is
    /// alive on all of them.
    pub(super) fn fit_live_members(&self, mut nodes: Vec<NodeName>) -> Option<Vec<NodeName>> {
        let alive = nodes.iter().all(|n| self.workers.get(n).is_some_and(JobLifecycle::is_live_worker));
        let size = self.allowed_sizes().up_to(nodes.len() as u32).last().copied()? as usize;
        let lead = nodes.iter().position(|n| Some(n) == self.lead_node());
        if let Some(at) = lead.filter(|at| *at >= size) {
            nodes.swap(at, size - 1);
        }
        nodes.truncate(size);
        alive.then_some(nodes)
    }

    /// Whether the others live on without these nodes, so that nobody has to stop.
    pub(super) fn survives_loss(&self, lost: &[NodeName], now: UnixTime) -> bool {
        match &self.phase {
            JobPhase::Running { members } => {
                let is_member = lost.iter().any(|n| members.contains(n));
                let left: Vec<NodeName> = members.iter().filter(|n| !lost.contains(n)).cloned().collect();
                is_member && self.is_live_on(&left) && self.survivors_of(members, lost, now).is_some()
            }
            JobPhase::Regrouping { .. } => true,
            _ => false,
        }
    }

    /// Whether a member of a command that stays alive is lost to the others, or will be in a moment.
    pub(super) fn is_failed_member(&self, node: &NodeName) -> bool {
        self.workers
            .get(node)
            .is_none_or(|w| w.leaving || w.stopped.is_some_and(|e: CommandExit| e.asked || e.code != 0))
    }

    /// Why a member was lost, and what a restart because of it would be.
    pub(super) fn describe_loss(&self, node: &NodeName) -> (String, StopReason) {
        match self.workers.get(node) {
            Some(w) if w.leaving => (format!("Slurm took {node} back"), StopReason::Lost),
            Some(Worker { stopped: Some(CommandExit { code, asked: false, .. }), .. }) if *code != 0 => {
                let why = format!("the command failed with code {code} on {node}");
                (why, StopReason::Failed { code: *code })
            }
            Some(_) => (format!("{node} fell silent"), StopReason::Lost),
            None => (format!("{node} was lost"), StopReason::Lost),
        }
    }

    /// Workers that are no members, and that the planner wants.
    fn newcomers<'a>(&'a self, members: &'a [NodeName]) -> impl Iterator<Item = (&'a NodeName, &'a Worker)> {
        self.workers.iter().filter(|(n, w)| !members.contains(n) && !w.leaving && self.is_expected(n, w))
    }

    /// Whether the job wants this worker as a member: a wing of the plan, or a lead that has come back.
    pub(super) fn is_expected(&self, node: &NodeName, worker: &Worker) -> bool {
        if self.is_lead(worker) { self.generation.away.is_none() } else { self.wants_wing_on(node) }
    }

    /// Lets wings that have come start the command, while the members train on; gives up what takes too long.
    pub(super) fn warm_newcomers(&mut self, members: &[NodeName], now: UnixTime, out: &mut StepOutcome) {
        let known: Vec<(NodeName, LiveState)> =
            self.newcomers(members).map(|(n, w)| (n.clone(), w.live)).collect();
        for (node, live) in known {
            match live {
                LiveState::Warming { since } if now.secs_since(since) > self.warm_limit() => {
                    self.handle_newcomer_failure(&node, "its command did not come up in time", now, out);
                }
                LiveState::Warming { .. } | LiveState::Ready { .. } => {}
                LiveState::No | LiveState::In(_) => {
                    let worker = self.workers.get_mut(&node).into_iter();
                    // How its command left the others says nothing of the next one.
                    worker.for_each(|w| (w.live, w.stopped) = (LiveState::Warming { since: now }, None));
                }
            }
        }
    }

    /// The command of a worker that is no member has ended.
    pub(super) fn handle_newcomer_end(
        &mut self,
        node: &NodeName,
        exit: CommandExit,
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        let Some(worker) = self.workers.get_mut(node) else { return };
        let had = std::mem::take(&mut worker.live);
        if !exit.asked
            && !worker.leaving
            && matches!(had, LiveState::Warming { .. } | LiveState::Ready { .. })
        {
            let why = format!("its command ended with code {} before it had a place", exit.code);
            self.handle_newcomer_failure(node, &why, now, out);
        }
    }

    /// A newcomer comes to nothing, which costs the members nothing. Whether its node is to blame is told as
    /// for commands that fail.
    fn handle_newcomer_failure(&mut self, node: &NodeName, why: &str, now: UnixTime, out: &mut StepOutcome) {
        out.notes.push(format!("{node}: {why}"));
        if self.obstacles.trials.blame_node(&[node]).is_some() {
            out.strikes.push((node.clone(), why.to_owned()));
        }
        self.obstacles.trials.shun_node(node, now);
        self.drop_nodes(std::slice::from_ref(node), why, now);
    }

    /// What the planner wants next of the nodes on which the command is alive, and why; `None`: these.
    pub(super) fn wanted_live_change(
        &self,
        members: &[NodeName],
        settings: &LifecycleSettings,
        now: UnixTime,
    ) -> Option<(Vec<NodeName>, String)> {
        let plan = &self.target.as_ref()?.plan;
        let mut wanted = self.planned_members(members);
        let gone = members.len() - wanted.len();
        if gone > 0 || self.is_time_to_join(members, settings, now) {
            let ready = |(_, w): &(&NodeName, &Worker)| {
                JobLifecycle::is_live_worker(w) && w.silent_secs(now) < SILENT_SECS
            };
            let ready = self.newcomers(members).filter(ready).map(|(n, _)| n);
            wanted.extend(self.in_plan_order(ready).into_iter().cloned());
        }
        let to = self.fit_live_members(wanted)?;
        match (gone, members.iter().find(|n| !to.contains(n))) {
            (0, _) if to.len() <= members.len() => None,
            (0, _) | (_, None) => {
                let why = format!("grown from {} to {}", members.len(), to.len());
                let why = plan.with_probe_note(why, to.len());
                Some((to, why))
            }
            (_, Some(first)) => {
                let why = plan.with_probe_note(format!("shrunk by {gone} ({first} ...)"), to.len());
                Some((to, why))
            }
        }
    }

    /// The members that the planner leaves to the job, in their order.
    fn planned_members(&self, members: &[NodeName]) -> Vec<NodeName> {
        let lead = self.lead_node();
        members.iter().filter(|n| Some(*n) == lead || self.wants_wing_on(n)).cloned().collect()
    }

    /// Whether what the planner wants needs a restart even of a command that stays alive: another execution
    /// plan, another place for the lead, or none for the job.
    pub(super) fn must_restart(&self, members: &[NodeName]) -> bool {
        let Some(plan) = self.target.as_ref().map(|t| &t.plan) else { return false };
        let moves = plan.nodes.first().map(|p| &p.node) != self.lead_node();
        let kept = self.planned_members(members).len() as u32;
        moves
            || *self.declared_plan(&plan.exec_plan) != self.generation.exec_plan
            || self.allowed_sizes().up_to(kept).is_empty()
    }

    /// Whether newcomers are to be let in: all that were ordered are warm, or some have waited long enough
    /// for the others.
    fn is_time_to_join(&self, members: &[NodeName], settings: &LifecycleSettings, now: UnixTime) -> bool {
        let all_ready = self.newcomers(members).all(|(_, w)| matches!(w.live, LiveState::Ready { .. }));
        (all_ready && !self.has_pending_wings(settings, now))
            || self.newcomers(members).any(|(_, w): (&NodeName, &Worker)| match w.live {
                LiveState::Ready { since } => now.secs_since(since) >= JOIN_SECS,
                _ => false,
            })
    }
}
