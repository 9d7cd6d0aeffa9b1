//! A change of members while the command stays alive: how it begins, what can come of it, and when a restart
//! takes its place.

use infill_model::{LiveChange, NodeName, Secret, UnixTime};

use super::effect::StepOutcome;
use super::job_lifecycle::{JobLifecycle, RendezvousStore};
use super::lead_absence::SurvivingMembers;
use super::phase::{JobPhase, NextGeneration, RegroupState, StopReason};
use super::settings::{DOUBT_SECS, MOST_TRIES, REGROUP_SECS, ROLL_SECS, SILENT_SECS};
use super::worker::LiveState;

impl JobLifecycle {
    /// Goes on without members that are lost: alive if the others can, else by a restart.
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
            Some(SurvivingMembers { to, place }) => {
                place.into_iter().for_each(|place| self.begin_lead_absence(place, now, out));
                let urgent = !lost.iter().all(|n| self.workers.get(n).is_some_and(|w| w.leaving));
                self.shun_failed_nodes(lost, now, out);
                let regroup = RegroupState { from: members.to_vec(), urgent, reason, tries: 1, began: now };
                self.begin_regroup(to, regroup, next, now, out);
            }
            None => self.enter_phase(JobPhase::Stopping { members: members.to_vec(), reason, next }, now),
        }
    }

    /// Changes to other members as the planner wants it.
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

    /// Members that say that a step has failed, and of which nobody is known to be lost, meet again.
    pub(super) fn has_unresolved_failure(&self, members: &[NodeName], now: UnixTime) -> bool {
        let long_ago = |n: &NodeName| self.workers.get(n)?.doubt.map(|t| now.secs_since(t) >= DOUBT_SECS);
        members.iter().any(|n| long_ago(n) == Some(true))
    }

    /// Whether the first members of a generation wait for a store that its host cannot open.
    pub(super) fn is_store_missing(&self, now: UnixTime) -> bool {
        let host = self.generation.store.as_ref().filter(|s| s.port.is_none()).map(|s| &s.node);
        host.is_some_and(|node| self.has_unresolved_failure(std::slice::from_ref(node), now))
    }

    /// Lets the same members meet again.
    pub(super) fn regroup_same_members(
        &mut self,
        members: &[NodeName],
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        let next = NextGeneration {
            lost: true,
            ..NextGeneration::for_reason("a step failed, and nobody knows why")
        };
        let from = members.to_vec();
        let reason = StopReason::Lost;
        let regroup = RegroupState { from, urgent: true, reason, tries: 1, began: now };
        self.begin_regroup(members.to_vec(), regroup, next, now, out);
    }

    /// Whether it will be known in a moment who is lost: a step has failed, or the roll is being called.
    pub(super) fn may_have_lost_member(&self, members: &[NodeName], now: UnixTime) -> bool {
        let calls = self.generation.roll.is_some_and(|(_, at)| now.secs_since(at) < ROLL_SECS);
        calls || members.iter().any(|n| self.workers.get(n).is_some_and(|w| w.doubt.is_some()))
    }

    /// Whether a member has not answered since the roll was called.
    pub(super) fn missed_roll_call(&self, node: &NodeName, now: UnixTime) -> bool {
        let Some((_, at)) = self.generation.roll else { return false };
        now.secs_since(at) >= ROLL_SECS && self.workers.get(node).is_none_or(|w| !w.answered)
    }

    fn begin_regroup(
        &mut self,
        to: Vec<NodeName>,
        how: RegroupState,
        next: NextGeneration,
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        self.generation.number = self.generation.number.saturating_add(1);
        self.generation.store = self.select_store(&to, how.tries);
        self.generation.secret = self.shared_secret(&to);
        self.generation.roll = None;
        for worker in self.workers.values_mut() {
            (worker.stopped, worker.progress_at, worker.doubt) = (None, None, None);
            worker.stood_secs = None;
            worker.answered &= !how.urgent;
        }
        if how.tries == 1 {
            self.counts.rescales += 1;
        }
        self.obstacles.trials.begin_generation();
        self.last_change = Some(now);
        if !next.lost {
            self.rescaled_at = Some(now);
        }
        out.started = Some((self.generation.number, to.clone(), next.why.clone()));
        self.enter_phase(JobPhase::Regrouping { members: to, regroup: how, next }, now);
    }

    /// Where these members meet: where they met before, if that still is one of them; at each further try
    /// with another one.
    fn select_store(&self, to: &[NodeName], tries: u32) -> Option<RendezvousStore> {
        let here = |s: &&RendezvousStore| {
            s.port.is_some()
                && to.contains(&s.node)
                && self.workers.get(&s.node).is_some_and(JobLifecycle::is_live_worker)
        };
        let known = self.generation.store.as_ref().filter(here).filter(|_| tries == 1).cloned();
        let other = || to.get(tries.saturating_sub(1) as usize % to.len().max(1));
        known.or_else(|| other().cloned().map(RendezvousStore::requested_on))
    }

    /// What members are given to know each other by: what the store's host has made, if all of their agents
    /// can pass it on. One that cannot would keep its processes from the others.
    pub(super) fn shared_secret(&self, members: &[NodeName]) -> Option<Secret> {
        self.generation.store.as_ref()?.secret.clone().filter(|_| {
            members.iter().all(|n: &NodeName| self.workers.get(n).is_some_and(|w| w.dialect.passes_secrets()))
        })
    }

    pub(super) fn step_regrouping(
        &mut self,
        members: &[NodeName],
        how: &RegroupState,
        next: &NextGeneration,
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        if self.has_finished_meanwhile(members, how) {
            self.finish_command(now, out);
            return;
        }
        let lost: Vec<NodeName> =
            members.iter().filter(|n| self.is_lost_to_regroup(n, how, now)).cloned().collect();
        if !lost.is_empty() || self.has_unresolved_failure(members, now) {
            self.retry_regroup(members, &lost, how, next, now, out);
        } else if self.is_live_on(members) {
            self.finish_regroup(members, how, now, out);
        } else if now.secs_since(how.began) > self.patience_secs(how) {
            self.fall_back_to_restart(members, how, next, "the members did not meet in time", now, out);
        }
    }

    /// Seconds until a restart takes the place of a change. Before a change that is not urgent, members end
    /// their step, for which they have as long as for a checkpoint.
    fn patience_secs(&self, how: &RegroupState) -> f64 {
        REGROUP_SECS + if how.urgent { 0.0 } else { f64::from(self.spec.grace_secs) }
    }

    /// Whether those that stay have trained to the end. After a loss, or when somebody was asked to stop, an
    /// end may be an echo of that.
    fn has_finished_meanwhile(&self, members: &[NodeName], how: &RegroupState) -> bool {
        let mut stayed = members.iter().filter(|n| how.from.contains(n)).peekable();
        how.reason == StopReason::Rescale
            && stayed.peek().is_some()
            && stayed.all(|n: &NodeName| {
                let end = self.workers.get(n).and_then(|w| w.stopped);
                end.is_some_and(|e| e.code == 0 && !e.asked)
            })
    }

    /// Whether a member is lost to a change that is under way.
    fn is_lost_to_regroup(&self, node: &NodeName, how: &RegroupState, now: UnixTime) -> bool {
        let Some(worker) = self.workers.get(node) else { return true };
        let unheard = how.urgent && !worker.answered && now.secs_since(self.since) >= ROLL_SECS;
        let ended = how.reason != StopReason::Rescale && worker.stopped.is_some();
        let missing = unheard || self.missed_roll_call(node, now) || worker.silent_secs(now) > SILENT_SECS;
        ended || missing || self.is_failed_member(node)
    }

    fn retry_regroup(
        &mut self,
        members: &[NodeName],
        lost: &[NodeName],
        how: &RegroupState,
        next: &NextGeneration,
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        let why = lost.first().map_or_else(|| "meeting failed".to_owned(), |n| self.describe_loss(n).0);
        let over = how.tries >= MOST_TRIES || now.secs_since(how.began) > self.patience_secs(how);
        let Some(SurvivingMembers { to, place }) = self.survivors_of(members, lost, now).filter(|_| !over)
        else {
            self.fall_back_to_restart(members, how, next, &why, now, out);
            return;
        };
        place.into_iter().for_each(|place| self.begin_lead_absence(place, now, out));
        self.shun_failed_nodes(lost, now, out);
        // A newcomer that comes to nothing interrupts nobody's step.
        let urgent = how.urgent || lost.is_empty() || lost.iter().any(|n| how.from.contains(n));
        let reason = if urgent && how.reason == StopReason::Rescale { StopReason::Lost } else { how.reason };
        let again = RegroupState { urgent, reason, tries: how.tries + 1, ..how.clone() };
        let lost = next.lost || urgent;
        self.begin_regroup(to, again, NextGeneration { lost, ..NextGeneration::for_reason(why) }, now, out);
    }

    /// Keeps the job from nodes on which its command has failed while it lived on elsewhere.
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

    fn finish_regroup(
        &mut self,
        members: &[NodeName],
        how: &RegroupState,
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        let secs = now.secs_since(how.began);
        out.lived_through = self.measure_live_change(members, how);
        out.notes.push(format!("{} workers went on without a restart, after {secs:.1} s", members.len()));
        for (node, worker) in &mut self.workers {
            worker.stood_secs = None;
            if matches!(worker.live, LiveState::In(_)) && !members.contains(node) {
                worker.live = LiveState::No;
            }
        }
        self.enter_phase(JobPhase::Running { members: members.to_vec() }, now);
    }

    /// What a change has cost those that were there before. Where a member was lost, or several tries were
    /// needed, that says nothing of others.
    fn measure_live_change(&self, members: &[NodeName], how: &RegroupState) -> Option<LiveChange> {
        let stayed = members.iter().filter(|n| how.from.contains(n));
        let secs = stayed.filter_map(|n| self.workers.get(n)?.stood_secs).reduce(f64::max)?;
        let from = how.from.len() as u32;
        let to = members.len() as u32;
        (how.tries == 1 && !how.urgent && from != to).then_some(LiveChange { from, to, secs })
    }

    fn fall_back_to_restart(
        &mut self,
        members: &[NodeName],
        how: &RegroupState,
        next: &NextGeneration,
        why: &str,
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        out.notes.push(format!("a restart is needed: {why}"));
        let left = how.from.iter().filter(|n| !members.contains(n));
        let members = members.iter().chain(left).cloned().collect();
        // What was to be a rescale has lost somebody, or it would have come about.
        let reason = if how.reason == StopReason::Rescale { StopReason::Lost } else { how.reason };
        self.enter_phase(JobPhase::Stopping { members, reason, next: next.clone() }, now);
    }

    /// A process says that it cannot go on without a restart.
    pub(super) fn handle_hopeless(
        &mut self,
        node: &NodeName,
        why: &str,
        now: UnixTime,
        out: &mut StepOutcome,
    ) {
        let is_lead = self.lead_node() == Some(node);
        if let Some(worker) = self.workers.get_mut(node) {
            // Others hold the same in their memory, and can still save it.
            worker.live = LiveState::No;
        }
        match self.phase.clone() {
            JobPhase::Running { members } if members.contains(node) => {
                out.notes.push(format!("{node}: a restart is needed: {why}"));
                let next = NextGeneration::for_reason("the command could not go on without a restart");
                self.enter_phase(JobPhase::Stopping { members, reason: StopReason::Lost, next }, now);
            }
            // The agent of a wing ends it, and the others go on.
            JobPhase::Regrouping { members, regroup, next } if is_lead && members.contains(node) => {
                self.fall_back_to_restart(&members, &regroup, &next, &format!("{node}: {why}"), now, out);
            }
            _ => {}
        }
    }
}
