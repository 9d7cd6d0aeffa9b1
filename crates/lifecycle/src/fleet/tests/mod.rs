//! Tests of the fleet: every input in every phase, repeated and contradictory inputs, and random inputs.

mod bounds;
mod memory;
mod orphans;
pub mod rig;
mod starts;
mod storm;
mod table;
mod twice;
mod versions;
