//! A Slurm job as the snapshot shows it, of the main queue or ours.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{AllocatedResources, JobId, NodeName, Resources, UnixTime, UserId};

/// Slurm's base job states. A state that we do not know is kept by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[allow(missing_docs, reason = "the names are Slurm's own")]
pub enum BaseState {
    Pending,
    Running,
    Suspended,
    Completed,
    Cancelled,
    Failed,
    Timeout,
    NodeFail,
    Preempted,
    BootFail,
    Deadline,
    OutOfMemory,
    Unknown(String),
}

/// Base state and flags (`COMPLETING`, `CONFIGURING`, `REQUEUED`, ...).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobState {
    /// The base state.
    pub base: BaseState,
    /// Flags in upper case, known to us or not.
    pub flags: BTreeSet<String>,
}

impl JobState {
    /// A state without flags.
    pub fn from_base(base: BaseState) -> Self {
        JobState { base, flags: BTreeSet::new() }
    }

    /// Whether the job waits for nodes.
    pub fn is_pending(&self) -> bool {
        self.base == BaseState::Pending
    }

    /// Whether the job holds nodes and is not on its way out.
    pub fn is_running(&self) -> bool {
        matches!(self.base, BaseState::Running | BaseState::Suspended) && !self.flags.contains("COMPLETING")
    }

    /// Whether the job still occupies its nodes, even if only to clean up.
    pub fn occupies_nodes(&self) -> bool {
        matches!(self.base, BaseState::Running | BaseState::Suspended) || self.flags.contains("COMPLETING")
    }

    /// Whether the job will never run again. A state that we do not know does not count as ended.
    pub fn is_ended(&self) -> bool {
        !matches!(
            self.base,
            BaseState::Pending | BaseState::Running | BaseState::Suspended | BaseState::Unknown(_)
        ) && !self.flags.contains("COMPLETING")
            && !self.flags.contains("REQUEUED")
    }
}

/// What a job asks for besides nodes and time, in Slurm's words; empty where it asks for nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobRequirements {
    /// Features of its nodes: `--constraint`.
    pub constraint: String,
    /// Nodes that it must not have, as a host list: `--exclude`.
    pub exclude: String,
    /// Nodes that it must have, as a host list: `--nodelist`, or where a launch pinned it last.
    #[serde(default)]
    pub pinned: String,
    /// Jobs that must come first, with what Slurm last knew of them: `afterok:12(unfulfilled)`.
    pub dependency: String,
    /// The reservation that it wants to run in.
    pub reservation: String,
    /// When it may begin; Slurm also sets it when it requeues a job.
    pub begin: Option<UnixTime>,
    /// How often it was requeued.
    pub requeues: u32,
}

/// One Slurm job. Times that Slurm leaves unset or infinite are `None`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Job id.
    pub id: JobId,
    /// Owner.
    pub user_id: UserId,
    /// Owner's login name (empty if Slurm does not say).
    pub user_name: String,
    /// Slurm account.
    pub account: String,
    /// Job name.
    pub name: String,
    /// Partition, or a comma-separated list while pending in several.
    pub partition: String,
    /// Quality of service.
    pub qos: String,
    /// State and flags.
    pub state: JobState,
    /// Why it waits, in Slurm's words (`Resources`, `JobHeldUser`, ...).
    pub state_reason: String,
    /// More about that, if Slurm has more to say (`job requeued in held state`).
    pub state_description: String,
    /// Submission.
    pub submit_time: Option<UnixTime>,
    /// Start; while pending, the start that Slurm expects.
    pub start_time: Option<UnixTime>,
    /// End; while running, start plus time limit.
    pub end_time: Option<UnixTime>,
    /// When Slurm last told it to leave for a job of more worth.
    pub preempt_time: Option<UnixTime>,
    /// Time limit in minutes; `None` is unlimited or unset.
    pub time_limit_mins: Option<u64>,
    /// Nodes that it holds, sorted.
    pub nodes: Vec<NodeName>,
    /// What it has of them, sorted by node. Empty where it has them whole, or Slurm does not say.
    #[serde(default)]
    pub allocations: Vec<AllocatedResources>,
    /// What it asks for of each node, at the most. `None`: whole nodes, or nobody can tell.
    #[serde(default)]
    pub wants: Option<Resources>,
    /// The node on which its batch script runs.
    pub batch_host: Option<NodeName>,
    /// Nodes that backfill reserved for it while it waits.
    pub scheduled_nodes: Vec<NodeName>,
    /// Number of nodes held or asked for.
    pub node_count: u32,
    /// Whether its priority is 0.
    pub held: bool,
    /// User's comment.
    pub comment: String,
    /// Comment that only administrators and plug-ins can write.
    pub admin_comment: String,
    /// Generic resources asked for per node, as for `--gres`; empty if none.
    pub gres: String,
    /// What else it asks for.
    pub asks: JobRequirements,
}

/// Whether Slurm's word for why a job waits means that it waits for nodes only.
pub fn is_waiting_for_nodes(reason: &str) -> bool {
    ["None", "Priority", "Resources"].contains(&reason)
}

impl Job {
    /// The node of its batch script, or of its first task.
    pub fn first_node(&self) -> Option<&NodeName> {
        self.batch_host.as_ref().or_else(|| self.nodes.first())
    }

    /// The nodes on which a job of ours has workers: its own, or its places of a node as one.
    pub fn worker_nodes(&self) -> Vec<NodeName> {
        match self.first_node() {
            Some(place) if place.is_place() => vec![place.clone()],
            _ => self.nodes.clone(),
        }
    }

    /// Whether it runs, and Slurm has told this run of it to leave.
    pub fn is_preempted(&self) -> bool {
        self.state.is_running() && self.was_told_to_leave()
    }

    /// Whether Slurm has told this run of it, which may be over, to leave: an earlier run's preemption shows,
    /// too.
    pub fn was_told_to_leave(&self) -> bool {
        self.preempt_time.is_some() && self.preempt_time >= self.start_time
    }

    /// Whether it is a pending job of the main queue that may start. One that waits in this partition and in
    /// others counts: it may start in one of those.
    pub fn waits_in_main_queue(&self, malleable: &str) -> bool {
        self.state.is_pending() && !self.held && self.partition.split(',').any(|p| p.trim() != malleable)
    }

    /// Whether Slurm's word for why it waits, or will wait, is that an administrator holds it.
    pub fn is_held_by_admin(&self) -> bool {
        self.state_reason == "JobHeldAdmin"
    }

    /// A job of which nothing more is known: no owner, no times, no nodes.
    pub fn new(id: JobId, partition: &str, state: BaseState) -> Job {
        Job {
            id,
            user_id: UserId(0),
            user_name: String::new(),
            account: String::new(),
            name: String::new(),
            partition: partition.to_owned(),
            qos: String::new(),
            state: JobState::from_base(state),
            state_reason: String::new(),
            state_description: String::new(),
            submit_time: None,
            start_time: None,
            end_time: None,
            preempt_time: None,
            time_limit_mins: None,
            nodes: Vec::new(),
            allocations: Vec::new(),
            wants: None,
            batch_host: None,
            scheduled_nodes: Vec::new(),
            node_count: 0,
            held: false,
            comment: String::new(),
            admin_comment: String::new(),
            gres: String::new(),
            asks: JobRequirements::default(),
        }
    }
}
