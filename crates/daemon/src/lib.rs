//! The daemon: thin loops around the pure core.
//!
//! - `rounds` reads Slurm, plans, and sets targets.
//! - `executor` carries effects out. It guards each one.
//! - `ticks` advances the state machines of the jobs.
//! - `lead_watch` checks whether this daemon still leads.
//!
//! They share a [`context::DaemonContext`]. It holds services and a [`state::DaemonState`] of values (fleet,
//! round state, write queue, health). A lock that is never held over an await protects the state.

mod access_control;
mod agent_channels;
mod answer_cache;
mod array_splitter;
mod clock_jump;
pub mod context;
pub mod control_orders;
mod daemon_names;
mod delay_watch;
mod effect_queue;
pub mod executor;
mod forest_training;
#[cfg(test)]
mod fuzz;
mod gauges;
mod health;
mod history_writer;
mod hour_cache;
pub mod http;
mod lead_watch;
pub mod leadership;
pub mod listen_socket;
mod metrics;
mod new_job_check;
pub mod notices;
mod order_storage;
mod planner_thread;
mod privacy_watch;
mod profile_lookups;
mod profile_storage;
mod rate_limit;
mod redaction;
mod response_cache;
mod round_trigger;
pub mod rounds;
pub mod serve;
mod session_store;
pub mod state;
mod status_comments;
pub mod ticks;
pub mod timeline;
pub mod tls;
mod topology_watch;
mod usage_recorder;
mod views;
mod write_queue;
