//! How long jobs will run, predicted from similar jobs. A mixture of the last jobs of the same user, name and
//! size is pooled with a random forest, and calibrated so that its intervals hold. One distribution serves
//! both predictable jobs and others.
//!
//! On public logs the pooled distribution is better than either part. The project's benches and
//! `infill history check` show this.

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
pub use forest::{ForestError, LengthForest};
pub use length_predictor::{ForestTraining, LengthPredictor};
pub use length_score::{LengthScore, PredictableShare, score_predictions};
pub use prediction_accuracy::AccuracyCounts;
