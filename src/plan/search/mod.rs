//! The search for a good schedule without a solver, and for the bound that says how good it is.

pub mod exchange;
pub mod in_hand;
pub mod knapsack;
pub mod path;
pub mod pool;
pub mod prices;
