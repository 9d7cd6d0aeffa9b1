//! What the daemon may do: the mode of the configuration, and an administrator's passing order.

use serde::{Deserialize, Serialize};

/// Operating mode of the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Look and plan, touch nothing.
    Observe,
    /// Carry plans out.
    Act,
}

/// A passing order of an administrator, kept over restarts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Control {
    /// Work as the mode says.
    #[default]
    Normal,
    /// Start nothing and grow nothing; what runs, runs on and still leaves in time.
    Paused,
    /// Save and park everything.
    Draining,
}
