//! The life of one malleable job: a pure state machine that moves its workers from generation to generation.
//!
//! Inputs are what agents report ([`Machine::hello`], [`Machine::event`]), what Slurm shows
//! ([`Machine::observe`]) and what the planner wants ([`Machine::set_target`]). Outputs are [`Effect`]s on
//! Slurm, returned by [`Machine::step`], and what each worker shall do now ([`Machine::directive`]), which is
//! derived from the state and so can be asked any number of times. Nothing is an edge: an effect whose result
//! Slurm does not show is returned again after a while, and a state read back from the store goes on where it
//! was.
//!
//! ```text
//! Queued ──launch──▶ Launching ──hello──▶ Idle ──start──▶ Running ──stop──▶ Stopping ──all stopped──▶ Idle
//!   ▲                                      │                 │ all exit 0, or too many failures
//!   └──────────── Requeueing ◀──park, move─┘                 └──▶ Ending ──▶ Ended
//! ```

mod directive;
pub mod input;
pub mod observe;
pub mod reconcile;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::{
    ExecPlan, Exit, JobId, JobPlan, MalleableState, NodeName, RunSpec, Sizes, Standing, UnixTime, WingOrder,
};

/// Seconds after which an effect that Slurm does not show is asked for again.
pub const RETRY_SECS: f64 = 5.0;

/// The same for a launch that Slurm could not take just then: a job that was requeued is still being cleaned
/// up for about a second.
pub const RELAUNCH_SECS: f64 = 1.0;

/// Seconds for which a lead that could start waits for wings under way, so that it need not be rescaled at
/// once. A wing needs 1–2 s from its order to its hello.
pub const SETTLE_SECS: f64 = 4.0;

/// Seconds beyond the grace time until a worker that has not stopped is given up.
pub const STOP_MARGIN_SECS: f64 = 5.0;

/// Seconds without a sign of life after which an agent counts as gone while others wait for it.
/// An agent's back-off is at most 5 s, so a restarted daemon has heard all of them by then.
pub const SILENT_SECS: f64 = 12.0;

/// The same for an agent that has said that Slurm takes its node: it has little time left to speak.
pub const LEAVING_SECS: f64 = 4.0;

/// The same for an agent for which nobody waits: the command may well run on without it.
pub const LOST_SECS: f64 = 60.0;

/// First back-off of a job that Slurm preempted; doubles up to [`PREEMPTED_BACKOFF_MAX_SECS`]. Short, because
/// the planner looks at the gaps anyway: it only keeps a job from being thrown out of the same hole again and
/// again.
pub const PREEMPTED_BACKOFF_SECS: f64 = 2.0;

/// Longest back-off after preemptions: seconds are enough to see what the main queue does next.
pub const PREEMPTED_BACKOFF_MAX_SECS: f64 = 8.0;

/// A job that ran so long without preemption starts its back-off from the beginning.
pub const CALM_SECS: f64 = 120.0;

/// Times and names that the machine takes from the configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The malleable partition.
    pub partition: String,
    /// QOS for wings.
    pub qos: Option<String>,
    /// Seconds until a wing that was ordered must have said hello.
    pub wing_start_secs: f64,
    /// Seconds until a released lead must run.
    pub lead_start_secs: f64,
    /// First back-off after a failed start, seconds.
    pub backoff_secs: f64,
    /// Longest back-off.
    pub backoff_max_secs: f64,
}

/// Something to do at Slurm for this job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Pin the held lead to a node, limit it, release it.
    Launch {
        /// The lead.
        job: JobId,
        /// Where.
        node: NodeName,
        /// Time limit in minutes.
        limit_mins: u32,
    },
    /// Hold the pending lead: only the planner starts it.
    Hold {
        /// The lead.
        job: JobId,
    },
    /// Requeue the running lead, held.
    RequeueHold {
        /// The lead.
        job: JobId,
    },
    /// Set the time limit of a lead or wing, in minutes from its start.
    SetLimit {
        /// Lead or wing.
        job: JobId,
        /// Minutes.
        limit_mins: u32,
    },
    /// Shrink a wing to these nodes.
    ShrinkWing {
        /// The wing.
        job: JobId,
        /// Nodes to keep; its batch host is among them.
        keep: Vec<NodeName>,
    },
    /// Cancel a wing.
    CancelWing {
        /// The wing.
        job: JobId,
    },
}

impl Effect {
    /// The Slurm job that it touches.
    pub fn job(&self) -> JobId {
        match self {
            Effect::Launch { job, .. }
            | Effect::Hold { job }
            | Effect::RequeueHold { job }
            | Effect::SetLimit { job, .. }
            | Effect::ShrinkWing { job, .. }
            | Effect::CancelWing { job } => *job,
        }
    }

