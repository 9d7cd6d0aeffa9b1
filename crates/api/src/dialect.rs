//! What the other side of a conversation understands.

use super::agent::{AgentHello, FIRST_PROTOCOL, PROTOCOL};
use super::capabilities::{Capability, CapabilitySet};

/// What an agent understands: the protocol and the capabilities that it named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentDialect {
    /// Its protocol.
    pub protocol: u32,
    /// What it can do beyond the first one.
    pub capabilities: CapabilitySet,
}

/// The protocol from which on agents are asked for wings. Before, the script of a wing may name a program
/// that an upgrade has replaced, so that the wing ends before its first word and its node looks bad.
const ORDERS_WINGS: u32 = 2;

/// The protocol from which on agents hand the secret of a generation to its processes.
const PASSES_SECRETS: u32 = 2;

impl AgentDialect {
    /// Of an agent that named none: it is older than the fields.
    pub fn first_protocol() -> Self {
        AgentDialect { protocol: FIRST_PROTOCOL, capabilities: CapabilitySet::default() }
    }

    /// Of an agent that speaks the present protocol, and has nothing beyond it.
    pub fn present_protocol() -> Self {
        AgentDialect { protocol: PROTOCOL, capabilities: CapabilitySet::default() }
    }

    /// As a hello names it.
    pub fn from_hello(hello: &AgentHello) -> Self {
        AgentDialect { protocol: hello.protocol, capabilities: hello.capabilities.clone() }
    }

    /// Whether a message may be sent that needs this; `None`: one that the first protocol had.
    pub fn supports_capability(&self, needs: Option<Capability>) -> bool {
        needs.is_none_or(|capability| self.capabilities.contains(capability))
    }

    /// Whether an agent of this dialect tells its processes by what members of a generation know each other.
    pub fn passes_secrets(&self) -> bool {
        self.protocol >= PASSES_SECRETS
    }

    /// Whether a lead of this dialect may be asked to submit wings.
    pub fn orders_wings(&self) -> bool {
        self.protocol >= ORDERS_WINGS
    }
}
