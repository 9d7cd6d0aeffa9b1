//! Wing numbers that the store has reserved. Each number identifies the order of one wing, and is never
//! reused.

use crate::WingNumbers;
use infill_model::UnixTime;

/// How many wing numbers the store reserves at a time.
pub const WING_NUMBER_BLOCK_SIZE: u64 = 1000;

/// The lowest wing number that the store may reserve now. It grows with the clock, far more quickly than
/// infill orders wings. So a store that was lost, or restored from a backup, does not hand out a number a
/// second time: agents would mistake the new order for the old one, which they have carried out. It stays
/// below 2⁵³ until the year 2242.
pub fn lowest_wing_number(now: UnixTime) -> u64 {
    now.0.max(0).unsigned_abs() << 20
}

/// The reserved numbers that are not used yet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReservedWingNumbers {
    next: u64,
    end: u64,
}

impl ReservedWingNumbers {
    /// Whether the store should reserve more numbers.
    pub fn is_running_low(&self) -> bool {
        self.end - self.next <= WING_NUMBER_BLOCK_SIZE / 2
    }

    /// Replaces the numbers by a fresh block of [`WING_NUMBER_BLOCK_SIZE`] numbers from `first` on.
    pub fn refill(&mut self, first: u64) {
        *self = ReservedWingNumbers { next: first, end: first.saturating_add(WING_NUMBER_BLOCK_SIZE) };
    }
}

impl WingNumbers for ReservedWingNumbers {
    fn next_number(&mut self) -> Option<u64> {
        if self.next >= self.end {
            return None;
        }
        let number = self.next;
        self.next += 1;
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_store_does_not_repeat_numbers() {
        let now = UnixTime(1_795_212_617);
        // More orders than infill can give in a second.
        assert!(lowest_wing_number(now + 1) > lowest_wing_number(now) + 100 * WING_NUMBER_BLOCK_SIZE);
        assert!(lowest_wing_number(UnixTime(8_589_934_591)) < 1 << 53);
        assert_eq!(lowest_wing_number(UnixTime(-5)), 0);
    }
}
