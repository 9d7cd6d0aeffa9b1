//! Adds up the reports of a generation's workers, and cuts the series into stretches. Each stretch is one
//! measurement.

use std::collections::BTreeMap;

use super::rate::{CombinedReport, MIN_REPORTS, SteadyRate, steady_rate};
use infill_model::NodeName;

/// A stretch ends early when its relative standard error is at most this: it then has [`ENOUGH_REPORTS`]
/// regular reports, its minimum length, and no outliers.
const MAX_PRECISE_ERROR: f64 = 0.012;

/// Reports on which a rate should rest.
const ENOUGH_REPORTS: usize = 6;

/// Shortest stretch, seconds, unless its generation ends. A shorter one would only show what the job did just
/// then.
const MIN_SECS: f64 = 5.0;

/// Shortest first stretch of a generation, seconds, unless the generation ends: a cold cache may be steady
/// for a while.
const MIN_FIRST_SECS: f64 = 12.0;

/// Smallest relative error of a generation's first stretch if it rests on less than [`MIN_SECS`].
const MIN_HASTY_ERROR: f64 = 0.1;

/// Length from which a stretch is accepted even if its error is still large, seconds.
const ACCEPT_AFTER_SECS: f64 = 15.0;

/// The same length for the first stretch of a generation, which may begin with a warm-up.
const ACCEPT_FIRST_AFTER_SECS: f64 = 30.0;

/// Longest series that is kept. Many short reports, or reports without samples, would fill it without end.
const MAX_REPORTS: usize = 256;

/// A worker is no longer waited for when the others have reported for this many seconds without it.
const WAIT_SECS: f64 = 90.0;

/// One measurement of a job's rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateStretch {
    /// The steady rate, samples a second.
    pub rate: SteadyRate,
    /// All samples of the stretch, warm-up and outliers included.
    pub samples: f64,
    /// The duration of the whole stretch, seconds.
    pub secs: f64,
    /// Samples of one step, where the job reports steps.
    pub step_samples: Option<f64>,
    /// Whether it is the first of its generation. Only a first stretch can have a warm-up.
    pub first: bool,
    /// Seconds of the generation that were measured before and in this stretch. Opening reports do not count.
    pub age_secs: f64,
}

/// What one worker has reported and the others have not yet.
#[derive(Clone, Copy, Debug, Default)]
struct OpenReport {
    samples: f64,
    secs: f64,
}

/// The reports of one generation.
#[derive(Clone, Debug, Default)]
pub(crate) struct RateMeter {
    open: BTreeMap<NodeName, OpenReport>,
    series: Vec<CombinedReport>,
    /// The first step, the last step, and the samples between them.
    steps: Option<(u64, u64, f64)>,
    /// Whether any worker has reported samples. Until then the steps of one worker count as samples, because
    /// all workers take the same steps.
    has_samples: bool,
    last_steps: BTreeMap<NodeName, u64>,
    age_secs: f64,
    /// Whether the generation has had a stretch.
    has_stretch: bool,
}

impl RateMeter {
    /// Takes in what a worker did in some seconds of its own clock, and the step that it has reached. Returns
    /// a measurement when a stretch is complete.
    pub fn add_report(
        &mut self,
        node: &NodeName,
        samples: f64,
        secs: f64,
        step: Option<u64>,
    ) -> Option<RateStretch> {
        if !(secs > 0.0 && secs.is_finite() && samples >= 0.0 && samples.is_finite()) {
            return None;
        }
        if !self.open.contains_key(node) && !self.series.is_empty() {
            // The earlier reports lack this worker's share.
            self.restart_series();
        }
        let samples = self.report_samples(node, samples, step);
        let open = self.open.entry(node.clone()).or_default();
        open.samples += samples;
        open.secs += secs;
        self.steps = match (self.steps, step) {
            (Some((first, last, between)), step) => {
                Some((first, last.max(step.unwrap_or(0)), between + samples))
            }
            (None, Some(step)) => Some((step, step, 0.0)),
            (None, None) => None,
        };
        self.close_report();
        self.take_if_complete()
    }

    /// Ends the stretch of a generation that ends, and returns its measurement.
    pub fn finish_stretch(&mut self) -> Option<RateStretch> {
        self.cut_stretch()
    }

    /// The steady rate so far of the current stretch.
    pub fn current_rate(&self) -> Option<SteadyRate> {
        steady_rate(&self.series, !self.has_stretch)
    }

    /// The number of workers that report.
    pub fn workers(&self) -> usize {
        self.open.len()
    }

    /// The samples of a report, or its steps where the job reports no samples.
    fn report_samples(&mut self, node: &NodeName, samples: f64, step: Option<u64>) -> f64 {
        self.has_samples |= samples > 0.0;
        if self.has_samples {
            return samples;
        }
        let last_step = step.and_then(|step| self.last_steps.insert(node.clone(), step));
        let is_counted_worker = self.last_steps.keys().next() == Some(node);
        match (step, last_step) {
            (Some(step), Some(last)) if is_counted_worker => step.saturating_sub(last) as f64,
            _ => 0.0,
        }
    }

    fn restart_series(&mut self) {
        self.series.clear();
        self.steps = None;
        self.open.values_mut().for_each(|o| *o = OpenReport::default());
    }

