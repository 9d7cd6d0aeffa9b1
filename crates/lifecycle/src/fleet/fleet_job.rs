//! One malleable job of the fleet: its lifecycle and further data.

use std::collections::BTreeMap;

use super::loss_curve::LossCurve;
use crate::{JobLifecycle, JobObstacles, JobPhase};
use infill_model::{
    ChangeKind, ChangePause, ExcludedNodes, Job, JobId, NodeName, ProgramIdentity, StartBlocker, UnixTime,
    UserId,
};

/// Less training than this, in node-seconds, does not count as progress that must be stored.
const MIN_STORED_SECS: f64 = 600.0;

/// Number of growth steps by a fifth in which a value doubles.
const FIFTHS: f64 = 3.8;

/// Longest time between two steps that counts as training, seconds.
const MAX_STEP_SECS: f64 = 600.0;

/// Data of a malleable job beyond its lifecycle.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobDetails {
    /// The job's name in Slurm.
    pub name: String,
    /// The name of its task, such as `123_4`, if it is a task of an array.
    pub array_task: Option<String>,
    /// The owner's user name; empty until Slurm shows the job.
    pub user: String,
    /// The owner's user id; `None` until Slurm shows the job, if the record does not contain it.
    pub user_id: Option<UserId>,
    /// Time of submission.
    pub submitted_at: UnixTime,
    /// Last loss that the command reported.
    pub loss: Option<f64>,
    /// Rate in the last report of each node, samples a second.
    pub rates: BTreeMap<NodeName, f64>,
    /// Why the job has its present nodes, as text.
    pub why: String,
    /// What the owner should know, for the job's output.
    pub notice: Option<String>,
    /// When the lead was last launched.
    pub launched_at: Option<UnixTime>,
    /// Nodes of the partition that do not match the job's request.
    pub excluded: ExcludedNodes,
    /// The part of the job's own request that keeps it from starting; `None` if it can start.
    pub start_blocker: Option<StartBlocker>,
    /// The owner's earliest begin time, if it is in the future.
    pub begin_after: Option<UnixTime>,
}

/// State that must be in the store before the daemon acts on it. A change of it makes the daemon write the
/// record.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct DurableState {
    phase: JobPhase,
    generation: u64,
    /// Number and Slurm job of each wing.
    wings: Vec<(u64, Option<JobId>)>,
    obstacles: JobObstacles,
    /// Training so far, in steps of a fifth. So the daemon does not write the record for each report.
    fifths: u32,
}

impl DurableState {
    fn from_lifecycle(lifecycle: &JobLifecycle) -> Self {
        let wings = lifecycle.wings.iter().map(|(order, w)| (*order, w.job)).collect();
        let phase = lifecycle.phase.clone();
        let generation = lifecycle.generation.number;
        let fifths = (lifecycle.counts.progress.held_secs.max(MIN_STORED_SECS).log2() * FIFTHS) as u32;
        DurableState { phase, generation, wings, obstacles: lifecycle.obstacles.persistent_part(), fifths }
    }
}

/// A malleable job of the fleet.
#[derive(Clone, Debug)]
pub(super) struct FleetJob {
    pub lifecycle: JobLifecycle,
    pub details: JobDetails,
    /// The pause of the last change; `None` if there is none or after a restart of the daemon.
    pub pause: Option<ChangePause>,
    /// When the last generation was stopped, and its number of nodes.
    stopped: Option<(UnixTime, u32)>,
    /// Since when no command of the job runs; at the earliest the daemon's start.
    pub waits_since: Option<UnixTime>,
    /// Time of the last step and the number of nodes, if the command ran then.
    trained_until: Option<(UnixTime, u32)>,
    /// The lead's node when the command last ran.
    pub last_lead: Option<NodeName>,
    /// When the command first began to run; `None` if the daemon did not see that.
    pub began_at: Option<UnixTime>,
    /// Exit code of the command, once it has ended.
    pub exit_code: Option<i32>,
    /// The number of each worker's last report.
    pub last_reports: BTreeMap<NodeName, u64>,
    /// The losses that the job has reported since the daemon's start.
    pub losses: LossCurve,
    /// The state after the last step.
    last_state: Option<DurableState>,
}

impl FleetJob {
    pub fn new(lifecycle: JobLifecycle, details: JobDetails) -> Self {
        FleetJob {
            lifecycle,
            details,
            pause: None,
            stopped: None,
            waits_since: None,
            trained_until: None,
            last_lead: None,
            began_at: None,
            exit_code: None,
            last_reports: BTreeMap::new(),
            losses: LossCurve::default(),
            last_state: None,
        }
    }

    /// Whether Slurm shows another user's job under this job's id. Ids wrap around, and restart with a new
    /// slurmctld. The submission time cannot decide this: a requeue changes it, too.
    pub(crate) fn is_other_job(&self, job: &Job) -> bool {
        self.details.user_id.is_some_and(|user| user != job.user_id)
    }

