//! The advisor on real jobs: `examples/paced.py` runs exactly as fast as the curve on its command line says.

use std::collections::BTreeMap;

use infill_api::JobView;
use infill_model::{MalleableState, ScalingCurve};
use serde_json::{Value, json};

use crate::harness::{Site, Slurm};

/// Seconds in which a job must have made all its probes.
const LEARNS_SECS: f64 = 120.0;

/// A paced job that may run on 1 to 8 nodes.
struct Paced<'a> {
    curve: &'a str,
    run_flags: &'a str,
    flags: &'a str,
}

impl Paced<'_> {
    fn submit(&self, site: &Site) -> u32 {
        let Paced { curve, run_flags, flags } = self;
        let script = format!(
            "infill run --grace 10 {run_flags} -- python3 /opt/infill/examples/paced.py --curve {curve} \
             --batch 4 --steps 1000000 --checkpoint /scratch/paced.$SLURM_JOB_ID {flags}"
        );
        let output = "--output=/scratch/paced.%j.out";
        site.sbatch(
            "alice",
            &["-p", "infill", "-J", "paced", "--nodes=1-8", "--open-mode=append", output],
            &script,
        )
    }
}

fn site() -> Site {
    Site::with(|settings| settings.set("advisor.probe", true))
}

/// Waits until the advisor wants no more probes.
fn until_it_knows(site: &Site, job: u32) -> JobView {
    site.wait("the advisor to have learned", LEARNS_SECS, || {
        let view = site.view(job)?;
        (view.state == MalleableState::Running && view.advice.contains("no probe")).then_some(view)
    })
}

/// The only profile of a site.
fn profile(site: &Site) -> Value {
    let profiles = profiles(site);
    assert_eq!(profiles.len(), 1, "{profiles:?}");
    profiles[0].clone()
}

fn profiles(site: &Site) -> Vec<Value> {
    let answer = site.must("root", &["infill", "profiles", "list", "--json"]);
    let answer: Value = serde_json::from_str(&answer).expect("a document of profiles");
    answer["profiles"].as_array().expect("profiles").clone()
}

fn rates(profile: &Value, list: &str) -> BTreeMap<u32, f64> {
    let rows = profile[list].as_array().expect("rows");
    let number = |row: &Value, key: &str| row[key].as_f64().expect("a number");
    rows.iter().map(|row| (number(row, "nodes") as u32, number(row, "rate"))).collect()
}

/// Runs a job with this true curve until the curve is known, and checks what was learned.
fn learns(truth: &str) {
    let site = site();
    let job = Paced { curve: truth, run_flags: "", flags: "--noise 0.02" }.submit(&site);
    until_it_knows(&site, job);
    let truth = ScalingCurve::parse(truth).expect("a curve");
    let best = (1..=8).map(|n| truth.rate(n)).fold(0.0, f64::max);
    site.wait("the size that the curve says is best", 30.0, || {
        let nodes = site.nodes_of(job).len() as u32;
        (truth.rate(nodes) >= 0.97 * best).then_some(())
    });
    let learned = profile(&site);
    let points = rates(&learned, "points");
    let curve = rates(&learned, "curve");
    eprintln!(
        "{truth}: measured {points:?}, believed {curve:?}, probes {} in {} s",
        learned["probes"], learned["probe_secs"]
    );
    for nodes in 1..=8 {
        let (wrong, bound) = match points.get(&nodes) {
            Some(rate) => (rate / truth.rate(nodes) - 1.0, 0.05),
            None => (curve[&nodes] / truth.rate(nodes) - 1.0, 0.10),
        };
        assert!(wrong.abs() <= bound, "{nodes} nodes: wrong by {wrong:.3}, {learned}");
    }
    assert!(learned["probe_secs"].as_f64().expect("seconds") <= 90.0, "{learned}");
}

#[test]
fn a_curve_that_is_nearly_linear_is_learned() {
    learns("1:10,2:19.7,3:29.2,4:38.5,5:47.6,6:56.5,7:65.2,8:73.7");
}