    /// Combines the workers' reports into one once each has something.
    fn close_report(&mut self) {
        let longest = self.open.values().map(|o| o.secs).fold(0.0, f64::max);
        if longest > WAIT_SECS {
            let before = self.open.len();
            self.open.retain(|_, o| o.secs > 0.0);
            if self.open.len() < before {
                // The earlier reports include the share of a worker that is gone.
                self.series.clear();
                self.steps = None;
            }
        }
        if self.open.values().any(|o| o.secs <= 0.0) {
            return;
        }
        // Workers step together, so their rates add up even where their reports have different lengths.
        let rate: f64 = self.open.values().map(|o| o.samples / o.secs).sum();
        let secs = self.open.values().map(|o| o.secs).sum::<f64>() / self.open.len() as f64;
        self.age_secs += secs;
        if self.series.len() < MAX_REPORTS {
            self.series.push(CombinedReport { secs, samples: rate * secs });
        }
        self.open.values_mut().for_each(|o| *o = OpenReport::default());
    }

    fn take_if_complete(&mut self) -> Option<RateStretch> {
        let secs: f64 = self.series.iter().map(|r| r.secs).sum();
        if secs < MIN_SECS || self.series.len() < MIN_REPORTS {
            return None;
        }
        let rate = self.current_rate();
        let regular = rate.map_or(0, |r| self.series.len() - r.warmup - r.outliers);
        let (min_secs, accept_after_secs) = if self.has_stretch {
            (MIN_SECS, ACCEPT_AFTER_SECS)
        } else {
            (MIN_FIRST_SECS, ACCEPT_FIRST_AFTER_SECS)
        };
        let is_narrow =
            rate.is_some_and(|r| r.error <= MAX_PRECISE_ERROR && r.secs >= min_secs && r.outliers == 0);
        let is_precise = is_narrow && regular >= ENOUGH_REPORTS;
        let is_long = secs >= accept_after_secs && regular >= MIN_REPORTS;
        if is_precise || is_long || self.series.len() >= MAX_REPORTS { self.cut_stretch() } else { None }
    }

    fn cut_stretch(&mut self) -> Option<RateStretch> {
        let first = !self.has_stretch;
        let mut rate = self.current_rate();
        if let Some(rate) = rate.as_mut().filter(|rate| first && rate.secs < MIN_SECS) {
            rate.error = rate.error.max(MIN_HASTY_ERROR);
        }
        let (samples, secs) = self.series.iter().fold((0.0, 0.0), |(n, s), r| (n + r.samples, s + r.secs));
        let step_samples = self.step_samples();
        let age_secs = self.age_secs;
        let stretch = rate.map(|rate| RateStretch { rate, samples, secs, step_samples, first, age_secs });
        self.series.clear();
        self.steps = self.steps.map(|(_, last, _)| (last, last, 0.0));
        self.has_stretch |= stretch.is_some();
        stretch
    }

    /// Mean samples of a step; `None` where no step was completed.
    fn step_samples(&self) -> Option<f64> {
        let (first, last, samples) = self.steps?;
        let steps = last.saturating_sub(first);
        (steps > 0 && samples > 0.0).then(|| samples / steps as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn n(i: u32) -> NodeName {
        NodeName::new(format!("n{i}"))
    }

    #[test]
    fn workers_are_added_up() {
        let mut meter = RateMeter::default();
        let mut got = None;
        for i in 0..20_u64 {
            for node in 1..=2 {
                got = got.or(meter.add_report(&n(node), 50.0, 1.0, Some(i)));
            }
        }
        let stretch = got.unwrap();
        assert!((stretch.rate.rate - 100.0).abs() < 1e-9, "{stretch:?}");
        assert!(stretch.first);
        assert!(stretch.secs <= 13.0, "{stretch:?}");
    }

    #[test]
    fn a_later_worker_restarts_the_series() {
        let mut meter = RateMeter::default();
        for _ in 0..4 {
            assert_eq!(meter.add_report(&n(1), 50.0, 1.0, None), None);
        }
        let mut got = None;
        for _ in 0..20 {
            got = got.or(meter.add_report(&n(2), 50.0, 1.0, None));
            got = got.or(meter.add_report(&n(1), 50.0, 1.0, None));
        }
        assert!((got.unwrap().rate.rate - 100.0).abs() < 1e-9);
    }

    #[test]
    fn a_silent_worker_is_not_waited_for() {
        let mut meter = RateMeter::default();
        let _ = meter.add_report(&n(1), 50.0, 1.0, None);
        let _ = meter.add_report(&n(2), 50.0, 1.0, None);
        let got = (0..150).find_map(|_| meter.add_report(&n(1), 50.0, 1.0, None)).unwrap();
        assert!((got.rate.rate - 50.0).abs() < 1.0, "{got:?}");
    }

    #[test]
    fn steps_serve_where_no_samples_are_reported() {
        let mut meter = RateMeter::default();
        let reports = (0..20_u64).flat_map(|i| [(n(1), i), (n(2), i)]);
        let got =
            reports.filter_map(|(node, i)| meter.add_report(&node, 0.0, 1.0, Some(4 * i))).next().unwrap();
        assert!((got.rate.rate - 4.0).abs() < 0.4, "{got:?}");
    }

    #[test]
    fn invalid_reports_are_ignored_and_memory_is_bounded() {
        let mut meter = RateMeter::default();
        for (samples, secs) in [(1.0, 0.0), (1.0, -1.0), (f64::NAN, 1.0), (1.0, f64::INFINITY), (-1.0, 1.0)] {
            assert_eq!(meter.add_report(&n(1), samples, secs, None), None);
        }
        for _ in 0..100_000 {
            let _ = meter.add_report(&n(1), 0.0, 1e-9, None);
        }
        assert!(meter.series.len() <= MAX_REPORTS);
    }
}
