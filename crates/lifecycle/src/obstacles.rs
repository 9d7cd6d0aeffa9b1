//! What keeps a job from its target: people hold or suspend its lead, or Slurm does not start it.
//!
//! infill holds malleable jobs while they wait. The job_submit plug-in holds them before infill has seen
//! them. Slurm shows these holds like a hold by the owner (`JobHeldUser`), but shows an administrator's hold
//! differently. So infill recognises an owner's hold only by its time: it comes after infill has released the
//! job.

use infill_model::{BaseState, HoldKind, Job, UnixTime};

use super::node_trials::NodeTrials;
use super::settings::BACK_SECS;

/// Prefixes of the reasons for which Slurm does not start a job, whichever nodes are free.
const REFUSALS: [&str; 15] = [
    "Account",
    "Assoc",
    "BadConstraints",
    "BurstBuffer",
    "Dependency",
    "InvalidAccount",
    "InvalidQOS",
    "Licenses",
    "MaxMemPerLimit",
    "PartitionConfig",
    "PartitionNodeLimit",
    "PartitionTimeLimit",
    "QOS",
    "ReservationDeleted",
    "launch failed",
];

/// Prefix of Slurm's description of a job that Slurm itself holds, because it could not start the job.
const LAUNCH_FAILED: &str = "launch failed";

/// Prefixes of the reasons for which Slurm holds a job that was requeued too often for its limits. The limit
/// `MaxBatchRequeue` counts failed starts. `MaxPreemptRequeue` and `MaxNodeFailRequeue` (26.11) count jobs
/// that were preempted or lost their node. No limit counts jobs that are requeued and held, as infill does,
/// and each count restarts when the job is released.
const REQUEUE_LIMITS: [&str; 2] = ["JobHoldMax", "JobHeldMax"];

/// What keeps a job from its target: decisions of people, of Slurm and of the site, and failing nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobObstacles {
    /// Who holds the lead; `None` if no one but infill does.
    pub held_by: Option<HoldKind>,
    /// Whether the lead waits with the hold of a requeue by infill or by its agent.
    pub(super) requeued: bool,
    /// When infill last launched the lead; `None` if it does not wait to start.
    pub launched_at: Option<UnixTime>,
    /// When Slurm first showed the lead in the queue again; `None` if it does not wait there.
    pub(super) back_at: Option<UnixTime>,
    /// Why Slurm did not start the lead the last time.
    pub refusal: Option<String>,
    /// Whether the lead waits for another plan, because the last one gave too few nodes or did not fit into
    /// memory.
    pub(super) awaits_new_plan: bool,
    /// Whether the lead is suspended: it keeps its nodes, and its agent can neither send nor receive.
    pub suspended: bool,
    /// Why the job has fewer wings than planned: because of Slurm, the site, or infill's own limit.
    pub(super) shortage: Option<String>,
    /// Where the command has run, and which nodes the job is kept from.
    pub trials: NodeTrials,
}

impl JobObstacles {
    /// Whether infill had launched the lead before the snapshot that began at `read_at`.
    pub(super) fn was_launched(&self, read_at: UnixTime) -> bool {
        self.launched_at.is_some_and(|t| t < read_at)
    }

    /// Records who holds the waiting lead. `is_ours` says whether infill is to hold it now.
    ///
    /// In two cases Slurm forgets who asked for the hold of a requeue: a node reports late, and once more,
    /// that the prolog has ended, or Slurm preempts the job at the time of the requeue. The scheduler then
    /// shows an administrator's hold, and forgets the requeue's description, too. `scontrol hold` keeps the
    /// description (tested on 24.11; 26.05 forgets neither).
    pub(super) fn note_hold(&mut self, lead: &Job, is_ours: bool) {
        let launch_failed = lead.state_description.starts_with(LAUNCH_FAILED);
        let is_owners_hold = lead.state_reason == "JobHeldUser";
        if !lead.held || launch_failed {
            self.requeued = false;
        } else if is_owners_hold {
            self.requeued = !lead.state_description.is_empty();
        }
        let holder = if launch_failed || self.has_lost_hold(lead) {
            None
        } else if lead.is_held_by_admin() {
            Some(HoldKind::Admin)
        } else if is_owners_hold && !is_ours {
            Some(HoldKind::Owner)
        } else {
            None
        };
        self.held_by = if lead.held { holder.or(self.held_by) } else { None };
    }

    /// Whether Slurm shows the hold of a requeue by infill as an administrator's hold.
    pub(super) fn has_lost_hold(&self, lead: &Job) -> bool {
        self.requeued && lead.is_held_by_admin() && lead.state_description.is_empty()
    }

    /// Whether the lead was requeued so recently that its last node may mistake a new start for the old one.
    /// A node refuses to start a job within the second in which it was notified of that job's end. Slurm then
    /// counts the job as failed.
    pub(super) fn is_recently_requeued(&self, now: UnixTime) -> bool {
        self.back_at.is_some_and(|t| now.secs_since(t) < BACK_SECS)
    }

    /// The part that the store keeps.
    pub fn persistent_part(&self) -> JobObstacles {
        JobObstacles {
            trials: NodeTrials::default(),
            back_at: None,
            awaits_new_plan: false,
            refusal: self.refusal.clone(),
            shortage: self.shortage.clone(),
            ..*self
        }
    }

    /// Moves all times by `secs`.
    pub(super) fn shift_times(&mut self, secs: f64) {
        for time in [&mut self.launched_at, &mut self.back_at].into_iter().flatten() {
            *time = time.plus_secs(secs);
        }
        self.trials.shift_times(secs);
    }

    /// Records that the lead runs or is suspended.
    pub(super) fn note_running(&mut self, lead: &Job) {
        // A hold of a running job takes effect once the job waits again.
        let held_by = lead.is_held_by_admin().then_some(HoldKind::Admin);
        let suspended = lead.state.base == BaseState::Suspended;
        *self = JobObstacles {
            held_by,
            suspended,
            awaits_new_plan: self.awaits_new_plan,
            shortage: self.shortage.take(),
            trials: std::mem::take(&mut self.trials),
            ..JobObstacles::default()
        };
    }
}

/// Why Slurm itself holds a lead; `None` unless it was requeued too often for one of Slurm's limits.
pub(super) fn requeue_limit_reason(lead: &Job) -> Option<String> {
    let reason = &lead.state_reason;
    let description = &lead.state_description;
    if !lead.held || !REQUEUE_LIMITS.iter().any(|prefix| reason.starts_with(prefix)) {
        return None;
    }
    if description.is_empty() { Some(reason.clone()) } else { Some(format!("{reason} ({description})")) }
}

/// Why Slurm will not start a lead that infill has released; `None` if the lead only waits for free nodes.
pub(super) fn start_refusal(lead: &Job) -> Option<String> {
    if lead.state_description.starts_with(LAUNCH_FAILED) {
        return Some(lead.state_description.clone());
    }
    if let Some(reason) = requeue_limit_reason(lead) {
        return Some(reason);
    }
    let is_refused = REFUSALS.iter().any(|prefix| lead.state_reason.starts_with(prefix));
    is_refused.then(|| lead.state_reason.clone())
}
