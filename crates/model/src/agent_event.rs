//! Events that an agent reports about its worker.

use serde::{Deserialize, Serialize};

use super::{CommandExit, JobId, Secret};
use crate::words;

/// An event at a worker, reported by its agent. Applying an event twice changes nothing more, except for
/// [`AgentEvent::Progress`]: its samples and seconds are differences, which count each time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum AgentEvent {
    /// The agent started the command of this generation.
    Started {
        /// The generation of the command.
        generation: u64,
    },
    /// The command of this generation has exited.
    Stopped {
        /// The generation of the command.
        generation: u64,
        /// Why and how it ended.
        exit: CommandExit,
        /// Seconds from the rescale signal to the exit; 0 when none was sent.
        stop_secs: f64,
        /// A port that is free now, for the next rendezvous of the job.
        port: u16,
    },
    /// The command of this generation stays alive over changes. It waits for its place in a generation.
    Ready {
        /// The generation that it was started for.
        generation: u64,
    },
    /// The command of this generation reports that memory does not suffice: the GPUs' or the node's.
    OutOfMemory {
        /// The generation of the command.
        generation: u64,
    },
    /// The command hosts the store at which the members of this generation meet.
    Store {
        /// The generation whose members meet there.
        generation: u64,
        /// The store's port on this node.
        port: u16,
        /// The secret that members of the generation show each other at the store, sealed for the job's
        /// owner. `None` from older agents.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        secret: Option<Secret>,
    },
    /// The command has taken its place in this generation.
    Joined {
        /// The generation that it joined.
        generation: u64,
        /// Seconds since the last step in the old generation.
        secs: f64,
    },
    /// The present step of the command lasts suspiciously long: a peer may have stopped responding.
    Stuck {
        /// The generation of the command.
        generation: u64,
    },
    /// A step, or the meeting with the other members, has failed: a member may be lost. The command waits for
    /// another generation.
    Failed {
        /// The generation that failed.
        generation: u64,
    },
    /// The command cannot continue without a restart.
    Hopeless {
        /// The generation of the command.
        generation: u64,
        /// The reason, in the command's words.
        why: String,
    },
    /// Slurm wants the node: this worker will be gone within the preemption leave time.
    Leaving,
    /// Progress since the last report of this kind.
    Progress {
        /// The generation of the command.
        generation: u64,
        /// Samples done since the last report.
        samples: f64,
        /// Seconds between the command's last message in the previous report and its last message in this
        /// one, by the node's monotonic clock. In the first report of a generation, seconds since its start.
        secs: f64,
        /// The last step that the command named.
        step: Option<u64>,
        /// The last loss that the command named.
        loss: Option<f64>,
        /// The number of steps that the command says it will make in total. In samples if it reports no
        /// steps.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        total: Option<f64>,
        /// How much the job counts among its owner's jobs, by the command. `None` if it said nothing new.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        weight: Option<f64>,
        /// In the first report of a generation: how the generation came about on this worker.
        #[serde(default, rename = "opening")]
        startup: Option<WorkerStartup>,
    },
    /// `sbatch` accepted a wing.
    WingSubmitted {
        /// The wing order that the agent carried out.
        order: u64,
        /// Slurm's job id of the wing.
        job: JobId,
    },
    /// `sbatch` refused a wing.
    WingRefused {
        /// The wing order that failed.
        order: u64,
        /// The error message of `sbatch`.
        error: String,
    },
    /// The agent of a wing is running but can start nothing on its node. It exits now.
    Unfit {
        /// Where the fault lies: with the job or with the node.
        blame: FaultSource,
        /// The missing requirement.
        why: String,
    },
}

impl AgentEvent {
    /// The kind of this event.
    pub fn kind(&self) -> AgentEventKind {
        match self {
            AgentEvent::Started { .. } => AgentEventKind::Started,
            AgentEvent::Stopped { .. } => AgentEventKind::Stopped,
            AgentEvent::OutOfMemory { .. } => AgentEventKind::OutOfMemory,
            AgentEvent::Ready { .. } => AgentEventKind::Ready,
            AgentEvent::Store { .. } => AgentEventKind::Store,
            AgentEvent::Joined { .. } => AgentEventKind::Joined,
            AgentEvent::Stuck { .. } => AgentEventKind::Stuck,
            AgentEvent::Failed { .. } => AgentEventKind::Failed,
            AgentEvent::Hopeless { .. } => AgentEventKind::Hopeless,
            AgentEvent::Leaving => AgentEventKind::Leaving,
            AgentEvent::Progress { .. } => AgentEventKind::Progress,
            AgentEvent::WingSubmitted { .. } => AgentEventKind::WingSubmitted,
            AgentEvent::WingRefused { .. } => AgentEventKind::WingRefused,
            AgentEvent::Unfit { .. } => AgentEventKind::Unfit,
        }
    }
}

words! {
    /// A kind of [`AgentEvent`], as metrics count it.
    pub enum AgentEventKind {
        /// A command was started.
        Started = "started",
        /// A command has exited.
        Stopped = "stopped",
        /// A command has run out of memory.
        OutOfMemory = "out_of_memory",
        /// A command that stays alive waits for its place.
        Ready = "ready",
        /// A command hosts the store of a generation.
        Store = "store",
        /// A command that stays alive has taken its place.
        Joined = "joined",
        /// A step lasts suspiciously long.
        Stuck = "stuck",
        /// A step has failed, perhaps because a member was lost.
        Failed = "failed",
        /// A command that stays alive cannot continue.
        Hopeless = "hopeless",
        /// Slurm wants a node.
        Leaving = "leaving",
        /// A command made progress.
        Progress = "progress",
        /// `sbatch` accepted a wing.
        WingSubmitted = "wing_submitted",
        /// `sbatch` refused a wing.
        WingRefused = "wing_refused",
        /// A wing's agent can start nothing on its node.
        Unfit = "unfit",
    }
}

words! {
    /// Where the fault lies if nothing can be started on a node.
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    pub enum FaultSource {
        /// The job: it needs what other nodes do not have.
        Job = "job",
        /// The node: it lacks what every job needs.
        Node = "node",
    }
}

/// How a generation came about on one worker. All times are in seconds, by the worker's monotonic clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WorkerStartup {
    /// From the last generation's rescale signal until its command reported that the checkpoint was saved.
    /// `None` if it did not report that.
    pub saved_secs: Option<f64>,
    /// From that signal until that command had exited. `None` if nothing was stopped here, as at a first
    /// start.
    pub stop_secs: Option<f64>,
    /// From that exit, or from the agent's own start, until the command was started.
    pub idle_secs: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_event_without_a_secret_is_read_and_written() {
        let store = AgentEvent::Store { generation: 1, port: 5, secret: None };
        let text = r#"{"store":{"generation":1,"port":5}}"#;
        assert_eq!(serde_json::from_str::<AgentEvent>(text).unwrap(), store);
        assert_eq!(serde_json::to_string(&store).unwrap(), text);
    }

    #[test]
    fn a_secret_is_in_no_log() {
        let secret = Some(Secret("ab01".to_owned()));
        let event = AgentEvent::Store { generation: 1, port: 5, secret: secret.clone() };
        let meeting = crate::GenerationRendezvous { secret, ..crate::GenerationRendezvous::default() };
        assert!(!format!("{event:?} {meeting:?}").contains("ab01"));
    }
}
