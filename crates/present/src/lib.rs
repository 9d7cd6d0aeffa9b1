//! What people read: sentences ([`phrases`]), figures ([`charts`]), tables and bars for the terminal, and
//! exit codes.

pub mod bars;
pub mod charts;
pub mod exit;
pub mod filter;
pub mod hidden;
pub mod input;
pub mod long_duration;
pub mod output;
pub mod phrases;
pub mod progress;
#[cfg(test)]
mod samples;
pub mod table;
pub mod terminal_curve;
pub mod values;