    /// Whether it takes nodes (and must wait when we may not grow), rather than giving some back.
    pub fn takes_nodes(&self) -> bool {
        matches!(self, Effect::Launch { .. })
    }

    fn key(&self) -> String {
        match self {
            Effect::Launch { .. } => "launch".to_owned(),
            Effect::Hold { .. } => "hold".to_owned(),
            Effect::RequeueHold { .. } => "requeue".to_owned(),
            Effect::SetLimit { job, .. } => format!("limit {job}"),
            Effect::ShrinkWing { job, .. } => format!("shrink {job}"),
            Effect::CancelWing { job } => format!("cancel {job}"),
        }
    }
}

/// Where the job is in its life.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "phase")]
pub enum Phase {
    /// The lead waits, held.
    Queued,
    /// The lead was released to this node (or runs there already), and its agent has not said hello.
    Launching {
        /// The node.
        node: NodeName,
    },
    /// The lead's agent is here and no command runs.
    Idle,
    /// The present generation's command runs on these nodes, by rank.
    Running {
        /// Nodes by rank.
        members: Vec<NodeName>,
    },
    /// The members of the present generation have been told to stop.
    Stopping {
        /// Nodes by rank.
        members: Vec<NodeName>,
        /// Exit code of the first member that failed by itself, if that is why.
        failed: Option<i32>,
        /// Whether a member was lost: then a failure of the others is its echo.
        lost: bool,
        /// Whether the command may have ended by itself before anybody asked it to: then its end counts as
        /// its own.
        #[serde(default)]
        untold: bool,
    },
    /// The lead is to be requeued, held, to park it or to start it elsewhere.
    Requeueing,
    /// The agents have been told to finish; the lead with this code.
    Ending {
        /// Exit code of the malleable job.
        code: i32,
    },
    /// The lead's Slurm job has ended.
    Ended,
}

/// An agent that has said hello.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Worker {
    /// The Slurm job (lead or wing) in which it runs.
    pub slurm_job: JobId,
    /// Host at which other nodes reach it.
    pub address: String,
    /// A port that was free when it last spoke.
    pub port: u16,
    /// Last sign of life.
    pub last_seen: UnixTime,
    /// How the command of the present generation ended here, once it has.
    pub stopped: Option<Exit>,
    /// Whether Slurm wants the node now.
    pub leaving: bool,
}

/// A wing that was ordered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Wing {
    /// The order as the lead's agent gets it.
    pub order: WingOrder,
    /// When it was ordered.
    pub ordered_at: UnixTime,
    /// Slurm's job id, once submitted.
    pub job: Option<JobId>,
    /// The node on which its batch script runs, once known: the wing cannot shrink off it.
    pub batch_host: Option<NodeName>,
    /// Whether Slurm has shown it running.
    pub seen_running: bool,
}

/// A malleable job's generations. See the module's text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The lead's job id.
    pub job: JobId,
    /// Where the job is in its life.
    pub phase: Phase,
    /// Since when.
    pub since: UnixTime,
    /// Number of the present (or last) generation; 0 before the first.
    pub generation: u64,
    /// Execution plan of the present generation.
    pub exec_plan: ExecPlan,
    /// Rendezvous of the present generation.
    pub master: Option<(String, u16)>,
    /// Allowed sizes.
    pub sizes: Sizes,
    /// What the agent declared.
    pub spec: RunSpec,
    /// The lead's account, for its wings.
    pub account: String,
    /// The lead's QOS, for its wings.
    #[serde(default)]
    pub lead_qos: String,
    /// GRES per node of the lead.
    pub gres: String,
    /// Agents by node.
    pub workers: BTreeMap<NodeName, Worker>,
    /// Wings by order number.
    pub wings: BTreeMap<u64, Wing>,
    /// What the planner wants; `None` until the first round after a (re)start.
    pub target: Option<JobPlan>,
    /// Changes of membership after the first generation.
    pub rescales: u32,
    /// Restarts after failures of the command.
    pub restarts: u32,
    /// Commands that had to be killed at a rescale.
    pub kills: u32,
    /// Starts in a row that came to nothing.
    pub failed_starts: u32,
    /// Preemptions in a row.
    pub preemptions: u32,
    /// Wings that sbatch refused in a row.
    #[serde(default)]
    pub refusals: u32,
    /// No wing is ordered before.
    #[serde(default)]
    pub orders_after: Option<UnixTime>,
    /// Not to be started before.
    pub backoff_until: Option<UnixTime>,
    /// When the membership last changed.
    pub last_change: Option<UnixTime>,
    /// When a plan last changed it: a loss is no reason to leave the job as it is for a while.
    #[serde(default)]
    pub rescaled_at: Option<UnixTime>,
    /// Why the next generation is made.
    pub why: String,
    /// The next generation is a retry after a failure, no rescale.
    retrying: bool,
    /// The next generation is made because the present one lost a member.
    #[serde(default)]
    lost: bool,
    /// Whether the node that the lead shall start on is still being left by another job.
    #[serde(default)]
    blocked: bool,
    start_patience: f64,
    wing_patience: f64,
    backoff_first: f64,
    backoff_longest: f64,
    tries: BTreeMap<String, UnixTime>,
}

