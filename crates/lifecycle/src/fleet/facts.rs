//! What a round is told of the jobs.

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
        let mut facts: Vec<JobFacts> = self
            .jobs
            .values()
            .filter(|e: &&FleetJob| !e.has_ended() && !e.is_queued_extension())
            .map(|e| e.job_facts(now))
            .collect();
        // Whoever has them: they are a main job's.
        if let Some(first) = facts.first_mut() {
            first.place.taken.extend(self.start_conflict.nodes.iter().cloned());
        }
        facts
    }

    /// What a job does on its nodes. `is_tried`: whether its size is being tried.
    pub fn job_activity(&self, job: JobId, is_tried: bool) -> JobActivity {
        let phase = self.jobs.get(&job).map(|entry| &entry.lifecycle.phase);
        let is_loss = |phase: &JobPhase| match phase {
            JobPhase::Stopping { reason, .. } => reason.is_loss(),
            JobPhase::Regrouping { regroup, .. } => regroup.urgent,
            phase => phase.next_generation().lost,
        };
        match phase {
            Some(JobPhase::Running { .. }) if is_tried => JobActivity::Probing,
            Some(JobPhase::Running { .. }) => JobActivity::Steps,
            Some(phase) if is_loss(phase) => JobActivity::Recovering,
            _ => JobActivity::Changing,
        }
    }

    /// One job as it is now.
    pub fn facts_for_job(&self, job: JobId, now: UnixTime) -> Option<JobFacts> {
        self.jobs.get(&job).map(|e| e.job_facts(now))
    }
}

impl FleetJob {
    /// Whether it is a job of the main queue that waits there again: nobody but Slurm starts it.
    fn is_queued_extension(&self) -> bool {
        self.lifecycle.is_extension() && self.lifecycle.phase.is_queued()
    }

    /// The sizes that it may have now: while it must order no wings it cannot grow, and others shall have
    /// what it would get.
    fn current_sizes(&self, now: UnixTime) -> AllowedSizes {
        let allowed = self.lifecycle.allowed_sizes().shifted_up(self.lifecycle.extra_lead_nodes());
        if self.lifecycle.cannot_order(now) {
            let held = self.lifecycle.generation_node_count(self.lifecycle.held_nodes(now).len());
            return allowed.capped_at(held.max(1));
        }
        allowed
    }

    /// Nodes that the job asked not to have, and those on which it has failed of late.
    fn excluded_nodes(&self, now: UnixTime) -> ExcludedNodes {
        self.details.excluded.with_nodes(self.lifecycle.obstacles.trials.shunned_nodes(now).cloned())
    }

    /// What the owner declares, as far as the agent has told.
    fn job_declaration(&self) -> JobDeclaration {
        let spec = &self.lifecycle.spec;
        let told = self.program_identity().told.is_some();
        let grace_secs = told.then_some(f64::from(spec.grace_secs));
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

    /// What its owner wants it to make at the least. Where that is what was asked for, and no size is said,
    /// it is the smallest that it was submitted with; of a main job it is its own nodes.
    fn minimum_rate(&self) -> Option<MinimumRate> {
        let (lifecycle, spec) = (&self.lifecycle, &self.lifecycle.spec);
        let asked = spec.as_asked.map(|asked| {
            MinimumRate::Asked(asked.nodes.unwrap_or_else(|| match lifecycle.is_extension() {
                true => lifecycle.extra_lead_nodes().saturating_add(1),
                false => lifecycle.submitted.sizes.min(),
            }))
        });
        spec.at_least.map(MinimumRate::Rate).or(asked)
    }

    /// What is to be kept of it, if it has just ended and has done anything.
    pub fn finished_job(&self, now: UnixTime) -> Option<FinishedJob> {
        let lifecycle = &self.lifecycle;
        let did_something = lifecycle.counts.course.held_secs > 0.0 || lifecycle.counts.course.samples > 0.0;
        // A daemon that was away when it ended does not know whose it was.
        let counts = self.has_just_ended() && did_something && !self.details.user.is_empty();
        let mut facts = self.job_facts(now);
        facts.place.lead_now = facts.place.lead_now.or(self.last_lead.clone());
        counts.then(|| FinishedJob {
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
        let standing = match (lifecycle.scheduling_state(now), &details.bar) {
            (SchedulingState::Waiting, Some(bar)) => SchedulingState::Barred(bar.clone()),
            (standing, _) => standing,
        };
        let running = match &lifecycle.phase {
            JobPhase::Running { members } if standing == SchedulingState::Running => {
                Some(lifecycle.generation_node_count(members.len()))
            }
            _ => None,
        };
        let waits = standing == SchedulingState::Waiting
            || (standing == SchedulingState::Running && running.is_none());
        JobFacts {
            job: lifecycle.job,
            user: details.user_id.unwrap_or(UserId(0)),
            program: self.program_identity(),
            sizes: self.current_sizes(now),
            claims: self.job_declaration(),
            standing,
            since: lifecycle.since,
            waits_since: self.waits_since.filter(|_| waits),
            running,
            place: job_location(lifecycle, now),
            changing: ResizeState {
                exec_plan: lifecycle.exec_plan().clone(),
                way: lifecycle.rescale_mode(),
                pause: self.pause.filter(|_| self.is_running()),
                last_at: lifecycle.rescaled_at,
            },
            course: lifecycle.counts.course,
            submitted_at: details.submitted_at,
            excluded: self.excluded_nodes(now),
            ending: matches!(lifecycle.phase, JobPhase::Ending { .. }),
        }
    }
}

fn job_location(lifecycle: &JobLifecycle, now: UnixTime) -> JobLocation {
    let held: BTreeMap<NodeName, JobId> = lifecycle.held_nodes(now);
    let left = lifecycle.occupied_nodes().into_keys().filter(|n| !held.contains_key(n)).collect();
    let taken = lifecycle.workers.iter().filter(|(_, w)| w.leaving).map(|(n, _)| n.clone());
    JobLocation {
        block: lifecycle.submitted.block,
        own: lifecycle.submitted.own.clone(),
        lead: lifecycle.held_lead(now).cloned(),
        lead_away: lifecycle.generation.away.is_some(),
        lead_now: lifecycle.lead_node().cloned(),
        left,
        taken: taken.collect(),
        held: held.into_iter().map(|(node, slurm_job)| HeldNode { node, slurm_job }).collect(),
    }
}
