//! The problem of a round, and the decision space that it spans.

pub mod blocks;
mod build;
pub mod changes;
pub mod cost;
pub mod decision;
pub mod limits;
pub mod options;
pub mod problem;
pub mod resource;
pub mod slots;
pub mod spec;
pub mod steps;
pub mod table;

pub use build::MOST_TIES;

#[cfg(test)]
pub(crate) mod tests;
