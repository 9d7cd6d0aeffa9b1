//! Whole lives of a job, and every input in every phase.

mod disagreeing;
mod losing;
mod moving;
mod recorded;
mod rig;
mod table;
