//! The main queue: jobs of random sizes and lengths, and how much later each started than without infill.
//!
//! At most one of them waits at a time, and none is submitted while Slurm itself is broken. So it is known
//! when each would have started on a separate cluster: when it was submitted, or when enough earlier main
//! jobs had ended. Times come from the clock of the jobs' own scripts.

use std::time::Duration;

use rand::RngExt as _;
use rand::rngs::StdRng;

use super::spec::Spec;
use crate::harness::{Site, jobs::clock};

/// Seconds between two submissions, on average.
const BETWEEN_SECS: f64 = 7.0;

/// Seconds that a main job runs, from and to.
const RUN_SECS: (u32, u32) = (4, 22);

/// Share of the jobs that fit among the running main jobs. The others wait for the end of one.
const FITTING: f64 = 0.7;

/// Jobs on the empty cluster that measure a start without infill: the fewest and the most of them, and the
/// time after which no more are submitted, seconds.
const CALM_STARTS: std::ops::RangeInclusive<usize> = 3..=11;
const CALM_STARTS_SECS: f64 = 60.0;

/// Longest that a job on the empty cluster may wait, besides prolog and power saving, seconds.
const CALM_SECS: f64 = 60.0;

/// A node that is being switched off takes no job for this long (SuspendTimeout), seconds.
const SWITCHING_SECS: f64 = 5.0;

struct Entry {
    id: u32,
    units: usize,
    submitted_at: f64,
}

/// The main queue of one site.
pub struct Queue<'a> {
    site: &'a Site,
    spec: &'a Spec,
    entries: Vec<Entry>,
    next_at: f64,
    /// Seconds from submission to start on the empty cluster, the median.
    calm_secs: f64,
}

