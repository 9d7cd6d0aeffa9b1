//! What is said of a plan: whether it may be carried out, and why it is as it is.

pub mod check;
pub(crate) mod facts;
mod hosts;
mod promises;
pub(crate) mod report;
pub(crate) mod rules;
pub(crate) mod worth;

#[cfg(test)]
mod tests;
