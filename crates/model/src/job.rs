//! A Slurm job as the snapshot shows it, of the main queue or of infill.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{AllocatedResources, ArrayPart, JobId, NodeName, Resources, UnixTime, UnsplitTasks, UserId};

/// Slurm's base job states. An unknown state is kept by name.
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

/// A job's base state and flags (`COMPLETING`, `CONFIGURING`, `REQUEUED`, ...).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobState {
    /// The base state.
    pub base: BaseState,
    /// Flags in upper case, including unknown ones.
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

    /// Whether the job holds nodes and is not leaving them.
    pub fn is_running(&self) -> bool {
        matches!(self.base, BaseState::Running | BaseState::Suspended) && !self.flags.contains("COMPLETING")
    }

    /// Whether the job still occupies its nodes, even if only to clean up.
    pub fn occupies_nodes(&self) -> bool {
        matches!(self.base, BaseState::Running | BaseState::Suspended) || self.flags.contains("COMPLETING")
    }

    /// Whether the job will never run again. An unknown state does not count as ended.
    pub fn is_ended(&self) -> bool {
        !matches!(
            self.base,
            BaseState::Pending | BaseState::Running | BaseState::Suspended | BaseState::Unknown(_)
        ) && !self.flags.contains("COMPLETING")
            && !self.flags.contains("REQUEUED")
    }
}

/// A job's requirements besides nodes and time, in Slurm's words. Empty texts mean no requirement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobRequirements {
    /// Features that its nodes must have: `--constraint`.
    pub constraint: String,
    /// Nodes that it must not get, as a host list: `--exclude`.
    pub exclude: String,
    /// Nodes that it must get, as a host list: `--nodelist`, or the nodes that the last launch pinned it to.
    #[serde(default)]
    pub pinned: String,
    /// Jobs that must come first, with their state as Slurm last knew it: `afterok:12(unfulfilled)`.
    pub dependency: String,
    /// The reservation that it must run in.
    pub reservation: String,
    /// The earliest start. Slurm also sets it when it requeues a job.
    pub begin: Option<UnixTime>,
    /// The number of times that it was requeued.
    pub requeues: u32,
}

/// A Slurm job. Times that Slurm leaves unset or infinite are `None`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Slurm's job id.
    pub id: JobId,
    /// The job's owner.
    pub user_id: UserId,
    /// The owner's login name; empty if Slurm does not say.
    pub user_name: String,
    /// Slurm's account of the job.
    pub account: String,
    /// The job's name.
    pub name: String,
    /// The partition. While pending in several partitions, a comma-separated list.
    pub partition: String,
    /// The quality of service.
    pub qos: String,
    /// Base state and flags.
    pub state: JobState,
    /// Why the job waits, in Slurm's words (`Resources`, `JobHeldUser`, ...).
    pub state_reason: String,
    /// More about that reason, if Slurm gives more (`job requeued in held state`).
    pub state_description: String,
    /// When the job was submitted.
    pub submit_time: Option<UnixTime>,
    /// When the job started. While it is pending, the start that Slurm expects.
    pub start_time: Option<UnixTime>,
    /// When the job ended. While it runs, its start plus its time limit.
    pub end_time: Option<UnixTime>,
    /// When Slurm last asked the job to leave for a job of higher priority.
    pub preempt_time: Option<UnixTime>,
    /// Time limit in minutes; `None` if unlimited or unset.
    pub time_limit_mins: Option<u64>,
    /// The nodes that it holds, sorted.
    pub nodes: Vec<NodeName>,
    /// The resources that it holds on them, sorted by node. Empty if it holds whole nodes, or Slurm does not
    /// say.
    #[serde(default)]
    pub allocations: Vec<AllocatedResources>,
    /// The most that it asks for on each node. `None` for whole nodes, or if this cannot be determined.
    #[serde(default)]
    pub wants: Option<Resources>,
    /// The node on which its batch script runs.
    pub batch_host: Option<NodeName>,
    /// Nodes that backfill has reserved for it while it waits.
    pub scheduled_nodes: Vec<NodeName>,
    /// The number of nodes that it holds or asks for.
    pub node_count: u32,
    /// Whether its priority is 0.
    pub held: bool,
    /// The user's comment.
    pub comment: String,
    /// The comment that only administrators and plug-ins can write.
    pub admin_comment: String,
    /// Generic resources per node, as for `--gres`; empty if none.
    pub gres: String,
    /// Its further requirements.
    pub asks: JobRequirements,
    /// The part of an array that it is; `None` for a job outside arrays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array: Option<ArrayPart>,
}

/// Whether Slurm's reason for a job's waiting means that it waits only for nodes.
pub fn is_waiting_for_nodes(reason: &str) -> bool {
    ["None", "Priority", "Resources"].contains(&reason)
}

impl Job {
    /// The node of its batch script, or else of its first task.
    pub fn first_node(&self) -> Option<&NodeName> {
        self.batch_host.as_ref().or_else(|| self.nodes.first())
    }

    /// The nodes on which a malleable job's Slurm job has workers: its own nodes, or its places of a node as
    /// one block.
    pub fn worker_nodes(&self) -> Vec<NodeName> {
        match self.first_node() {
            Some(place) if place.is_place() => vec![place.clone()],
            _ => self.nodes.clone(),
        }
    }

    /// The name of this record alone in Slurm's commands: `123_4` for a task of an array.
    pub fn slurm_name(&self) -> String {
        self.array.as_ref().map_or_else(|| self.id.to_string(), ArrayPart::name)
    }

    /// The tasks of an array that share this record; `None` if it stands for one job.
    pub fn unsplit_tasks(&self) -> Option<&UnsplitTasks> {
        match &self.array {
            Some(ArrayPart::Unsplit(tasks)) => Some(tasks),
            _ => None,
        }
    }

    /// Whether it runs, and Slurm has asked this run to leave.
    pub fn is_preempted(&self) -> bool {
        self.state.is_running() && self.was_preempted()
    }

    /// Whether Slurm has asked this run, which may be over, to leave. `preempt_time` may also be of an
    /// earlier run.
    pub fn was_preempted(&self) -> bool {
        self.preempt_time.is_some() && self.preempt_time >= self.start_time
    }

    /// Whether it is a pending job of the main queue that may start. A job that waits in the partition
    /// `malleable` and in others counts, because it may start in one of the others.
    pub fn waits_in_main_queue(&self, malleable: &str) -> bool {
        self.state.is_pending() && !self.held && self.partition.split(',').any(|p| p.trim() != malleable)
    }

    /// Whether Slurm's reason for its waiting, now or later, is that an administrator holds it.
    pub fn is_held_by_admin(&self) -> bool {
        self.state_reason == "JobHeldAdmin"
    }

    /// A job without any further facts: no owner, no times, no nodes.
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
            array: None,
        }
    }
}
