//! The mixed-integer program: written only where the plan in hand may be far from the best, and what solves
//! it.

pub mod constraints;
pub mod improve;
pub mod milp;
pub mod objective;
pub mod solver;
pub mod variables;
pub mod write;

#[cfg(test)]
mod tests;
