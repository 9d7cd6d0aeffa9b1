//! How a command ended.

use serde::{Deserialize, Serialize};

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CommandExit {
    /// The exit code. As in a shell, 128 + signal if a signal killed it.
    pub code: i32,
    /// Whether the agent had asked it to stop (with the rescale signal or Slurm's SIGTERM).
    pub asked: bool,
    /// Whether it was killed after the grace time. Work since its last checkpoint is then lost.
    pub killed: bool,
}
