//! What a trusted snapshot says of the malleable jobs.

use std::collections::BTreeMap;

use tracing::Level;

use super::fleet_job::{FleetJob, JobDetails};
use super::fleet_outcome::{EffectBatch, FleetOutcome, JobEnd};
use super::job_fleet::JobFleet;
use super::lead_starts::{LastTrustedSnapshot, start_conditions_on};
use crate::{Effect, JobLifecycle, ObservedJob, StepOutcome, main_job_nodes};
use infill_model::{
    AllowedSizes, BaseState, CommentOptions, HoldKind, Job, JobId, JobRequest, Snapshot, SnapshotDoubt,
    UnixTime, WorkerShare, lead_of_wing,
};

/// Seconds after which a wing without its lead is cancelled again, if it is still there.
const ORPHAN_RETRY_SECS: f64 = 30.0;

/// A node that goes DRAIN within so many seconds after we left it is held against us. Slurm's own
/// UnkillableStepTimeout is 60 s, and draining follows it.
const BLAME_SECS: f64 = 180.0;

/// Words in the reason of a drained node that tell of a job that left it badly.
const LEFT_BADLY: [&str; 2] = ["Kill task failed", "Epilog"];

impl JobFleet {
    /// Why a snapshot cannot be all that there is: Slurm shows no job at all, and some are known. It keeps
    /// jobs for minutes after their end, so rather we may not see them any more.
    pub fn snapshot_doubt(&self, snapshot: &Snapshot) -> Option<SnapshotDoubt> {
        let known = self.jobs.values().filter(|e| !e.has_ended()).count();
        (known > 0 && snapshot.jobs.is_empty()).then(|| {
            SnapshotDoubt::Inconsistent(format!(
                "Slurm shows no job at all, and {known} malleable jobs are known: is infill's user still an \
                 Operator (PrivateData)?"
            ))
        })
    }

    /// Takes in a trusted snapshot that was read from `read_at` on. Also returns the jobs whose comments
    /// cannot be read, each with the reason.
    pub fn ingest_snapshot(
        &mut self,
        snapshot: &Snapshot,
        read_at: UnixTime,
        now: UnixTime,
    ) -> (FleetOutcome, Vec<String>) {
        let ours = self.malleable_jobs(snapshot);
        self.start_conflict.detect_conflicts(snapshot, &self.settings.partition, read_at);
        self.last_snapshot = LastTrustedSnapshot { read_at, backfill: snapshot.backfill.clone() };
        let mut out = FleetOutcome::default();
        self.ended_wings = ours.iter().filter(|j| j.state.is_ended() && lead_of_wing(j).is_some()).count();
        // Of a job that is new nothing younger is known than this snapshot, which says how it is.
        let unclear = self.add_new_leads(&ours, read_at + -1, &mut out);
        for (id, observed) in self.observe_jobs(snapshot, &ours, read_at) {
            let mut outcome = StepOutcome::default();
            if let Some(entry) = self.jobs.get_mut(&id) {
                let before = entry.has_ended();
                entry.lifecycle.apply_observation(&observed, &self.settings, now, &mut outcome);
                if entry.has_ended() && !before {
                    entry.details.why = describe_end(observed.lead.map(|l| &l.state.base));
                }
            }
            out.merge(self.step_job(id, outcome, now));
        }
        self.read_requests(snapshot);
        self.cancel_orphans(snapshot, &ours, now, &mut out);
        self.blame_drains(snapshot, now, &mut out);
        (out, unclear)
    }

    /// Takes in of a snapshot that is doubtful only what holds all the same: that jobs run, and until when.
    pub fn renew_limits(&mut self, snapshot: &Snapshot, read_at: UnixTime, now: UnixTime) -> FleetOutcome {
        let mut out = FleetOutcome::default();
        for (id, observed) in self.observe_jobs(snapshot, &self.malleable_jobs(snapshot), read_at) {
            let mut outcome = StepOutcome::default();
            if let Some(entry) = self.jobs.get_mut(&id) {
                entry.lifecycle.renew_limits(&observed, now, &mut outcome);
            }
            out.merge(self.step_job(id, outcome, now));
        }
        out
    }

