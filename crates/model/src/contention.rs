//! How much jobs that save at the same time slow each other down.

/// Saves are of one class from so many seconds on, which the quicker of two takes alone, to the next.
pub const SAVE_CLASSES: [f64; 3] = [0.0, 5.0, 30.0];

/// How much jobs that save at the same time slow each other down: the contention for their file system.
///
/// While k jobs save, each gets on at 1 / (1 + c (k − 1)) of the speed that it has alone: with c = 0 they do
/// not feel each other, with c = 1 all share one pipe. While two of them save at once, both get on equally;
/// so each holds the other up for at most c times the seconds that the quicker of both takes alone. A job
/// that takes t seconds alone is done, beside others that take tⱼ, within
///
/// ```text
/// t + c Σⱼ min(t, tⱼ)
/// ```
///
/// whenever they begin, and in exactly that time where all begin at once. With c = 1 this is no more than the
/// sum of all times. Quick saves may wait for other things than slow ones, which move more bytes: each class
/// of [`SAVE_CLASSES`] has a c of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SaveContention([f64; SAVE_CLASSES.len()]);

impl SaveContention {
    /// Jobs that save do not feel each other.
    pub const NONE: SaveContention = SaveContention([0.0; SAVE_CLASSES.len()]);

    /// With this c for each class, between 0 and 1; none less than that of a quicker class.
    pub fn new(by_class: [f64; SAVE_CLASSES.len()]) -> Self {
        let mut most = 0.0f64;
        SaveContention(by_class.map(|c| {
            most = most.max(c.clamp(0.0, 1.0));
            most
        }))
    }

    /// The c of each class.
    pub fn by_class(&self) -> [f64; SAVE_CLASSES.len()] {
        self.0
    }

    /// The c of saves that take so many seconds alone.
    pub fn slowdown_factor(&self, secs: f64) -> f64 {
        self.0[save_class(secs)]
    }

    /// Seconds by which two jobs hold each other up at most, of which the quicker takes so long alone.
    pub fn max_delay_secs(&self, secs: f64) -> f64 {
        self.slowdown_factor(secs) * secs
    }
}

/// The class of saves that take so many seconds alone.
pub fn save_class(secs: f64) -> usize {
    SAVE_CLASSES.partition_point(|least| *least <= secs).saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_has_its_own_and_slower_saves_never_feel_others_less() {
        let learned = SaveContention::new([0.1, 0.5, 0.2]);
        assert_eq!(
            [0.0, 4.9, 5.0, 29.0, 30.0, 1e9].map(|t| learned.slowdown_factor(t)),
            [0.1, 0.1, 0.5, 0.5, 0.5, 0.5]
        );
        assert_eq!((learned.max_delay_secs(2.0), learned.max_delay_secs(10.0)), (0.2, 5.0));
        assert_eq!(SaveContention::new([-1.0, 7.0, 0.0]), SaveContention::new([0.0, 1.0, 1.0]));
    }
}
