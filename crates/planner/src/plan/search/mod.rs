//! The search for a good schedule without a solver, and for the bound that says how good it is.

pub mod alike;
pub mod branch;
pub mod exchange;
pub mod first_step;
pub mod in_hand;
pub mod known;
pub mod path;
pub mod pool;
pub mod prices;
pub mod starts;
pub mod sweep;
mod wavering;

#[cfg(test)]
mod tests;
