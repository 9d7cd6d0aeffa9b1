//! One run on one site: cluster, daemon, four malleable jobs, the main queue and the faults; then the
//! balance.

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::balance::{Balance, Losses};
use super::faults::{self, Fault};
use super::gauge::Gauge;
use super::queue::Queue;
use super::spec::Spec;
use crate::harness::{Diary, Site, Train, jobs::clock, record, wait};

/// Pause between two turns of the loop.
const TURN: std::time::Duration = std::time::Duration::from_millis(200);

/// Longest that a main job may wait for others' nodes before the run is ended, seconds.
const MAIN_WAITS_SECS: f64 = 150.0;

/// Once the main queue has ended, each malleable job trains within this time, besides prologs, seconds.
const IDLE_SECS: f64 = 60.0;

/// Steps between two checkpoints of the training command itself.
const CHECKPOINT_STEPS: u64 = 10;

/// Longest that any main job may be late when no other cluster runs, seconds.
const MOST_LATE_SECS: f64 = 3.0;

/// Final states of a job. (It may be seen PREEMPTED or in REQUEUE_HOLD on its way to the queue.)
const OVER: [&str; 6] = ["COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "DEADLINE"];

/// The length and the difficulty of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed of all random choices.
    pub seed: u64,
    /// Seconds of main queue and faults.
    pub secs: f64,
    /// Seconds from one fault to the next.
    pub fault_every_secs: f64,
    /// No fault lasts longer, seconds.
    pub longest_fault_secs: f64,
    /// Whether the daemon's use of memory and similar resources is watched.
    pub gauged: bool,
    /// Longest that any main job may be late, seconds.
    pub most_late_secs: f64,
    /// Whether one main job may be as late as the 99th percentile.
    pub judges_p99: bool,
    /// Whether each malleable job must have made a step when the main queue has ended.
    pub every_job_steps: bool,
}

impl Plan {
    /// With the suite there are too few main jobs for a percentile, and too little time for the longest
    /// faults.
    pub fn short(secs: f64, seed: u64) -> Plan {
        Plan {
            seed,
            secs,
            fault_every_secs: 15.0,
            longest_fault_secs: 15.0,
            gauged: false,
            // Other clusters run beside it on the same processors. So the only demand is that no job waits
            // for good, or for longer than the site's grace time.
            most_late_secs: 60.0,
            judges_p99: false,
            every_job_steps: false,
        }
    }

    /// A site test.
    pub fn whole(secs: f64, seed: u64) -> Plan {
        let plan = Plan::short(secs, seed);
        Plan { longest_fault_secs: 70.0, most_late_secs: MOST_LATE_SECS, every_job_steps: true, ..plan }
    }

    /// A soak.
    pub fn soak(secs: f64, seed: u64) -> Plan {
        // At its end there is a fault every 15 s, however long each took.
        let plan = Plan::short(secs, seed);
        Plan {
            longest_fault_secs: 12.0,
            gauged: true,
            most_late_secs: MOST_LATE_SECS,
            judges_p99: true,
            every_job_steps: true,
            ..plan
        }
    }
}

/// Runs a site.
pub fn run(spec: &Spec, plan: &Plan) -> Balance {
    eprintln!("site {}: {} (INFILL_SEED={})", spec.name, spec.about, plan.seed);
    let site = Site::bare_on(&spec.slurm());
    if let Some(words) = spec.accounting() {
        site.must("root", &words);
    }
    let relay = site.relay();
    site.configure(&spec.settings(site.port(), relay.port));
    let mut queue = Queue::new(&site, spec);
    site.steps_clock();
    site.start();
    let mut random = StdRng::seed_from_u64(plan.seed ^ name_hash(&spec.name));
    let jobs = submit(&site, spec);
    let first = 120.0 + 2.0 * f64::from(spec.prolog_secs);
    site.until("a malleable job to train", first, || jobs.iter().any(|j| site.diary(*j).last_step() > 0));
    let mut gauge = Gauge::new();
    let mut fault = None::<Fault>;
    let mut past = Vec::new();
    let end = clock() + plan.secs;
    let mut next_fault = clock() + plan.fault_every_secs / 2.0;
    while clock() < end || fault.is_some() {
        let over = fault.take_if(|f| clock() >= f.until.min(end));
        past.extend(over.iter().map(|f| faults::end(&site, f)));
        // A main job that waits while Slurm is broken would be late for that reason.
        if fault.is_none() && clock() >= next_fault && clock() < end && queue.waiting().is_none() {
            fault = faults::begin(&site, &relay, &mut random, plan.longest_fault_secs);
            next_fault += plan.fault_every_secs * random.random_range(0.8..1.2);
            next_fault = next_fault.max(clock());
        }
        queue.turn(&mut random, clock() < end && fault.as_ref().is_none_or(|f| !f.kind.delays_anybody()));
        if let Some((id, secs)) = queue.waiting().filter(|(_, secs)| *secs > MAIN_WAITS_SECS) {
            panic!("main job {id} has waited for {secs:.0} s");
        }
        if plan.gauged {
            gauge.turn(&site);
        }
        std::thread::sleep(TURN);
    }
    queue.drain();
    if plan.every_job_steps {
        // Where a prolog takes longer than most gaps, some jobs may not have had a turn yet.
        let all = || jobs.iter().all(|j| site.diary(*j).last_step() > 0).then_some(());
        wait::look(IDLE_SECS + 3.0 * f64::from(spec.prolog_secs), all);
    }
    let ends = finish(&site, spec, &jobs);
    let mut balance = Balance::new(spec, plan, &queue, &past);
    balance.take_losses(jobs.iter().map(|j| losses(&site.diary(*j))), plan);
    if spec.live {
        balance.take_departures(jobs.iter().map(|j| site.diary(*j).all("left").len()).sum());
    }
    balance.take_ends(&ends, leaks(&site));
    balance.take_gauge(&gauge, jobs.len());
    balance.judge(plan);
    queue.delays().into_iter().for_each(|(job, late)| record::delay(job, late));
    if !balance.broken.is_empty() {
        let kept = site.cluster().keep_logs(&format!("{}-{}", spec.name, plan.seed));
        eprintln!("site {}: its logs are in {}", spec.name, kept.display());
    }
    balance
}