    /// The jobs of the malleable partition.
    fn malleable_jobs<'a>(&self, snapshot: &'a Snapshot) -> Vec<&'a Job> {
        snapshot.jobs.iter().filter(|j| j.partition == self.settings.partition).collect()
    }

    /// What is shown of each job of the fleet.
    fn observe_jobs<'a>(
        &self,
        snapshot: &'a Snapshot,
        ours: &[&'a Job],
        read_at: UnixTime,
    ) -> Vec<(JobId, ObservedJob<'a>)> {
        let mut wings: BTreeMap<JobId, Vec<&Job>> = BTreeMap::new();
        let mut out_of_memory: BTreeMap<JobId, Vec<JobId>> = BTreeMap::new();
        let mut leads: BTreeMap<JobId, &Job> = BTreeMap::new();
        if self.job_lifecycles().any(JobLifecycle::is_extension) {
            leads.extend(
                snapshot
                    .jobs
                    .iter()
                    .filter(|j: &&Job| self.job_lifecycle(j.id).is_some_and(JobLifecycle::is_extension))
                    .map(|job| (job.id, job)),
            );
        }
        for job in ours {
            leads.insert(job.id, job);
            let Some(lead) = lead_of_wing(job).filter(|lead| self.same_owner(*lead, job)) else { continue };
            if !job.state.is_ended() {
                wings.entry(lead).or_default().push(job);
            } else if job.state.base == BaseState::OutOfMemory {
                out_of_memory.entry(lead).or_default().push(job.id);
            }
        }
        let start = |id: JobId| {
            let node = self.job_lifecycle(id).and_then(JobLifecycle::awaits_start_on)?;
            Some(start_conditions_on(node, snapshot, &self.settings.partition, read_at))
        };
        let observed = |id: &JobId| {
            let lead = leads.get(id).copied();
            let wings = wings.remove(id).unwrap_or_default();
            let out_of_memory = out_of_memory.remove(id).unwrap_or_default();
            (*id, ObservedJob { lead, wings, out_of_memory, read_at, start: start(*id) })
        };
        self.jobs.keys().map(observed).collect()
    }

    /// Makes machines for leads that are new.
    fn add_new_leads(&mut self, ours: &[&Job], now: UnixTime, out: &mut FleetOutcome) -> Vec<String> {
        let mut unclear = Vec::new();
        for job in ours.iter().filter(|j| !j.state.is_ended()) {
            match JobRequest::from_job(job) {
                Ok(Some(JobRequest::Lead(sizes))) => self.add_lead(job, sizes, now, out),
                Ok(Some(JobRequest::Wing(_)) | None) => {}
                Err(e) => unclear.push(format!("job {}: {e}", job.id)),
            }
        }
        unclear
    }

    fn add_lead(&mut self, job: &Job, sizes: AllowedSizes, now: UnixTime, out: &mut FleetOutcome) {
        let submitted_at = job.submit_time.unwrap_or(now);
        // Job ids wrap around: one that has ended and is here again is another job.
        if self.jobs.get(&job.id).is_none_or(|e| e.has_ended() || e.is_other_job(job)) {
            if self.jobs.get(&job.id).is_some_and(|e| !e.has_ended()) {
                out.add_note(
                    Level::WARN,
                    job.id,
                    "this number is another user's job now: the former one is gone",
                );
                out.ended.push(JobEnd { job: job.id, gone: None });
            }
            out.add_note(
                Level::INFO,
                job.id,
                format!("a malleable job of {} for {sizes} nodes", job.user_name),
            );
            let mut lifecycle = JobLifecycle::new(job.id, sizes, now);
            let wishes = CommentOptions::from_job(job);
            lifecycle.submitted.limit_mins = wishes.limit_mins;
            lifecycle.submitted.block = self.places_per_worker(wishes.share);
            lifecycle.submitted.cpus = match wishes.share {
                Some(WorkerShare::Cpus(cpus)) if self.parts.is_some() => Some(cpus),
                _ => None,
            };
            lifecycle.obstacles.held_by = wishes.held.then_some(HoldKind::Owner);
            let entry = FleetJob::new(lifecycle, JobDetails::default());
            self.jobs.insert(job.id, entry);
            out.changed.insert(job.id);
        }
        let Some(FleetJob { details, .. }) = self.jobs.get_mut(&job.id) else { return };
        details.name.clone_from(&job.name);
        details.user.clone_from(&job.user_name);
        details.user_id = Some(job.user_id);
        if details.submitted_at == UnixTime::default() {
            details.submitted_at = submitted_at;
        }
    }

    /// Makes a machine for a lead whose agent is here before any snapshot showed it. A lead outside the
    /// malleable partition is one that wings extend.
    pub fn adopt_lead(&mut self, job: &Job, now: UnixTime) -> FleetOutcome {
        let mut out = FleetOutcome::default();
        if self.jobs.get(&job.id).is_none_or(|e| e.has_ended() || e.is_other_job(job)) {
            let sizes = match JobRequest::from_job(job) {
                Ok(Some(JobRequest::Lead(sizes))) => sizes,
                _ => AllowedSizes::Range { min: 1, max: 1 },
            };
            self.add_lead(job, sizes, now, &mut out);
        }
        let is_main = job.partition != self.settings.partition;
        if let Some(entry) = self.jobs.get_mut(&job.id) {
            if is_main {
                entry.lifecycle.set_own_nodes(main_job_nodes(job));
            }
            entry.details.user_id = Some(job.user_id);
        }
        out
    }

    fn same_owner(&self, lead: JobId, wing: &Job) -> bool {
        self.job_details(lead).is_some_and(|a| a.user_id == Some(wing.user_id))
    }

    /// Cancels wings whose lead has ended or is another user's: nobody else will.
    fn cancel_orphans(&mut self, snapshot: &Snapshot, ours: &[&Job], now: UnixTime, out: &mut FleetOutcome) {
        self.orphans.retain(|_, t| now.secs_since(*t) < ORPHAN_RETRY_SECS);
        self.waiting_wings.retain(|id, _| snapshot.job(*id).is_some());
        for wing in ours.iter().filter(|j| !j.state.is_ended()) {
            let Some(lead) = lead_of_wing(wing) else { continue };
            let living = self.jobs.get(&lead).is_some_and(|e| !e.has_ended());
            if (living && self.same_owner(lead, wing)) || self.orphans.contains_key(&wing.id) {
                continue;
            }
            if self.may_lead_still_arrive(lead, wing, snapshot, now) {
                continue;
            }
            self.orphans.insert(wing.id, now);
            out.add_note(Level::INFO, lead, format!("wing {} without its lead: cancelled", wing.id));
            out.batches.push(EffectBatch { job: lead, effects: vec![Effect::CancelWing { job: wing.id }] });
        }
    }

    /// Whether the lead may be a main job that this daemon does not know yet, because its store was lost or
    /// does not say: it is known once its agent says hello, which takes seconds. Until then its wings train.
    fn may_lead_still_arrive(&mut self, lead: JobId, wing: &Job, snapshot: &Snapshot, now: UnixTime) -> bool {
        let owner = snapshot
            .job(lead)
            .filter(|job: &&Job| job.partition != self.settings.partition && job.state.occupies_nodes())
            .map(|job| job.user_id);
        if self.jobs.contains_key(&lead) || owner != Some(wing.user_id) {
            return false;
        }
        let since = *self.waiting_wings.entry(wing.id).or_insert(now);
        now.secs_since(since) < self.settings.lead_start_secs
    }

    /// A node that goes DRAIN soon after we left it was probably drained because we left it badly.
    fn blame_drains(&mut self, snapshot: &Snapshot, now: UnixTime, out: &mut FleetOutcome) {
        let used = self.occupied_nodes();
        self.left_at.extend(used.into_keys().map(|node| (node, now)));
        self.left_at.retain(|_, t| now.secs_since(*t) < BLAME_SECS);
        for node in snapshot.nodes.iter().filter(|n| n.state.has_word("DRAIN")) {
            if self.left_at.remove(&node.name).is_none() {
                continue;
            }
            let reason = node.reason.as_deref().unwrap_or_default();
            if LEFT_BADLY.iter().any(|words| reason.contains(words)) {
                out.trips.push((node.name.clone(), format!("went DRAIN after we used it ({reason})")));
            }
        }
    }
}

/// How a job has ended, by what Slurm still shows of it.
fn describe_end(state: Option<&BaseState>) -> String {
    match state {
        Some(BaseState::Completed) => "has completed".to_owned(),
        Some(BaseState::Cancelled) => "was cancelled".to_owned(),
        Some(BaseState::Failed) => "has failed".to_owned(),
        Some(BaseState::Timeout) => "has met its time limit".to_owned(),
        Some(BaseState::NodeFail) => "has lost its node".to_owned(),
        Some(BaseState::OutOfMemory) => "has run out of memory".to_owned(),
        Some(_) => "has ended".to_owned(),
        None => "has ended; Slurm has forgotten how".to_owned(),
    }
}
