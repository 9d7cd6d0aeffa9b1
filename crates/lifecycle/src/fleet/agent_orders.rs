//! Orders of the fleet to agents.

use infill_api::{AgentDialect, Capability};
use infill_model::{Directive, JobId, NodeName, WingOrder};

/// Identifies an agent by the Slurm job in which it runs, and by its node.
pub type AgentId = (JobId, NodeName);

/// The present order of one agent.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentOrder {
    /// The agent that gets the order.
    pub agent: AgentId,
    /// What to do with the command.
    pub directive: Directive,
    /// Wings to submit; empty for a wing's agent.
    pub wings: Vec<WingOrder>,
    /// What the job's owner should know; only for the lead's agent.
    pub notice: Option<String>,
}

/// The capability that an agent needs for this directive; `None` for the directives of the first protocol. A
/// later directive, or a field that changes the meaning of a directive, needs its own [`Capability`].
pub(super) fn required_capability(directive: &Directive) -> Option<Capability> {
    match directive {
        Directive::Hold
        | Directive::Run(_)
        | Directive::Regroup(_)
        | Directive::Warm(_)
        | Directive::Part { .. }
        | Directive::Stop { .. }
        | Directive::Rescue { .. }
        | Directive::Leave
        | Directive::Finish { .. } => None,
    }
}

/// Whether an agent of this dialect can read a directive. `required` returns the capability that a directive
/// needs.
pub(super) fn can_read_directive(
    dialect: &AgentDialect,
    directive: &Directive,
    required: impl Fn(&Directive) -> Option<Capability>,
) -> bool {
    dialect.supports_capability(required(directive))
}