/// What a step led to.
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use = "effects must be carried out"]
pub struct Outcome {
    /// To do at Slurm, in order.
    pub effects: Vec<Effect>,
    /// A generation that began with this step, as (number, nodes by rank, why).
    pub started: Option<(u64, Vec<NodeName>, String)>,
    /// What happened, for the log, once each.
    pub notes: Vec<String>,
    /// Nodes on which a start died: strikes for the circuit breaker.
    pub strikes: Vec<(NodeName, String)>,
    /// Seconds that commands took to save and exit when they were asked to.
    pub stop_secs: Vec<f64>,
}

impl Machine {
    /// A job that waits in the queue.
    pub fn new(job: JobId, sizes: Sizes, now: UnixTime) -> Self {
        Machine {
            job,
            phase: Phase::Queued,
            since: now,
            generation: 0,
            exec_plan: ExecPlan::default(),
            master: None,
            sizes,
            spec: RunSpec::default(),
            account: String::new(),
            lead_qos: String::new(),
            gres: String::new(),
            workers: BTreeMap::new(),
            wings: BTreeMap::new(),
            target: None,
            rescales: 0,
            restarts: 0,
            kills: 0,
            failed_starts: 0,
            preemptions: 0,
            refusals: 0,
            orders_after: None,
            backoff_until: None,
            last_change: None,
            rescaled_at: None,
            lost: false,
            why: "first start".to_owned(),
            retrying: false,
            blocked: false,
            start_patience: 60.0,
            wing_patience: 60.0,
            backoff_first: 30.0,
            backoff_longest: 3600.0,
            tries: BTreeMap::new(),
        }
    }

    /// The sizes that hold: the agent's, if it declared some, else the submission's.
    pub fn allowed(&self) -> &Sizes {
        self.spec.sizes.as_ref().unwrap_or(&self.sizes)
    }

    /// The node of the lead, while it holds one.
    pub fn lead_node(&self) -> Option<&NodeName> {
        match &self.phase {
            Phase::Launching { node } => Some(node),
            _ => self.workers.iter().find(|(_, w)| w.slurm_job == self.job).map(|(n, _)| n),
        }
    }

    /// What the job counts as holding for the planner: what it occupies while it runs, and in the middle of a
    /// change what it is changing to, so that no round calls back the change that the last one began.
    pub fn held(&self) -> BTreeMap<NodeName, JobId> {
        let occupied = self.occupied();
        match (&self.phase, &self.target) {
            (Phase::Queued, _) if self.wings.is_empty() => BTreeMap::new(),
            // A daemon that was restarted meanwhile knows that the lead goes, and not where to.
            (Phase::Requeueing, None) => BTreeMap::new(),
            (Phase::Running { .. }, _) | (_, None) => occupied,
            (_, Some(target)) => {
                let holder = |n: &NodeName| occupied.get(n).copied().unwrap_or(self.job);
                target.nodes.iter().map(|p| (p.node.clone(), holder(&p.node))).collect()
            }
        }
    }

    /// The node of the lead in [`Machine::held`].
    pub fn held_lead(&self) -> Option<&NodeName> {
        match (&self.phase, &self.target) {
            (Phase::Queued, _) if self.wings.is_empty() => None,
            (Phase::Requeueing, None) => None,
            (Phase::Running { .. }, _) | (_, None) => self.lead_node(),
            (_, Some(target)) => target.nodes.first().map(|p| &p.node),
        }
    }

    /// Every node that the job holds or has ordered, with the Slurm job that holds it.
    pub fn occupied(&self) -> BTreeMap<NodeName, JobId> {
        let wings = self
            .wings
            .values()
            .flat_map(|w| w.order.nodes.iter().map(move |n| (n.clone(), w.job.unwrap_or(self.job))));
        let lead = self.lead_node().map(|n| (n.clone(), self.job));
        wings.chain(lead).collect()
    }

    /// What the planner may do with the job.
    pub fn standing(&self, now: UnixTime) -> Standing {
        match (&self.phase, self.backoff_until) {
            (Phase::Queued, _) if !self.wings.is_empty() => Standing::Busy,
            (Phase::Queued, Some(until)) if until > now => Standing::BackOff(until),
            (Phase::Queued, _) => Standing::Waiting,
            (Phase::Running { members }, _) if self.is_steady(members, now) => Standing::Running,
            _ => Standing::Busy,
        }
    }