impl<'a> Queue<'a> {
    /// An empty queue, made after measuring how long a start takes.
    pub fn new(site: &'a Site, spec: &'a Spec) -> Queue<'a> {
        let mut queue = Queue { site, spec, entries: Vec::new(), next_at: clock(), calm_secs: 0.0 };
        queue.calm_secs = queue.median_calm_start();
        queue.entries.clear();
        queue
    }

    /// Submissions are spread over a second. slurmctld looks at its queue about once a second, so a start
    /// takes up to that. A few jobs in step with it would give a wrong value.
    fn median_calm_start(&mut self) -> f64 {
        let (least, most) = CALM_STARTS.into_inner();
        let end = clock() + CALM_STARTS_SECS;
        let mut secs = Vec::new();
        while secs.len() < least || (secs.len() < most && clock() < end) {
            std::thread::sleep(Duration::from_secs_f64(secs.len() as f64 / most as f64));
            secs.push(self.calm_start());
        }
        secs.sort_by(f64::total_cmp);
        secs[secs.len() / 2]
    }

    fn calm_start(&mut self) -> f64 {
        self.submit(1, 1, "main");
        let entry = self.entries.last().expect("it was just submitted");
        let id = entry.id;
        let submitted_at = entry.submitted_at;
        let secs = CALM_SECS + f64::from(self.spec.prolog_secs);
        let started = self.site.wait("a job on the empty cluster", secs, || self.note("started", id));
        let after = 20.0 + f64::from(self.spec.epilog_secs);
        self.site.until("its end", secs + after, || self.note("ended", id).is_some());
        self.site.until("its nodes to be free", secs + after, || self.site.queue().is_empty());
        started - submitted_at
    }

    /// Seconds from submission to start on the empty cluster, the median.
    pub fn calm_secs(&self) -> f64 {
        self.calm_secs
    }

    /// Submits a job if it is time. `may` says whether Slurm works.
    pub fn turn(&mut self, random: &mut StdRng, may: bool) {
        if !may || clock() < self.next_at || self.waiting().is_some() {
            return;
        }
        let uniform: f64 = random.random_range(1e-9..1.0);
        self.next_at = clock() - uniform.ln() * BETWEEN_SECS;
        let all = self.spec.units();
        let free = self.spec.units().saturating_sub(self.busy());
        let fits = random.random_bool(FITTING) && free > 0;
        let units = random.random_range(1..=if fits { free } else { all });
        let secs = random.random_range(RUN_SECS.0..=RUN_SECS.1);
        let partitions = &self.spec.partitions;
        let partition = partitions[random.random_range(0..partitions.len())].clone();
        self.submit(units, secs, &partition);
    }

    fn submit(&mut self, units: usize, secs: u32, partition: &str) {
        let script = format!(
            "[ -e /scratch/started.$SLURM_JOB_ID ] || {{\n\
             echo \"${{SLURM_RESTART_COUNT:-0}}\" >/scratch/requeues.$SLURM_JOB_ID\n\
             date +%s.%N >/scratch/started.$SLURM_JOB_ID\n}}\n\
             sleep {secs}\ndate +%s.%N >/scratch/ended.$SLURM_JOB_ID"
        );
        let unit = if self.spec.shared || self.spec.gpus { "ntasks" } else { "nodes" };
        let size = format!("--{unit}={units}");
        let limit = format!("--time={}", secs.div_ceil(60) + 1);
        let mut options = vec!["-p", partition, "-J", "main", "-o", "/dev/null", &size, &limit];
        options.extend(self.spec.gpus.then_some("--gpus-per-task=1"));
        options.extend(self.spec.main_options.iter().map(String::as_str));
        let submitted_at = clock();
        let id = self.site.sbatch("bob", &options, &script);
        self.entries.push(Entry { id, units, submitted_at });
    }

    /// The waiting job, and how long it has waited.
    pub fn waiting(&self) -> Option<(u32, f64)> {
        let last = self.entries.last().filter(|e| self.note("started", e.id).is_none())?;
        Some((last.id, clock() - last.submitted_at))
    }

    /// Units of main jobs that have not ended.
    fn busy(&self) -> usize {
        self.entries.iter().filter(|e| self.note("ended", e.id).is_none()).map(|e| e.units).sum()
    }

    /// Waits until all of them have ended.
    pub fn drain(&self) {
        let overhead = self.spec.prolog_secs + self.spec.epilog_secs;
        let secs = 180.0 + 2.0 * f64::from(RUN_SECS.1 + overhead);
        self.site.until("the main queue to end", secs, || self.busy() == 0);
    }

    fn note(&self, what: &str, id: u32) -> Option<f64> {
        let path = self.site.scratch().join(format!("{what}.{id}"));
        std::fs::read_to_string(path).ok()?.trim().parse().ok()
    }

    /// Jobs that Slurm had started and requeued, because a node that had just come back took no job. Each
    /// waits two minutes for that, with or without infill.
    pub fn requeued(&self) -> Vec<u32> {
        self.entries.iter().map(|e| e.id).filter(|id| self.note("requeues", *id) > Some(0.0)).collect()
    }

    /// Jobs that waited while Slurm switched nodes off or on to save power. Each waits for that, with or
    /// without infill.
    pub fn slept(&self) -> Vec<u32> {
        let log = self.site.cluster().dir.join("log/power.log");
        let text = std::fs::read_to_string(log).unwrap_or_default();
        let moments: Vec<f64> = text.lines().filter_map(|l| l.split(' ').next()?.parse().ok()).collect();
        self.entries
            .iter()
            .filter(|entry| {
                let started = self.note("started", entry.id).unwrap_or(f64::INFINITY);
                moments.iter().any(|at| (entry.submitted_at - SWITCHING_SECS..started).contains(at))
            })
            .map(|e| e.id)
            .collect()
    }

    /// When a job was submitted, and when it started or now, by `clock`.
    pub fn waited(&self, id: u32) -> Option<(f64, f64)> {
        let entry = self.entries.iter().find(|e| e.id == id)?;
        Some((entry.submitted_at, self.note("started", id).unwrap_or_else(clock)))
    }

    /// How much later than without infill each other job started, beyond prolog and epilog, seconds.
    pub fn delays(&self) -> Vec<(u32, f64)> {
        let unknown = [self.requeued(), self.slept()].concat();
        let epilog = f64::from(self.spec.epilog_secs);
        let delays = self.entries.iter().enumerate().filter_map(|(at, entry)| {
            let started = self.note("started", entry.id).filter(|_| !unknown.contains(&entry.id))?;
            let ends: Vec<(f64, usize)> = self.entries[..at]
                .iter()
                .map(|e| (self.note("ended", e.id).map_or(f64::INFINITY, |t| t + epilog), e.units))
                .collect();
            let could = could_start(entry.submitted_at, entry.units, self.spec.units(), ends);
            // The remains of malleable jobs have to be cleaned up too. A job that is preempted in its prolog
            // ends when the prolog does.
            let theirs = epilog + f64::from(self.spec.prolog_secs);
            Some((entry.id, (started - could - self.calm_secs - theirs).max(0.0)))
        });
        delays.collect()
    }
}

/// When a job of this size could have started, given the ends of those before it.
fn could_start(submitted_at: f64, units: usize, all: usize, mut ends: Vec<(f64, usize)>) -> f64 {
    ends.retain(|(end, _)| *end > submitted_at);
    ends.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut busy: usize = ends.iter().map(|(_, units)| units).sum();
    let mut at = submitted_at;
    for (end, freed) in ends {
        if busy + units <= all {
            break;
        }
        busy -= freed;
        at = end;
    }
    at
}

#[test]
fn a_job_could_start_once_enough_have_ended() {
    let ends = vec![(50.0, 2), (20.0, 3), (5.0, 8)];
    assert_eq!(could_start(10.0, 3, 8, ends.clone()), 10.0, "it fits");
    assert_eq!(could_start(10.0, 6, 8, ends.clone()), 20.0);
    assert_eq!(could_start(10.0, 8, 8, ends), 50.0);
}
