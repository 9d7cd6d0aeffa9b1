//! The stored record of a malleable job: JSON of its own, with a version, apart from what goes over the wire.
//!
//! What Slurm, the agents and the planner say again anyway is not in it: the target, and what was asked of
//! Slurm a moment ago.

mod current;
mod error;
mod parts;
mod read;
mod unversioned;

pub(crate) use current::StoreRecord;
