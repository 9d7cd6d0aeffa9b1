//! One round, once for all who make rounds: what Slurm shows and what is known of the jobs (`round`) → the
//! best use of the gaps (`plan`), judged by code of its own.
//!
//! Pure: no I/O, no async, no clock, no randomness.

#![warn(clippy::disallowed_types)]

pub mod plan;
pub mod round;
