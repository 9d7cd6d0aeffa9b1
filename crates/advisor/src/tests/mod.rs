//! The advisor as a whole: curves against tables, drifts, stalls, many trials of one script.

mod curves;
mod layers;
mod library;
mod plans;
mod programs;
mod types;
