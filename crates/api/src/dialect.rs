//! Which messages an agent understands.

use super::agent::{AgentHello, FIRST_PROTOCOL, PROTOCOL};
use super::capabilities::{Capability, CapabilitySet};

/// What an agent understands: the protocol and the capabilities that its hello names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentDialect {
    /// The agent's protocol version.
    pub protocol: u32,
    /// What the agent can do beyond the first protocol.
    pub capabilities: CapabilitySet,
}

/// The first protocol whose agents are asked for wings. A wing script of an older agent may name a program
/// that an upgrade has replaced. The wing then ends before its hello, and its node looks faulty.
const ORDERS_WINGS: u32 = 2;

/// The first protocol whose agents pass the secret of a generation to its processes.
const PASSES_SECRETS: u32 = 2;

impl AgentDialect {
    /// The dialect of an agent that names no protocol: it is older than the field.
    pub fn first_protocol() -> Self {
        AgentDialect { protocol: FIRST_PROTOCOL, capabilities: CapabilitySet::default() }
    }

    /// The dialect of an agent that speaks the present protocol and has no further capabilities.
    pub fn present_protocol() -> Self {
        AgentDialect { protocol: PROTOCOL, capabilities: CapabilitySet::default() }
    }

    /// The dialect that a hello names.
    pub fn from_hello(hello: &AgentHello) -> Self {
        AgentDialect { protocol: hello.protocol, capabilities: hello.capabilities.clone() }
    }

    /// Whether the agent understands a message that needs this capability. `None` stands for a message of the
    /// first protocol.
    pub fn supports_capability(&self, required: Option<Capability>) -> bool {
        required.is_none_or(|capability| self.capabilities.contains(capability))
    }

    /// Whether an agent of this dialect passes its processes the secret that lets members of a generation
    /// recognise each other.
    pub fn passes_secrets(&self) -> bool {
        self.protocol >= PASSES_SECRETS
    }

    /// Whether a lead of this dialect may be asked to submit wings.
    pub fn orders_wings(&self) -> bool {
        self.protocol >= ORDERS_WINGS
    }
}
