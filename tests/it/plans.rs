//! A real program under real execution plans: `examples/train_plans.py` is driven from plan to plan, and
//! learns what it learns in one process.

use serde::Deserialize;

use infill_model::MalleableState;

use crate::harness::Site;

/// Which plan runs on how many nodes: a change of size is one of the plan.
const PLANS: [(&str, u32); 4] = [("tp2-gc", 4), ("zero1", 3), ("fsdp", 2), ("ddp-ga4", 1)];

/// Steps under each plan, at the least. Before the end of the first, the signal just ends it.
const STEPS: u64 = 5;

/// Nodes of the cluster.
const NODES: u32 = 8;

/// Ranks sum 64-bit numbers in another order, which comes to 1e-15. Without the optimizer's states, losses
/// are 0.16 apart.
const TOLERANCE: f64 = 1e-9;

/// What both trainings are told of the model.
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

/// The plans of the example's model by `plans_of`, less those that are not asked for, each at one size.
fn write_plans(site: &Site) {
    let sizes: Vec<String> = PLANS.iter().map(|(name, nodes)| format!("{name:?}: \"{nodes}\"")).collect();
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
    let seen = site
        .must("alice", &["infill", "plans", "check", "/scratch/plans.toml", "-h", "-o", "%p %s %t %z %a %c"]);
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

/// Waits until it trains on so many nodes under their plan, and then for some steps more.
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
    // Nothing may be cut off: four interpreters with PyTorch share two cores.
    let site = Site::with(|s| s.set("agent.preempt_leave_secs", 20.0));
    write_plans(&site);
    let script = format!(
        "cd /scratch\n export TRAIN_PLANS_PACE='*:*:0.8'\n\
         infill run --grace 60 --plans plans.toml -- python3 /opt/infill/examples/train_plans.py {MODEL} \
         --steps 1000000 --checkpoint $SLURM_JOB_ID.pt --log $SLURM_JOB_ID.jsonl"
    );
    let job = site.sbatch("alice", &["-p", "infill", "-J", "gpt", "--chdir=/tmp", "--nodes=1-4"], &script);
    until_trains(&site, job, 4);
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

    let changed = log(&site, &job.to_string());
    let steps = changed.len() as u64;
    assert!(changed.iter().map(|line| line.step).eq(1..=steps), "each step once: {changed:?}");
    let alone = format!(
        "cd /scratch && MASTER_PORT={} python3 /opt/infill/examples/train_plans.py {MODEL} --steps {steps} \
         --checkpoint alone.pt --log alone.jsonl",
        site.port() + 1
    );
    site.must("alice", &["bash", "-c", &alone]);
    let whole = log(&site, "alone");
    assert_eq!(whole.len(), changed.len(), "the undisturbed training");
    let losses = changed.iter().zip(&whole).map(|(ours, theirs)| (ours.loss - theirs.loss).abs());
    let apart = losses.fold(0.0, f64::max);
    eprintln!("after {} changes and {steps} steps the losses are {apart:e} apart", view.rescales);
    assert!(apart < TOLERANCE, "the losses are {apart:e} apart");
    assert!(whole[whole.len() - 1].loss < 0.9 * whole[0].loss, "it learned nothing");
}
