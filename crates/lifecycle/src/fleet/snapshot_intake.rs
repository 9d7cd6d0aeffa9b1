//! Applies a trusted snapshot to the malleable jobs.

use std::collections::BTreeMap;

use tracing::Level;

use super::fleet_job::{FleetJob, JobDetails};
use super::fleet_outcome::{EffectBatch, FleetOutcome, JobEnd};
use super::job_fleet::JobFleet;
use super::lead_starts::{LastTrustedSnapshot, start_conditions_on};
use crate::{Effect, JobLifecycle, ObservedJob, StepOutcome, main_job_nodes};
use infill_model::{
    AllowedSizes, ArrayPart, BaseState, CommentOptions, HoldKind, Job, JobId, JobRequest, Snapshot,
    SnapshotDoubt, UnixTime, WorkerShare, lead_of_wing,
};

/// Seconds after which infill cancels a wing without a lead again, if Slurm still shows it.
const ORPHAN_RETRY_SECS: f64 = 30.0;

/// How soon after a malleable job left a node a change to DRAIN counts as infill's fault, seconds. Slurm's
/// UnkillableStepTimeout is 60 s by default, and the draining follows it.
const BLAME_SECS: f64 = 180.0;

/// Parts of a drained node's reason which show that a job did not leave the node cleanly.
const LEFT_BADLY: [&str; 2] = ["Kill task failed", "Epilog"];

impl JobFleet {
    /// Why a snapshot cannot be complete: it has no jobs, although infill knows malleable jobs that have not
    /// ended. Slurm keeps jobs for minutes after their end, so it probably hides jobs from infill.
    pub fn snapshot_doubt(&self, snapshot: &Snapshot) -> Option<SnapshotDoubt> {
        let known = self.jobs.values().filter(|entry| !entry.has_ended()).count();
        if known == 0 || !snapshot.jobs.is_empty() {
            return None;
        }
        Some(SnapshotDoubt::Inconsistent(format!(
            "Slurm shows no jobs at all, although {known} malleable jobs are known: is infill's user still an \
             Operator (PrivateData)?"
        )))
    }

