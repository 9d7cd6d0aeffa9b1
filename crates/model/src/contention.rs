//! How much jobs that save checkpoints at the same time slow each other down.

/// The lower bounds of the classes of saves, in seconds that the quicker of two saves takes alone. Each class
/// ends where the next begins.
pub const SAVE_CLASSES: [f64; 3] = [0.0, 5.0, 30.0];

/// How much jobs that save at the same time slow each other down: contention for their file system.
///
/// While k jobs save, each proceeds at 1 / (1 + c (k − 1)) of the speed that it has alone. With c = 0 they do
/// not affect each other; with c = 1 all share one pipe. While two jobs save at once, both proceed equally.
/// So each delays the other by at most c times the seconds that the quicker one takes alone. A job that takes
/// t seconds alone, beside others that take tⱼ, finishes within
///
/// ```text
/// t + c Σⱼ min(t, tⱼ)
/// ```
///
/// whenever they begin, and in exactly that time if all begin at once. With c = 1 this is at most the sum of
/// all times. Quick saves may wait for other resources than slow ones, which move more bytes: so each class
/// of [`SAVE_CLASSES`] has its own c.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SaveContention([f64; SAVE_CLASSES.len()]);

impl SaveContention {
    /// Jobs that save do not affect each other.
    pub const NONE: SaveContention = SaveContention([0.0; SAVE_CLASSES.len()]);

    /// Takes c of each class, limited to 0 to 1. No class gets a smaller c than a quicker class.
    pub fn new(by_class: [f64; SAVE_CLASSES.len()]) -> Self {
        let mut largest = 0.0f64;
        SaveContention(by_class.map(|c| {
            largest = largest.max(c.clamp(0.0, 1.0));
            largest
        }))
    }

    /// The c of each class, ascending.
    pub fn by_class(&self) -> [f64; SAVE_CLASSES.len()] {
        self.0
    }

    /// The c of a save that takes `secs` seconds alone.
    pub fn slowdown_factor(&self, secs: f64) -> f64 {
        self.0[save_class(secs)]
    }

    /// Most seconds that two saves delay each other, if the quicker one takes `secs` seconds alone.
    pub fn max_delay_secs(&self, secs: f64) -> f64 {
        self.slowdown_factor(secs) * secs
    }
}

/// The index in [`SAVE_CLASSES`] of a save that takes `secs` seconds alone.
pub fn save_class(secs: f64) -> usize {
    SAVE_CLASSES.partition_point(|bound| *bound <= secs).saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_has_its_own_factor_and_slower_saves_never_have_a_smaller_one() {
        let learned = SaveContention::new([0.1, 0.5, 0.2]);
        assert_eq!(
            [0.0, 4.9, 5.0, 29.0, 30.0, 1e9].map(|secs| learned.slowdown_factor(secs)),
            [0.1, 0.1, 0.5, 0.5, 0.5, 0.5]
        );
        assert_eq!([2.0, 10.0].map(|secs| learned.max_delay_secs(secs)), [0.2, 5.0]);
        assert_eq!(SaveContention::new([-1.0, 7.0, 0.0]), SaveContention::new([0.0, 1.0, 1.0]));
    }
}
