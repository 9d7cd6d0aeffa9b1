//! Measures how long planning takes and how good the plans are proved to be:
//! `cargo bench --bench plan [-- --quick] [TABLE…]`. The tables are grid, shared, plans, switches, ten and
//! per-node.
//!
//! Rounds are drawn from Summit's idle log and published scaling tables (see `instances`). These are not part
//! of this repository; without them the bench says so and ends. Times are wall times of one thread. Goals:
//!
//! - 100 jobs on 4,608 nodes in 6 steps: within 500 ms at the 95th percentile, proved to 0.1 %; a hundred
//!   times faster than the published program with a variable for each job and node (see `per_node`).
//! - GPUs are lent: 100 jobs on 1,000 nodes of 8 GPUs within 100 ms.
//! - Four execution plans and three types of nodes: 100 jobs on 1,000 nodes within 300 ms at the 95th
//!   percentile, proved to 0.3 % in the median and to 1 % at the 95th percentile. 10 jobs on 200 nodes: the
//!   same limits.

#[path = "../common/mod.rs"]
mod common;
mod curves;
mod instances;
mod per_node;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use infill_model::{Plan, SolveStatus};
use infill_planner::plan::{
    Assignment, Milp, check_plan, plan_round, plan_without_solver,
    solver::{Limits, Solution, Solver, SolverError, default_solver},
};
use instances::{Case, Data};

/// Time limit of the published program for one round, seconds.
const PER_NODE_SECS: f64 = 60.0;

/// Relative gap at which the published program may stop, the same as the planner's.
const PER_NODE_GAP: f64 = 0.001;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let quick = words.iter().any(|a| a == "--quick");
    let named: Vec<&String> = words.iter().filter(|a| !a.starts_with("--")).collect();
    let wanted = |table: &str| named.is_empty() || named.iter().any(|n| *n == table);
    let Some(root) = common::data() else { return };
    let data = Data::load(&root).expect("data that can be read");
    let solver = Counting { solver: default_solver().expect("a solver"), calls: AtomicUsize::new(0) };
    let tables = [
        ("grid", grid as Table),
        ("shared", shared),
        ("plans", plans),
        ("switches", switches),
        ("ten", simulator),
        ("per-node", beside_per_node),
    ];
    tables.iter().filter(|(name, _)| wanted(name)).for_each(|(_, table)| table(&data, &solver, quick));
}

/// Draws rounds from the data and prints what they take. The flag asks for a quick run.
type Table = fn(&Data, &Counting, bool);

/// A solver that counts its calls.
struct Counting {
    solver: Box<dyn Solver>,
    calls: AtomicUsize,
}

impl Solver for Counting {
    fn name(&self) -> &'static str {
        self.solver.name()
    }

    fn solve(
        &self,
        milp: &Milp,
        limits: Limits,
        start: Option<&Assignment>,
    ) -> Result<Solution, SolverError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.solver.solve(milp, limits, start)
    }
}

/// The measurements of a group of rounds.
#[derive(Default)]
struct Column {
    millis: Vec<f64>,
    fallback_millis: Vec<f64>,
    check_millis: Vec<f64>,
    /// Proved gaps, (bound − worth) / worth.
    gaps: Vec<f64>,
    /// The proved gaps of the plans without the solver.
    fallback_gaps: Vec<f64>,
    solved: usize,
    unproved: usize,
}

impl Column {
    /// Plans a round with and without the solver, and checks both plans.
    fn measure(&mut self, case: &Case, solver: &Counting) -> Plan {
        let problem = case.problem();
        let before = solver.calls.load(Ordering::Relaxed);
        let clock = Instant::now();
        let planned = plan_round(&problem, solver);
        self.millis.push(1e3 * clock.elapsed().as_secs_f64());
        self.solved += usize::from(solver.calls.load(Ordering::Relaxed) > before);
        let clock = Instant::now();
        let without = plan_without_solver(&problem, "measured");
        self.fallback_millis.push(1e3 * clock.elapsed().as_secs_f64());
        let clock = Instant::now();
        check_plan(&problem, &planned).expect("a plan that keeps all rules");
        self.check_millis.push(1e3 * clock.elapsed().as_secs_f64());
        check_plan(&problem, &without).expect("a plan that keeps all rules");
        let gap = |plan: &Plan| match plan.status {
            SolveStatus::Trivial => Some(0.0),
            _ => plan.proof.map(|proof| proof.gap),
        };
        match gap(&planned) {
            Some(gap) => self.gaps.push(gap),
            None => self.unproved += 1,
        }
        self.fallback_gaps.extend(gap(&without));
        planned
    }

