//! The search for a good schedule without a solver, and for the bound that says how good it is.

pub(crate) mod alike;
pub(crate) mod branch;
mod draws;
pub(crate) mod exchange;
pub(crate) mod first_step;
pub(crate) mod in_hand;
pub(crate) mod known;
pub(crate) mod path;
pub(crate) mod pool;
pub(crate) mod prices;
pub(crate) mod rebuild;
mod reroute;
pub(crate) mod starts;
pub(crate) mod sweep;
mod wavering;

#[cfg(test)]
mod tests;
