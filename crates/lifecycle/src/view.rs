//! The job's state as the planner and people see it.

use std::collections::BTreeMap;

use infill_api::PROTOCOL;
use infill_model::{
    AllowedSizes, ExecPlan, GpuUse, JobId, MalleableState, NodeName, SchedulingState, StartBlocker, UnixTime,
};

use super::job_lifecycle::JobLifecycle;
use super::phase::JobPhase;
use super::settings::{CLAIM_SECS, MAX_CLAIMS, SILENT_SECS};

impl JobLifecycle {
    /// The state that infill shows for the job.
    pub fn malleable_state(&self) -> MalleableState {
        self.phase.malleable_state()
    }

    /// Why the job has fewer wings than planned, as text for people; `None` if nothing is known to prevent
    /// wings.
    pub fn shortage_reason(&self, now: UnixTime) -> Option<String> {
        if let Some(why) = self.outdated_lead_reason() {
            return Some(why);
        }
        let why = self.obstacles.shortage.as_ref()?;
        match self.backoff.order_after.filter(|until| *until > now) {
            Some(until) => {
                let secs = until.secs_since(now);
                Some(format!("{why}; infill orders no wings for {secs:.0} s"))
            }
            None => Some(why.clone()),
        }
    }

    /// Why infill does not ask the lead's agent for wings, as text for people; `None` if the agent is new
    /// enough.
    pub(crate) fn outdated_lead_reason(&self) -> Option<String> {
        let lead = self.workers.values().find(|w| self.is_lead(w)).filter(|w| !w.dialect.orders_wings())?;
        let agent_protocol = lead.dialect.protocol;
        Some(format!(
            "its agent is older than the daemon (protocol {agent_protocol}, the daemon's is {PROTOCOL}), and \
             gets no further nodes until its lead restarts"
        ))
    }

    /// Whether the job must not order wings now.
    pub(crate) fn cannot_order(&self, now: UnixTime) -> bool {
        self.backoff.orders_barred(now) || self.outdated_lead_reason().is_some()
    }

    /// The allowed sizes: those that the agent declared, or else those of the submission.
    pub fn allowed_sizes(&self) -> &AllowedSizes {
        self.spec.sizes.as_ref().unwrap_or(&self.submitted.sizes)
    }

    /// The node that the lead was released to, until Slurm shows it running.
    pub(crate) fn awaits_start_on(&self) -> Option<&NodeName> {
        match &self.phase {
            JobPhase::Launching { node, .. } if self.obstacles.launched_at.is_some() => Some(node),
            _ => None,
        }
    }

    /// The lead's node; while the lead is away, the node on which it comes back. `None` if the lead has no
    /// node.
    pub fn lead_node(&self) -> Option<&NodeName> {
        match &self.phase {
            JobPhase::Launching { node, .. } => Some(node),
            _ if self.generation.lead_absence.is_some() => {
                self.generation.lead_absence.as_ref().map(|away| &away.node)
            }
            _ => self.workers.iter().find(|(_, w)| self.is_lead(w)).map(|(n, _)| n),
        }
    }

    /// The nodes that the job holds from the planner's point of view, each with its Slurm job. A running job
    /// holds the nodes that it occupies. During a change it holds the nodes of its target, so that a round
    /// does not undo the change that the last one began.
    ///
    /// A lead that takes long to start holds only its own node. It may never reach `infill run`, and other
    /// jobs could not have the other nodes meanwhile.
    pub fn held_nodes(&self, now: UnixTime) -> BTreeMap<NodeName, JobId> {
        let occupied = self.occupied_nodes();
        match (&self.phase, &self.target) {
            (JobPhase::Launching { .. }, _) if self.claim_is_over(now) => occupied,
            (JobPhase::Queued { .. }, _) if self.wings.is_empty() => BTreeMap::new(),
            // After a restart, the daemon knows that the lead leaves its node, but not where it goes.
            (JobPhase::Requeueing { .. }, None) => BTreeMap::new(),
            (JobPhase::Running { .. }, _) | (_, None) => occupied,
            (_, Some(target)) => {
                let held = target.plan.nodes.iter().map(|planned| {
                    let slurm_job = occupied.get(&planned.node).copied().unwrap_or(self.job);
                    (planned.node.clone(), slurm_job)
                });
                held.collect()
            }
        }
    }

    /// The execution plan that the job runs, or during a change the one of its target. Before its first
    /// generation: the first declared plan.
    pub fn exec_plan(&self) -> &ExecPlan {
        match (&self.phase, &self.target) {
            (JobPhase::Running { .. }, _) | (_, None) => self.last_run_plan(),
            (_, Some(target)) => self.declared_plan(&target.plan.exec_plan),
        }
    }

    /// The execution plan of the present or last generation; the first declared plan before the first
    /// generation.
    pub(crate) fn last_run_plan(&self) -> &ExecPlan {
        self.declared_plan(&self.generation.exec_plan)
    }

