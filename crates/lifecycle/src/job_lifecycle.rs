//! The state of one malleable job's lifecycle.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use infill_model::{
    AllowedSizes, ExecPlan, JobId, JobPlan, JobProgress, NodeName, PlannedNode, RunSpec, Secret, UnixTime,
};

use super::backoff::RetryBackoff;
use super::effect::{Effect, EffectKind, StepOutcome};
use super::node_trials::NodeTrials;
use super::obstacles::JobObstacles;
use super::phase::{JobPhase, LeadAbsence, NextGeneration};
use super::record::StoreRecord;
use super::settings::RETRY_SECS;
use super::time_limit::launch_limit_mins;
use super::worker::{Wing, WorkerAgent};

/// The present generation, or the last one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Generation {
    /// Number of the generation; 0 before the first.
    pub number: u64,
    /// Execution plan of the generation.
    pub exec_plan: ExecPlan,
    /// Host and port of rank 0's rendezvous.
    pub master: Option<(String, u16)>,
    /// The store at which processes meet that stay alive over changes.
    pub store: Option<RendezvousStore>,
    /// The secret that lets members recognise each other at the store. All members of a generation have the
    /// same secret, or none has one.
    pub secret: Option<Secret>,
    /// Number of roll calls in this generation, and the time of the last one.
    pub last_roll_call: Option<(u32, UnixTime)>,
    /// The lead's absence, while the other members train on without it.
    pub lead_absence: Option<LeadAbsence>,
}

/// The store at which the processes of a generation meet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "StoreRecord", from = "StoreRecord")]
pub struct RendezvousStore {
    /// The member that hosts the store, or is asked to.
    pub node: NodeName,
    /// Port of the store; `None` until the host reports it.
    pub port: Option<u16>,
    /// The secret that the host's agent has made for the members.
    pub secret: Option<Secret>,
}

impl RendezvousStore {
    /// A store that `node` is asked to host.
    pub(super) fn requested_on(node: NodeName) -> RendezvousStore {
        RendezvousStore { node, port: None, secret: None }
    }
}

/// The user's submission, as Slurm shows it for the lead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeadSubmission {
    /// Allowed numbers of nodes.
    pub sizes: AllowedSizes,
    /// The Slurm account; the wings get the same.
    pub account: String,
    /// The QOS; the wings get the same, unless the configuration sets one.
    pub qos: String,
    /// Generic resources (`--gres`) per node.
    pub gres: String,
    /// Number of places per worker, where infill lends parts of nodes; 1 otherwise.
    pub places_per_worker: u32,
    /// Number of CPUs per worker, where infill lends CPUs of nodes without GPUs.
    pub cpus: Option<u32>,
    /// `--constraint` and `--exclude`; the wings get the same.
    pub nodes: NodeSelection,
    /// The user's own time limit for the lead, minutes.
    pub limit_mins: Option<u32>,
    /// The nodes of a main job that wings extend, the first one first; empty for other leads. The planner
    /// sees them as one node.
    pub own_nodes: Vec<NodeName>,
}

impl LeadSubmission {
    /// A submission that sets nothing but the sizes.
    pub fn with_sizes(sizes: AllowedSizes) -> Self {
        LeadSubmission {
            sizes,
            account: String::new(),
            qos: String::new(),
            gres: String::new(),
            places_per_worker: 1,
            cpus: None,
            nodes: NodeSelection::default(),
            limit_mins: None,
            own_nodes: Vec::new(),
        }
    }
}

/// The user's selection of nodes, in Slurm's syntax.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSelection {
    /// Required features (`--constraint`); empty for none.
    pub constraint: String,
    /// Excluded nodes (`--exclude`), as a host list; empty for none.
    pub exclude: String,
}

/// Counters of a job, and its progress.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct JobCounters {
    /// Changes of membership after the first generation.
    pub rescales: u32,
    /// Restarts after failures of the command.
    pub restarts: u32,
    /// Commands that the agents had to kill at a rescale.
    pub kills: u32,
    /// The longest time that a command which stays alive took to be ready, seconds.
    pub warm_secs: u32,
    /// The training progress.
    pub progress: JobProgress,
    /// When the rate was promised that its owner wants; `None` while nothing is promised.
    pub promised_at: Option<UnixTime>,
}

