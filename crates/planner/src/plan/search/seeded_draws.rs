//! Numbers that look drawn, but are the same in each run.

/// A counter whose hashes are the numbers: SplitMix64 (Steele, Lea and Flood 2014).
pub(super) struct SeededDraws(u64);

impl SeededDraws {
    /// Numbers of their own for each `seed`.
    pub fn new(seed: u64) -> SeededDraws {
        SeededDraws(seed)
    }

    /// A number below `count`; 0 where that is 0.
    pub fn draw_below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) % count.max(1) as u64) as usize
    }

    /// `many` different numbers below `count`, or all of them where there are fewer.
    pub fn draw_distinct(&mut self, many: usize, count: usize) -> Vec<usize> {
        let mut drawn = Vec::with_capacity(many.min(count));
        while drawn.len() < many.min(count) {
            let next = self.draw_below(count);
            if !drawn.contains(&next) {
                drawn.push(next);
            }
        }
        drawn
    }
}
