//! What is known of one malleable job's generations.

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
use super::worker::{Wing, Worker};

/// The present generation, or the last one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Generation {
    /// Its number; 0 before the first.
    pub number: u64,
    /// Its execution plan.
    pub exec_plan: ExecPlan,
    /// Host and port of its rendezvous.
    pub master: Option<(String, u16)>,
    /// Where processes meet that stay alive over changes.
    pub store: Option<RendezvousStore>,
    /// By which its members know each other there, sealed. For a whole generation it is the same, or none.
    pub secret: Option<Secret>,
    /// How often the roll was called in it, and when last.
    pub roll: Option<(u32, UnixTime)>,
    /// Where the lead is while the others train on without it.
    pub away: Option<LeadAbsence>,
}

/// The store at which the processes of a generation meet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "StoreRecord", from = "StoreRecord")]
pub struct RendezvousStore {
    /// The member that hosts it, or is asked to.
    pub node: NodeName,
    /// Its port, once it is known.
    pub port: Option<u16>,
    /// What the host's agent has made for those who meet there.
    pub secret: Option<Secret>,
}

impl RendezvousStore {
    /// One that `node` is asked to host.
    pub(super) fn requested_on(node: NodeName) -> RendezvousStore {
        RendezvousStore { node, port: None, secret: None }
    }
}

/// What the user submitted, as Slurm shows it of the lead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeadSubmission {
    /// Allowed sizes.
    pub sizes: AllowedSizes,
    /// The account, for the wings.
    pub account: String,
    /// The QOS, for the wings.
    pub qos: String,
    /// GRES per node.
    pub gres: String,
    /// Where parts of nodes are lent, how many each of its nodes is; else 1.
    pub block: u32,
    /// How many CPUs each has, where they are parts of nodes without GPUs.
    pub cpus: Option<u32>,
    /// `--constraint` and `--exclude`, for the wings.
    pub nodes: NodeSelection,
    /// The user's own time limit of the lead, minutes.
    pub limit_mins: Option<u32>,
    /// Where the lead is a job of the main queue that wings extend, its nodes, the first one first. To the
    /// planner they are one.
    pub own: Vec<NodeName>,
}

impl LeadSubmission {
    /// Nothing but these sizes.
    pub fn with_sizes(sizes: AllowedSizes) -> Self {
        let none = String::new;
        LeadSubmission {
            sizes,
            account: none(),
            qos: none(),
            gres: none(),
            block: 1,
            cpus: None,
            nodes: NodeSelection::default(),
            limit_mins: None,
            own: Vec::new(),
        }
    }
}

/// Which nodes the user wants, in Slurm's words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSelection {
    /// Features that they must have.
    pub constraint: String,
    /// Nodes that it must not be, as a host list.
    pub exclude: String,
}

/// What has happened to the job so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct JobCounters {
    /// Changes of membership after the first generation.
    pub rescales: u32,
    /// Restarts after failures of the command.
    pub restarts: u32,
    /// Commands that had to be killed at a rescale.
    pub kills: u32,
    /// The longest that a command which stays alive took to be ready, seconds.
    pub warm_secs: u32,
    /// How far it has come.
    pub course: JobProgress,
    /// When the rate was promised that its owner wants; `None` while nothing is promised.
    pub promised_at: Option<UnixTime>,
}

/// What the planner wants.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// Its last word on the job, less the nodes that were lost since.
    pub plan: JobPlan,
    /// Whether the node that the lead shall start on is still being left by another job.
    pub blocked: bool,
    /// Seconds from its launch for which a lead claims the nodes of the plan, besides its own.
    pub claim_secs: f64,
    /// By when a job that is launched on the plan's first node must end by its limit, for Slurm to start it.
    pub ends_by: Option<UnixTime>,
}

impl Target {
    /// The limit of a lead that is launched now on the plan's first node, minutes; `None` where Slurm would
    /// not start it.
    pub(super) fn launch_limit_mins(&self, first: &PlannedNode, now: UnixTime) -> Option<u32> {
        let startable_secs = self.ends_by.map(|by| by.secs_since(now));
        launch_limit_mins(first.lease_until.secs_since(now), startable_secs)
    }
}

/// A malleable job's generations. See the module's text.
#[derive(Clone, Debug, PartialEq)]
pub struct JobLifecycle {
    /// The lead's job id.
    pub job: JobId,
    /// Where the job is in its life.
    pub phase: JobPhase,
    /// Since when.
    pub since: UnixTime,
    /// The present generation.
    pub generation: Generation,
    /// What was submitted.
    pub submitted: LeadSubmission,
    /// What the agent declared.
    pub spec: RunSpec,
    /// Agents by node.
    pub workers: BTreeMap<NodeName, Worker>,
    /// Wings by order number.
    pub wings: BTreeMap<u64, Wing>,
    /// What the planner wants; `None` until the first round after a (re)start.
    pub target: Option<Target>,
    /// What has happened so far.
    pub counts: JobCounters,
    /// Misfortunes in a row.
    pub backoff: RetryBackoff,
    /// When the membership last changed.
    pub last_change: Option<UnixTime>,
    /// When a plan last changed it: a loss is no reason to leave the job as it is for a while.
    pub rescaled_at: Option<UnixTime>,
    /// What people, Slurm and the site do with it.
    pub obstacles: JobObstacles,
    /// What was asked of Slurm a moment ago, and when.
    pub(super) tries: BTreeMap<(EffectKind, JobId), UnixTime>,
}

