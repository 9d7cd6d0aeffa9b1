//! What the fleet has to say to an agent.

use infill_api::{AgentDialect, Capability};
use infill_model::{Directive, JobId, NodeName, WingOrder};

/// An agent: the Slurm job in which it runs, and its node.
pub type AgentId = (JobId, NodeName);

/// What one agent shall do.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentOrder {
    /// Who.
    pub agent: AgentId,
    /// What to do with the command.
    pub directive: Directive,
    /// Wings to submit.
    pub wings: Vec<WingOrder>,
    /// What the job's owner should know; for the lead.
    pub notice: Option<String>,
}

/// What an agent must have named before it is sent this; `None`: the first protocol had it. A directive that
/// comes later, or a field that changes what one means, needs a [`Capability`] of its own.
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

/// Whether an agent of this dialect can read a directive that needs what `needs` says.
pub(super) fn can_read_directive(
    dialect: &AgentDialect,
    directive: &Directive,
    needs: impl Fn(&Directive) -> Option<Capability>,
) -> bool {
    dialect.supports_capability(needs(directive))
}
