//! From a schedule of counts to a plan on named nodes.

mod budget;
pub(crate) mod choice;
pub(crate) mod evaluate;
pub(crate) mod extract;
mod ground;
pub(crate) mod keeping;
mod near;
mod pool;
pub(crate) mod seats;
mod seeker;
pub(crate) mod spread;
mod taking;
