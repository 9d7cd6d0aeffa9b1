//! What a log is counted in, in words.

use clap::ValueEnum;
use serde::Serialize;

/// What a log is counted in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum LogUnit {
    /// Whole nodes: one that jobs share is idle when the last of them has ended
    #[default]
    Node,
    /// GPUs, also beside other jobs of their node
    Gpu,
}

impl LogUnit {
    /// More than one.
    pub fn plural(self) -> &'static str {
        match self {
            LogUnit::Node => "nodes",
            LogUnit::Gpu => "GPUs",
        }
    }

    /// One, before another noun.
    pub(crate) fn noun(self) -> &'static str {
        match self {
            LogUnit::Node => "node",
            LogUnit::Gpu => "GPU",
        }
    }
}
