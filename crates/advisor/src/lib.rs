//! The job profiling advisor: how a job scales, learned while it trains, and which size is worth trying next.
//! Pure.
//!
//! ```text
//! progress ─▶ meter ─▶ stretch ─▶ learn ─▶ points of a profile ─▶ fit ─▶ curve ─▶ planner
//!             (rates,  (a rate with        (by size; drift)       │
//!              warm-up) an interval)                              └─▶ worth: the size whose uncertainty
//!              costs most
//! ```
//!
//! Every second of every allocation is a measurement. A probe is the planner's own choice of a size, made
//! attractive by what it would teach: it lives in gaps and leaves in time like everything else.

#![warn(clippy::disallowed_types)]

mod basis;
mod belief;
mod believed;
mod contention;
mod costs;
mod estimates;
mod gaussian_process;
mod layer_estimates;
mod learn;
pub mod length;
mod library;
mod meter;
mod models;
mod noise;
mod offers;
mod plan_curve;
pub mod plans;
mod probing;
mod profiles;
mod program;
mod prospect;
mod rate;
mod room;
mod scaling;
mod site_speeds;
mod spread;
pub mod stops;
mod subject;
mod supply;
#[cfg(test)]
mod tests;
pub mod trial;
pub mod types;
mod watching;
mod worth;

pub use contention::SharedSaves;
pub use estimates::RateEstimate;
pub use learn::batch_mode;

pub use library::Library;
pub use meter::Stretch;
pub use offers::{Lack, Offer};
pub use probing::Aim;
pub use rate::Rate;
pub use room::Room;
pub use scaling::{Estimate, Fitted, Scaling, sizes_of_interest};
pub use spread::Slowdown;
pub use subject::{News, Subject};
pub use worth::{Candidate, Elsewhere, Stakes, best_probe};
