//! The result of a run: its numbers, the promises that it broke, and how they are shown.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;

use super::drive::Plan;
use super::faults::Past;
use super::gauge::{Gauge, Look};
use super::queue::Queue;
use super::spec::Spec;

/// Longest that the 99th percentile of main jobs may be late, beyond prolog and epilog, seconds.
const P99_SECS: f64 = 1.0;

/// The case of main jobs that waited while nothing was broken.
const ALL_WELL: &str = "nothing broken";

/// With fewer main jobs than this, a run has no 99th percentile.
const ENOUGH_FOR_P99: usize = 100;

/// A fault is mentioned if it ended at most this long before a late main job came, seconds.
const LATELY_SECS: f64 = 60.0;

/// Steps that one job repeated.
#[derive(Clone, Debug, Default)]
pub struct Losses {
    /// Steps that it has reached.
    pub steps: u64,
    /// Steps repeated after it had saved. There must be none.
    pub saved_lost: Vec<u64>,
    /// Steps repeated since its own checkpoint, when it could not save.
    pub unsaved: Vec<u64>,
    /// Steps repeated from before its own last checkpoint. There must be none.
    pub too_many: Vec<u64>,
}

/// The result of a run on one site.
#[derive(Clone, Debug, Serialize)]
pub struct Balance {
    /// The site.
    pub site: String,
    /// What is special about the site.
    pub about: String,
    /// Seconds of main queue and faults.
    pub secs: f64,
    /// Faults by kind.
    pub faults: BTreeMap<String, u32>,
    /// Seconds from submission to start on the empty cluster.
    pub calm_secs: f64,
    /// By how much each main job was late, seconds, in order of submission.
    pub delays: Vec<f64>,
    /// The same delays, by what was broken while the main job waited.
    pub cases: BTreeMap<String, Vec<f64>>,
    /// Main jobs that Slurm requeued before they began. Their delay is unknown.
    pub requeued: usize,
    /// Main jobs that waited for sleeping nodes. Their delay is unknown.
    pub slept: usize,
    /// Steps that the malleable jobs did.
    pub steps: u64,
    /// Number of times that a command ended without having saved, and the steps repeated then.
    pub unsaved: Vec<u64>,
    /// The daemon's use of memory, descriptors and tables.
    pub looks: Vec<Look>,
    /// The broken promises.
    pub broken: Vec<String>,
    #[serde(skip)]
    hard_faults: usize,
}

impl Balance {
    /// Faults and delays.
    pub fn new(spec: &Spec, plan: &Plan, queue: &Queue<'_>, past: &[Past]) -> Balance {
        let mut faults = BTreeMap::new();
        for fault in past {
            *faults.entry(format!("{:?}", fault.kind)).or_default() += 1;
        }
        let mut balance = Balance {
            calm_secs: queue.calm_secs(),
            faults,
            hard_faults: past.iter().filter(|f| f.kind.takes_work()).count(),
            ..Balance::nothing(spec, plan)
        };
        for (id, secs) in queue.delays() {
            let most_secs = plan.most_late_secs;
            if secs > most_secs {
                let why = circumstances(queue, id, past);
                let late = format!("main job {id} was {secs:.2} s late; at most {most_secs} s are allowed");
                balance.broken.push(format!("{late}{why}"));
            }
            balance.delays.push(secs);
            balance.cases.entry(case(queue, id, past).to_owned()).or_default().push(secs);
        }
        balance.requeued = queue.requeued().len();
        balance.slept = queue.slept().len();
        if balance.slept > 0 {
            eprintln!(
                "site {}: {} main jobs waited while nodes were switched off or on",
                spec.name, balance.slept
            );
        }
        let nodes_broke = past.iter().filter(|f| f.kind.breaks_nodes()).count();
        if balance.requeued > nodes_broke {
            let many = balance.requeued;
            balance.broken.push(format!("Slurm requeued {many} main jobs, and {nodes_broke} nodes broke"));
        } else if balance.requeued > 0 {
            eprintln!("Slurm requeued {} main jobs before they began", balance.requeued);
        }
        balance
    }

    fn nothing(spec: &Spec, plan: &Plan) -> Balance {
        Balance {
            site: spec.name.clone(),
            about: spec.about.clone(),
            secs: plan.secs,
            faults: BTreeMap::new(),
            calm_secs: 0.0,
            delays: Vec::new(),
            cases: BTreeMap::new(),
            requeued: 0,
            slept: 0,
            steps: 0,
            unsaved: Vec::new(),
            looks: Vec::new(),
            broken: Vec::new(),
            hard_faults: 0,
        }
    }

    /// A run that broke down.
    pub fn broken(spec: &Spec, plan: &Plan, why: &str) -> Balance {
        Balance { broken: vec![format!("the run broke down: {why}")], ..Balance::nothing(spec, plan) }
    }

