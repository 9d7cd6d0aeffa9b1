//! What an agent or a daemon can do beyond the first version of the protocol.

use std::collections::BTreeSet;

use serde::{Deserialize, Deserializer, Serialize};

/// A feature that was added after the first version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Capability {
    /// The side proves its identity with a sealed session key, and signs each message after the hello with
    /// that key.
    SealedSession,
}

/// The capabilities of one side.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct CapabilitySet(BTreeSet<Capability>);

impl CapabilitySet {
    /// Whether the set contains this capability.
    pub fn contains(&self, capability: Capability) -> bool {
        self.0.contains(&capability)
    }
}

impl FromIterator<Capability> for CapabilitySet {
    fn from_iter<I: IntoIterator<Item = Capability>>(capabilities: I) -> Self {
        CapabilitySet(capabilities.into_iter().collect())
    }
}

/// Leaves out capabilities that this version does not know: the other side is newer.
impl<'de> Deserialize<'de> for CapabilitySet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let names = Vec::<serde_json::Value>::deserialize(deserializer)?;
        Ok(names.into_iter().filter_map(|name| serde_json::from_value(name).ok()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_of_a_newer_version_are_left_out() {
        let read: CapabilitySet = serde_json::from_str(r#"["sealed_session","telepathy"]"#).unwrap();
        assert_eq!(read, CapabilitySet::from_iter([Capability::SealedSession]));
        assert_eq!(serde_json::to_string(&read).unwrap(), r#"["sealed_session"]"#);
    }
}
