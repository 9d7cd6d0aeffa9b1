//! From a schedule of counts to a plan on named nodes.

pub mod choice;
pub mod evaluate;
pub mod extract;
pub mod seats;
