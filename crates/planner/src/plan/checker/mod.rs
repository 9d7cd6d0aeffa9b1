//! The independent check of a plan: whether it may be carried out, and the reasons for what it decides.

pub mod check;
pub(crate) mod checked_job;
mod guarantees;
mod host_capacity;
mod host_shortage;
pub(crate) mod recomputed_value;
pub(crate) mod report;
pub(crate) mod rule;
pub(crate) mod rules;
mod site_limits;

#[cfg(test)]
mod tests;