    /// Moves all reference times by `secs`: see [`JobLifecycle::shift_times`].
    pub fn shift_times(&mut self, secs: f64) {
        self.lifecycle.shift_times(secs);
        let pause = self.pause.as_mut().map(|pause| &mut pause.since);
        let stopped = self.stopped.as_mut().map(|(at, _)| at);
        let launched = self.details.launched_at.as_mut();
        let waits_since = self.waits_since.as_mut();
        for time in [pause, stopped, launched, waits_since].into_iter().flatten() {
            *time = time.plus_secs(secs);
        }
    }

    /// Number of nodes of the generation that ran after the last step; `None` if none ran.
    fn previous_node_count(&self) -> Option<u32> {
        match &self.last_state.as_ref()?.phase {
            JobPhase::Running { members } => Some(members.len() as u32),
            _ => None,
        }
    }

    /// Whether the generation that ran after the last step no longer runs.
    pub(crate) fn was_interrupted(&self) -> bool {
        self.previous_node_count().is_some() && !self.is_still_running()
    }

    /// Whether the same generation runs as after the last step.
    fn is_still_running(&self) -> bool {
        let Some(last_state) = &self.last_state else { return false };
        self.is_running() && last_state.generation == self.lifecycle.generation.number
    }

    /// Notes when the job stopped training, and for which change.
    pub(crate) fn note_pause(&mut self, now: UnixTime) {
        if let Some(previous_nodes) = self.previous_node_count().filter(|_| !self.is_still_running()) {
            self.stopped = Some((now, previous_nodes));
        }
        let JobPhase::Running { members } = &self.lifecycle.phase else { return };
        if self.last_state.as_ref().is_some_and(|s| matches!(s.phase, JobPhase::Regrouping { .. })) {
            // All members have joined and train on.
            self.pause = None;
            self.stopped = None;
            return;
        }
        if self.is_still_running() {
            return;
        }
        let launched = self.details.launched_at.map(|at| (at, 0));
        let began = self.stopped.take().into_iter().chain(launched).max_by_key(|(at, _)| *at);
        self.pause = began.map(|(since, previous_nodes)| {
            let change = ChangeKind::between_sizes(previous_nodes, members.len() as u32, false);
            ChangePause { since, change }
        });
    }

    /// Notes since when no command of the job runs. A failed start does not end the wait.
    pub(crate) fn note_waiting(&mut self, now: UnixTime) {
        match &self.lifecycle.phase {
            JobPhase::Queued { .. }
            | JobPhase::Launching { .. }
            | JobPhase::Assembling { .. }
            | JobPhase::Requeueing { .. } => {
                self.waits_since.get_or_insert(now);
            }
            _ => self.waits_since = None,
        }
    }

    /// Counts the node-seconds for which the command ran since the last step.
    pub(crate) fn note_training(&mut self, now: UnixTime) {
        if let Some((since, nodes)) = self.trained_until.take() {
            let secs = now.secs_since(since).clamp(0.0, MAX_STEP_SECS);
            self.lifecycle.counts.progress.held_secs += secs * f64::from(nodes);
        }
        if let JobPhase::Running { members } = &self.lifecycle.phase {
            self.trained_until = Some((now, self.lifecycle.generation_node_count(members.len())));
            self.began_at.get_or_insert(now);
            self.last_lead = self.lifecycle.lead_node().cloned().or(self.last_lead.take());
        }
    }

    pub fn is_running(&self) -> bool {
        matches!(self.lifecycle.phase, JobPhase::Running { .. })
    }

    pub fn has_ended(&self) -> bool {
        self.lifecycle.phase == JobPhase::Ended
    }

    /// Notes the end of the command. The reason from the last plan no longer applies.
    pub fn note_end(&mut self) {
        if let JobPhase::Ending { code } = self.lifecycle.phase {
            self.exit_code = Some(code);
            self.details.why = format!("its command has ended with code {code}");
        }
    }

    /// Whether it has ended since the last step.
    pub(crate) fn has_just_ended(&self) -> bool {
        self.has_ended() && self.last_state.as_ref().is_some_and(|s| s.phase != JobPhase::Ended)
    }

    /// Remembers the present state. Returns whether it has changed since the last step and must be stored.
    pub fn refresh_durable_state(&mut self) -> bool {
        let state = Some(DurableState::from_lifecycle(&self.lifecycle));
        let has_changed = self.last_state != state;
        self.last_state = state;
        has_changed
    }

    /// The program that the job runs, as far as the agent has reported it.
    pub fn program_identity(&self) -> ProgramIdentity {
        let spec = &self.lifecycle.spec;
        let hash = Some(&spec.command_hash).filter(|hash| !hash.is_empty());
        let program = spec.profile.as_ref().or(hash);
        let reported_profile = program.map(|name| (name.clone(), spec.batch));
        let user = self.details.user.clone();
        let job_name = self.details.name.clone();
        let submitted = &self.lifecycle.submitted;
        ProgramIdentity {
            user,
            job_name,
            reported_profile,
            places_per_node: submitted.places_per_worker,
            on_cpus: submitted.cpus.is_some(),
            exec_plan: self.lifecycle.last_run_plan().clone(),
        }
    }
}
