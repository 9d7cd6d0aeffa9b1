//! The problem of a round and its decision space.

pub(crate) mod blocks;
mod build;
pub(crate) mod change_costs;
pub(crate) mod cost;
pub(crate) mod decision;
mod guarantees;
pub(crate) mod host_shares;
pub(crate) mod job_option;
pub(crate) mod limits;
pub(crate) mod options;
pub(crate) mod problem;
pub(crate) mod resource;
pub(crate) mod site_limits;
pub(crate) mod slots;
pub(crate) mod step_table;
pub(crate) mod steps;
pub(crate) mod worker_places;

pub(crate) use build::MAX_TIES;

#[cfg(test)]
pub(crate) mod tests;
