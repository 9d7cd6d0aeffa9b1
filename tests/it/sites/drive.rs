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

/// Longest that a main job may wait for nodes of others before the run is broken off, seconds.
const MAIN_WAITS_SECS: f64 = 150.0;

/// Once the main queue has ended, each malleable job trains after so long, besides prologs, seconds.
const IDLE_SECS: f64 = 60.0;

/// Steps of the training command between two checkpoints of its own accord.
const CHECKPOINT_STEPS: u64 = 10;

/// Longest that any main job may be late where nothing runs beside the site, seconds.
const MOST_LATE_SECS: f64 = 3.0;

/// States that a job never leaves. (It may be seen PREEMPTED or in REQUEUE_HOLD on its way to the queue.)
const OVER: [&str; 6] = ["COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "DEADLINE"];

/// How long and how rough a run is.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What is random follows from it.
    pub seed: u64,
    /// Seconds of main queue and faults.
    pub secs: f64,
    /// Seconds from one fault to the next.
    pub fault_every_secs: f64,
    /// No fault lasts longer, seconds.
    pub longest_fault_secs: f64,
    /// Whether the daemon's use of memory and the like is watched.
    pub gauged: bool,
    /// Longest that any main job may be late, seconds.
    pub most_late_secs: f64,
    /// Whether one main job may be as late as the 99th percentile.
    pub judges_p99: bool,
    /// Whether each malleable job must have made a step, at the latest when the main queue has ended.
    pub every_job_steps: bool,
}

impl Plan {
    /// With the suite: too few main jobs for a percentile, and no time for the longest faults.
    pub fn short(secs: f64, seed: u64) -> Plan {
        Plan {
            seed,
            secs,
            fault_every_secs: 15.0,
            longest_fault_secs: 15.0,
            gauged: false,
            // Other clusters run beside it, on the same processors: that nobody waits for good, or for longer
            // than the site's grace time, is all that can be asked for.
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
        // At its end a fault every 15 s, whatever each took.
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
        // A main job that waits while Slurm is broken would be late by that.
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
        // Where a prolog takes longer than most gaps, not everybody's turn came before.
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

/// So that two sites with one seed do not see the same faults.
fn name_hash(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}

/// Four malleable jobs of two users, of different sizes and habits; half of them where they stay alive.
fn submit(site: &Site, spec: &Spec) -> Vec<u32> {
    let jobs =
        [("alice", "1-8", ""), ("bob", "1-4", ""), ("alice", "1,2,4", "--save-secs 0.3"), ("bob", "2-6", "")];
    let submit = |(i, (user, nodes, flags)): (usize, (&'static str, &'static str, &str))| {
        // Sizes in a row are no range of nodes.
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
    };
    // Of fewer jobs each has more nodes: who has only one cannot stay alive without it.
    let some = if spec.live { jobs.len() / 2 } else { jobs.len() };
    jobs.into_iter().enumerate().take(some).map(submit).collect()
}

/// Lets all jobs come to their end; how each ended.
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

/// What is left in Slurm's queue or on the nodes though all jobs have ended.
fn leaks(site: &Site) -> Vec<String> {
    let found = || {
        // Where a node has died before it could tell of the end of a main job, Slurm runs that once more.
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

/// Steps that a job did again, by whether its command had saved them when it was asked to.
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