impl JobLifecycle {
    /// A job that waits in the queue.
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

    /// Takes the state up again after a pause of the daemon: nobody is blamed for what happened meanwhile.
    pub fn resume_after_restart(&mut self, now: UnixTime) {
        self.since = now;
        self.target = None;
        self.tries.clear();
        self.obstacles.trials = NodeTrials::default();
        self.workers.values_mut().for_each(|w| (w.last_seen, w.answered) = (now, true));
        self.wings.values_mut().for_each(|w| w.ordered_at = w.ordered_at.max(now));
        self.generation.roll = None;
        self.workers.values_mut().for_each(|w| w.live.restart_clock(now));
        if let JobPhase::Regrouping { regroup, .. } = &mut self.phase {
            regroup.began = now;
        }
        if let Some(away) = &mut self.generation.away {
            (away.since, away.began) = (now, now);
        }
    }

    /// Moves all that time is counted from by these seconds, in which the daemon heard nothing: it stood
    /// still, or somebody set its clock (backwards, where they are negative). Nobody is blamed for them.
    pub fn shift_times(&mut self, secs: f64) {
        let moved = |t: &mut UnixTime| *t = t.plus_secs(secs);
        moved(&mut self.since);
        self.last_change.iter_mut().chain(&mut self.rescaled_at).for_each(moved);
        self.backoff.shift_times(secs);
        self.obstacles.shift_times(secs);
        self.tries.values_mut().for_each(moved);
        self.wings.values_mut().for_each(|w| moved(&mut w.ordered_at));
        for worker in self.workers.values_mut() {
            moved(&mut worker.last_seen);
            worker.progress_at.iter_mut().chain(&mut worker.doubt).for_each(moved);
            worker.live.shift_times(secs);
        }
        self.generation.roll.iter_mut().for_each(|(_, at)| moved(at));
        if let JobPhase::Regrouping { regroup, .. } = &mut self.phase {
            moved(&mut regroup.began);
        }
        if let Some(away) = &mut self.generation.away {
            moved(&mut away.since);
            moved(&mut away.began);
        }
    }

    pub(super) fn enter_phase(&mut self, phase: JobPhase, now: UnixTime) {
        if !matches!(
            phase,
            JobPhase::Running { .. }
                | JobPhase::Regrouping { .. }
                | JobPhase::Stopping { .. }
                | JobPhase::Idle { .. }
        ) {
            self.generation.away = None;
        }
        self.phase = phase;
        self.since = now;
    }

    /// Goes to wait in the queue for the next generation.
    pub(super) fn enter_queue(&mut self, next: NextGeneration, now: UnixTime) {
        self.enter_phase(JobPhase::Queued { next: NextGeneration { lost: false, ..next } }, now);
    }

    /// Has the lead requeued before the next generation. One of the main queue stays.
    pub(super) fn requeue_lead(&mut self, next: NextGeneration, now: UnixTime) {
        if self.is_extension() {
            // It stays where it is, whatever is wanted.
            self.enter_phase(JobPhase::Idle { next }, now);
            return;
        }
        self.enter_phase(JobPhase::Requeueing { next: NextGeneration { lost: false, ..next } }, now);
    }

    /// Emits `effect` unless the same was tried a moment ago; says whether it did. A lead of the main queue
    /// is never touched.
    pub(super) fn attempt_effect(&mut self, effect: Effect, now: UnixTime, out: &mut StepOutcome) -> bool {
        if self.is_extension() && effect.job() == self.job {
            return false;
        }
        self.tries.retain(|_, t| now.secs_since(*t) < RETRY_SECS);
        if let std::collections::btree_map::Entry::Vacant(free) =
            self.tries.entry((effect.kind(), effect.job()))
        {
            free.insert(now);
            out.effects.push(effect);
            return true;
        }
        false
    }

    /// Forgets that the planner wanted this node: it was lost since. Not where a wing makes room for the
    /// lead.
    pub(super) fn drop_from_target(&mut self, node: &NodeName) {
        if self.generation.away.as_ref().is_some_and(|away| away.place == *node) {
            return;
        }
        // Nor the nodes that are its own.
        if self.is_extension() && self.lead_node() == Some(node) {
            return;
        }
        if let Some(Target { plan, .. }) = &mut self.target {
            if plan.nodes.first().is_some_and(|p| p.node == *node) {
                plan.nodes.clear();
            }
            plan.nodes.retain(|p| p.node != *node);
        }
    }

    /// Whether an agent runs in the lead itself.
    pub(super) fn is_lead(&self, worker: &Worker) -> bool {
        worker.slurm_job == self.job
    }
}
