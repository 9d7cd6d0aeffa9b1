//! What can run short, as values.

/// A limit on what all jobs use together in one step.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StepLimit {
    /// What it limits.
    pub of: LimitedResource,
    /// The step.
    pub step: usize,
    /// Most that may be used.
    pub most: u32,
}

/// How many places of one node are counted as one.
pub(crate) type BlockSize = u32;

/// What can run short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LimitedResource {
    /// Nodes of a type that last through the step. With a level, blocks of that many places: see `blocks`.
    Nodes(usize, BlockSize),
    /// Those of them on which a job may start: not those that only their holder may still use, because the
    /// window is too short for others.
    StartNodes(usize, BlockSize),
    /// Nodes of a type that lie outside a set which some jobs must avoid, for those jobs.
    Allowed(usize, BlockSize),
    /// CPUs of hosts of a type, so many of them counted as one on each host: see `shares`.
    Cpus(usize, u64),
    /// The same of memory, MiB.
    Memory(usize, u64),
    /// Voluntary changes, in the first step.
    Changes,
}

/// What the options of a job use of a resource, in each step in which it is limited.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ResourceDemand {
    /// The resource: an index into the rows of `Space::limit_at`.
    pub resource: usize,
    /// The amount for each option.
    pub amounts: Vec<f64>,
    /// The largest amount.
    pub most: f64,
}
