//! What people read: sentences (`words`), pictures (`charts`), tables and bars for the terminal, exit codes.

pub mod bars;
pub mod charts;
pub mod curve;
pub mod days;
pub mod exit;
pub mod filter;
pub mod hidden;
pub mod input;
pub mod output;
pub mod progress;
#[cfg(test)]
mod samples;
pub mod table;
pub mod values;
pub mod words;
