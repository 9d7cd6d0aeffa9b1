//! A round, implemented once for everything that makes rounds. From what Slurm shows and the facts about the
//! jobs it makes the input of the planner. From that it makes a plan that the checker has passed.
//!
//! The daemon, the simulator, the scenarios and the benches feed one [`RoundState`] with [`JobFacts`]. They
//! differ only in where their jobs and nodes come from. [`RoundState::ingest_snapshot`] takes in a snapshot.
//! [`RoundState::round_input`] makes the input. [`RoundInput::solve_plan`] and [`check_solved_plan`] make the
//! plan.
//!
//! [`JobFacts`]: infill_model::JobFacts

pub(crate) mod breaker;
mod checkpoint_risk;
mod crossing_limits;
pub(crate) mod curves;
pub(crate) mod demand;
mod departures;
mod exclusions;
mod extended_jobs;
mod gap_history;
mod guarantees;
mod job_end;
mod node_times;
mod priorities;
mod rotation;
mod round_input;
mod round_state;
mod save_warning;
mod stop_times;
mod unit_rate;
mod usable_gaps;
mod usage;
mod user_limits;

pub use gap_history::MAX_LEARNED_GAPS;
pub use priorities::{JobPriorities, MAX_LEARNED_JOBS, RemainingWork};
pub use round_input::{CheckedPlan, RoundConstraints, RoundInput, check_solved_plan};
pub use round_state::{AdvisorMode, RoundState};
pub use save_warning::SaveWarning;
pub use usage::UserUsage;

#[cfg(test)]
mod tests;
