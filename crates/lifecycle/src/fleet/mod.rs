//! The malleable jobs: their state machines, and what else is known of them. Pure: what happened and when
//! come in, what follows from it comes out as an [`Output`].

mod agents;
mod entry;
mod facts;
mod jobs;
mod loss;
mod meet;
mod orders;
mod output;
mod places;
mod racing;
mod requests;
mod starts;
#[cfg(test)]
mod tests;
mod word;

pub use entry::About;
pub use jobs::Fleet;
pub use orders::{ORDERS_AT_ONCE, Orders, least_order};
pub use output::{Batch, Ended, Gone, Lesson, Measured, Note, Output};
pub use word::{Agent, Word};
