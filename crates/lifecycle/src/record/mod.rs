//! The stored record of a malleable job. It has its own versioned JSON format, independent of the messages
//! between agents and daemon.
//!
//! It omits data that Slurm, the agents and the planner provide again anyway: the target, and the effects
//! that were tried a moment ago.

mod current;
mod error;
mod parts;
mod read;
mod unversioned;

pub(crate) use current::StoreRecord;
