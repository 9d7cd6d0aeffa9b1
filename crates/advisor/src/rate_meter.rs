//! Adds up the reports of a generation's workers, and cuts them into stretches that each make one
//! measurement.

use std::collections::BTreeMap;

use super::rate::{FEWEST_REPORTS, RateReport, SteadyRate, steady_rate};
use infill_model::NodeName;

/// A stretch whose rate is known so well (relative standard error) is long enough, once it has
/// [`ENOUGH_REPORTS`].
pub(crate) const NARROW_ERROR: f64 = 0.012;

/// Reports that a rate should rest on.
const ENOUGH_REPORTS: usize = 6;

/// Seconds of a stretch at least: shorter ones would see only what the job did just then.
const SHORTEST_SECS: f64 = 5.0;

/// The same for the first of a generation: a cold cache may be steady for a while.
const SHORTEST_FIRST_SECS: f64 = 12.0;

/// What is measured in less time at a generation's start may be in error by so much.
const HASTY_ERROR: f64 = 0.1;

/// Seconds of a stretch that still is not narrow: it is taken as it is.
const LONGEST_SECS: f64 = 15.0;

/// The same for the first of a generation, which may begin with a warm-up.
const LONGEST_FIRST_SECS: f64 = 30.0;

/// Longest series that is kept; slow programs report so seldom that time alone would never bound it.
const MOST_REPORTS: usize = 256;

/// A worker that reported and has not for so many seconds of the others' is no longer waited for.
const WAIT_SECS: f64 = 90.0;

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stretch {
    /// The rate.
    pub rate: SteadyRate,
    /// All samples of the stretch, warm-up and outliers included.
    pub samples: f64,
    /// All seconds of the stretch.
    pub secs: f64,
    /// Samples of one step, where the job counts steps.
    pub step_samples: Option<f64>,
    /// Whether it is the first of its generation: only there warm-up is looked for.
    pub first: bool,
    /// Seconds since the generation's first report.
    pub age_secs: f64,
}

/// What one worker has reported that the others have not yet.
#[derive(Clone, Copy, Debug, Default)]
struct OpenReport {
    samples: f64,
    secs: f64,
}

/// The reports of one generation.
#[derive(Clone, Debug, Default)]
pub(crate) struct RateMeter {
    open: BTreeMap<NodeName, OpenReport>,
    series: Vec<RateReport>,
    /// The first step and the last, and the samples between them.
    steps: Option<(u64, u64, f64)>,
    /// Whether any worker has told samples. Until then steps count as samples, of one worker only: all take
    /// the same.
    sampled: bool,
    last_steps: BTreeMap<NodeName, u64>,
    age_secs: f64,
    later: bool,
}

