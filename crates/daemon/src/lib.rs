//! The daemon: thin loops around the pure core.
//!
//! `rounds` reads Slurm, plans and sets targets; `executor` carries effects out, each guarded; `ticks` lets
//! time pass for the machines; `lead` looks whether this daemon still leads. What they share is a
//! [`context::Context`]: services, and a [`state::State`] of values (fleet, scene, ledger, health) behind a
//! lock that is never held over an await.

mod allowance;
mod answers;
mod attention;
mod books;
mod chronicle;
pub mod context;
mod doors;
pub mod executor;
mod forests;
#[cfg(test)]
mod fuzz;
mod gauges;
mod health;
pub mod http;
mod lanes;
mod lead;
pub mod leadership;
mod ledger;
mod lines;
pub mod listening;
mod lookups;
mod metrics;
mod names;
pub mod notices;
mod passes;
mod planner;
mod privacy;
mod profiles;
mod recheck;
pub mod rounds;
pub mod serve;
mod sight;
pub mod state;
mod switches;
pub mod ticks;
pub mod timeline;
mod timelines;
pub mod tls;
mod told;
mod views;
mod waking;
