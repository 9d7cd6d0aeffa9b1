//! Newtypes for the things that Slurm numbers or names, so that they cannot be mixed up.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A Slurm job id. A malleable job is known by the id of its lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct JobId(pub u32);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A numeric user id on the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct UserId(pub u32);

impl fmt::Display for UserId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The name of a node as Slurm knows it. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeName(Arc<str>);

impl NodeName {
    /// Wraps `name` as it is; Slurm decides what a valid name is.
    pub fn new(name: impl AsRef<str>) -> Self {
        NodeName(Arc::from(name.as_ref()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for NodeName {
    fn from(name: &str) -> Self {
        NodeName::new(name)
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A class of interchangeable nodes: equal GPUs, CPUs and features, written like `gpu:a100:4/cpu64`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeType(Arc<str>);

impl NodeType {
    /// Wraps a type name.
    pub fn new(name: impl AsRef<str>) -> Self {
        NodeType(Arc::from(name.as_ref()))
    }

    /// The type's name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for NodeType {
    fn from(name: &str) -> Self {
        NodeType::new(name)
    }
}

impl fmt::Display for NodeType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for NodeType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
