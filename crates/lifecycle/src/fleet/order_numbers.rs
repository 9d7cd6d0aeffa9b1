//! Order numbers that the store has set aside: each names one order of a wing, for good.

use crate::OrderNumbers;
use infill_model::UnixTime;

/// Order numbers that are reserved in the store at a time.
pub const ORDER_BLOCK_SIZE: u64 = 1000;

/// The lowest number for orders that are set aside now. It grows with the clock, far more quickly than wings
/// are ordered: so a store that was lost, or restored from a copy, hands out no number a second time. Agents
/// would take the new order for the old one, which they have carried out. Stays below 2⁵³ until the year
/// 2242.
pub fn lowest_order_number(now: UnixTime) -> u64 {
    now.0.max(0).unsigned_abs() << 20
}

/// What is left of the numbers that the store has set aside.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReservedOrderNumbers {
    next: u64,
    end: u64,
}

impl ReservedOrderNumbers {
    /// Whether it is time to have more set aside.
    pub fn is_running_low(&self) -> bool {
        self.end - self.next <= ORDER_BLOCK_SIZE / 2
    }

    /// Takes a fresh block of [`ORDER_BLOCK_SIZE`] numbers from `first` on.
    pub fn refill(&mut self, first: u64) {
        *self = ReservedOrderNumbers { next: first, end: first.saturating_add(ORDER_BLOCK_SIZE) };
    }
}

impl OrderNumbers for ReservedOrderNumbers {
    fn next_number(&mut self) -> Option<u64> {
        (self.next < self.end).then(|| {
            self.next += 1;
            self.next - 1
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_begins_anew_repeats_no_number() {
        let now = UnixTime(1_795_212_617);
        // As many orders as there may be in a second.
        assert!(lowest_order_number(now + 1) > lowest_order_number(now) + 100 * ORDER_BLOCK_SIZE);
        assert!(lowest_order_number(UnixTime(8_589_934_591)) < 1 << 53);
        assert_eq!(lowest_order_number(UnixTime(-5)), 0);
    }
}