    /// Applies a trusted snapshot whose reading began at `read_at`. Also returns the jobs whose comments
    /// cannot be parsed, each with the reason.
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
        // New jobs begin one second before the snapshot, so that the snapshot applies to them.
        let unclear = self.add_new_leads(&ours, read_at + -1, &mut out);
        for (id, observed) in self.observe_jobs(snapshot, &ours, read_at) {
            let mut outcome = StepOutcome::default();
            if let Some(entry) = self.jobs.get_mut(&id) {
                let had_ended = entry.has_ended();
                entry.lifecycle.apply_observation(&observed, &self.settings, now, &mut outcome);
                if entry.has_ended() && !had_ended {
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

    /// Applies the part of a doubtful snapshot that is still reliable: which jobs run, and until when.
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

    /// Each job of the fleet as the snapshot shows it.
    fn observe_jobs<'a>(
        &self,
        snapshot: &'a Snapshot,
        ours: &[&'a Job],
        read_at: UnixTime,
    ) -> Vec<(JobId, ObservedJob<'a>)> {
        let mut wings: BTreeMap<JobId, Vec<&Job>> = BTreeMap::new();
        let mut out_of_memory: BTreeMap<JobId, Vec<JobId>> = BTreeMap::new();
        let mut leads: BTreeMap<JobId, &Job> = BTreeMap::new();
        // Main jobs that wings extend are leads, too, but are not in the malleable partition.
        if self.job_lifecycles().any(JobLifecycle::is_extended_main_job) {
            let extended = snapshot
                .jobs
                .iter()
                .filter(|job| self.job_lifecycle(job.id).is_some_and(JobLifecycle::is_extended_main_job));
            leads.extend(extended.map(|job| (job.id, job)));
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
        let mut observed = Vec::new();
        for (id, entry) in &self.jobs {
            let awaited_node = entry.lifecycle.awaits_start_on();
            let start = awaited_node
                .map(|node| start_conditions_on(node, snapshot, &self.settings.partition, read_at));
            let job = ObservedJob {
                lead: leads.get(id).copied(),
                wings: wings.remove(id).unwrap_or_default(),
                out_of_memory: out_of_memory.remove(id).unwrap_or_default(),
                read_at,
                start,
            };
            observed.push((*id, job));
        }
        observed
    }

    /// Adds leads that the fleet does not know. Returns the jobs whose comments cannot be parsed.
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

    /// Adds a lead, or updates its data if the fleet already has it.
    fn add_lead(&mut self, job: &Job, sizes: AllowedSizes, now: UnixTime, out: &mut FleetOutcome) {
        let submitted_at = job.submit_time.unwrap_or(now);
        // Job ids wrap around, so an id that has ended and reappears is another job.
        if self.jobs.get(&job.id).is_none_or(|e| e.has_ended() || e.is_other_job(job)) {
            if self.jobs.get(&job.id).is_some_and(|e| !e.has_ended()) {
                let text = "another user's job has this id now: the former job is gone";
                out.add_note(Level::WARN, job.id, text);
                out.ended.push(JobEnd { job: job.id, finished: None });
            }
            let text = format!("a malleable job of {} for {sizes} nodes", job.user_name);
            out.add_note(Level::INFO, job.id, text);
            let mut lifecycle = JobLifecycle::new(job.id, sizes, now);
            let options = CommentOptions::from_job(job);
            lifecycle.submitted.limit_mins = options.limit_mins;
            lifecycle.submitted.places_per_worker = self.places_per_worker(options.share);
            lifecycle.submitted.cpus = match options.share {
                Some(WorkerShare::Cpus(cpus)) if self.lending_rules.is_some() => Some(cpus),
                _ => None,
            };
            lifecycle.obstacles.held_by = options.held.then_some(HoldKind::Owner);
            let entry = FleetJob::new(lifecycle, JobDetails::default());
            self.jobs.insert(job.id, entry);
            out.changed.insert(job.id);
        }
        let Some(FleetJob { details, .. }) = self.jobs.get_mut(&job.id) else { return };
        details.name.clone_from(&job.name);
        details.array_task = job.array.as_ref().map(ArrayPart::name);
        details.user.clone_from(&job.user_name);
        details.user_id = Some(job.user_id);
        if details.submitted_at == UnixTime::default() {
            details.submitted_at = submitted_at;
        }
    }

    /// Adds a lead whose agent says hello before any snapshot has shown the job. A lead outside the malleable
    /// partition is a main job that wings extend.
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

    /// Cancels wings whose lead has ended or belongs to another user. No other part of infill does this.
    fn cancel_orphans(&mut self, snapshot: &Snapshot, ours: &[&Job], now: UnixTime, out: &mut FleetOutcome) {
        self.orphans.retain(|_, t| now.secs_since(*t) < ORPHAN_RETRY_SECS);
        self.waiting_wings.retain(|id, _| snapshot.job(*id).is_some());
        for wing in ours.iter().filter(|j| !j.state.is_ended()) {
            let Some(lead) = lead_of_wing(wing) else { continue };
            let lead_is_active = self.jobs.get(&lead).is_some_and(|e| !e.has_ended());
            if (lead_is_active && self.same_owner(lead, wing)) || self.orphans.contains_key(&wing.id) {
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

    /// Whether the lead may be a main job that this daemon does not know yet, because it is not in the store.
    /// Its agent says hello within seconds. Until then its wings may train.
    fn may_lead_still_arrive(&mut self, lead: JobId, wing: &Job, snapshot: &Snapshot, now: UnixTime) -> bool {
        if self.jobs.contains_key(&lead) {
            return false;
        }
        let Some(main_job) = snapshot.job(lead) else { return false };
        let is_running_main_job =
            main_job.partition != self.settings.partition && main_job.state.occupies_nodes();
        if !is_running_main_job || main_job.user_id != wing.user_id {
            return false;
        }
        let since = *self.waiting_wings.entry(wing.id).or_insert(now);
        now.secs_since(since) < self.settings.lead_start_secs
    }

    /// Reports nodes that go to DRAIN soon after a malleable job left them. Probably the job did not leave
    /// them cleanly.
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
                let why = format!("went to DRAIN after infill used it ({reason})");
                out.tripped_nodes.push((node.name.clone(), why));
            }
        }
    }
}

/// How a job has ended, as text; `None` if Slurm no longer has the job.
fn describe_end(state: Option<&BaseState>) -> String {
    match state {
        Some(BaseState::Completed) => "has completed".to_owned(),
        Some(BaseState::Cancelled) => "was cancelled".to_owned(),
        Some(BaseState::Failed) => "has failed".to_owned(),
        Some(BaseState::Timeout) => "has reached its time limit".to_owned(),
        Some(BaseState::NodeFail) => "has lost its node".to_owned(),
        Some(BaseState::OutOfMemory) => "has run out of memory".to_owned(),
        Some(_) => "has ended".to_owned(),
        None => "has ended; Slurm no longer knows how".to_owned(),
    }
}
