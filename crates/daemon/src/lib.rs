//! The daemon: thin loops around the pure core.
//!
//! `rounds` reads Slurm, plans and sets targets; `executor` carries effects out, each guarded; `ticks` lets
//! time pass for the machines; `lead` looks whether this daemon still leads. What they share is a
//! [`context::Context`]: services, and a [`state::State`] of values (fleet, scene, ledger, health) behind a
//! lock that is never held over an await.

pub mod answers;
pub mod attention;
pub mod books;
pub mod chronicle;
pub mod context;
pub mod doors;
pub mod executor;
pub mod forests;
#[cfg(test)]
mod fuzz;
mod gauges;
pub mod health;
pub mod http;
pub mod lanes;
pub mod lead;
pub mod leadership;
pub mod ledger;
pub mod lines;
pub mod lookups;
pub mod metrics;
pub mod notices;
pub mod passes;
pub mod privacy;
pub mod profiles;
pub mod recheck;
pub mod rounds;
pub mod serve;
pub mod sight;
pub mod state;
pub mod switches;
pub mod ticks;
pub mod timeline;
pub mod timelines;
pub mod told;
pub mod views;
pub mod waking;
