//! How long Slurm has not answered, and when the way to it is opened again.

use std::time::{Duration, Instant};

/// Failed looks for this long let the reader be opened again. The waits after that double.
const FIRST_WAIT: Duration = Duration::from_secs(30);

/// Longest time between two tries to open the reader again.
const LONGEST_WAIT: Duration = Duration::from_secs(600);

/// Failed looks at Slurm in a row.
#[derive(Debug, Default)]
pub struct SlurmSilence {
    /// The first failed look; `None` while Slurm answers.
    ongoing: Option<OngoingSilence>,
}

#[derive(Debug)]
struct OngoingSilence {
    begun: Instant,
    reopen_at: Instant,
    wait: Duration,
}

impl SlurmSilence {
    /// Notes an answer.
    pub fn end(&mut self) {
        self.ongoing = None;
    }

    /// Notes a failed look. Returns how long Slurm has been silent.
    pub fn note_failure(&mut self, now: Instant) -> Duration {
        let fresh = OngoingSilence { begun: now, reopen_at: now + FIRST_WAIT, wait: FIRST_WAIT };
        now.saturating_duration_since(self.ongoing.get_or_insert(fresh).begun)
    }

    /// Whether the next look opens the reader again. `true` is said once, and then again after a longer wait.
    pub fn take_reopening(&mut self, now: Instant) -> bool {
        let Some(silence) = self.ongoing.as_mut().filter(|silence| now >= silence.reopen_at) else {
            return false;
        };
        silence.wait = silence.wait.saturating_mul(2).min(LONGEST_WAIT);
        silence.reopen_at = now + silence.wait;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reader_is_opened_again_after_longer_and_longer_waits() {
        let begun = Instant::now();
        let mut silence = SlurmSilence::default();
        assert!(!silence.take_reopening(begun), "Slurm answers");
        let mut reopened = Vec::new();
        for secs in (0..3000).step_by(10) {
            let now = begun + Duration::from_secs(secs);
            if silence.take_reopening(now) {
                reopened.push(secs);
            }
            assert_eq!(silence.note_failure(now), Duration::from_secs(secs));
        }
        assert_eq!(reopened, [30, 90, 210, 450, 930, 1530, 2130, 2730]);
        silence.end();
        assert!(!silence.take_reopening(begun + Duration::from_secs(9000)));
        assert_eq!(silence.note_failure(begun + Duration::from_secs(9000)), Duration::ZERO);
    }
}
