//! From a schedule of counts to a plan on named nodes.

pub mod choice;
pub mod evaluate;
pub mod extract;
mod ground;
mod near;
pub mod seats;
mod seeker;