/// Makes two sites with one seed have different faults.
fn name_hash(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}

/// Four malleable jobs of two users, with different sizes and options; half of them live jobs where these
/// exist.
fn submit(site: &Site, spec: &Spec) -> Vec<u32> {
    let jobs =
        [("alice", "1-8", ""), ("bob", "1-4", ""), ("alice", "1,2,4", "--save-secs 0.3"), ("bob", "2-6", "")];
    // With fewer jobs each has more nodes. A live job needs more than one.
    let count = if spec.live { jobs.len() / 2 } else { jobs.len() };
    let submitted = jobs.into_iter().enumerate().take(count).map(|(i, (user, nodes, flags))| {
        // Consecutive sizes are not a range of nodes.
        let size = match (spec.gpus, nodes.contains(',')) {
            (true, _) => ("1", Some(format!("--comment=infill:gpus={nodes}"))),
            (false, true) => ("1", Some(format!("--comment=infill:nodes={nodes}"))),
            (false, false) => (nodes, None),
        };
        let mut job = Train::on(size.0).user(user).run(crate::harness::train::SUBLINEAR).flags(flags);
        job = size.1.into_iter().fold(job, |job, option| job.option(option.leak()));
        job = if spec.live { job.program("trainee_live.py") } else { job };
        let extra = spec.job_options.get(i % spec.job_options.len().max(1));
        extra.into_iter().fold(job, |job, option| job.option(option.clone().leak())).submit(site)
    });
    submitted.collect()
}

/// Lets all jobs end; returns how each ended.
fn finish(site: &Site, spec: &Spec, jobs: &[u32]) -> Vec<(u32, String)> {
    jobs.iter().for_each(|job| site.finish(*job));
    let overhead = f64::from(spec.prolog_secs + spec.epilog_secs);
    let secs = 300.0 + 10.0 * overhead;
    let state = |job: u32| {
        let fields = site.job(job);
        let state = fields.get("JobState").cloned().unwrap_or_default();
        OVER.contains(&state.as_str())
            .then(|| format!("{state} {}", fields.get("ExitCode").map_or("", String::as_str)))
    };
    let begun = clock();
    let ends = jobs.iter().map(|job| {
        let left = (secs - (clock() - begun)).max(1.0);
        (*job, wait::look(left, || state(*job)).unwrap_or_else(|| format!("not over after {secs} s")))
    });
    ends.collect()
}

/// What is left in Slurm's queue or on the nodes after all jobs have ended.
fn leaks(site: &Site) -> Vec<String> {
    let found = || {
        // If a node dies before it reports the end of a main job, Slurm runs that job once more.
        let is_over = |id: u32| site.scratch().join(format!("ended.{id}")).exists();
        let left = site.queue().into_iter().filter(|j| !(j.name == "main" && is_over(j.id)));
        let mut found: Vec<String> =
            left.map(|j| format!("job {} ({}) is {}", j.id, j.name, j.state)).collect();
        found.extend(faults::leftovers(site).into_iter().map(|p| format!("process {} {:?}", p.name, p.args)));
        found
    };
    let gone = wait::look(60.0, || found().is_empty().then_some(()));
    if gone.is_some() { Vec::new() } else { found() }
}

/// Repeated steps of a job, by whether its command had saved them when asked to.
fn losses(diary: &Diary) -> Losses {
    let mut losses = Losses::default();
    let mut reached = 0;
    let mut saved = None;
    for event in diary.0.iter().filter(|e| e.rank == 0) {
        match event.event.as_str() {
            "start" => {
                let lost = reached.max(event.step) - event.step;
                match saved.take() {
                    Some(step) if event.step < step => losses.saved_lost.push(step - event.step),
                    Some(_) => {}
                    None if lost > CHECKPOINT_STEPS => losses.too_many.push(lost),
                    None if lost > 0 => losses.unsaved.push(lost),
                    None => {}
                }
                reached = event.step;
            }
            "step" => reached = event.step,
            "stop" => saved = Some(event.step),
            _ => {}
        }
    }
    losses.steps = diary.last_step();
    losses
}
