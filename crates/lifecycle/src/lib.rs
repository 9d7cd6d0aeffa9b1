//! The life of one malleable job: a pure state machine that moves its workers from generation to generation.
//!
//! Inputs are what agents report ([`JobLifecycle::hello`], [`JobLifecycle::event`]), what Slurm shows
//! ([`JobLifecycle::observe`]) and what the planner wants ([`JobLifecycle::set_target`]). Outputs are
//! [`Effect`]s on Slurm, returned by [`JobLifecycle::step`], and what each worker shall do now
//! ([`JobLifecycle::directive`]), which is derived from the state and so can be asked any number of times.
//! Nothing is an edge: an effect whose result Slurm does not show is returned again after a while, and a
//! state read back from the store goes on where it was.
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

mod agent_event;
mod backoff;
mod directive;
mod effect;
mod effect_failure;
mod extension;
pub mod fleet;
mod hello;
mod job_lifecycle;
mod lead_absence;
mod lease_limits;
mod live_command;
mod node_loss;
mod node_trials;
mod observe;
mod observed_job;
mod obstacles;
mod phase;
mod record;
mod regrouping;
mod settings;
mod step;
mod stopping;
mod target;
#[cfg(test)]
mod tests;
mod time_limit;
mod view;
mod wing_cleanup;
mod wings;
mod worker;

pub use backoff::RetryBackoff;
pub(crate) use effect::StepOutcome;
pub use effect::{Effect, EffectKind, MemoryOverflow};
pub(crate) use extension::main_job_nodes;
pub use hello::{AuthenticatedHello, MAX_GENERATION};
pub use job_lifecycle::{Generation, JobCounters, JobLifecycle, LeadSubmission, Target};
pub use node_trials::NodeTrials;
pub(crate) use observed_job::{ObservedJob, StartConditions};
pub(crate) use obstacles::JobObstacles;
pub use phase::{JobPhase, NextGeneration, StopReason};
pub use settings::CALM_SECS;
pub(crate) use settings::CLAIM_SECS;
pub use settings::{JOIN_SECS, PREEMPTED_BACKOFF_MAX_SECS, PREEMPTED_BACKOFF_SECS};
pub(crate) use settings::{LifecycleSettings, START_SECS};
pub use target::OrderNumbers;
pub(crate) use target::TargetContext;
pub(crate) use worker::Worker;
pub use worker::{LiveState, Wing};
