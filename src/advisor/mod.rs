//! The job profiling advisor: how a job scales, learned while it trains, and which size is worth trying next.
//! Pure.
//!
//! ```text
//! progress ─▶ meter ─▶ stretch ─▶ learn ─▶ points of a profile ─▶ fit ─▶ curve ─▶ planner
//!             (rates,  (a rate with        (by size; drift)       │
//!              warm-up) an interval)                              └─▶ probe: the size whose uncertainty
//!              costs most
//! ```
//!
//! Every second of every allocation is a measurement. A probe is the planner's own choice of a size, made
//! attractive by what it would teach: it lives in gaps and leaves in time like everything else.

mod basis;
pub mod costs;
pub mod fit;
mod learn;
mod library;
mod meter;
mod probe;
mod prospect;
mod rate;
#[cfg(test)]
mod tests;
pub mod trial;

pub use fit::{Estimate, Fitted, sizes_of_interest};
pub use learn::{Doubts, Learned, batch_mode, learn};
pub use library::{Library, News, Opening, Progress, Subject};
pub use meter::{Meter, Stretch};
pub use probe::{Candidate, Stakes, best_probe, value_of_probes};
pub use rate::{Rate, steady_rate};
