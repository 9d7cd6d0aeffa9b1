//! What happens at a worker.

use serde::{Deserialize, Serialize};

use super::{CommandExit, JobId, Secret};
use crate::words;

/// One event. Reporting an event again is harmless.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum AgentEvent {
    /// The command of this generation was started.
    Started {
        /// Its generation.
        generation: u64,
    },
    /// The command of this generation is gone.
    Stopped {
        /// Its generation.
        generation: u64,
        /// Why and how it ended.
        exit: CommandExit,
        /// Seconds from the rescale signal to the exit; 0 when none was sent.
        stop_secs: f64,
        /// A port that is free now, for the next rendezvous.
        port: u16,
    },
    /// The command of this generation stays alive over changes, and waits for its place.
    Ready {
        /// The generation that it was started for.
        generation: u64,
    },
    /// The command of this generation says that its memory does not suffice, the GPUs' or the node's.
    OutOfMemory {
        /// Its generation.
        generation: u64,
    },
    /// It hosts the store at which this generation meets.
    Store {
        /// The generation.
        generation: u64,
        /// The store's port on this node.
        port: u16,
        /// By which members know each other there, sealed for the job's owner. Older agents make none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        secret: Option<Secret>,
    },
    /// It has its place in this generation.
    Joined {
        /// The generation.
        generation: u64,
        /// Seconds from the last step in the old one.
        secs: f64,
    },
    /// Its present step lasts suspiciously long: a peer may have fallen silent.
    Stuck {
        /// Its generation.
        generation: u64,
    },
    /// A step, or meeting the others, has failed: a member may be lost. It waits for another generation.
    Failed {
        /// The generation.
        generation: u64,
    },
    /// It cannot go on without a restart.
    Hopeless {
        /// Its generation.
        generation: u64,
        /// What it says of that.
        why: String,
    },
    /// Slurm wants the node: this worker will be gone within the preemption leave time.
    Leaving,
    /// Progress since the last report of this kind.
    Progress {
        /// Its generation.
        generation: u64,
        /// Samples done since the last report.
        samples: f64,
        /// Seconds between the command's last word in the last report and its last word in this one, by the
        /// node's monotonic clock. In the first report of a generation, since its start.
        secs: f64,
        /// Last step that the command named.
        step: Option<u64>,
        /// Last loss that it named.
        loss: Option<f64>,
        /// How many steps it will make in all, by its own word; of samples, where it tells of no steps.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        total: Option<f64>,
        /// In the first report of a generation: how it came about.
        #[serde(default)]
        opening: Option<WorkerStartup>,
    },
    /// `sbatch` accepted a wing.
    WingSubmitted {
        /// The order.
        order: u64,
        /// Slurm's job id.
        job: JobId,
    },
    /// `sbatch` refused a wing.
    WingRefused {
        /// The order.
        order: u64,
        /// What sbatch said.
        error: String,
    },
    /// A wing's agent is here and can start nothing on its node. It ends now.
    Unfit {
        /// Who is to blame.
        blame: FaultSource,
        /// What is missing.
        why: String,
    },
}

impl AgentEvent {
    /// What kind of event it is.
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
    /// A kind of [`AgentEvent`], as it is counted.
    pub enum AgentEventKind {
        /// A command was started.
        Started = "started",
        /// A command is gone.
        Stopped = "stopped",
        /// A command has run out of memory.
        OutOfMemory = "out_of_memory",
        /// A command that stays alive waits for its place.
        Ready = "ready",
        /// A command hosts the store of a generation.
        Store = "store",
        /// A command that stays alive has its place.
        Joined = "joined",
        /// A step lasts suspiciously long.
        Stuck = "stuck",
        /// A step has failed, perhaps because a member was lost.
        Failed = "failed",
        /// A command that stays alive cannot go on.
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
    /// Who is to blame that nothing can be started on a node.
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    pub enum FaultSource {
        /// The job: it needs what other nodes do not have.
        Job = "job",
        /// The node: it lacks what every job needs.
        Node = "node",
    }
}

/// How a generation came about on one worker, seconds by its monotonic clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WorkerStartup {
    /// From the last generation's rescale signal until its command said that the checkpoint was saved, if it
    /// did.
    pub saved_secs: Option<f64>,
    /// From that signal until that command had exited. `None` when nothing was stopped here: a first start.
    pub stop_secs: Option<f64>,
    /// From there, or from the agent's own start, until the command was started.
    pub idle_secs: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_of_an_agent_that_is_older_than_secrets() {
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