    fn is_steady(&self, members: &[NodeName], now: UnixTime) -> bool {
        members.iter().all(|n| {
            self.workers.get(n).is_some_and(|w| {
                w.stopped.is_none() && !w.leaving && now.secs_since(w.last_seen) < SILENT_SECS
            })
        })
    }

    /// Where the job is in its life, in a word.
    pub fn state(&self) -> MalleableState {
        match self.phase {
            Phase::Queued => MalleableState::Queued,
            Phase::Launching { .. } => MalleableState::Launching,
            Phase::Idle => MalleableState::Starting,
            Phase::Running { .. } => MalleableState::Running,
            Phase::Stopping { .. } => MalleableState::Rescaling,
            Phase::Requeueing => MalleableState::Parking,
            Phase::Ending { .. } => MalleableState::Ending,
            Phase::Ended => MalleableState::Ended,
        }
    }

    fn enter(&mut self, phase: Phase, now: UnixTime) {
        self.lost &= !matches!(phase, Phase::Queued | Phase::Requeueing);
        self.phase = phase;
        self.since = now;
    }

    /// Emits `effect` unless the same was tried a moment ago.
    fn attempt(&mut self, effect: Effect, now: UnixTime, out: &mut Outcome) {
        self.tries.retain(|_, t| now.secs_since(*t) < RETRY_SECS);
        let key = effect.key();
        let due = self.tries.get(&key).is_none_or(|t| now.secs_since(*t) >= RETRY_SECS);
        if due {
            self.tries.insert(key, now);
            out.effects.push(effect);
        }
    }

    /// Takes the state up again after a pause of the daemon: nobody is blamed for what happened meanwhile.
    pub fn resume(&mut self, now: UnixTime) {
        self.since = now;
        self.target = None;
        self.tries.clear();
        self.workers.values_mut().for_each(|w| w.last_seen = now);
        self.wings.values_mut().for_each(|w| w.ordered_at = w.ordered_at.max(now));
    }

    /// Takes in that an effect could not be carried out; `passing`: trying again may help, and nobody is to
    /// blame.
    pub fn effect_failed(
        &mut self,
        effect: &Effect,
        why: &str,
        passing: bool,
        now: UnixTime,
        out: &mut Outcome,
    ) {
        match effect {
            // The answer was lost, the launch was not: the job has moved on since.
            Effect::Launch { node, .. } if self.phase != (Phase::Launching { node: node.clone() }) => {}
            Effect::Launch { .. } if passing => {
                self.enter(Phase::Queued, now);
                self.tries.insert(effect.key(), now.plus_secs(RELAUNCH_SECS - RETRY_SECS));
            }
            Effect::Launch { node, .. } => {
                self.start_failed(node, why, now, out);
                self.enter(Phase::Queued, now);
            }
            // Slurm will not requeue it: better train here than hold the node and do nothing.
            Effect::RequeueHold { .. } if !passing && self.phase == Phase::Requeueing => {
                out.notes.push(format!("the lead cannot be requeued ({why}): it stays where it is"));
                self.target = None;
                self.enter(Phase::Idle, now);
            }
            // A wing that cannot shrink is given back whole.
            Effect::ShrinkWing { keep, .. } => keep.iter().for_each(|n| self.untarget(n)),
            _ => {}
        }
    }

    /// Whether the planner's last word leaves this node to one of the job's wings.
    fn wants_wing_on(&self, node: &NodeName) -> bool {
        self.target.as_ref().is_none_or(|t| t.nodes.iter().skip(1).any(|p| p.node == *node))
    }
}

/// Whole minutes for a start in a window of `secs`: rounded down, but at least 1.
///
/// While a main job waits for nodes, only backfill starts our jobs, and only where their limit ends before
/// the nodes are planned for: a limit that is too long by a second is no start at all.
pub fn start_limit_mins(secs: f64) -> u32 {
    (secs / 60.0).floor().clamp(1.0, LONGEST_LIMIT_MINS) as u32
}

/// Whole minutes for a job that runs and has a lease of `secs` from its start: rounded up, at least 1.
///
/// Rounding down would end it up to a minute before its window does. Rounding up delays nobody: the daemon
/// leaves in time, and what it forgets is preemptible.
pub fn running_limit_mins(secs: f64) -> u32 {
    (secs / 60.0).ceil().clamp(1.0, LONGEST_LIMIT_MINS) as u32
}

/// A year, in minutes: a bound for leases that have none.
const LONGEST_LIMIT_MINS: f64 = 525_600.0;
