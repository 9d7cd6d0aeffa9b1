//! Changes of membership while the command stays alive: their beginning, their results, and when a restart
//! replaces them.

use infill_model::{LiveChange, NodeName, Secret, UnixTime, counted_noun};

use super::effect::StepOutcome;
use super::job_lifecycle::{JobLifecycle, RendezvousStore};
use super::lead_absence::SurvivingMembers;
use super::phase::{JobPhase, NextGeneration, RegroupState, StopReason};
use super::settings::{DOUBT_SECS, MAX_TRIES, REGROUP_SECS, ROLL_SECS, SILENT_SECS};
use super::worker::LiveState;

impl JobLifecycle {
    /// Goes on without lost members: by a regroup if the other members can live on, by a restart otherwise.
    pub(super) fn continue_after_loss(
        &mut self,
        members: &[NodeName],
        lost: &[NodeName],
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        let Some(first) = lost.first() else { return };
        let (why, reason) = self.describe_loss(first);
        let next = NextGeneration { lost: true, ..NextGeneration::for_reason(why) };
        match self.survivors_of(members, lost, now).filter(|_| self.survives_loss(lost, now)) {
            Some(SurvivingMembers { to, lead_node }) => {
                if let Some(lead_node) = lead_node {
                    self.begin_lead_absence(lead_node, now, out);
                }
                let all_leave_in_time = lost.iter().all(|n| self.workers.get(n).is_some_and(|w| w.leaving));
                let urgent = !all_leave_in_time;
                self.shun_failed_nodes(lost, now, out);
                let regroup = RegroupState { from: members.to_vec(), urgent, reason, tries: 1, began: now };
                self.begin_regroup(to, regroup, next, now, out);
            }
            None => self.enter_phase(JobPhase::Stopping { members: members.to_vec(), reason, next }, now),
        }
    }

    /// Begins the change of membership that the planner wants.
    pub(super) fn change_live_members(
        &mut self,
        members: &[NodeName],
        to: Vec<NodeName>,
        why: String,
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        let from = members.to_vec();
        let reason = StopReason::Rescale;
        let regroup = RegroupState { from, urgent: false, reason, tries: 1, began: now };
        self.begin_regroup(to, regroup, NextGeneration::for_reason(why), now, out);
    }

    /// Whether a member reported a failed step some time ago, and no member has turned out to be lost since.
    /// The members must meet again then.
    pub(super) fn has_unresolved_failure(&self, members: &[NodeName], now: UnixTime) -> bool {
        let mut doubts = members.iter().filter_map(|node| self.workers.get(node)?.step_failed_at);
        doubts.any(|reported_at| now.secs_since(reported_at) >= DOUBT_SECS)
    }

    /// Whether the members of a new generation wait for a store that its host cannot open.
    pub(super) fn is_store_missing(&self, now: UnixTime) -> bool {
        let host = self.generation.store.as_ref().filter(|s| s.port.is_none()).map(|s| &s.node);
        host.is_some_and(|node| self.has_unresolved_failure(std::slice::from_ref(node), now))
    }

    /// Lets the same members meet again, in a new generation.
    pub(super) fn regroup_same_members(
        &mut self,
        members: &[NodeName],
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        let next = NextGeneration {
            lost: true,
            ..NextGeneration::for_reason("a step failed for an unknown reason")
        };
        let from = members.to_vec();
        let reason = StopReason::Lost;
        let regroup = RegroupState { from, urgent: true, reason, tries: 1, began: now };
        self.begin_regroup(members.to_vec(), regroup, next, now, out);
    }

    /// Whether a member may be lost, which will be clear in a moment: a step has failed, or a roll call is
    /// under way.
    pub(super) fn may_have_lost_member(&self, members: &[NodeName], now: UnixTime) -> bool {
        let roll_call_runs = self
            .generation
            .last_roll_call
            .is_some_and(|(_, called_at)| now.secs_since(called_at) < ROLL_SECS);
        let mut workers = members.iter().filter_map(|n| self.workers.get(n));
        roll_call_runs || workers.any(|worker| worker.step_failed_at.is_some())
    }

    /// Whether a member has not answered the last roll call in time.
    pub(super) fn missed_roll_call(&self, node: &NodeName, now: UnixTime) -> bool {
        let Some((_, called_at)) = self.generation.last_roll_call else { return false };
        now.secs_since(called_at) >= ROLL_SECS && self.workers.get(node).is_none_or(|w| !w.answered)
    }

