//! What is said of a plan: whether it may be carried out, and why it is as it is.

pub mod check;
pub mod facts;
pub mod report;
pub mod rules;
pub mod worth;

#[cfg(test)]
mod tests;
