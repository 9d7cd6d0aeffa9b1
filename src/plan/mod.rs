//! The planner.
#![allow(dead_code)]
mod constraints;
mod cost;
mod dp;
mod milp;
mod objective;
mod options;
mod path;
mod problem;
pub mod solver;
mod space;
mod steps;
mod variables;
pub use problem::Problem;
