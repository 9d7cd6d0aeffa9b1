//! How long jobs will run, by what those that were alike did: a mixture of the last ones of the same user,
//! name and size, pooled with a random forest, and held to what its intervals promise. One distribution
//! serves jobs that can be predicted and such that cannot.
//!
//! On public logs the two pooled are better than either (the project's benches and `infill history check`).

mod calibration;
mod distribution;
mod forest;
mod history;
mod outlook;
mod pooled;
mod score;
mod trueness;
mod walk;
mod word;

pub use distribution::Lengths;
pub use forest::{Forest, ForestError};
pub use outlook::{Ground, Outlook};
pub use score::{Predictable, Score, score};
pub use trueness::Tally;
pub use walk::{Predicted, Walk, walk};
