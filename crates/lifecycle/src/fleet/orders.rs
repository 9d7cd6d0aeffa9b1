//! Order numbers that the store has set aside: each names one order of a wing, for good.

use crate::OrderNumbers;

/// Order numbers that are reserved in the store at a time.
pub const ORDERS_AT_ONCE: u64 = 1000;

/// What is left of the numbers that the store has set aside.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Orders {
    next: u64,
    end: u64,
}

impl Orders {
    /// Whether it is time to have more set aside.
    pub fn runs_low(&self) -> bool {
        self.end - self.next <= ORDERS_AT_ONCE / 2
    }

    /// Takes a fresh block of [`ORDERS_AT_ONCE`] numbers from `first` on.
    pub fn refill(&mut self, first: u64) {
        *self = Orders { next: first, end: first.saturating_add(ORDERS_AT_ONCE) };
    }
}

impl OrderNumbers for Orders {
    fn next(&mut self) -> Option<u64> {
        (self.next < self.end).then(|| {
            self.next += 1;
            self.next - 1
        })
    }
}
