//! The mixed-integer program: written only where the plan in hand may be far from the best, and what solves
//! it.

pub(crate) mod constraints;
pub(crate) mod improve;
pub(crate) mod milp;
pub(crate) mod objective;
pub mod solver;
pub(crate) mod variables;
pub(crate) mod write;

#[cfg(test)]
mod tests;