    /// Adds the steps that the jobs repeated.
    pub fn take_losses(&mut self, all: impl Iterator<Item = Losses>, plan: &Plan) {
        for job in all {
            self.steps += job.steps;
            self.unsaved.extend(job.unsaved);
            let lost = job
                .saved_lost
                .iter()
                .map(|n| format!("{n} steps were lost that had been saved at the signal"));
            self.broken.extend(lost);
            let lost = job
                .too_many
                .iter()
                .map(|n| format!("{n} steps were lost, beyond the command's own checkpoint"));
            self.broken.extend(lost);
            if job.steps == 0 && plan.every_job_steps {
                self.broken
                    .push("a malleable job made no step, also when the main queue had ended".to_owned());
            }
        }
        if self.unsaved.len() > 2 * self.hard_faults {
            let times = self.unsaved.len();
            let hard = self.hard_faults;
            self.broken.push(format!(
                "commands ended {times} times without having saved, by {hard} faults that could do that"
            ));
        }
    }

    /// Adds how many processes of live jobs have left the others.
    pub fn take_departures(&mut self, count: usize) {
        eprintln!("site {}: {count} processes left while the others trained on", self.site);
        if count == 0 {
            self.broken.push("no process left while the others trained on: nothing was shown".to_owned());
        }
    }

    /// Adds how the jobs ended, and what was left of them.
    pub fn take_ends(&mut self, ends: &[(u32, String)], leaks: Vec<String>) {
        let bad = ends.iter().filter(|(_, end)| end != "COMPLETED 0:0");
        self.broken.extend(bad.map(|(job, end)| format!("malleable job {job}: {end}")));
        self.broken.extend(leaks.into_iter().map(|leak| format!("left behind: {leak}")));
    }

    /// Adds the daemon's use of resources.
    pub fn take_gauge(&mut self, gauge: &Gauge, jobs: usize) {
        self.broken.extend(gauge.judge(jobs));
        self.looks.clone_from(&gauge.looks);
    }

    /// Checks the promises that need the whole run.
    pub fn judge(&mut self, plan: &Plan) {
        if self.delays.is_empty() {
            self.broken.push("no main job was submitted: nothing was shown".to_owned());
        }
        if self.steps == 0 {
            self.broken.push("no malleable job made a step: nothing was shown".to_owned());
        }
        let late = p99(&self.delays);
        if plan.judges_p99 && self.delays.len() >= ENOUGH_FOR_P99 && late > P99_SECS {
            self.broken.push(format!("one main job in a hundred was {late:.2} s late or more"));
        }
    }
}

/// When a main job waited, and which faults lasted meanwhile or ended shortly before it came.
fn circumstances(queue: &Queue<'_>, id: u32, past: &[Past]) -> String {
    let Some((submitted, started)) = queue.waited(id) else { return String::new() };
    let lately = past.iter().filter(|p| p.begun <= started && p.repaired.1 >= submitted - LATELY_SECS);
    let faults: Vec<String> = lately.map(|p| p.seen_at(submitted)).collect();
    let at = |secs: f64| {
        let moment = chrono::DateTime::from_timestamp_micros((1e6 * secs) as i64).unwrap_or_default();
        moment.format("%H:%M:%S%.3f").to_string()
    };
    format!(
        " (submitted at {}, started at {}; faults by then: {})",
        at(submitted),
        at(started),
        faults.join(", ")
    )
}

