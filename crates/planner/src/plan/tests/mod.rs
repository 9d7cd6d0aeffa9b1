//! Tests of the planner as a whole, and the worlds that they use.

mod blocks;
mod crowds;
mod hosts;
mod learned;
mod promises;
mod random;
pub mod random_worlds;
mod scenarios;
mod shares;
mod switches;
mod timing;
pub mod worlds;
