//! What an agent or a daemon can do beyond the first version of the protocol.

use std::collections::BTreeSet;

use serde::{Deserialize, Deserializer, Serialize};

use super::agent::{FIRST_PROTOCOL, Hello, PROTOCOL};

/// Something that came after the first version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Capability {
    /// Proves itself with a sealed session key, and every message after the hello with that key.
    SealedSession,
}

/// Those that one side has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct Capabilities(BTreeSet<Capability>);

impl Capabilities {
    /// Whether this one is among them.
    pub fn has(&self, capability: Capability) -> bool {
        self.0.contains(&capability)
    }
}

impl FromIterator<Capability> for Capabilities {
    fn from_iter<I: IntoIterator<Item = Capability>>(capabilities: I) -> Self {
        Capabilities(capabilities.into_iter().collect())
    }
}

/// What an agent understands: the protocol and the capabilities that it named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dialect {
    /// Its protocol.
    pub protocol: u32,
    /// What it can do beyond the first one.
    pub capabilities: Capabilities,
}

/// The protocol from which on agents are asked for wings. Before, the script of a wing may name a program that
/// an upgrade has replaced, so that the wing ends before its first word and its node looks bad.
const ORDERS_WINGS: u32 = 2;

impl Dialect {
    /// Of an agent that named none: it is older than the fields.
    pub fn first() -> Self {
        Dialect { protocol: FIRST_PROTOCOL, capabilities: Capabilities::default() }
    }

    /// Of an agent that speaks the present protocol, and has nothing beyond it.
    pub fn present() -> Self {
        Dialect { protocol: PROTOCOL, capabilities: Capabilities::default() }
    }

    /// As a hello names it.
    pub fn of(hello: &Hello) -> Self {
        Dialect { protocol: hello.protocol, capabilities: hello.capabilities.clone() }
    }

    /// Whether a message may be sent that needs this; `None`: one that the first protocol had.
    pub fn understands(&self, needs: Option<Capability>) -> bool {
        needs.is_none_or(|capability| self.capabilities.has(capability))
    }

    /// Whether a lead of this dialect may be asked to submit wings.
    pub fn orders_wings(&self) -> bool {
        self.protocol >= ORDERS_WINGS
    }
}

/// Those that this version does not know are left out: the other side is newer.
impl<'de> Deserialize<'de> for Capabilities {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let names = Vec::<serde_json::Value>::deserialize(deserializer)?;
        Ok(names.into_iter().filter_map(|name| serde_json::from_value(name).ok()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_of_a_newer_version_are_left_out() {
        let read: Capabilities = serde_json::from_str(r#"["sealed_session","telepathy"]"#).unwrap();
        assert_eq!(read, Capabilities::from_iter([Capability::SealedSession]));
        assert_eq!(serde_json::to_string(&read).unwrap(), r#"["sealed_session"]"#);
    }
}
