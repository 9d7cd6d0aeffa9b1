//! A round, once for all who make rounds: what Slurm shows and what is known of the jobs → what the planner
//! is asked → a plan that the checker has passed.
//!
//! The daemon, the simulator, the scenarios and the benches feed one [`Scene`] with [`JobFacts`]; they differ
//! in where their jobs and nodes come from, and in nothing else. [`Scene::look`] takes in a snapshot,
//! [`Scene::question`] asks, [`Question::solve`] and [`judge`] answer.

mod assured;
mod avoiding;
pub(crate) mod breaker;
pub(crate) mod curves;
pub(crate) mod demand;
mod departures;
mod ending;
mod experience;
mod extension;
mod leaving;
mod node_times;
mod question;
mod risk;
mod rotation;
mod scene;
mod spread;
mod turns;
mod unit;
mod usage;
mod warning;

pub use experience::GAPS_TO_LEARN_FROM;
pub use question::{Judged, Question, Terms, judge};
pub use scene::{Advice, Scene};
pub use turns::{Ahead, ENDED_TO_LEARN_FROM, Turns};
pub use usage::Usage;
pub use warning::Warning;

#[cfg(test)]
mod tests;
