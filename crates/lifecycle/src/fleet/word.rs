//! What the fleet has to say to an agent.

use infill_model::{Directive, JobId, NodeName, WingOrder};

/// An agent: the Slurm job in which it runs, and its node.
pub type Agent = (JobId, NodeName);

/// What one agent shall do.
#[derive(Clone, Debug, PartialEq)]
pub struct Word {
    /// Who.
    pub agent: Agent,
    /// What to do with the command.
    pub directive: Directive,
    /// Wings to submit.
    pub wings: Vec<WingOrder>,
    /// What the job's owner should know; for the lead.
    pub notice: Option<String>,
}
