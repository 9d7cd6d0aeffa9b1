//! How far the simulations are: a line for each policy that runs, on stderr, if that is a terminal.

use std::fmt::Display;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::long_duration::LongDuration;
use infill_model::duration;

/// How often the lines are drawn anew at most, a second: a simulation has millions of events.
const REDRAWS_HZ: u8 = 4;

/// Parts that a line is divided into: more than a terminal has columns.
const PARTS: f64 = 1000.0;

/// Columns for a policy's name: the longest without a number.
const LINE: &str = "{prefix:16} {wide_bar} {msg}";

/// What there is to get through.
#[derive(Clone, Copy, Debug)]
pub enum ProgressMeasure {
    /// So many seconds of a log.
    Time(f64),
    /// So many jobs.
    Jobs(usize),
}

/// All lines.
pub struct ProgressLines {
    lines: MultiProgress,
    measure: ProgressMeasure,
}

/// The line of one policy; it goes when dropped.
pub struct ProgressLine {
    bar: ProgressBar,
    measure: ProgressMeasure,
    /// When it is drawn again; `None` where nothing is drawn.
    due: Option<Instant>,
}

impl ProgressMeasure {
    /// Where in it a share is: `day 3.2 of 7`.
    fn position_text(self, share: f64) -> String {
        match self {
            ProgressMeasure::Time(secs) => LongDuration(secs).position_text(share),
            ProgressMeasure::Jobs(jobs) => format!("{:.0} of {jobs} jobs", share * jobs as f64),
        }
    }
}

impl ProgressLines {
    /// No line yet. Draws nothing where stderr is no terminal.
    pub fn new(measure: ProgressMeasure) -> Self {
        let target = ProgressDrawTarget::stderr_with_hz(REDRAWS_HZ);
        ProgressLines { lines: MultiProgress::with_draw_target(target), measure }
    }

    /// A line for a policy that begins.
    pub fn add_line(&self, policy: impl Display) -> ProgressLine {
        let style = ProgressStyle::with_template(LINE).unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::new(PARTS as u64).with_style(style.progress_chars("█▌ "));
        let bar = self.lines.add(bar.with_prefix(policy.to_string()));
        let due = (!bar.is_hidden()).then(Instant::now);
        ProgressLine { bar, measure: self.measure, due }
    }
}

impl ProgressLine {
    /// So large a share is done. Takes some nanoseconds unless the line is due.
    pub fn set_share(&mut self, share: f64) {
        let Some(due) = self.due else { return };
        let now = Instant::now();
        if now < due {
            return;
        }
        self.due = Some(now + Duration::from_secs(1) / u32::from(REDRAWS_HZ));
        self.bar.set_position((share * PARTS) as u64);
        let reached = self.measure.position_text(share);
        self.bar.set_message(match self.bar.eta() {
            // Nothing is known yet.
            Duration::ZERO => reached,
            left => format!("{reached}, {} left", duration::format_duration(left.as_secs_f64())),
        });
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
