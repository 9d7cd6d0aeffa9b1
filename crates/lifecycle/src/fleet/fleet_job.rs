//! One malleable job: its state machine, and what is known of it besides.

use std::collections::BTreeMap;

use super::loss_curve::LossCurve;
use crate::{JobLifecycle, JobObstacles, JobPhase};
use infill_model::{
    ChangeKind, ChangePause, ExcludedNodes, Job, JobId, NodeName, ProgramIdentity, StartBlocker, UnixTime,
    UserId,
};

/// Less training than that is not worth being written, node-seconds.
const MIN_STORED_SECS: f64 = 600.0;

/// So many times a value grows by a fifth until it has doubled.
const FIFTHS: f64 = 3.8;

/// Longest time between two turns that counts as training, seconds.
const LONGEST_TURN_SECS: f64 = 600.0;

/// What is known of a malleable job besides its generations.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobDetails {
    /// Job name.
    pub name: String,
    /// Owner.
    pub user: String,
    /// Owner's id; `None` until Slurm shows the job, where the record does not say.
    pub user_id: Option<UserId>,
    /// Submission.
    pub submitted_at: UnixTime,
    /// Last loss.
    pub loss: Option<f64>,
    /// Samples a second over the last report of each node.
    pub rates: BTreeMap<NodeName, f64>,
    /// Why it has what it has.
    pub why: String,
    /// What its owner should know, for its output.
    pub notice: Option<String>,
    /// When its lead was last sent off to start.
    pub launched_at: Option<UnixTime>,
    /// Nodes of the partition that are not what it asks for.
    pub excluded: ExcludedNodes,
    /// What of its own request keeps it from starting.
    pub bar: Option<StartBlocker>,
    /// Before when its owner does not want it to begin.
    pub begin: Option<UnixTime>,
}

/// What must be in the store before it is acted on: when it changes, the record is written.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct DurableState {
    phase: JobPhase,
    generation: u64,
    wings: Vec<(u64, Option<JobId>)>,
    obstacles: JobObstacles,
    /// How far it has come, by steps of a fifth: not each report is worth writing.
    fifths: u32,
}

impl DurableState {
    fn from_lifecycle(lifecycle: &JobLifecycle) -> Self {
        let wings = lifecycle.wings.iter().map(|(order, w)| (*order, w.job)).collect();
        let phase = lifecycle.phase.clone();
        let generation = lifecycle.generation.number;
        let fifths = (lifecycle.counts.course.held_secs.max(MIN_STORED_SECS).log2() * FIFTHS) as u32;
        DurableState { phase, generation, wings, obstacles: lifecycle.obstacles.persistent_part(), fifths }
    }
}

/// A malleable job of the fleet.
#[derive(Clone, Debug)]
pub(super) struct FleetJob {
    pub lifecycle: JobLifecycle,
    pub details: JobDetails,
    /// The pause of its last change; not known after a restart of the daemon.
    pub pause: Option<ChangePause>,
    /// When its last generation was stopped, and on how many nodes it had run.
    stopped: Option<(UnixTime, u32)>,
    /// Since when none of its commands runs; not known before a daemon's start.
    pub waits_since: Option<UnixTime>,
    /// When its last turn was, if its command ran then, and on how many nodes.
    trained: Option<(UnixTime, u32)>,
    /// Where its lead was when its command last ran.
    pub last_lead: Option<NodeName>,
    /// When its command first began to run, as far as that was seen.
    pub began_at: Option<UnixTime>,
    /// The code with which its command ended.
    pub exit_code: Option<i32>,
    /// The losses that it told of, since the daemon's start.
    pub losses: LossCurve,
    /// As it was after its last turn.
    mark: Option<DurableState>,
}

impl FleetJob {
    pub fn new(lifecycle: JobLifecycle, details: JobDetails) -> Self {
        FleetJob {
            lifecycle,
            details,
            pause: None,
            stopped: None,
            waits_since: None,
            trained: None,
            last_lead: None,
            began_at: None,
            exit_code: None,
            losses: LossCurve::default(),
            mark: None,
        }
    }

    /// Whether Slurm shows another job under its number: ids wrap around, or begin anew with a new slurmctld.
    /// A job that was requeued has another submission time, too, but the same owner.
    pub(crate) fn is_other_job(&self, job: &Job) -> bool {
        self.details.user_id.is_some_and(|user| user != job.user_id)
    }

