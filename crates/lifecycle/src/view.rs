//! What the state of a machine means to others.

use std::collections::BTreeMap;

use infill_api::PROTOCOL;
use infill_model::{
    AllowedSizes, ExecPlan, JobId, MalleableState, NodeName, SchedulingState, StartBlocker, UnixTime,
};

use super::job_lifecycle::JobLifecycle;
use super::phase::JobPhase;
use super::settings::{CLAIM_SECS, MOST_CLAIMS, SILENT_SECS};

impl JobLifecycle {
    /// Where the job is in its life, in a word.
    pub fn malleable_state(&self) -> MalleableState {
        self.phase.malleable_state()
    }

    /// Why it has fewer nodes than it could, where wings are kept from it; for people.
    pub fn shortage_reason(&self, now: UnixTime) -> Option<String> {
        if let Some(older) = self.outdated_lead_reason() {
            return Some(older);
        }
        let why = self.obstacles.shortage.as_ref()?;
        let until = self.backoff.order_after.filter(|t| *t > now);
        Some(
            until.map_or(why.clone(), |t| {
                format!("{why}; none is asked for within {:.0} s", t.secs_since(now))
            }),
        )
    }

    /// Why the lead's agent is asked for no wings, if it is too old for that; for people.
    pub(crate) fn outdated_lead_reason(&self) -> Option<String> {
        let lead = self.workers.values().find(|w| self.is_lead(w)).filter(|w| !w.dialect.orders_wings())?;
        let theirs = lead.dialect.protocol;
        let ours = PROTOCOL;
        Some(format!(
            "its agent is of an older version of infill than the daemon (protocol {theirs}, the daemon's is {ours}), \
             and is asked for no further nodes until its lead starts anew"
        ))
    }

    /// Whether it can have no further wings now.
    pub(crate) fn cannot_order(&self, now: UnixTime) -> bool {
        self.backoff.orders_barred(now) || self.outdated_lead_reason().is_some()
    }

    /// The sizes that hold: the agent's, if it declared some, else the submission's.
    pub fn allowed_sizes(&self) -> &AllowedSizes {
        self.spec.sizes.as_ref().unwrap_or(&self.submitted.sizes)
    }

    /// The node that the lead was released to, until Slurm shows it running.
    pub(crate) fn awaits_start_on(&self) -> Option<&NodeName> {
        match &self.phase {
            JobPhase::Launching { node, .. } if self.obstacles.released_at.is_some() => Some(node),
            _ => None,
        }
    }

    /// The node of the lead, while it holds one, or that it comes back to while it is away.
    pub fn lead_node(&self) -> Option<&NodeName> {
        match &self.phase {
            JobPhase::Launching { node, .. } => Some(node),
            _ if self.generation.away.is_some() => self.generation.away.as_ref().map(|away| &away.place),
            _ => self.workers.iter().find(|(_, w)| self.is_lead(w)).map(|(n, _)| n),
        }
    }

    /// What the job counts as holding for the planner: what it occupies while it runs, and in the middle of a
    /// change what it is changing to, so that no round calls back the change that the last one began.
    ///
    /// A lead that has been on its way for long holds its own node only: it may never come to `infill run`,
    /// and nobody else would have the others.
    pub fn held_nodes(&self, now: UnixTime) -> BTreeMap<NodeName, JobId> {
        let occupied = self.occupied_nodes();
        match (&self.phase, &self.target) {
            (JobPhase::Launching { .. }, _) if self.claim_is_over(now) => occupied,
            (JobPhase::Queued { .. }, _) if self.wings.is_empty() => BTreeMap::new(),
            // A daemon that was restarted meanwhile knows that the lead goes, and not where to.
            (JobPhase::Requeueing { .. }, None) => BTreeMap::new(),
            (JobPhase::Running { .. }, _) | (_, None) => occupied,
            (_, Some(target)) => {
                let holder = |n: &NodeName| occupied.get(n).copied().unwrap_or(self.job);
                target.plan.nodes.iter().map(|p| (p.node.clone(), holder(&p.node))).collect()
            }
        }
    }

    /// The execution plan that it runs, or in the middle of a change the one that it is changing to; the
    /// first declared one before the first.
    pub fn exec_plan(&self) -> &ExecPlan {
        match (&self.phase, &self.target) {
            (JobPhase::Running { .. }, _) | (_, None) => self.last_run_plan(),
            (_, Some(target)) => self.declared_plan(&target.plan.exec_plan),
        }
    }