    /// Begins a generation with the members `to`.
    fn begin_regroup(
        &mut self,
        to: Vec<NodeName>,
        regroup: RegroupState,
        next: NextGeneration,
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        self.generation.number = self.generation.number.saturating_add(1);
        self.generation.store = self.select_store(&to, regroup.tries);
        self.generation.secret = self.shared_secret(&to);
        self.generation.last_roll_call = None;
        for worker in self.workers.values_mut() {
            worker.stopped = None;
            worker.progress_at = None;
            worker.step_failed_at = None;
            worker.standstill_secs = None;
            worker.answered &= !regroup.urgent;
        }
        if regroup.tries == 1 {
            self.counts.rescales += 1;
        }
        self.obstacles.trials.begin_generation();
        self.last_change = Some(now);
        if !next.lost {
            self.rescaled_at = Some(now);
        }
        out.started = Some((self.generation.number, to.clone(), next.why.clone()));
        self.enter_phase(JobPhase::Regrouping { members: to, regroup, next }, now);
    }

    /// The store at which these members meet: the present one, if its host is one of them. Each further try
    /// uses another host.
    fn select_store(&self, to: &[NodeName], tries: u32) -> Option<RendezvousStore> {
        if tries == 1
            && let Some(store) = &self.generation.store
            && store.port.is_some()
            && to.contains(&store.node)
            && self.workers.get(&store.node).is_some_and(JobLifecycle::is_live_worker)
        {
            return Some(store.clone());
        }
        let host = to.get(tries.saturating_sub(1) as usize % to.len().max(1))?;
        Some(RendezvousStore::requested_on(host.clone()))
    }

    /// The secret that lets these members recognise each other: the one that the store's host has made.
    /// `None` if one of their agents cannot pass it on, since the others would then refuse its processes.
    pub(super) fn shared_secret(&self, members: &[NodeName]) -> Option<Secret> {
        let secret = self.generation.store.as_ref()?.secret.as_ref()?;
        let all_pass_it_on = members.iter().all(|node| {
            let worker = self.workers.get(node);
            worker.is_some_and(|w| w.dialect.passes_secrets())
        });
        all_pass_it_on.then(|| secret.clone())
    }

    /// Moves a regroup on: finishes it, retries it without lost members, or falls back to a restart.
    pub(super) fn step_regrouping(
        &mut self,
        members: &[NodeName],
        regroup: &RegroupState,
        next: &NextGeneration,
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        if self.has_finished_meanwhile(members, regroup) {
            self.finish_command(now, out);
            return;
        }
        let lost: Vec<NodeName> =
            members.iter().filter(|n| self.is_lost_to_regroup(n, regroup, now)).cloned().collect();
        if !lost.is_empty() || self.has_unresolved_failure(members, now) {
            self.retry_regroup(members, &lost, regroup, next, now, out);
        } else if self.is_live_on(members) {
            self.finish_regroup(members, regroup, now, out);
        } else if now.secs_since(regroup.began) > self.patience_secs(regroup) {
            self.fall_back_to_restart(members, regroup, next, "the members did not meet in time", now, out);
        }
    }

    /// How long a regroup may take before a restart replaces it, seconds. Before a change that is not urgent,
    /// members end their step, and may take as long as for a checkpoint.
    fn patience_secs(&self, regroup: &RegroupState) -> f64 {
        let step_secs = if regroup.urgent { 0.0 } else { f64::from(self.spec.grace_secs) };
        REGROUP_SECS + step_secs
    }

    /// Whether the members that stay have trained to the end. After a loss, or after a request to stop, an
    /// end may be a consequence of that and does not count.
    fn has_finished_meanwhile(&self, members: &[NodeName], regroup: &RegroupState) -> bool {
        if regroup.reason != StopReason::Rescale {
            return false;
        }
        let staying: Vec<&NodeName> = members.iter().filter(|n| regroup.from.contains(n)).collect();
        !staying.is_empty()
            && staying.into_iter().all(|node| {
                let exit = self.workers.get(node).and_then(|w| w.stopped);
                exit.is_some_and(|exit| exit.code == 0 && !exit.asked)
            })
    }

    /// Whether a member of a regroup is lost.
    fn is_lost_to_regroup(&self, node: &NodeName, regroup: &RegroupState, now: UnixTime) -> bool {
        let Some(worker) = self.workers.get(node) else { return true };
        let unanswered = regroup.urgent && !worker.answered && now.secs_since(self.since) >= ROLL_SECS;
        let ended = regroup.reason != StopReason::Rescale && worker.stopped.is_some();
        let silent = unanswered || self.missed_roll_call(node, now) || worker.silent_secs(now) > SILENT_SECS;
        ended || silent || self.is_failed_member(node)
    }

