//! The facts about jobs that a round uses.

use std::collections::BTreeMap;

use super::fleet_job::FleetJob;
use super::fleet_outcome::FinishedJob;
use super::job_fleet::JobFleet;
use crate::{JobLifecycle, JobPhase};
use infill_model::{
    AllowedSizes, ExcludedNodes, HeldNode, JobActivity, JobDeclaration, JobFacts, JobId, JobLocation,
    MinimumRate, NodeName, ResizeState, SchedulingState, UnixTime, UserId,
};

impl JobFleet {
    /// The jobs that have not ended, as they are now.
    pub fn job_facts(&self, now: UnixTime) -> Vec<JobFacts> {
        let active = self.jobs.values().filter(|entry| !entry.has_ended() && !entry.is_queued_extension());
        let mut facts: Vec<JobFacts> = active.map(|entry| entry.job_facts(now)).collect();
        // Any job may carry these nodes: a round takes them as nodes that a main job takes.
        if let Some(first) = facts.first_mut() {
            first.location.reclaimed_nodes.extend(self.start_conflict.nodes.iter().cloned());
        }
        facts
    }

    /// How a job uses its nodes. `is_probe` says whether the job has its size to measure it.
    pub fn job_activity(&self, job: JobId, is_probe: bool) -> JobActivity {
        let phase = self.jobs.get(&job).map(|entry| &entry.lifecycle.phase);
        match phase {
            Some(JobPhase::Running { .. }) if is_probe => JobActivity::Probing,
            Some(JobPhase::Running { .. }) => JobActivity::Steps,
            Some(phase) if is_recovering(phase) => JobActivity::Recovering,
            _ => JobActivity::Changing,
        }
    }

    /// The present facts about one job.
    pub fn facts_for_job(&self, job: JobId, now: UnixTime) -> Option<JobFacts> {
        self.jobs.get(&job).map(|entry| entry.job_facts(now))
    }
}

/// Whether the job is in this phase because of a lost member.
fn is_recovering(phase: &JobPhase) -> bool {
    match phase {
        JobPhase::Stopping { reason, .. } => reason.is_loss(),
        JobPhase::Regrouping { regroup, .. } => regroup.urgent,
        phase => phase.next_generation().lost,
    }
}

impl FleetJob {
    /// Whether it is a main job that waits in the queue again: only Slurm starts it.
    fn is_queued_extension(&self) -> bool {
        self.lifecycle.is_extended_main_job() && self.lifecycle.phase.is_queued()
    }

    /// The sizes that the job may have now. While it must not order wings it cannot grow, and other jobs
    /// shall have the nodes that it would get.
    fn current_sizes(&self, now: UnixTime) -> AllowedSizes {
        let allowed = self.lifecycle.allowed_sizes().shifted_up(self.lifecycle.extra_lead_nodes());
        if self.lifecycle.cannot_order(now) {
            let held = self.lifecycle.generation_node_count(self.lifecycle.held_nodes(now).len());
            return allowed.capped_at(held.max(1));
        }
        allowed
    }

    /// Nodes that do not match the job's request, and nodes on which it has failed recently.
    fn excluded_nodes(&self, now: UnixTime) -> ExcludedNodes {
        self.details.excluded.with_nodes(self.lifecycle.obstacles.trials.shunned_nodes(now).cloned())
    }

    /// The owner's declarations, as far as the agent has reported them.
    fn job_declaration(&self) -> JobDeclaration {
        let spec = &self.lifecycle.spec;
        let is_reported = self.program_identity().reported_profile.is_some();
        let grace_secs = is_reported.then_some(f64::from(spec.grace_secs));
        let profile = spec.profile.clone();
        let curve = spec.curve.clone();
        let plans = spec.plans.clone();
        JobDeclaration {
            profile,
            curve,
            costs: spec.costs,
            at_least: self.minimum_rate(),
            grace_secs,
            plans,
            model: spec.model,
            layers: spec.layers.clone(),
            gpus_per_node: spec.gpus_per_node,
        }
    }