/// What was broken while a main job waited.
fn case(queue: &Queue<'_>, id: u32, past: &[Past]) -> &'static str {
    let Some((submitted, started)) = queue.waited(id) else { return ALL_WELL };
    let mut meanwhile = past.iter().filter(|p| p.begun <= started && p.repaired.1 >= submitted);
    meanwhile.next().map_or(ALL_WELL, |fault| fault.kind.case())
}

/// The 99th percentile, by nearest rank.
pub fn p99(delays: &[f64]) -> f64 {
    percentile(delays, 0.99)
}

/// The value that this share of the delays does not exceed, by nearest rank.
pub fn percentile(delays: &[f64], share: f64) -> f64 {
    let mut sorted = delays.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
}

/// One row of delays: number, median, 90th and 99th percentile, and the largest.
pub fn row_of_delays(name: &str, delays: &[f64]) -> String {
    let [half, tenth, hundredth, last] = [0.5, 0.9, 0.99, 1.0].map(|share| percentile(delays, share));
    format!("{name:<34} {:>5} {half:>7.2} {tenth:>6.2} {hundredth:>6.2} {last:>6.2}\n", delays.len())
}

/// The heads of [`row_of_delays`].
pub fn heads_of_delays() -> String {
    format!("{:<34} {:>5} {:>7} {:>6} {:>6} {:>6}\n", "SECONDS LATE", "MAIN", "MEDIAN", "P90", "P99", "MOST")
}

/// The summary of all runs.
#[derive(Debug, Serialize)]
pub struct Outcome {
    version: u32,
    /// The seed of all random choices.
    pub seed: u64,
    /// Main jobs of all sites.
    main_jobs: usize,
    /// The 99th percentile of all of them, seconds late.
    p99_secs: f64,
    most_secs: f64,
    /// Each site.
    pub sites: Vec<Balance>,
    /// Promises that only all runs together can break.
    pub broken: Vec<String>,
}

impl Outcome {
    /// Sums up.
    pub fn of(seed: u64, sites: Vec<Balance>) -> Outcome {
        let delays: Vec<f64> = sites.iter().flat_map(|b| b.delays.iter().copied()).collect();
        let p99_secs = p99(&delays);
        let broken = (delays.len() >= ENOUGH_FOR_P99 && p99_secs > P99_SECS)
            .then(|| format!("one main job in a hundred was {p99_secs:.2} s late or more"));
        Outcome {
            version: 1,
            seed,
            main_jobs: delays.len(),
            p99_secs,
            most_secs: delays.iter().copied().fold(0.0, f64::max),
            sites,
            broken: broken.into_iter().collect(),
        }
    }

    /// The summary for a terminal.
    pub fn show(&self) -> String {
        let mut text = table(&self.sites);
        let _ = writeln!(
            text,
            "\n{} main jobs: 99 % at most {:.2} s late, the last {:.2} s; seed {}",
            self.main_jobs, self.p99_secs, self.most_secs, self.seed
        );
        text.push_str(&self.delays_by_case());
        for site in self.sites.iter().filter(|s| !s.looks.is_empty()) {
            let _ = write!(text, "{}", drawing(&site.looks));
        }
        for site in &self.sites {
            for broken in &site.broken {
                let _ = writeln!(text, "{}: {broken}", site.site);
            }
        }
        text
    }
}

impl Outcome {
    /// The delays of all sites, by what was broken while the main job waited.
    fn delays_by_case(&self) -> String {
        let mut cases: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for (name, delays) in self.sites.iter().flat_map(|site| &site.cases) {
            cases.entry(name).or_default().extend(delays);
        }
        let rows = cases.iter().map(|(name, delays)| row_of_delays(name, delays));
        format!("\n{}{}", heads_of_delays(), rows.collect::<String>())
    }
}

/// One row per site.
pub fn table(sites: &[Balance]) -> String {
    let mut text = format!(
        "{:<12} {:>5} {:>6} {:>5} {:>6} {:>6} {:>6} {:>7} {:>8}  {}\n",
        "SITE", "SECS", "FAULTS", "MAIN", "CALM", "P99", "MOST", "STEPS", "UNSAVED", "PROMISES"
    );
    for b in sites {
        let most = b.delays.iter().copied().fold(0.0, f64::max);
        let verdict =
            if b.broken.is_empty() { "kept".to_owned() } else { format!("{} BROKEN", b.broken.len()) };
        let _ = writeln!(
            text,
            "{:<12} {:>5.0} {:>6} {:>5} {:>6.2} {:>6.2} {:>6.2} {:>7} {:>8}  {verdict}",
            b.site,
            b.secs,
            b.faults.values().sum::<u32>(),
            b.delays.len(),
            b.calm_secs,
            p99(&b.delays),
            most,
            b.steps,
            b.unsaved.len(),
        );
    }
    text
}

/// Memory and descriptors over time; a bar marks a new daemon.
fn drawing(looks: &[Look]) -> String {
    let line = |name: &str, unit: f64, value: &dyn Fn(&Look) -> u64| {
        let values: Vec<u64> = looks.iter().map(value).collect();
        let most = values.iter().max().copied().unwrap_or(0).max(1);
        // Wide terminals have space for this many.
        let step = looks.len().div_ceil(100).max(1);
        let mut bars = String::new();
        for (i, v) in values.iter().enumerate().step_by(step) {
            if i >= step && looks[i].pid != looks[i - step].pid {
                bars.push('|');
            }
            bars.push(['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'][(v * 7 / most) as usize]);
        }
        let least = values.iter().min().copied().unwrap_or(0);
        format!("{name:<12} {bars}  {:.1} to {:.1}\n", least as f64 / unit, most as f64 / unit)
    };
    [line("memory, MiB", 1024.0, &|l| l.rss_kib), line("descriptors", 1.0, &|l| l.descriptors)].concat()
}

#[test]
fn a_percentile_is_one_of_the_values() {
    let delays: Vec<f64> = (1..=200).map(f64::from).collect();
    assert_eq!([p99(&delays), p99(&[5.0]), p99(&[])], [198.0, 5.0, 0.0]);
    assert_eq!([0.5, 0.9, 1.0].map(|share| percentile(&delays, share)), [100.0, 180.0, 200.0]);
}
