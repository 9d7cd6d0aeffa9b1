//! A real program under real execution plans: `examples/train_plans.py` moves from plan to plan, and learns
//! the same as in one process.

use serde::Deserialize;
use serde_json::Value;

use infill_model::MalleableState;

use crate::harness::{Site, Slurm};

/// The plan for each number of nodes: a change of size also changes the plan.
const PLANS: [(&str, u32); 4] = [("tp2-gc", 4), ("zero1", 3), ("fsdp", 2), ("ddp-ga4", 1)];

/// Fewest steps under each plan. Before the end of the first step, the signal just ends the program.
const STEPS: u64 = 5;

/// Nodes of the cluster.
const NODES: u32 = 8;

/// Ranks sum 64-bit numbers in another order, a difference of 1e-15. Without the optimizer's states, losses
/// differ by 0.16.
const TOLERANCE: f64 = 1e-9;

/// The facts about the model that both trainings get.
const MODEL: &str = "--double --global-batch 24";

/// A line of the example's log: one step.
#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Line {
    step: u64,
    loss: f64,
    world: u32,
    plan: String,
}

fn log(site: &Site, name: &str) -> Vec<Line> {
    let text = std::fs::read_to_string(site.scratch().join(format!("{name}.jsonl"))).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// The plans of `plans_of` for the example's model, less those not wanted, each at its sizes.
fn write_plans(site: &Site, plans: &[(&str, &str)]) {
    let sizes: Vec<String> = plans.iter().map(|(name, nodes)| format!("{name:?}: {nodes:?}")).collect();
    let program = format!(
        "import sys\n\
         sys.path.insert(0, '/opt/infill/examples')\n\
         from train_plans import SEQUENCE, Gpt, infill\n\
         found = infill.plans_of(Gpt(3, 32, 4), global_batch=24, sequence=SEQUENCE, nodes='1-4')\n\
         found.ways = {{name: {{**found.ways[name], 'nodes': n}} for name, n in {{{}}}.items()}}\n\
         found.write('/scratch/plans.toml')",
        sizes.join(", ")
    );
    site.must("alice", &["python3", "-B", "-c", &program]);
}

/// Trains this many steps in one process from the start, and compares the losses with those of a job.
fn compare_with_one_process(site: &Site, job: u32) -> f64 {
    let changed = log(site, &job.to_string());
    let steps = changed.len() as u64;
    assert!(changed.iter().map(|line| line.step).eq(1..=steps), "each step once: {changed:?}");
    let alone = format!(
        "cd /scratch && MASTER_PORT={} python3 /opt/infill/examples/train_plans.py {MODEL} --steps {steps} \
         --checkpoint alone.pt --log alone.jsonl",
        site.port() + 1
    );
    site.must("alice", &["bash", "-c", &alone]);
    let whole = log(site, "alone");
    assert_eq!(whole.len(), changed.len(), "the undisturbed training");
    assert!(whole[whole.len() - 1].loss < 0.9 * whole[0].loss, "it learned nothing");
    let losses = changed.iter().zip(&whole).map(|(ours, theirs)| (ours.loss - theirs.loss).abs());
    losses.fold(0.0, f64::max)
}

fn check_plans(site: &Site) {
    let seen = site.must(
        "alice",
        &["infill", "plans", "check", "/scratch/plans.toml", "--noheader", "-o", "%p %s %t %z %a %c"],
    );
    let seen: Vec<Vec<&str>> = seen.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(
        seen,
        [
            ["tp2-gc", "4", "2", "0", "1", "yes"],
            ["zero1", "3", "1", "1", "1", "no"],
            ["fsdp", "2", "1", "3", "1", "no"],
            ["ddp-ga4", "1", "1", "0", "4", "no"],
        ]
    );
}

/// Waits until it trains on this many nodes under their plan, and then for some more steps.
fn until_trains(site: &Site, job: u32, nodes: u32) {
    let (plan, _) = PLANS.into_iter().find(|(_, n)| *n == nodes).expect("a plan of this size");
    let last = || log(site, &job.to_string()).into_iter().next_back();
    let begun = site.wait(&format!("plan {plan} on {nodes} nodes"), 90.0, || {
        last().filter(|line| (line.world, line.plan.as_str()) == (nodes, plan))
    });
    site.until("some more steps", 60.0, || last().is_some_and(|line| line.step >= begun.step + STEPS));
}

#[test]
fn changes_of_plan_and_size_change_nothing_of_what_is_learned() {
    // Four interpreters with PyTorch share two cores, so no time may be cut off. Steps are slow enough for
    // more nodes to be faster under any plan, because the fastest plan runs.
    let site = Site::with(|s| s.set("agent.preempt_leave_secs", 20.0));
    let sizes: Vec<(&str, String)> = PLANS.iter().map(|(name, nodes)| (*name, nodes.to_string())).collect();
    let sizes: Vec<(&str, &str)> = sizes.iter().map(|(name, nodes)| (*name, nodes.as_str())).collect();
    write_plans(&site, &sizes);
    check_plans(&site);
    let script = format!(
        "cd /scratch\n export TRAIN_PLANS_PACE='*:*:3.2'\n\
         infill run --grace 60 --plans plans.toml -- python3 /opt/infill/examples/train_plans.py {MODEL} \
         --steps 1000000 --checkpoint $SLURM_JOB_ID.pt --log $SLURM_JOB_ID.jsonl"
    );
    let job = site.sbatch("alice", &["-p", "infill", "-J", "gpt", "--chdir=/tmp", "--nodes=1-4"], &script);
    until_trains(&site, job, 4);
    // Once its speed is known, the planner comes back to it, whatever it expects of other plans.
    site.until("the first plan to be measured", 120.0, || {
        let learned = site.must("root", &["infill", "profiles", "list", "--json"]);
        let learned: Value = serde_json::from_str(&learned).expect("a document of profiles");
        learned["profiles"].as_array().is_some_and(|all| {
            all.iter().any(|p| p["exec_plan"] == "tp2-gc" && p["points"] != Value::Array(Vec::new()))
        })
    });
    for nodes in [3, 2, 1] {
        let main = site.main_job(600, &[&format!("--nodes={}", NODES - nodes)]);
        until_trains(&site, job, nodes);
        site.must("root", &["scancel", &main.id.to_string()]);
        until_trains(&site, job, 4);
    }
    let view = site.view(job).expect("the job");
    assert_eq!((view.restarts, view.state), (0, MalleableState::Running), "{view:?}");
    site.must("alice", &["scancel", &job.to_string()]);
    site.until("the job to be gone", 30.0, || site.queue().is_empty());

    let apart = compare_with_one_process(&site, job);
    eprintln!("after {} changes the losses are {apart:e} apart", view.rescales);
    assert!(apart < TOLERANCE, "the losses are {apart:e} apart");
}

/// Seconds of a step under each plan on one of the nodes with two CPUs and with four. n nodes take an n-th of
/// it.
const PACES: [(&str, &str, f64, f64); 4] = [
    ("ddp", "1-4", 6.0, 3.0),
    ("zero1", "1-4", 4.8, 2.4),
    ("fsdp", "1-4", 7.8, 3.9),
    ("tp2", "2,4", 9.0, 4.5),
];

/// Number of steps after which a job with steps of 0.6 s stays where it is.
const STEPS_AT_REST: usize = 80;

#[test]
fn the_best_plan_size_and_type_of_a_real_program_are_found() {
    let slurm = Slurm::default().set("NodeName=n[5-8] CPUs=4");
    let site = Site::on(&slurm, |s| s.set("advisor.probe", true).set("agent.preempt_leave_secs", 20.0));
    write_plans(&site, &PACES.map(|(plan, nodes, ..)| (plan, nodes)));
    let pace: Vec<String> = PACES
        .iter()
        .map(|(plan, _, two, four)| format!("{plan}:n[1-4]:{two},{plan}:n[5-8]:{four}"))
        .collect();
    let script = format!(
        "cd /scratch\n export TRAIN_PLANS_PACE='{}'\n\
         infill run --grace 60 --plans plans.toml -- python3 /opt/infill/examples/train_plans.py {MODEL} \
         --steps 1000000 --checkpoint $SLURM_JOB_ID.pt --log $SLURM_JOB_ID.jsonl",
        pace.join(",")
    );
    let job = site.sbatch("alice", &["-p", "infill", "-J", "gpt", "--chdir=/tmp", "--nodes=1-4"], &script);
    let advice = std::cell::RefCell::new(Vec::<String>::new());
    let right = || {
        let view = site.view(job)?;
        if advice.borrow().last() != Some(&view.advice) {
            advice.borrow_mut().push(view.advice);
        }
        // Longer than any measurement. The next best takes a fourth longer.
        let log = log(&site, &job.to_string());
        let last = log.get(log.len().checked_sub(STEPS_AT_REST)?..)?;
        let rests = last.iter().all(|line| (line.plan.as_str(), line.world) == ("zero1", 4));
        let nodes = site.nodes_of(job);
        (rests && nodes.iter().all(|n| "n5 n6 n7 n8".contains(n.as_str()))).then_some(())
    };
    site.wait("ZeRO-1 on the four fast nodes", 600.0, right);
    let learned: Vec<Value> =
        serde_json::from_str::<Value>(&site.must("root", &["infill", "profiles", "list", "--json"]))
            .expect("JSON")["profiles"]
            .as_array()
            .expect("profiles")
            .clone();
    let probed: f64 = learned.iter().filter_map(|p| p["probe_secs"].as_f64()).sum();
    eprintln!("probed for {probed:.0} s:\n{}", advice.borrow().join("\n"));
    eprintln!("{}", site.must("root", &["infill", "explain", &job.to_string()]));
    // 90 s, 15 s for each further plan, and as much for the last one.
    assert!(probed <= 150.0, "{probed} s of probes");
    let view = site.view(job).expect("the job");
    assert_eq!((view.restarts, view.state), (0, MalleableState::Running), "{view:?}");
    site.must("alice", &["scancel", &job.to_string()]);
    site.until("the job to be gone", 30.0, || site.queue().is_empty());
    let apart = compare_with_one_process(&site, job);
    assert!(apart < TOLERANCE, "the losses are {apart:e} apart");
}