    /// The lowest rate that the owner accepts. It can refer to the requested size. If the owner names no
    /// size, that is the smallest submitted size, or the own nodes of a main job.
    fn minimum_rate(&self) -> Option<MinimumRate> {
        let spec = &self.lifecycle.spec;
        if let Some(rate) = spec.at_least {
            return Some(MinimumRate::Rate(rate));
        }
        let requested = spec.as_asked?;
        let default_nodes = if self.lifecycle.is_extended_main_job() {
            self.lifecycle.extra_lead_nodes().saturating_add(1)
        } else {
            self.lifecycle.submitted.sizes.min()
        };
        Some(MinimumRate::Requested(requested.nodes.unwrap_or(default_nodes)))
    }

    /// The job's data for the history, if it has just ended and has trained.
    pub fn finished_job(&self, now: UnixTime) -> Option<FinishedJob> {
        let lifecycle = &self.lifecycle;
        let has_trained =
            lifecycle.counts.progress.held_secs > 0.0 || lifecycle.counts.progress.samples > 0.0;
        // The owner is unknown if the job ended while the daemon was away.
        if !self.has_just_ended() || !has_trained || self.details.user.is_empty() {
            return None;
        }
        let mut facts = self.job_facts(now);
        facts.location.lead_now = facts.location.lead_now.or(self.last_lead.clone());
        Some(FinishedJob {
            facts,
            account: lifecycle.submitted.account.clone(),
            command_hash: lifecycle.spec.command_hash.clone(),
            limit_secs: lifecycle.submitted.limit_mins.map(|mins| 60.0 * f64::from(mins)),
            began_at: self.began_at,
            exit_code: self.exit_code,
        })
    }

    fn job_facts(&self, now: UnixTime) -> JobFacts {
        let lifecycle = &self.lifecycle;
        let details = &self.details;
        let scheduling_state = match (lifecycle.scheduling_state(now), &details.start_blocker) {
            (SchedulingState::Waiting, Some(blocker)) => SchedulingState::Blocked(blocker.clone()),
            (scheduling_state, _) => scheduling_state,
        };
        let running = match &lifecycle.phase {
            JobPhase::Running { members } if scheduling_state == SchedulingState::Running => {
                Some(lifecycle.generation_node_count(members.len()))
            }
            _ => None,
        };
        let waits = scheduling_state == SchedulingState::Waiting
            || (scheduling_state == SchedulingState::Running && running.is_none());
        JobFacts {
            job: lifecycle.job,
            user: details.user_id.unwrap_or(UserId(0)),
            program: self.program_identity(),
            sizes: self.current_sizes(now),
            declaration: self.job_declaration(),
            scheduling_state,
            since: lifecycle.since,
            waits_since: self.waits_since.filter(|_| waits),
            running,
            location: job_location(lifecycle, now),
            resize: ResizeState {
                exec_plan: lifecycle.exec_plan().clone(),
                mode: lifecycle.rescale_mode(),
                pause: self.pause.filter(|_| self.is_running()),
                last_at: lifecycle.rescaled_at,
            },
            progress: lifecycle.counts.progress,
            submitted_at: details.submitted_at,
            excluded: self.excluded_nodes(now),
            ending: matches!(lifecycle.phase, JobPhase::Ending { .. }),
        }
    }
}

fn job_location(lifecycle: &JobLifecycle, now: UnixTime) -> JobLocation {
    let held: BTreeMap<NodeName, JobId> = lifecycle.held_nodes(now);
    let leaving_nodes = lifecycle.occupied_nodes().into_keys().filter(|n| !held.contains_key(n)).collect();
    let reclaimed_nodes = lifecycle.workers.iter().filter(|(_, w)| w.leaving).map(|(n, _)| n.clone());
    JobLocation {
        places_per_node: lifecycle.submitted.places_per_worker,
        own: lifecycle.submitted.own_nodes.clone(),
        lead: lifecycle.held_lead(now).cloned(),
        lead_away: lifecycle.generation.lead_absence.is_some(),
        lead_now: lifecycle.lead_node().cloned(),
        leaving_nodes,
        reclaimed_nodes: reclaimed_nodes.collect(),
        held: held.into_iter().map(|(node, slurm_job)| HeldNode { node, slurm_job }).collect(),
    }
}
