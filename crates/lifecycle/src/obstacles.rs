//! What keeps a job from what infill wants with it: people hold or suspend its lead, Slurm will not start it.
//!
//! Infill holds malleable jobs while they wait, and so does the job_submit plug-in before infill has seen
//! them. Those holds look like an owner's own (`JobHeldUser`): an administrator's never does. So an owner's
//! hold is told only by its moment, after infill has released the job.

use infill_model::{BaseState, HoldKind, Job, UnixTime};

use super::node_trials::NodeTrials;
use super::settings::BACK_SECS;

/// Beginnings of the reasons for which Slurm does not start a job whatever is free.
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

/// What Slurm says of a job that it holds itself, because it could not start it.
const LAUNCH_FAILED: &str = "launch failed";

/// Beginnings of the reasons for which Slurm holds a job that has been requeued too often for its limits:
/// `MaxBatchRequeue` counts starts that failed, `MaxPreemptRequeue` and `MaxNodeFailRequeue` (26.11) jobs
/// that were pushed away or have lost their node. None counts what is requeued and held, as infill
/// does it, and each count begins anew when the job is released.
const REQUEUE_LIMITS: [&str; 2] = ["JobHoldMax", "JobHeldMax"];

/// What people, Slurm, the site and its nodes do with a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobObstacles {
    /// Who holds it, if it is not infill.
    pub held_by: Option<HoldKind>,
    /// Whether it waits with the hold of a requeue that infill or its agent asked for.
    pub(super) requeued: bool,
    /// When infill last released it, if it waits to start since.
    pub released_at: Option<UnixTime>,
    /// When Slurm first showed it in its queue again, if it waits there since.
    pub(super) back_at: Option<UnixTime>,
    /// Why Slurm did not start it the last time.
    pub refusal: Option<String>,
    /// Whether its lead waits for another plan, because the last one gave it too little or did not fit.
    pub(super) seeks: bool,
    /// Whether it is suspended: it keeps its nodes, and its agent can neither speak nor hear.
    pub suspended: bool,
    /// Why it has fewer wings than planned, where Slurm, the site or our own bound keeps them from it.
    pub(super) shortage: Option<String>,
    /// Where its command has run, and which nodes it is kept from.
    pub trials: NodeTrials,
}

impl JobObstacles {
    /// Whether a look that began at `read_at` shows what became of it since infill released it.
    pub(super) fn was_released(&self, read_at: UnixTime) -> bool {
        self.released_at.is_some_and(|t| t < read_at)
    }

    /// Takes in who holds the waiting lead. `ours`: whether infill is to hold it now.
    ///
    /// Slurm forgets whose hold that of a requeue is when a node tells it late, once more, that the prolog is
    /// over, or when it preempts the job in the moment of the requeue: its scheduler then calls the hold an
    /// administrator's. It forgets the words that came with the requeue, too; `scontrol hold` leaves them
    /// (tried out on 24.11; 26.05 forgets nothing).
    pub(super) fn note_hold(&mut self, lead: &Job, ours: bool) {
        let failed = lead.state_description.starts_with(LAUNCH_FAILED);
        let by_owner = lead.state_reason == "JobHeldUser";
        let described = !lead.state_description.is_empty();
        self.requeued = lead.held && !failed && if by_owner { described } else { self.requeued };
        let by = match lead.state_reason.as_str() {
            _ if failed || self.has_lost_hold(lead) => None,
            _ if lead.is_held_by_admin() => Some(HoldKind::Admin),
            "JobHeldUser" if !ours => Some(HoldKind::Owner),
            _ => None,
        };
        self.held_by = if lead.held { by.or(self.held_by) } else { None };
    }

    /// Whether Slurm shows the hold of its requeue as an administrator's.
    pub(super) fn has_lost_hold(&self, lead: &Job) -> bool {
        self.requeued && lead.is_held_by_admin() && lead.state_description.is_empty()
    }

    /// Whether the node that it was on may still take a new start of it for the one that was ended there: a
    /// node refuses to start a job again within the second in which it was told that the job is over, and
    /// Slurm then calls the job failed.
    pub(super) fn is_recently_requeued(&self, now: UnixTime) -> bool {
        self.back_at.is_some_and(|t| now.secs_since(t) < BACK_SECS)
    }

    /// The part of them that the store keeps.
    pub fn persistent_part(&self) -> JobObstacles {
        JobObstacles {
            trials: NodeTrials::default(),
            back_at: None,
            seeks: false,
            refusal: self.refusal.clone(),
            shortage: self.shortage.clone(),
            ..*self
        }
    }

    /// Moves all times by these seconds.
    pub(super) fn shift_times(&mut self, secs: f64) {
        let times = [&mut self.released_at, &mut self.back_at];
        times.into_iter().flatten().for_each(|t| *t = t.plus_secs(secs));
        self.trials.shift_times(secs);
    }

    /// Takes in that it runs.
    pub(super) fn note_running(&mut self, lead: &Job) {
        // A hold of a job that runs counts when it comes to wait again.
        let held_by = lead.is_held_by_admin().then_some(HoldKind::Admin);
        let suspended = lead.state.base == BaseState::Suspended;
        *self = JobObstacles {
            held_by,
            suspended,
            seeks: self.seeks,
            shortage: self.shortage.take(),
            trials: std::mem::take(&mut self.trials),
            ..JobObstacles::default()
        };
    }
}

/// Why Slurm holds a lead itself, if that was requeued too often for one of Slurm's limits.
pub(super) fn requeue_limit_reason(lead: &Job) -> Option<String> {
    let reason = &lead.state_reason;
    let more = &lead.state_description;
    let holds = lead.held && REQUEUE_LIMITS.iter().any(|r| reason.starts_with(r));
    holds.then(|| if more.is_empty() { reason.clone() } else { format!("{reason} ({more})") })
}

/// Why Slurm will not start a lead that infill has released, if that has nothing to do with what is free.
pub(super) fn start_refusal(lead: &Job) -> Option<String> {
    if lead.state_description.starts_with(LAUNCH_FAILED) {
        return Some(lead.state_description.clone());
    }
    let refused = || REFUSALS.iter().any(|r| lead.state_reason.starts_with(r));
    requeue_limit_reason(lead).or_else(|| refused().then(|| lead.state_reason.clone()))
}
