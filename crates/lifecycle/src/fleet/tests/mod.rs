//! Every input in every phase, inputs that come twice or contradict each other, and a storm of them.

mod bounds;
mod memory;
mod orphans;
pub mod rig;
mod starts;
mod storm;
mod table;
mod twice;
mod versions;