    /// This plan, or the first declared plan if the job did not declare it. The planner may have chosen it
    /// before the agent's declarations arrived.
    pub(super) fn declared_plan<'a>(&'a self, plan: &'a ExecPlan) -> &'a ExecPlan {
        match self.spec.plans.first() {
            Some(first) if self.spec.plans.iter().all(|p| p.name != *plan) => &first.name,
            _ => plan,
        }
    }

    /// The lead's node among [`JobLifecycle::held_nodes`].
    pub(crate) fn held_lead(&self, now: UnixTime) -> Option<&NodeName> {
        match (&self.phase, &self.target) {
            (JobPhase::Launching { node, .. }, _) if self.claim_is_over(now) => Some(node),
            (JobPhase::Queued { .. }, _) if self.wings.is_empty() => None,
            (JobPhase::Requeueing { .. }, None) => None,
            (JobPhase::Running { .. }, _) | (_, None) => self.lead_node(),
            (_, Some(target)) => target.plan.nodes.first().map(|p| &p.node),
        }
    }

    /// Whether a launched lead no longer claims any node but its own, because it takes long to start. The
    /// claim lasts longer after each late start: the lead's script may have much to do first.
    pub(super) fn claim_is_over(&self, now: UnixTime) -> bool {
        let claim_secs = self.target.as_ref().map_or(CLAIM_SECS, |t| t.claim_secs);
        let times = 1 + self.backoff.late_starts.min(MAX_CLAIMS);
        now.secs_since(self.since) >= claim_secs * f64::from(times)
    }

    /// Nodes on which the job has its lead or a wing, or has ordered one, each with its Slurm job. During a
    /// change these are not [`JobLifecycle::held_nodes`], which are the nodes of the target.
    pub fn occupied_nodes(&self) -> BTreeMap<NodeName, JobId> {
        let mut occupied = BTreeMap::new();
        for wing in self.wings.values() {
            let slurm_job = wing.job.unwrap_or(self.job);
            occupied.extend(wing.order.nodes.iter().map(|node| (node.clone(), slurm_job)));
        }
        occupied.extend(self.lead_node().map(|node| (node.clone(), self.job)));
        occupied
    }

    /// The job's state for the planner.
    pub fn scheduling_state(&self, now: UnixTime) -> SchedulingState {
        match &self.phase {
            JobPhase::Queued { .. } if !self.wings.is_empty() => SchedulingState::Busy,
            JobPhase::Queued { .. } => self.queued_scheduling_state(now),
            _ if self.obstacles.suspended || self.generation.lead_absence.is_some() => SchedulingState::Busy,
            JobPhase::Assembling { .. } if self.obstacles.awaits_new_plan && self.target.is_none() => {
                SchedulingState::Running
            }
            JobPhase::Running { members } if self.is_steady(members, now) => SchedulingState::Running,
            _ => SchedulingState::Busy,
        }
    }

    fn queued_scheduling_state(&self, now: UnixTime) -> SchedulingState {
        // Without wings the job would have one node, which is too few to start.
        let wings_barred = self.backoff.order_after.filter(|t| *t > now && self.allowed_sizes().min() > 1);
        let barred = self.backoff.start_barred_until(now).max(wings_barred);
        match (self.obstacles.held_by, barred, &self.obstacles.refusal) {
            (Some(by), ..) => SchedulingState::Blocked(StartBlocker::Held(by)),
            (None, Some(until), Some(reason)) => {
                SchedulingState::Blocked(StartBlocker::Refused { reason: reason.clone(), until })
            }
            (None, Some(until), None) => SchedulingState::BackOff(until),
            (None, None, _) => SchedulingState::Waiting,
        }
    }

    /// The GPUs of the nodes on which the command runs; `None` if they have none, or no agent has said.
    pub fn gpu_use(&self) -> Option<GpuUse> {
        let members = self.phase.members();
        GpuUse::total(members.iter().filter_map(|node| self.workers.get(node)?.gpus))
    }

    /// Notes what the agent on this node says of its GPUs. An older agent says nothing.
    pub(crate) fn record_gpu_use(&mut self, node: &NodeName, gpus: Option<GpuUse>) {
        if let Some(worker) = self.workers.get_mut(node) {
            worker.gpus = gpus.or(worker.gpus);
        }
    }

    /// Whether the command runs on all members, and none of them is leaving or silent.
    fn is_steady(&self, members: &[NodeName], now: UnixTime) -> bool {
        members.iter().all(|node| {
            let Some(worker) = self.workers.get(node) else { return false };
            worker.stopped.is_none() && !worker.leaving && worker.silent_secs(now) < SILENT_SECS
        })
    }

    /// Whether the target has a wing on this node, or there is no target.
    pub(super) fn wants_wing_on(&self, node: &NodeName) -> bool {
        self.target.as_ref().is_none_or(|t| t.plan.nodes.iter().skip(1).any(|p| p.node == *node))
    }
}