#[test]
fn a_curve_that_saturates_is_learned() {
    learns("1:10,2:17.4,3:23.1,4:27.6,5:31.2,6:34.3,7:36.8,8:39");
}

#[test]
fn a_curve_with_a_step_is_learned() {
    // Behind four nodes comes another switch.
    learns("1:10,2:19.5,3:28.6,4:37.2,5:40,6:47.5,7:54.8,8:62");
}

#[test]
fn a_curve_that_starts_superlinear_is_learned() {
    learns("1:10,2:21.4,3:31.5,4:41.3,5:50.8,6:60,7:68.8,8:77.4");
}

#[test]
fn a_curve_that_falls_is_learned_and_the_same_job_starts_at_its_peak() {
    let truth = "1:10,2:18.6,3:25,4:28,5:26.5,6:25,7:23.5,8:22";
    let site = site();
    let job = Paced { curve: truth, run_flags: "", flags: "" }.submit(&site);
    until_it_knows(&site, job);
    site.until("its best size", 30.0, || (3..=5).contains(&site.nodes_of(job).len()));
    let learned = profile(&site);
    let truth_curve = ScalingCurve::parse(truth).expect("a curve");
    for (nodes, rate) in rates(&learned, "curve").into_iter().filter(|(nodes, _)| *nodes <= 8) {
        let wrong = rate / truth_curve.rate(nodes) - 1.0;
        assert!(wrong.abs() <= 0.10, "{nodes} nodes: wrong by {wrong:.3}, {learned}");
    }
    let probes = learned["probes"].clone();
    site.must("alice", &["scancel", &job.to_string()]);
    site.until("the job to be gone", 30.0, || site.queue().is_empty());
    // The same again.
    let job = Paced { curve: truth, run_flags: "", flags: "" }.submit(&site);
    let view =
        site.wait("the job to run", 40.0, || site.view(job).filter(|v| v.state == MalleableState::Running));
    assert!((3..=5).contains(&view.nodes.len()), "started on {} nodes", view.nodes.len());
    site.rounds_go_by(20);
    let view = site.view(job).expect("the job");
    assert_eq!((view.generation, view.rescales), (1, 0), "{view:?}");
    assert_eq!(profile(&site)["probes"], probes);
}

#[test]
fn trials_of_one_script_share_one_profile_and_its_probes() {
    let site = site();
    for trial in 0..20 {
        let flags = format!("--seed {trial} --noise 0.0{}", 1 + trial % 3);
        Paced { curve: "1:10,2:19,4:35,8:60", run_flags: "", flags: &flags }.submit(&site);
    }
    site.until("all nodes to work", 60.0, || {
        let working = site.status().map_or(0, |s| s.jobs.iter().filter(|j| j.rate.is_some()).count());
        working >= 6
    });
    site.rounds_go_by(60);
    let learned = profile(&site);
    assert!(learned["probes"].as_u64().expect("a number") <= 4, "{learned}");
    assert!(!rates(&learned, "points").is_empty(), "{learned}");
}

