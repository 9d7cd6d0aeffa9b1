//! Whole lives of a job, and every input in every phase.

mod away;
mod disagreeing;
mod extended;
mod growing;
mod holding;
mod leaving;
mod limits;
mod live;
mod losing;
mod moving;
mod recorded;
mod rig;
mod table;
mod trying;
mod versions;
mod waiting;