    fn print(&self, title: &str) {
        let per_cent = |gaps: &[f64], share: f64| 100.0 * quantile(gaps, share);
        println!(
            "{title} {:8.1} {:8.1} {:8.1} {:7.3} {:7.3} {:7.3} {:5} {:5.0} %   {:8.1} {:8.1} {:7.3} {:7.3}  {:8.2}",
            quantile(&self.millis, 0.5),
            quantile(&self.millis, 0.95),
            quantile(&self.millis, 1.0),
            per_cent(&self.gaps, 0.5),
            per_cent(&self.gaps, 0.95),
            per_cent(&self.gaps, 1.0),
            self.unproved,
            100.0 * self.solved as f64 / self.millis.len().max(1) as f64,
            quantile(&self.fallback_millis, 0.5),
            quantile(&self.fallback_millis, 0.95),
            per_cent(&self.fallback_gaps, 0.5),
            per_cent(&self.fallback_gaps, 0.95),
            quantile(&self.check_millis, 0.5),
        );
    }
}

/// The value below which `share` of the others lies; the largest value for a share of 1.
fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(at.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

/// Prints a title and the header of its table.
fn print_head(title: &str) {
    println!("\n{title}");
    println!(
        "                             the plan, ms            proved gap, %             asked the   without it, ms      gap, %        judged, ms"
    );
    println!(
        "                           median      p95    worst  median     p95   worst  none  solver     median      p95  median     p95    median"
    );
}

/// The size of the rounds of one cell.
struct CellSize {
    jobs: usize,
    nodes: usize,
    steps: u32,
}

/// The seed is the number of the round in its cell, so that all cells draw the same moments.
fn grid(data: &Data, solver: &Counting, quick: bool) {
    print_head("Rounds in mid-life");
    for jobs in [10, 50, 100, 200] {
        for nodes in [200, 1000, 4608] {
            for steps in [1, 4, 6] {
                let goal = (jobs, nodes, steps) == (100, 4608, 6);
                let rounds = if quick {
                    3
                } else if goal {
                    40
                } else {
                    12
                };
                cell(data, solver, CellSize { jobs, nodes, steps }, rounds);
            }
        }
    }
}

/// Workers of 1, 2, 4 and 8 GPUs on nodes of 8.
fn shared(data: &Data, solver: &Counting, quick: bool) {
    print_head("Where GPUs are lent");
    for (jobs, nodes) in [(10, 50), (10, 200), (100, 200), (100, 1000)] {
        let mut column = Column::default();
        for seed in 0..if quick { 3 } else { 20 } {
            eprint!("\r{jobs} jobs, {nodes} nodes of 8 GPUs: {seed} ");
            column.measure(&data.draw_shared(3000 + seed, jobs, nodes, 6), solver);
        }
        eprint!("\r{:60}\r", "");
        column.print(&format!("{jobs:4} jobs {nodes:5} nodes × 8"));
    }
}

/// Four execution plans of each job, on nodes of three types.
fn plans(data: &Data, solver: &Counting, quick: bool) {
    print_head("Jobs with four execution plans on nodes of three types");
    for (jobs, nodes) in [(10, 200), (50, 1000), (100, 1000)] {
        let mut column = Column::default();
        let rounds = if quick { 3 } else { 40 };
        for seed in 0..rounds {
            eprint!("\r{jobs} jobs, {nodes} nodes of three types: {seed} of {rounds} ");
            column.measure(&data.draw_plans(5000 + seed, jobs, nodes, 6), solver);
        }
        eprint!("\r{:60}\r", "");
        column.print(&format!("{jobs:4} jobs {nodes:5} nodes 6 steps"));
    }
}

/// The cost of laying plans on few switches: the same rounds with and without a topology.
fn switches(data: &Data, _: &Counting, quick: bool) {
    println!(
        "\n200 jobs on 10,000 nodes, laid on 500 switches and without regard to them, without the solver, ms"
    );
    println!("             median      p95    worst");
    let mut without = Vec::new();
    let mut with = Vec::new();
    for seed in 0..if quick { 3 } else { 20 } {
        eprint!("\r200 jobs, 10,000 nodes: {seed} ");
        let case = data.draw(7000 + seed, 200, 10_000, 6);
        without.push(1e3 * median_secs(|| plan_without_solver(&case.problem(), "measured")));
        let case = case.on_switches(500);
        with.push(1e3 * median_secs(|| plan_without_solver(&case.problem(), "measured")));
    }
    eprint!("\r{:60}\r", "");
    let more: Vec<f64> = with.iter().zip(&without).map(|(with, without)| with - without).collect();
    for (title, millis) in [("without", &without), ("with", &with), ("difference", &more)] {
        let [half, most, worst] = [0.5, 0.95, 1.0].map(|share| quantile(millis, share));
        println!("{title:10} {half:8.1} {most:8.1} {worst:8.1}");
    }
}

fn cell(data: &Data, solver: &Counting, size: CellSize, rounds: u64) {
    let CellSize { jobs, nodes, steps } = size;
    let mut column = Column::default();
    for seed in 0..rounds {
        eprint!("\r{jobs} jobs, {nodes} nodes, {steps} steps: {seed} of {rounds} ");
        column.measure(&data.draw(seed, jobs, nodes, steps), solver);
    }
    eprint!("\r{:60}\r", "");
    column.print(&format!("{jobs:4} jobs {nodes:5} nodes {steps} steps"));
}

/// The small problems that a simulator solves tens of thousands of times.
fn simulator(data: &Data, solver: &Counting, quick: bool) {
    print_head("Ten jobs, as in replays of Summit's log; the second line when nothing can change");
    for nodes in [50, 100, 350, 1000, 4608] {
        let mut changing = Column::default();
        let mut settled = Column::default();
        for seed in 0..if quick { 5 } else { 50 } {
            eprint!("\r10 jobs, {nodes} nodes: {seed} ");
            let case = data.draw(1000 + seed, 10, nodes, 6);
            let plan = changing.measure(&case, solver);
            settled.measure(&case.settled(&plan), solver);
        }
        eprint!("\r{:60}\r", "");
        changing.print(&format!("  10 jobs {nodes:5} nodes 6 steps"));
        settled.print("                    settled");
    }
}

/// The published program, solved by the same HiGHS.
fn beside_per_node(data: &Data, solver: &Counting, quick: bool) {
    let secs = per_node::T_FWD_SECS;
    println!("\nThe published program with a variable for each job and node, one step of {secs} s, 10 jobs");
    println!(
        "            seconds       gap  value/knapsack  variables  rows     infill, ms: 1 step  (ratio)   6 steps  (ratio)   6, no solver  (ratio)"
    );
    for nodes in [50, 100, 200] {
        for seed in 0..if quick { 1 } else { 4 } {
            eprint!("\rper node: {nodes} nodes, {seed} ");
            compare(data, solver, nodes, 2000 + seed);
        }
    }
}

fn compare(data: &Data, solver: &Counting, nodes: usize, seed: u64) {
    let case = data.draw(seed, 10, nodes, 6);
    let milp = per_node::write(case.jobs(), case.nodes());
    let clock = Instant::now();
    let limits = Limits { secs: PER_NODE_SECS, mip_gap: PER_NODE_GAP };
    let answer = solver.solver.solve(&milp, limits, None);
    let secs = clock.elapsed().as_secs_f64();
    let best = per_node::optimum(case.jobs(), case.nodes().len());
    let single = data.draw(seed, 10, nodes, 1);
    let ours = [
        median_secs(|| plan_round(&single.problem(), solver)),
        median_secs(|| plan_round(&case.problem(), solver)),
        median_secs(|| plan_without_solver(&case.problem(), "measured")),
    ];
    eprint!("\r{:60}\r", "");
    let found = match answer {
        Ok(found) => {
            // It was not proved within the time limit, so the true time is longer.
            let bar = if found.optimal { ' ' } else { '>' };
            let gap = found.gap.map_or("?".to_owned(), |gap| format!("{:.3} %", 100.0 * gap));
            format!("{bar}{secs:8.3}  {gap:>8}  {:14.5}", milp.total_gain(&found.values) / best)
        }
        Err(why) => format!(">{secs:8.3}  {why}"),
    };
    let variables = milp.variables.len();
    let rows = milp.rows.len();
    let columns = ours.map(|own| format!("{:9.2} ({:6.1}x)", 1e3 * own, secs / own));
    println!("{nodes:5} nodes {found}  {variables:9} {rows:5}  {}", columns.join(" "));
}

fn median_secs<T>(work: impl Fn() -> T) -> f64 {
    let secs = |_| {
        let clock = Instant::now();
        std::hint::black_box(work());
        clock.elapsed().as_secs_f64()
    };
    quantile(&(0..5).map(secs).collect::<Vec<f64>>(), 0.5)
}
