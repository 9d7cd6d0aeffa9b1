//! The life of one malleable job: a pure state machine that moves its workers from generation to generation.
//!
//! Inputs are what agents report ([`Machine::hello`], [`Machine::event`]), what Slurm shows
//! ([`Machine::observe`]) and what the planner wants ([`Machine::set_target`]). Outputs are [`Effect`]s on
//! Slurm, returned by [`Machine::step`], and what each worker shall do now ([`Machine::directive`]), which is
//! derived from the state and so can be asked any number of times. Nothing is an edge: an effect whose result
//! Slurm does not show is returned again after a while, and a state read back from the store goes on where it
//! was.
//!
//! ```text
//! Queued ──launch──▶ Launching ──hello──▶ Idle ──start──▶ Running ──stop──▶ Stopping ──all stopped──▶ Idle
//!   ▲                                      │              ▲  │  │ all exit 0, or too many failures
//!   └──────────── Requeueing ◀──park, move─┘   all joined │  │  └──▶ Ending ──▶ Ended
//!                                                         │  ▼ grow, shrink, loss
//!                                                       Regrouping ──cannot go on──▶ Stopping
//! ```
//!
//! A command that says that it can stay alive is not stopped when it grows, shrinks or loses members:
//! it regroups. Whatever goes wrong then ends in Stopping.

#![warn(clippy::disallowed_types)]

// The rig of the fleet's tests is the daemon's, too, and names this crate from outside.
#[cfg(test)]
extern crate self as infill_lifecycle;

mod away;
mod backoff;
mod directive;
mod effect;
mod event;
mod extension;
mod failure;
pub mod fleet;
mod hello;
mod lease;
mod limit;
mod live;
mod loss;
mod machine;
mod observe;
mod obstacles;
mod phase;
mod record;
mod regrouping;
mod settings;
mod sight;
mod step;
mod stopping;
mod target;
#[cfg(test)]
mod tests;
mod tidy;
mod trials;
mod view;
mod wings;
mod worker;

pub use backoff::Backoff;
pub(crate) use effect::Outcome;
pub use effect::{Effect, EffectKind, Overflow};
pub(crate) use extension::nodes_of_main;
pub use hello::{Arrival, MAX_GENERATION};
pub use machine::{Counts, Generation, Machine, Submitted, Target};
pub(crate) use obstacles::Obstacles;
pub use phase::{Next, Phase, StopReason};
pub use settings::CALM_SECS;
pub(crate) use settings::CLAIM_SECS;
pub use settings::{JOIN_SECS, PREEMPTED_BACKOFF_MAX_SECS, PREEMPTED_BACKOFF_SECS};
pub(crate) use settings::{START_SECS, Settings};
pub(crate) use sight::{Sight, Start};
pub(crate) use target::Ground;
pub use target::OrderNumbers;
pub use trials::Trials;
pub(crate) use worker::Worker;
pub use worker::{Live, Wing};
