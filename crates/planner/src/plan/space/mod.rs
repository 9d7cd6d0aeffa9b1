//! The problem of a round, and the decision space that it spans.

pub(crate) mod blocks;
mod build;
pub(crate) mod changes;
pub(crate) mod cost;
pub(crate) mod decision;
pub(crate) mod limits;
pub(crate) mod options;
pub(crate) mod problem;
mod promises;
pub(crate) mod resource;
pub(crate) mod shares;
pub(crate) mod slots;
pub(crate) mod spec;
pub(crate) mod steps;
pub(crate) mod table;
pub(crate) mod worker;

pub(crate) use build::MOST_TIES;

#[cfg(test)]
pub(crate) mod tests;