/// The planner's target for a job.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// The last plan for the job, without the nodes that were lost since.
    pub plan: JobPlan,
    /// Whether another job is still leaving the node on which the lead shall start.
    pub blocked: bool,
    /// How long a launched lead claims all nodes of the plan, seconds. After that it claims only its own.
    pub claim_secs: f64,
    /// When a job that is launched on the plan's first node must end by its limit, so that Slurm starts it;
    /// `None` if only its lease bounds it.
    pub ends_by: Option<UnixTime>,
}

impl Target {
    /// Time limit in minutes of a lead that is launched now on the plan's first node; `None` if Slurm would
    /// not start it.
    pub(super) fn launch_limit_mins(&self, first: &PlannedNode, now: UnixTime) -> Option<u32> {
        let startable_secs = self.ends_by.map(|by| by.secs_since(now));
        launch_limit_mins(first.lease_until.secs_since(now), startable_secs)
    }
}

/// The lifecycle of a malleable job: a state machine, which the crate's documentation describes.
#[derive(Clone, Debug, PartialEq)]
pub struct JobLifecycle {
    /// The lead's job id.
    pub job: JobId,
    /// The present phase.
    pub phase: JobPhase,
    /// When the present phase began.
    pub since: UnixTime,
    /// The present generation, or the last one.
    pub generation: Generation,
    /// The user's submission.
    pub submitted: LeadSubmission,
    /// The owner's declarations, from the lead's agent.
    pub spec: RunSpec,
    /// Agents that have said hello, by node.
    pub workers: BTreeMap<NodeName, WorkerAgent>,
    /// Wings by their number.
    pub wings: BTreeMap<u64, Wing>,
    /// The planner's target; `None` until the first round after a (re)start.
    pub target: Option<Target>,
    /// Counters and progress.
    pub counts: JobCounters,
    /// Consecutive failures, and how long to wait after them.
    pub backoff: RetryBackoff,
    /// When the membership last changed.
    pub last_change: Option<UnixTime>,
    /// When a plan last changed the membership. A loss does not count: after it the planner may change the
    /// job at once.
    pub rescaled_at: Option<UnixTime>,
    /// What keeps the job from its target.
    pub obstacles: JobObstacles,
    /// When each effect was last tried, if that was a moment ago.
    pub(super) tries: BTreeMap<(EffectKind, JobId), UnixTime>,
}

impl JobLifecycle {
    /// The lifecycle of a job that waits in the queue.
    pub fn new(job: JobId, sizes: AllowedSizes, now: UnixTime) -> Self {
        JobLifecycle {
            job,
            phase: JobPhase::Queued { next: NextGeneration::for_reason("first start") },
            since: now,
            generation: Generation::default(),
            submitted: LeadSubmission::with_sizes(sizes),
            spec: RunSpec::default(),
            workers: BTreeMap::new(),
            wings: BTreeMap::new(),
            target: None,
            counts: JobCounters::default(),
            backoff: RetryBackoff::default(),
            last_change: None,
            rescaled_at: None,
            obstacles: JobObstacles::default(),
            tries: BTreeMap::new(),
        }
    }

    /// Resumes after a restart of the daemon: no worker or node is blamed for what happened meanwhile.
    pub fn resume_after_restart(&mut self, now: UnixTime) {
        self.since = now;
        self.target = None;
        self.tries.clear();
        self.obstacles.trials = NodeTrials::default();
        for worker in self.workers.values_mut() {
            worker.last_seen = now;
            worker.answered = true;
            worker.live.restart_clock(now);
        }
        for wing in self.wings.values_mut() {
            wing.ordered_at = wing.ordered_at.max(now);
        }
        self.generation.last_roll_call = None;
        if let JobPhase::Regrouping { regroup, .. } = &mut self.phase {
            regroup.began = now;
        }
        if let Some(away) = &mut self.generation.lead_absence {
            away.since = now;
            away.began = now;
        }
    }