    /// Moves all that time is counted from: see [`JobLifecycle::forgive`].
    pub fn shift_times(&mut self, secs: f64) {
        self.lifecycle.shift_times(secs);
        let pause = self.pause.as_mut().map(|p| &mut p.since);
        let stopped = self.stopped.as_mut().map(|(at, _)| at);
        let times = pause.into_iter().chain(stopped);
        let times = times.chain(&mut self.details.launched_at).chain(&mut self.waits_since);
        times.for_each(|at| *at = at.plus_secs(secs));
    }

    /// The nodes of the generation that ran after the last turn, if one did.
    fn previous_node_count(&self) -> Option<u32> {
        match &self.mark.as_ref()?.phase {
            JobPhase::Running { members } => Some(members.len() as u32),
            _ => None,
        }
    }

    /// Whether the generation that ran after the last turn runs no more.
    pub(crate) fn was_interrupted(&self) -> bool {
        self.previous_node_count().is_some() && !self.is_still_running()
    }

    /// Whether the generation of the last turn runs on.
    fn is_still_running(&self) -> bool {
        self.is_running()
            && self.mark.as_ref().is_some_and(|m| m.generation == self.lifecycle.generation.number)
    }

    /// Takes note of when the job stopped to make samples, and of the change that this was for.
    pub(crate) fn note_pause(&mut self, now: UnixTime) {
        if let Some(had) = self.previous_node_count().filter(|_| !self.is_still_running()) {
            self.stopped = Some((now, had));
        }
        let JobPhase::Running { members } = &self.lifecycle.phase else { return };
        if self.mark.as_ref().is_some_and(|m| matches!(m.phase, JobPhase::Regrouping { .. })) {
            // All are in it, and train on.
            (self.pause, self.stopped) = (None, None);
            return;
        }
        if self.is_still_running() {
            return;
        }
        let launched = self.details.launched_at.map(|at| (at, 0));
        let began = self.stopped.take().into_iter().chain(launched).max_by_key(|(at, _)| *at);
        let change = |had| ChangeKind::between_sizes(had, members.len() as u32, false);
        self.pause = began.map(|(since, had)| ChangePause { since, change: change(had) });
    }

    /// Takes note of since when no command of it runs. A start that comes to nothing is no end of waiting.
    pub(crate) fn note_waiting(&mut self, now: UnixTime) {
        match &self.lifecycle.phase {
            JobPhase::Queued { .. }
            | JobPhase::Launching { .. }
            | JobPhase::Idle { .. }
            | JobPhase::Requeueing { .. } => {
                self.waits_since.get_or_insert(now);
            }
            _ => self.waits_since = None,
        }
    }

    /// Counts the time for which its command ran since the last turn.
    pub(crate) fn note_training(&mut self, now: UnixTime) {
        if let Some((since, nodes)) = self.trained.take() {
            let secs = now.secs_since(since).clamp(0.0, LONGEST_TURN_SECS);
            self.lifecycle.counts.course.held_secs += secs * f64::from(nodes);
        }
        if let JobPhase::Running { members } = &self.lifecycle.phase {
            self.trained = Some((now, self.lifecycle.generation_node_count(members.len())));
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

    /// What its last plan said of a job says nothing of it once its command has ended.
    pub fn note_end(&mut self) {
        if let JobPhase::Ending { code } = self.lifecycle.phase {
            self.exit_code = Some(code);
            self.details.why = format!("its command has ended with code {code}");
        }
    }

    /// Whether it was here after the last turn, and has ended now.
    pub(crate) fn has_just_ended(&self) -> bool {
        self.has_ended() && self.mark.as_ref().is_some_and(|m| m.phase != JobPhase::Ended)
    }

    /// Remembers how it is. Says whether that is worth storing.
    pub fn refresh_durable_state(&mut self) -> bool {
        let mark = Some(DurableState::from_lifecycle(&self.lifecycle));
        let changed = self.mark != mark;
        self.mark = mark;
        changed
    }

    /// What it runs, as far as it has told.
    pub fn program_identity(&self) -> ProgramIdentity {
        let spec = &self.lifecycle.spec;
        let hash = Some(&spec.command_hash).filter(|hash| !hash.is_empty());
        let told = spec.profile.as_ref().or(hash).map(|name| (name.clone(), spec.batch));
        let user = self.details.user.clone();
        let job_name = self.details.name.clone();
        let submitted = &self.lifecycle.submitted;
        ProgramIdentity {
            user,
            job_name,
            told,
            block: submitted.block,
            on_cpus: submitted.cpus.is_some(),
            exec_plan: self.lifecycle.last_run_plan().clone(),
        }
    }
}
