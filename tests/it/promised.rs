//! The rate promised to a job (`--at-least=asked`), checked by its own log: `examples/paced.py` logs each of
//! its steps.

use serde::Deserialize;

use infill_model::{MalleableState, ScalingCurve};

use crate::harness::{Site, jobs::clock};

/// The curve of all jobs here. They scale less than in proportion, so other jobs gain more from each further
/// node than the promised job, until they have equally many.
const CURVE: &str = "1:10,2:19,3:28,4:37,5:45,6:53,7:60,8:66";

/// Nodes that the promised job asks for, out of eight.
const ASKED: u32 = 4;

/// Samples of a step.
const BATCH: f64 = 2.0;

/// Rates are averaged over this many steps: two seconds.
const STEPS: usize = 37;

/// A busy machine is sometimes late with a step.
const TOLERANCE: f64 = 0.9;

/// Seconds within which a job that has lost a node to a main job is brought back to its promise.
const BACK_SECS: f64 = 45.0;

/// A line of a program's log: one step.
#[derive(Clone, Copy, Debug, Deserialize)]
struct Line {
    generation: u32,
    world: u32,
    time: f64,
}

fn submit(site: &Site, flags: &str) -> u32 {
    let script = format!(
        "infill run --grace 10 {flags} -- python3 /opt/infill/examples/paced.py --curve {CURVE} \
         --batch {BATCH} --steps 1000000 --checkpoint /scratch/paced.$SLURM_JOB_ID \
         --log /scratch/paced.$SLURM_JOB_ID.jsonl"
    );
    site.sbatch("alice", &["-p", "infill", "-J", "paced", "--nodes=1-8"], &script)
}

fn log(site: &Site, job: u32) -> Vec<Line> {
    let text = std::fs::read_to_string(site.scratch().join(format!("paced.{job}.jsonl"))).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// The rates between changes, from the log. Each run of this many steps of one generation gives its end, its
/// nodes and its samples a second.
fn rates(lines: &[Line]) -> Vec<(f64, u32, f64)> {
    let runs = lines.windows(STEPS + 1).filter(|run| run[0].generation == run[STEPS].generation);
    let rate = |run: &[Line]| BATCH * STEPS as f64 / (run[STEPS].time - run[0].time);
    runs.map(|run| (run[STEPS].time, run[0].world, rate(run))).collect()
}

/// The output of `infill explain` for the last round of a job.
fn explained(site: &Site, job: u32) -> String {
    let said = site.must("alice", &["infill", "explain", &job.to_string()]);
    let of_job = format!("  job {job}: ");
    said.lines().filter(|line| line.starts_with(&of_job)).collect::<Vec<_>>().join("\n")
}

fn until_says(site: &Site, job: u32, words: &str) {
    let what = format!("job {job} to be explained: {words}");
    let said = std::cell::RefCell::new(String::new());
    site.until(&what, 60.0, || {
        let now = explained(site, job);
        if *said.borrow() != now {
            eprintln!("{now}");
            said.replace(now.clone());
        }
        now.contains(words)
    });
}

fn until_runs(site: &Site, job: u32) {
    site.until("the job to run", 60.0, || {
        site.view(job).is_some_and(|view| view.state == MalleableState::Running)
    });
}

#[test]
fn a_promised_rate_is_kept_among_other_jobs() {
    let site = Site::acting();
    let promised = ScalingCurve::parse(CURVE).expect("a curve").rate(ASKED);
    let job = submit(&site, &format!("--at-least=asked:{ASKED}"));
    until_runs(&site, job);
    until_says(&site, job, "nothing is assured yet");
    until_says(&site, job, &format!("of the {ASKED} nodes asked for, which takes"));
    let since = clock();

    // Alone the job has all nodes; among others it has what it was promised. Two of the others take the rest.
    // One is promised nothing, because the rest is too little for it.
    let mut others = vec![submit(&site, "--at-least=asked:5")];
    others.extend((0..2).map(|_| submit(&site, "")));
    others.iter().for_each(|other| until_runs(&site, *other));
    until_says(&site, others[0], "besides those that other jobs were assured before");
    site.until("the others to have what they can", 60.0, || site.nodes_of(job).len() == ASKED as usize);
    site.rounds_go_by(30);

    // The main queue takes one of its nodes. Another job gives one up, because it has more than its minimum.
    let lost = site.nodes_of(job).into_iter().next_back().expect("a node");
    let main = site.main_job(600, &["--nodes=1", &format!("--nodelist={lost}")]);
    let lost_at = site.wait("the main job to start", 60.0, || site.started_at(main));
    site.until("the promise to be kept again", BACK_SECS, || {
        let view = site.view(job);
        let runs = view.is_some_and(|view| view.state == MalleableState::Running);
        runs && site.nodes_of(job).len() == ASKED as usize
    });
    site.rounds_go_by(20);

    let rates = rates(&log(&site, job));
    let judged: Vec<_> = rates.iter().filter(|(at, ..)| *at > since).collect();
    let worlds: std::collections::BTreeSet<u32> = judged.iter().map(|(_, world, _)| *world).collect();
    let least = judged.iter().map(|(.., rate)| *rate).fold(f64::INFINITY, f64::min);
    eprintln!("{} rates on {worlds:?} nodes, the least {least:.1}, for {promised:.1} promised", judged.len());
    assert!(judged.len() > 200 && worlds.contains(&ASKED), "a crowd: {worlds:?}");
    for (at, world, rate) in judged {
        let is_back = !(lost_at - 10.0..lost_at + BACK_SECS).contains(at);
        assert!(
            *rate >= TOLERANCE * promised || !is_back,
            "{rate:.1} samples/s on {world} nodes {:.1} s after it was promised {promised:.1}",
            at - since
        );
    }
    let after = rates.iter().rfind(|(at, ..)| *at > lost_at).expect("steps after the loss");
    assert!(after.2 >= TOLERANCE * promised, "{after:?}");
}
