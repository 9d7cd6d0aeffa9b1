//! The order of jobs on a real cluster: short jobs before long ones, expected ends, and the history of ended
//! jobs.

use infill_api::JobView;
use infill_model::MalleableState;
use serde_json::Value;

use crate::harness::Site;

fn site() -> Site {
    Site::with(|settings| settings.set("advisor.probe", false).set("planner.objective", "completion"))
}

/// A job that makes ten samples a second on each node, in steps of five samples.
fn submit(site: &Site, name: &str, steps: u32, flags: &str) -> u32 {
    let script = format!(
        "infill run --grace 10 --curve 1:10,2:19,4:36,8:66 -- python3 /opt/infill/examples/paced.py \
         --curve 1:10,2:19,4:36,8:66 --batch 5 --steps {steps} --checkpoint /scratch/{name}.$SLURM_JOB_ID {flags}"
    );
    let options =
        ["-p", "infill", "-J", name, "--nodes=1-8", "--open-mode=append", "--output=/scratch/%x.%j.out"];
    site.sbatch("alice", &options, &script)
}

fn until(site: &Site, job: u32, what: &str, holds: impl Fn(&JobView) -> bool) -> JobView {
    site.wait(what, 60.0, || site.view(job).filter(|view| holds(view)))
}

fn has_ended(view: &JobView) -> bool {
    view.state == MalleableState::Ended
}

#[test]
fn short_jobs_end_first_and_similar_jobs_are_expected_alike() {
    let site = site();
    let long = submit(&site, "long", 100_000, "--tell-total");
    let told = until(&site, long, "the long job's expected end", |v| {
        v.nodes.len() > 4 && v.ends.as_ref().is_some_and(|ends| ends.predictable)
    });
    let ends = told.ends.expect("an end");
    // At most 66 samples a second of 500,000.
    assert!(ends.median_secs > 3600.0, "{ends:?}");
    let short = submit(&site, "short-1", 200, "--tell-total");
    // 1,000 samples: 100 s on one node, 15 s on all.
    let began = std::time::Instant::now();
    until(&site, short, "the short job to end", has_ended);
    assert!(began.elapsed().as_secs_f64() < 75.0, "the long one kept its nodes");
    let words = site.must("alice", &["infill", "explain", &long.to_string()]);
    assert!(
        words.contains("of work on one node in total") && words.contains("by its own estimate"),
        "{words}"
    );
    // What was learned outlives the daemon.
    site.rounds_go_by(3);
    assert_eq!(site.stop_daemon(), Some(0));
    site.start();
    let next = submit(&site, "short-2", 200, "");
    let view = until(&site, next, "the next one to run", |v| v.state == MalleableState::Running);
    assert!(view.turn.contains("as similar jobs took"), "{}", view.turn);
    assert!(view.turn.starts_with("1:"), "100 s of one node's work: {}", view.turn);
    site.must("alice", &["scancel", &long.to_string(), &next.to_string()]);
}

#[test]
fn the_accounting_of_slurm_is_taken_in_once() {
    let site = site();
    let jobs: Vec<u32> =
        (0..3).map(|n| site.sbatch("alice", &["-p", "main", "-J", &format!("a|b-{n}")], "sleep 1")).collect();
    jobs.iter().for_each(|job| drop(site.end_of(*job, 40.0)));
    let ours = submit(&site, "ours", 20, "");
    until(&site, ours, "a malleable job to end", has_ended);
    let import = || -> Value {
        let answer = site.must("root", &["infill", "history", "import", "--since", "now-1hours", "--json"]);
        serde_json::from_str(&answer).expect("a document")
    };
    let count = |document: &Value, key: &str| document[key].as_u64().expect("a count");
    let first = site.wait("slurmdbd to know of all", 30.0, || {
        let found = import();
        (count(&found, "taken") + count(&found, "known") >= 3).then_some(found)
    });
    assert!(count(&first, "read") >= 3, "{first}");
    let again = import();
    assert_eq!((count(&again, "taken"), count(&again, "known")), (0, count(&again, "read")), "{again}");
    let denied = site.exec("alice", &["infill", "history", "import", "--since", "now-1hours"]);
    assert!(!denied.status.success(), "only administrators");
}