    /// The execution plan of the present generation, or of the last one; the first declared one before the
    /// first.
    pub(crate) fn last_run_plan(&self) -> &ExecPlan {
        self.declared_plan(&self.generation.exec_plan)
    }

    /// This plan, or the first declared one where it is none of these: whoever chose it did not know them
    /// yet.
    pub(super) fn declared_plan<'a>(&'a self, plan: &'a ExecPlan) -> &'a ExecPlan {
        match self.spec.plans.first() {
            Some(first) if self.spec.plans.iter().all(|p| p.name != *plan) => &first.name,
            _ => plan,
        }
    }

    /// The node of the lead in [`JobLifecycle::held`].
    pub(crate) fn held_lead(&self, now: UnixTime) -> Option<&NodeName> {
        match (&self.phase, &self.target) {
            (JobPhase::Launching { node, .. }, _) if self.claim_is_over(now) => Some(node),
            (JobPhase::Queued { .. }, _) if self.wings.is_empty() => None,
            (JobPhase::Requeueing { .. }, None) => None,
            (JobPhase::Running { .. }, _) | (_, None) => self.lead_node(),
            (_, Some(target)) => target.plan.nodes.first().map(|p| &p.node),
        }
    }

    /// Whether a lead has been on its way for so long that only its own node counts as its own. Longer after
    /// each time that this kept nodes from a lead that did come: its script may have much to do first.
    pub(super) fn claim_is_over(&self, now: UnixTime) -> bool {
        let once = self.target.as_ref().map_or(CLAIM_SECS, |t| t.claim_secs);
        let secs = once * f64::from(1 + self.backoff.late_starts.min(MOST_CLAIMS));
        now.secs_since(self.since) >= secs
    }

    /// Every node that the job holds or has ordered, with the Slurm job that holds it.
    pub fn occupied_nodes(&self) -> BTreeMap<NodeName, JobId> {
        let wings = self
            .wings
            .values()
            .flat_map(|w| w.order.nodes.iter().map(move |n| (n.clone(), w.job.unwrap_or(self.job))));
        let lead = self.lead_node().map(|n| (n.clone(), self.job));
        wings.chain(lead).collect()
    }

    /// What the planner may do with the job.
    pub fn scheduling_state(&self, now: UnixTime) -> SchedulingState {
        match &self.phase {
            JobPhase::Queued { .. } if !self.wings.is_empty() => SchedulingState::Busy,
            JobPhase::Queued { .. } => self.queued_scheduling_state(now),
            _ if self.obstacles.suspended || self.generation.away.is_some() => SchedulingState::Busy,
            JobPhase::Idle { .. } if self.obstacles.seeks && self.target.is_none() => {
                SchedulingState::Running
            }
            JobPhase::Running { members } if self.is_steady(members, now) => SchedulingState::Running,
            _ => SchedulingState::Busy,
        }
    }

    fn queued_scheduling_state(&self, now: UnixTime) -> SchedulingState {
        // One node alone would be no start, and more it could not have.
        let wings_barred = self.backoff.order_after.filter(|t| *t > now && self.allowed_sizes().min() > 1);
        let barred = self.backoff.start_barred_until(now).max(wings_barred);
        match (self.obstacles.held_by, barred, &self.obstacles.refusal) {
            (Some(by), ..) => SchedulingState::Barred(StartBlocker::Held(by)),
            (None, Some(until), Some(reason)) => {
                SchedulingState::Barred(StartBlocker::Refused { reason: reason.clone(), until })
            }
            (None, Some(until), None) => SchedulingState::BackOff(until),
            (None, None, _) => SchedulingState::Waiting,
        }
    }

    fn is_steady(&self, members: &[NodeName], now: UnixTime) -> bool {
        members.iter().all(|n| {
            self.workers
                .get(n)
                .is_some_and(|w| w.stopped.is_none() && !w.leaving && w.silent_secs(now) < SILENT_SECS)
        })
    }

    /// Whether the planner's last word leaves this node to one of the job's wings.
    pub(super) fn wants_wing_on(&self, node: &NodeName) -> bool {
        self.target.as_ref().is_none_or(|t| t.plan.nodes.iter().skip(1).any(|p| p.node == *node))
    }
}
