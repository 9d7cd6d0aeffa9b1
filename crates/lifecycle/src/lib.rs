//! The life of one malleable job: a pure state machine that moves its workers from generation to generation.
//!
//! Inputs are reports of agents ([`JobLifecycle::handle_hello`], [`JobLifecycle::handle_event`]),
//! observations of Slurm ([`JobLifecycle::apply_observation`]) and plans ([`JobLifecycle::set_target`]).
//! Outputs are [`Effect`]s on Slurm, from [`JobLifecycle::step`], and a directive for each worker
//! ([`JobLifecycle::directive_for`]). A directive is derived from the state, so callers can ask for it any
//! number of times. All outputs are levels, not edges: an effect whose result Slurm does not show is returned
//! again after a while, and a state that was read from the store continues where it was.
//!
//! ```text
//! Queued ─launch─▶ Launching ─hello─▶ Assembling ─start─▶ Running ─stop─▶ Stopping ─all stopped─▶ Assembling
//!   ▲                                    │                 ▲  │  │ all exit 0, or too many failures
//!   └─────────── Requeueing ◀─park, move─┘      all joined │  │  └──▶ Ending ──▶ Ended
//!                                                          │  ▼ grow, shrink, loss
//!                                                        Regrouping ──cannot go on──▶ Stopping
//! ```
//!
//! A command that can stay alive is not stopped when the job grows, shrinks or loses members: it regroups.
//! Any failure of that leads to Stopping.

#![warn(clippy::disallowed_types)]

// The daemon's tests include the rig of the fleet's tests, too. So the rig refers to this crate by its name.
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
pub(crate) use target::TargetContext;
pub use target::WingNumbers;
pub use worker::{LiveState, Wing};
