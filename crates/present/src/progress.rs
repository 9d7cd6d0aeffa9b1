//! Progress of simulations: a line on stderr for each policy that runs. Nothing is drawn where stderr is not
//! a terminal.

use std::fmt::Display;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::long_duration::LongDuration;
use infill_model::duration;

/// At most this many redraws of the lines a second: a simulation has millions of events.
const REDRAWS_HZ: u8 = 4;

/// The length of a progress bar in its own units: more than a terminal has columns.
const PARTS: f64 = 1000.0;

/// The template of a line. 16 columns fit the longest name of a policy that has no number.
const LINE: &str = "{prefix:16} {wide_bar} {msg}";

/// The whole that a simulation works through.
#[derive(Clone, Copy, Debug)]
pub enum ProgressMeasure {
    /// A log of this many seconds.
    Time(f64),
    /// This many jobs.
    Jobs(usize),
}

/// The lines of all policies that run.
pub struct ProgressLines {
    lines: MultiProgress,
    measure: ProgressMeasure,
}

/// The line of one policy. Dropping it removes the line.
pub struct ProgressLine {
    bar: ProgressBar,
    measure: ProgressMeasure,
    /// When it is drawn again. `None` where nothing is drawn.
    due: Option<Instant>,
}

impl ProgressMeasure {
    /// Where the share `share` of the whole ends: `day 3.2 of 7`.
    fn position_text(self, share: f64) -> String {
        match self {
            ProgressMeasure::Time(secs) => LongDuration(secs).position_text(share),
            ProgressMeasure::Jobs(jobs) => format!("{:.0} of {jobs} jobs", share * jobs as f64),
        }
    }
}

impl ProgressLines {
    /// Starts without lines. Draws nothing where stderr is not a terminal.
    pub fn new(measure: ProgressMeasure) -> Self {
        let target = ProgressDrawTarget::stderr_with_hz(REDRAWS_HZ);
        ProgressLines { lines: MultiProgress::with_draw_target(target), measure }
    }

    /// Adds a line for a policy that starts.
    pub fn add_line(&self, policy: impl Display) -> ProgressLine {
        let style = ProgressStyle::with_template(LINE).unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::new(PARTS as u64).with_style(style.progress_chars("█▌ "));
        let bar = self.lines.add(bar.with_prefix(policy.to_string()));
        let due = (!bar.is_hidden()).then(Instant::now);
        ProgressLine { bar, measure: self.measure, due }
    }
}

impl ProgressLine {
    /// Sets the share that is done, from 0 to 1. Takes some nanoseconds unless the line is due for a redraw.
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
            // The bar has no estimate yet.
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