impl RateMeter {
    /// Takes in what a worker did in some seconds of its own clock, and the step it is at. Returns a
    /// measurement when a stretch is complete.
    pub fn add_report(
        &mut self,
        node: &NodeName,
        samples: f64,
        secs: f64,
        step: Option<u64>,
    ) -> Option<Stretch> {
        if !(secs > 0.0 && secs.is_finite() && samples >= 0.0 && samples.is_finite()) {
            return None;
        }
        if !self.open.contains_key(node) && !self.series.is_empty() {
            // What came before lacks this worker's share.
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

    /// What was measured since the last stretch, for a generation that ends.
    pub fn finish_stretch(&mut self) -> Option<Stretch> {
        self.cut_stretch()
    }

    /// The steady rate so far of the stretch that is going on.
    pub fn current_rate(&self) -> Option<SteadyRate> {
        steady_rate(&self.series, !self.later)
    }

    /// Workers that report.
    pub fn workers(&self) -> usize {
        self.open.len()
    }

    /// The samples of a report, or its steps where the job tells no samples.
    fn report_samples(&mut self, node: &NodeName, samples: f64, step: Option<u64>) -> f64 {
        self.sampled |= samples > 0.0;
        if self.sampled {
            return samples;
        }
        let before = step.and_then(|step| self.last_steps.insert(node.clone(), step));
        let speaks = self.last_steps.keys().next() == Some(node);
        match (step, before) {
            (Some(step), Some(before)) if speaks => step.saturating_sub(before) as f64,
            _ => 0.0,
        }
    }

    fn restart_series(&mut self) {
        self.series.clear();
        self.steps = None;
        self.open.values_mut().for_each(|o| *o = OpenReport::default());
    }

    /// Makes one report of all workers' once each has something.
    fn close_report(&mut self) {
        let longest = self.open.values().map(|o| o.secs).fold(0.0, f64::max);
        if longest > WAIT_SECS {
            let before = self.open.len();
            self.open.retain(|_, o| o.secs > 0.0);
            if self.open.len() < before {
                // What came before holds its share.
                self.series.clear();
                self.steps = None;
            }
        }
        if self.open.values().any(|o| o.secs <= 0.0) {
            return;
        }
        // Workers step together, so their rates add up even where their reports are of different lengths.
        let rate: f64 = self.open.values().map(|o| o.samples / o.secs).sum();
        let secs = self.open.values().map(|o| o.secs).sum::<f64>() / self.open.len() as f64;
        self.age_secs += secs;
        if self.series.len() < MOST_REPORTS {
            self.series.push(RateReport { secs, samples: rate * secs });
        }
        self.open.values_mut().for_each(|o| *o = OpenReport::default());
    }

    fn take_if_complete(&mut self) -> Option<Stretch> {
        let secs: f64 = self.series.iter().map(|r| r.secs).sum();
        if secs < SHORTEST_SECS || self.series.len() < FEWEST_REPORTS {
            return None;
        }
        let rate = self.current_rate();
        let regular = rate.map_or(0, |r| self.series.len() - r.warmup - r.outliers);
        let shortest = if self.later { SHORTEST_SECS } else { SHORTEST_FIRST_SECS };
        let narrow = rate.is_some_and(|r| r.error <= NARROW_ERROR && r.secs >= shortest && r.outliers == 0);
        let longest = if self.later { LONGEST_SECS } else { LONGEST_FIRST_SECS };
        let full = secs >= longest && regular >= FEWEST_REPORTS;
        let done = (narrow && regular >= ENOUGH_REPORTS) || full || self.series.len() >= MOST_REPORTS;
        if done { self.cut_stretch() } else { None }
    }

    fn cut_stretch(&mut self) -> Option<Stretch> {
        let rate = self.current_rate().map(|r: SteadyRate| match !self.later && r.secs < SHORTEST_SECS {
            true => SteadyRate { error: r.error.max(HASTY_ERROR), ..r },
            false => r,
        });
        let (samples, secs) = self.series.iter().fold((0.0, 0.0), |(n, s), r| (n + r.samples, s + r.secs));
        let stretch = rate.map(|rate| Stretch {
            rate,
            samples,
            secs,
            step_samples: self.steps.and_then(|(first, last, between): (u64, u64, f64)| {
                let steps = last.saturating_sub(first);
                (steps > 0 && between > 0.0).then(|| between / steps as f64)
            }),
            first: !self.later,
            age_secs: self.age_secs,
        });
        self.series.clear();
        self.steps = self.steps.map(|(_, last, _)| (last, last, 0.0));
        self.later |= stretch.is_some();
        stretch
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
    fn a_worker_that_comes_later_makes_a_new_beginning() {
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
    fn one_that_falls_silent_is_not_waited_for() {
        let mut meter = RateMeter::default();
        let _ = meter.add_report(&n(1), 50.0, 1.0, None);
        let _ = meter.add_report(&n(2), 50.0, 1.0, None);
        let got = (0..150).find_map(|_| meter.add_report(&n(1), 50.0, 1.0, None)).unwrap();
        assert!((got.rate.rate - 50.0).abs() < 1.0, "{got:?}");
    }

    #[test]
    fn steps_serve_where_no_samples_are_told() {
        let mut meter = RateMeter::default();
        let reports = (0..20_u64).flat_map(|i| [(n(1), i), (n(2), i)]);
        let got =
            reports.filter_map(|(node, i)| meter.add_report(&node, 0.0, 1.0, Some(4 * i))).next().unwrap();
        assert!((got.rate.rate - 4.0).abs() < 0.4, "{got:?}");
    }

    #[test]
    fn senseless_reports_are_ignored_and_memory_is_bounded() {
        let mut meter = RateMeter::default();
        for (samples, secs) in [(1.0, 0.0), (1.0, -1.0), (f64::NAN, 1.0), (1.0, f64::INFINITY), (-1.0, 1.0)] {
            assert_eq!(meter.add_report(&n(1), samples, secs, None), None);
        }
        for _ in 0..100_000 {
            let _ = meter.add_report(&n(1), 0.0, 1e-9, None);
        }
        assert!(meter.series.len() <= MOST_REPORTS);
    }
}
