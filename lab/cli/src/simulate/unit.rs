//! The unit in which a log counts, and its words.

use clap::ValueEnum;
use serde::Serialize;

/// The unit in which a log counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum LogUnit {
    /// Whole nodes: a node that jobs share is idle when the last of them has ended
    #[default]
    Node,
    /// GPUs, also beside other jobs of their node
    Gpu,
}

impl LogUnit {
    /// The plural, such as `nodes`.
    pub fn plural(self) -> &'static str {
        match self {
            LogUnit::Node => "nodes",
            LogUnit::Gpu => "GPUs",
        }
    }

    /// The singular, for compounds such as `node-hours`.
    pub(crate) fn noun(self) -> &'static str {
        match self {
            LogUnit::Node => "node",
            LogUnit::Gpu => "GPU",
        }
    }
}
