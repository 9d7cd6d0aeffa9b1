//! The search for a good schedule without a solver, and for the bound that says how good it is.

pub(crate) mod bound;
pub(crate) mod branch;
mod branching;
pub(crate) mod exchange;
pub(crate) mod first_step;
pub(crate) mod incumbent;
pub(crate) mod initial_schedules;
pub(crate) mod local_search;
pub(crate) mod multipliers;
pub(crate) mod path;
pub(crate) mod path_pool;
pub(crate) mod rebuild;
mod reduced_space;
mod reroute;
mod seeded_draws;
pub(crate) mod tolerance;

#[cfg(test)]
mod tests;
