//! The problem of a round, and the decision space that it spans.

pub mod changes;
pub mod cost;
pub mod decision;
pub mod limits;
pub mod options;
pub mod problem;
pub mod slots;
pub mod steps;
