//! Tests of whole lifecycles, and of every input in every phase.

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
mod pinning;
mod probing;
mod recorded;
mod rig;
mod secrets;
mod starting;
mod table;
mod trying;
mod versions;
mod waiting;