#[test]
fn a_drift_is_followed_and_a_stall_is_not() {
    let site = Site::acting();
    let run = |flags| Paced { curve: "1:10,8:60", run_flags: "--nodes 8", flags }.submit(&site);
    let rate = || rates(profiles(&site).first()?, "points").get(&8).copied();
    let job = run("--stall 15:10 --drift 45:2");
    site.until("the rate to be measured", 40.0, || rate().is_some_and(|r| (r / 60.0 - 1.0).abs() < 0.03));
    // The stall is over after 25 s and nothing has moved; the drift comes at 55 s.
    let samples = |at: f64| {
        site.wait("progress", 90.0, || site.view(job).filter(|v| v.samples >= at).map(|v| v.samples))
    };
    while samples(0.0) < 43.0 * 60.0 {
        assert!(rate().is_some_and(|r| (r / 60.0 - 1.0).abs() < 0.02), "the stall moved it: {:?}", rate());
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
    samples(45.0 * 60.0);
    site.until("the drift to be followed", 30.0, || rate().is_some_and(|r| (r / 30.0 - 1.0).abs() < 0.05));
}

#[test]
fn rescale_costs_are_what_the_job_says_they_are() {
    let site = Site::acting();
    let flags = "--save-secs 1.5 --start-secs 2.5 --warmup-secs 3 --warmup-factor 2";
    let job = Paced { curve: "1:10,8:60", run_flags: "", flags }.submit(&site);
    let runs_on = |nodes: usize| {
        site.until("the job to run there", 60.0, || {
            site.view(job).is_some_and(|v| {
                v.state == MalleableState::Running
                    && v.nodes.len() == nodes
                    && v.rate.is_some_and(|r| r > 0.0)
            })
        });
    };
    runs_on(8);
    let measured = |kind: &str| profiles(&site).first().and_then(|p| p["costs"][kind]["count"].as_u64());
    for (wanted, kind, count) in [(5, "down", 1), (8, "up", 1), (5, "down", 2), (8, "up", 2)] {
        let main = (wanted == 5).then(|| site.main_job(600, &["--nodes=3"]));
        runs_on(wanted);
        // The steady rate must be known behind the warm-up.
        site.until("the change to be measured", 38.0, || measured(kind) == Some(count));
        if let Some(main) = main {
            site.must("root", &["scancel", &main.id.to_string()]);
            site.end_of(main.id, 60.0);
        }
    }
    let learned = profile(&site);
    let text = output(&site, job);
    // The program reports of each change how long it took from the signal to the first step, and of each stop
    // what the warm-up before it has cost.
    let words = |line: &str| -> BTreeMap<String, f64> {
        let pairs = line.split_whitespace().filter_map(|w| w.split_once('='));
        pairs.filter_map(|(k, v)| Some((k.to_owned(), v.parse().ok()?))).collect()
    };
    let reported = |what: &str| -> BTreeMap<u64, BTreeMap<String, f64>> {
        let lines = text.lines().filter(|l| l.contains(what)).map(words);
        lines.map(|w| (w["generation"] as u64, w)).collect()
    };
    let changes = reported("change: ");
    let stops = reported("saved at ");
    let mut truth = BTreeMap::<&str, Vec<f64>>::new();
    let mut saves = BTreeMap::<&str, Vec<f64>>::new();
    for (generation, change) in &changes {
        let kind = if change["world"] == 8.0 { "up" } else { "down" };
        saves.entry(kind).or_default().extend(stops.get(&(generation - 1)).map(|s| s["save_secs"]));
        let warmup = stops.get(generation).map_or(1.5, |s| s["warmup_lost_secs"]);
        truth.entry(kind).or_default().push(change["change_secs"] + warmup);
    }
    eprintln!("{} for {truth:?}", learned["costs"]);
    for (kind, truth) in truth {
        let parts = ["checkpoint_secs", "exit_secs", "start_secs", "warmup_secs"];
        let cost = |part: &str| learned["costs"][kind][part].as_f64().expect("a number");
        let mean_of = |secs: &[f64]| secs.iter().sum::<f64>() / secs.len() as f64;
        let total = parts.map(cost).iter().sum::<f64>();
        let mean = mean_of(&truth);
        let saving = mean_of(&saves[kind]);
        assert_eq!(cost("count") as usize, truth.len(), "{kind}: {text}");
        assert!((total / mean - 1.0).abs() < 0.1, "{kind}: {total:.2} s for {mean:.2} s");
        assert!((cost("checkpoint_secs") / saving - 1.0).abs() < 0.1, "{kind}: {learned} for {saving:.2} s");
    }
}

/// Execution plans: their curves on nodes n1 to n4, with two CPUs, and on n5 to n8, with four.
const PLANS: [(&str, &str, &str); 3] = [
    ("a", "1:10,2:18,3:24,4:28", "1:12,2:20,3:25,4:28"),
    ("b", "1:5,2:12,3:22,4:34", "1:8,2:18,3:30,4:45"),
    ("c", "memory", "1:15,2:24,3:30,4:33"),
];

fn output(site: &Site, job: u32) -> String {
    std::fs::read_to_string(site.scratch().join(format!("paced.{job}.out"))).unwrap_or_default()
}

/// The rate of an execution plan on this many nodes, by the tables above.
fn truth(plan: &str, on_four_cpus: bool, nodes: u32) -> f64 {
    let (_, two, four) = PLANS.into_iter().find(|(name, ..)| *name == plan).expect("a plan");
    ScalingCurve::parse(if on_four_cpus { four } else { two }).expect("a curve").rate(nodes)
}

#[test]
fn the_best_plan_and_nodes_are_found_and_unsuited_plans_are_tried_once() {
    let slurm = Slurm::default().set("NodeName=n[5-8] CPUs=4");
    let site = Site::on(&slurm, |settings| settings.set("advisor.probe", true));
    let table: serde_json::Map<String, Value> = PLANS
        .iter()
        .map(|(name, two, four)| ((*name).to_owned(), json!({ "n[1-4]": two, "n[5-8]": four })))
        .collect();
    std::fs::write(site.scratch().join("truth.json"), Value::Object(table).to_string()).expect("a file");
    let plans: String = PLANS.iter().map(|(name, ..)| format!("[[plan]]\nname = {name:?}\n")).collect();
    std::fs::write(site.scratch().join("plans.toml"), plans).expect("a file");
    let flags = "--plans /scratch/truth.json --noise 0.02";
    let job =
        Paced { curve: "1:1", run_flags: "--nodes 1-4 --plans /scratch/plans.toml", flags }.submit(&site);
    let advice = std::cell::RefCell::new(Vec::<String>::new());
    let right = || {
        let said = site.view(job)?.advice;
        if advice.borrow().last() != Some(&said) {
            advice.borrow_mut().push(said);
        }
        let starts = output(&site, job);
        let last = starts.lines().rfind(|line| line.contains("start: "))?.to_owned();
        (last.contains("world=4") && last.contains("plan=b")).then_some(())?;
        let nodes = site.nodes_of(job);
        (nodes.len() == 4 && nodes.iter().all(|n| "n5 n6 n7 n8".contains(n.as_str()))).then_some(())
    };
    site.wait("plan b on the four nodes with four CPUs", 600.0, right);
    let said = output(&site, job);
    let learned = profiles(&site);
    let probed: f64 = learned.iter().filter_map(|p| p["probe_secs"].as_f64()).sum();
    eprintln!("probed for {probed:.0} s:\n{said}\n{}", advice.borrow().join("\n"));
    for profile in &learned {
        let plan = profile["exec_plan"].as_str().expect("a plan");
        let four = profile["node_type"] == "cpu4";
        for (nodes, rate) in rates(profile, "points") {
            let wrong = rate / truth(plan, four, nodes) - 1.0;
            assert!(wrong.abs() <= 0.05, "{plan} on {nodes} nodes: wrong by {wrong:.3}");
        }
    }
    let unfit: Vec<&Value> = learned.iter().filter(|p| p["unfit"].is_array()).collect();
    for profile in &unfit {
        assert_eq!((profile["exec_plan"].as_str(), profile["node_type"].as_str()), (Some("c"), Some("cpu2")));
    }
    let tried: usize = unfit.iter().map(|p| p["unfit"].as_array().map_or(0, Vec::len)).sum();
    assert!(tried <= 1, "once is enough: {unfit:?}");
    assert!(said.matches("OutOfMemoryError").count() <= 4, "and on at most four nodes: {said}");
    assert!(probed <= 120.0, "{probed} s of probes");
    assert_eq!(site.view(job).expect("the job").restarts, 0, "no failure");
}
