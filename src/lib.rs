//! Infill: fills the idle nodes of a Slurm cluster with malleable deep-learning jobs.
//!
//! The core (`model`, `gaps`, `advisor`, `plan`, `round`, `sim`, `generation`, `timeline`) is pure: no I/O,
//! no async, no clock, no randomness. The edges (`slurm`, `store`, `agent`, `traces`) speak to the outside;
//! the shells (`http`, `daemon`, `cli`) put them together.

#![warn(missing_docs)]

mod addresses;
pub mod advisor;
pub mod agent;
pub mod api;
mod causes;
mod charts;
pub mod cli;
mod clock;
pub mod config;
pub mod daemon;
pub mod gaps;
pub mod generation;
pub mod http;
pub mod model;
pub mod plan;
pub mod round;
pub mod serve;
pub mod sim;
pub mod slurm;
pub mod store;
#[cfg(test)]
mod test_support;
pub mod timeline;
pub mod traces;
mod words;