    /// Moves all reference times by `secs`, a period in which the daemon received nothing: it stood still, or
    /// its clock was set. `secs` is negative if the clock was set back. No worker or node is blamed for this
    /// period.
    pub fn shift_times(&mut self, secs: f64) {
        self.backoff.shift_times(secs);
        self.obstacles.shift_times(secs);
        let mut times = vec![&mut self.since];
        times.extend(&mut self.last_change);
        times.extend(&mut self.rescaled_at);
        times.extend(self.tries.values_mut());
        times.extend(self.wings.values_mut().map(|wing| &mut wing.ordered_at));
        for worker in self.workers.values_mut() {
            worker.live.shift_times(secs);
            times.push(&mut worker.last_seen);
            times.extend(&mut worker.progress_at);
            times.extend(&mut worker.step_failed_at);
        }
        times.extend(self.generation.last_roll_call.as_mut().map(|(_, called_at)| called_at));
        if let JobPhase::Regrouping { regroup, .. } = &mut self.phase {
            times.push(&mut regroup.began);
        }
        if let Some(away) = &mut self.generation.lead_absence {
            times.push(&mut away.since);
            times.push(&mut away.began);
        }
        for time in times {
            *time = time.plus_secs(secs);
        }
    }

    /// Enters a phase. The lead's absence lasts only through `Running`, `Regrouping`, `Stopping` and
    /// `Assembling`; every other phase ends it.
    pub(super) fn enter_phase(&mut self, phase: JobPhase, now: UnixTime) {
        let keeps_absence = matches!(
            phase,
            JobPhase::Running { .. }
                | JobPhase::Regrouping { .. }
                | JobPhase::Stopping { .. }
                | JobPhase::Assembling { .. }
        );
        if !keeps_absence {
            self.generation.lead_absence = None;
        }
        self.phase = phase;
        self.since = now;
    }

    /// Waits in the queue for the next generation.
    pub(super) fn enter_queue(&mut self, next: NextGeneration, now: UnixTime) {
        self.enter_phase(JobPhase::Queued { next: NextGeneration { lost: false, ..next } }, now);
    }

    /// Requeues the lead before the next generation. A main job that wings extend stays where it is.
    pub(super) fn requeue_lead(&mut self, next: NextGeneration, now: UnixTime) {
        if self.is_extended_main_job() {
            self.enter_phase(JobPhase::Assembling { next }, now);
            return;
        }
        self.enter_phase(JobPhase::Requeueing { next: NextGeneration { lost: false, ..next } }, now);
    }

    /// Emits `effect`, unless an effect of the same kind on the same Slurm job was tried a moment ago.
    /// Returns whether it did. infill never changes a main job that wings extend.
    pub(super) fn attempt_effect(&mut self, effect: Effect, now: UnixTime, out: &mut StepOutcome) -> bool {
        if self.is_extended_main_job() && effect.job() == self.job {
            return false;
        }
        self.tries.retain(|_, tried_at| now.secs_since(*tried_at) < RETRY_SECS);
        let key = (effect.kind(), effect.job());
        if self.tries.contains_key(&key) {
            return false;
        }
        self.tries.insert(key, now);
        out.effects.push(effect);
        true
    }

    /// Removes a lost node from the target. Keeps the node that a wing gives up for the lead, and the own
    /// nodes of a main job.
    pub(super) fn drop_from_target(&mut self, node: &NodeName) {
        if self.generation.lead_absence.as_ref().is_some_and(|away| away.node == *node) {
            return;
        }
        if self.is_extended_main_job() && self.lead_node() == Some(node) {
            return;
        }
        if let Some(Target { plan, .. }) = &mut self.target {
            if plan.nodes.first().is_some_and(|p| p.node == *node) {
                plan.nodes.clear();
            }
            plan.nodes.retain(|p| p.node != *node);
        }
    }

    /// Whether this worker's agent runs in the lead.
    pub(super) fn is_lead(&self, worker: &WorkerAgent) -> bool {
        worker.slurm_job == self.job
    }
}
