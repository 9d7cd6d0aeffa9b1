//! One round, implemented once for everything that makes rounds. From what Slurm shows and the facts
//! about the jobs (`round`) it finds the best use of the gaps (`plan`). Independent code checks the result.
//!
//! The crate is pure: no I/O, no async, no clock, no randomness.

#![warn(clippy::disallowed_types)]

pub mod plan;
pub mod round;