    /// Tries a regroup again, without the lost members.
    fn retry_regroup(
        &mut self,
        members: &[NodeName],
        lost: &[NodeName],
        regroup: &RegroupState,
        next: &NextGeneration,
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        let why = lost.first().map_or_else(|| "meeting failed".to_owned(), |n| self.describe_loss(n).0);
        let is_overdue = now.secs_since(regroup.began) > self.patience_secs(regroup);
        let may_retry = regroup.tries < MAX_TRIES && !is_overdue;
        let Some(survivors) = self.survivors_of(members, lost, now).filter(|_| may_retry) else {
            self.fall_back_to_restart(members, regroup, next, &why, now, out);
            return;
        };
        if let Some(lead_node) = survivors.lead_node {
            self.begin_lead_absence(lead_node, now, out);
        }
        self.shun_failed_nodes(lost, now, out);
        // The loss of a newcomer does not interrupt the members' step.
        let urgent = regroup.urgent || lost.is_empty() || lost.iter().any(|n| regroup.from.contains(n));
        let becomes_loss = urgent && regroup.reason == StopReason::Rescale;
        let reason = if becomes_loss { StopReason::Lost } else { regroup.reason };
        let retry = RegroupState { urgent, reason, tries: regroup.tries + 1, ..regroup.clone() };
        let next = NextGeneration { lost: next.lost || urgent, ..NextGeneration::for_reason(why) };
        self.begin_regroup(survivors.to, retry, next, now, out);
    }

    /// Keeps the job from nodes on which its command has failed, while it lived on elsewhere.
    fn shun_failed_nodes(&mut self, lost: &[NodeName], now: UnixTime, out: &mut StepOutcome) {
        for node in lost {
            let exit = self.workers.get(node).and_then(|w| w.stopped);
            if let Some(exit) = exit.filter(|e| !e.asked && e.code != 0) {
                out.notes.push(format!("{node}: ended with code {}: the others go on", exit.code));
                self.obstacles.trials.shun_node(node, now);
                self.drop_from_target(node);
            }
        }
    }

    /// All members have joined: the generation runs.
    fn finish_regroup(
        &mut self,
        members: &[NodeName],
        regroup: &RegroupState,
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        let secs = now.secs_since(regroup.began);
        out.live_change = self.measure_live_change(members, regroup);
        out.notes.push(format!(
            "{} went on without a restart, after {secs:.1} s",
            counted_noun(members.len() as u64, "worker")
        ));
        for (node, worker) in &mut self.workers {
            worker.standstill_secs = None;
            if matches!(worker.live, LiveState::Member(_)) && !members.contains(node) {
                worker.live = LiveState::No;
            }
        }
        self.enter_phase(JobPhase::Running { members: members.to_vec() }, now);
    }

    /// The standstill that a change has cost the members that stayed. `None` after a loss or several tries:
    /// such a change is not typical.
    fn measure_live_change(&self, members: &[NodeName], regroup: &RegroupState) -> Option<LiveChange> {
        let stayed = members.iter().filter(|n| regroup.from.contains(n));
        let secs = stayed.filter_map(|n| self.workers.get(n)?.standstill_secs).reduce(f64::max)?;
        let from = regroup.from.len() as u32;
        let to = members.len() as u32;
        (regroup.tries == 1 && !regroup.urgent && from != to).then_some(LiveChange { from, to, secs })
    }

    /// Stops all members of the old and the new generation for a restart.
    fn fall_back_to_restart(
        &mut self,
        members: &[NodeName],
        regroup: &RegroupState,
        next: &NextGeneration,
        why: &str,
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        out.notes.push(format!("a restart is needed: {why}"));
        let leaving = regroup.from.iter().filter(|n| !members.contains(n));
        let members = members.iter().chain(leaving).cloned().collect();
        // A rescale fails only because a member was lost.
        let is_rescale = regroup.reason == StopReason::Rescale;
        let reason = if is_rescale { StopReason::Lost } else { regroup.reason };
        self.enter_phase(JobPhase::Stopping { members, reason, next: next.clone() }, now);
    }

    /// A process reports that it cannot go on without a restart.
    pub(super) fn handle_hopeless(
        &mut self,
        node: &NodeName,
        why: &str,
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        let is_lead = self.lead_node() == Some(node);
        if let Some(worker) = self.workers.get_mut(node) {
            // Other members have the same training state in memory, and can still save it.
            worker.live = LiveState::No;
        }
        match self.phase.clone() {
            JobPhase::Running { members } if members.contains(node) => {
                out.notes.push(format!("{node}: a restart is needed: {why}"));
                let next = NextGeneration::for_reason("the command could not go on without a restart");
                self.enter_phase(JobPhase::Stopping { members, reason: StopReason::Lost, next }, now);
            }
            // In a wing, the agent ends the process, and the other members go on.
            JobPhase::Regrouping { members, regroup, next } if is_lead && members.contains(node) => {
                self.fall_back_to_restart(&members, &regroup, &next, &format!("{node}: {why}"), now, out);
            }
            _ => {}
        }
    }
}
