//! Resources that can run short, and their limits.

use std::ops::Range;

/// A limit on what all jobs use together in one step.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StepLimit {
    /// The limited resource.
    pub resource: LimitedResource,
    /// The step, from 0.
    pub step: usize,
    /// The largest amount that may be used.
    pub most: u32,
}

/// The number of places of one host that count as one block.
pub(crate) type BlockSize = u32;

/// A resource that can run short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LimitedResource {
    /// Nodes of a type that last through the step; with a block size above 1, blocks of that many places (see
    /// [`super::blocks`]).
    Nodes(usize, BlockSize),
    /// Nodes of a type on which a job may start. Nodes whose window is too short for others, so that only
    /// their holder may still use them, do not count.
    StartNodes(usize, BlockSize),
    /// Nodes of a type outside a set that some jobs must avoid, for those jobs.
    Allowed(usize, BlockSize),
    /// CPUs of hosts of a type, in units of the second number on each host (see [`super::host_shares`]).
    Cpus(usize, u64),
    /// Memory of hosts of a type, in units of the second number, MiB, on each host.
    Memory(usize, u64),
    /// Voluntary changes, in the first step only.
    Changes,
}

/// What the options of a job use of one resource, in each step in which that is limited.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ResourceDemand {
    /// Index into the rows of [`DecisionSpace::limit_at`](super::decision::DecisionSpace::limit_at).
    pub resource: usize,
    /// The amount that each option uses.
    pub amounts: Vec<f64>,
    /// The largest of these amounts.
    pub most: f64,
    /// The options from the first to the last that use something: those on one type are neighbours.
    pub users: Range<usize>,
}

impl ResourceDemand {
    /// These amounts of a resource; `None` where no option uses anything.
    pub fn from_amounts(resource: usize, amounts: Vec<f64>) -> Option<Self> {
        let first = amounts.iter().position(|amount| *amount > 0.0)?;
        let last = amounts.iter().rposition(|amount| *amount > 0.0)?;
        let most = amounts.iter().copied().fold(0.0, f64::max);
        Some(ResourceDemand { resource, amounts, most, users: first..last + 1 })
    }
}
