//! How long jobs will run, by what those that were alike did: a mixture of the last ones of the same user,
//! name and size, pooled with a random forest, and held to what its intervals promise. One distribution
//! serves jobs that can be predicted and such that cannot.
//!
//! On public logs the two pooled are better than either (the project's benches and `infill history check`).

mod backtest;
mod calibration;
mod distribution;
mod forest;
mod forest_pooling;
mod length_history;
mod length_predictor;
mod length_score;
mod prediction_accuracy;
mod user_estimate;

pub use backtest::{BacktestConfig, PredictedJob, run_backtest};
pub use distribution::LengthDistribution;
pub use forest::{Forest, ForestError};
pub use length_predictor::{ForestTraining, LengthPredictor};
pub use length_score::{LengthScore, PredictableShare, score_predictions};
pub use prediction_accuracy::AccuracyCounts;
