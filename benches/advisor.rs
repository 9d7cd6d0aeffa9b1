//! Measures how well the advisor learns published scaling tables, compared with simpler schemes. Also
//! measures what a fit and a choice take.
//!
//! `cargo bench --bench advisor`. The tables are not part of this repository. Without them the bench says so
//! and only measures times.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use infill_advisor::curve_trial::{CurveTrial, CurveTrialResult};
use infill_advisor::{FittedCurve, ProbeContext, best_probe};
use infill_model::{
    BatchMode, CurvePoint, RescaleCosts, ScalingCurve, SizePoint, UnixTime, config::AdvisorConfig,
};

const NOISE: f64 = 0.05;
const SEEDS: u64 = 20;
const COSTS: RescaleCosts = RescaleCosts { up_secs: 18.0, down_secs: 12.0, start_secs: 18.0 };

/// Rates by size.
type Table = BTreeMap<u32, f64>;

fn main() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/data/scaling");
    if data.is_dir() {
        accuracy(&tables(&data));
    } else {
        println!("no scaling tables at {}: only times are measured", data.display());
    }
    times();
}

/// Columns of a CSV file by row.
fn rows(path: &Path) -> Vec<BTreeMap<String, String>> {
    let mut reader = csv::Reader::from_path(path).expect("a table that can be read");
    reader.deserialize().map(|row| row.expect("a row")).collect()
}

fn number(row: &BTreeMap<String, String>, column: &str) -> f64 {
    row[column].parse().expect("a number")
}

fn files(dir: &Path, name: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(dir)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path())
        .flat_map(|p| if p.is_dir() { vec![p.join(name)] } else { vec![p] })
        .filter(|p| p.extension().is_some_and(|e| e == "csv"))
        .collect();
    found.sort();
    found
}

/// All curves by group and name.
fn tables(data: &Path) -> BTreeMap<(String, String), Table> {
    let mut all: BTreeMap<(String, String), Table> = BTreeMap::new();
    let mut add = |group: &str, name: String, size: u32, rate: f64| {
        all.entry((group.to_owned(), name)).or_default().insert(size, rate);
    };
    for row in rows(&data.join("summit.csv")) {
        add(
            "summit, nodes",
            row["model"].clone(),
            number(&row, "nodes") as u32,
            number(&row, "images_per_s"),
        );
    }
    for file in files(&data.join("elasticflow-a100"), "") {
        let model = file.file_stem().expect("a name").to_string_lossy().into_owned();
        for row in rows(&file) {
            let batch = number(&row, "global_batch_size");
            for (size, rate) in
                row.iter().filter_map(|(k, v)| Some((k.parse().ok()?, v.parse::<f64>().ok()?)))
            {
                if rate > 0.0 {
                    add("elasticflow, GPUs", format!("{model} {batch}"), size, rate * batch);
                }
            }
        }
    }
    for file in files(&data.join("pollux"), "scalability.csv") {
        let model = file.parent().and_then(Path::file_name).expect("a folder").to_string_lossy().into_owned();
        let mut by_gpus: BTreeMap<(u32, u32), Vec<f64>> = BTreeMap::new();
        for row in rows(&file) {
            let nodes = number(&row, "num_nodes") as u32;
            let gpus = number(&row, "num_replicas") as u32;
            let batch = number(&row, "local_bsz");
            let rate = f64::from(gpus) * batch / number(&row, "step_time");
            by_gpus.entry((batch as u32, gpus)).or_default().push(rate);
            for per_node in [1, 4] {
                if gpus == per_node * nodes {
                    add(&format!("pollux, nodes of {per_node}"), format!("{model} {batch}"), nodes, rate);
                }
            }
        }
        // The same number of GPUs was measured on several numbers of nodes.
        for ((batch, gpus), rates) in by_gpus {
            let mean = rates.iter().sum::<f64>() / rates.len() as f64;
            add("pollux, GPUs", format!("{model} {batch}"), gpus, mean);
        }
    }
    all.retain(|_, table| table.len() >= 3);
    all
}

fn points(table: &Table) -> Vec<CurvePoint> {
    table.iter().map(|(nodes, rate)| CurvePoint { nodes: *nodes, rate: *rate }).collect()
}

fn accuracy(tables: &BTreeMap<(String, String), Table>) {
    println!(
        "Mean absolute error over all sizes of a table, {NOISE} log-normal noise a second, mean of {SEEDS} seeds.\n"
    );
    println!(
        "                                     infill                      4-3-2-1      powers of 2       linear"
    );
    println!(
        "group                curves   median  worst probes  secs      median  worst   median  worst   median  worst"
    );
    let groups: Vec<&String> = tables.keys().map(|(group, _)| group).collect();
    let mut groups: Vec<&str> = groups.into_iter().map(String::as_str).collect();
    groups.dedup();
    let mut whole = Columns::default();
    for group in groups {
        let mut part = Columns::default();
        for table in tables.iter().filter(|((g, _), _)| g == group).map(|(_, table)| table) {
            let runs: Vec<CurveTrialResult> = (0..SEEDS).map(|seed| trial(table, seed)).collect();
            part.add(table, &runs);
            whole.add(table, &runs);
        }
        part.print(group);
    }
    whole.print("all");
    println!();
}

fn trial(table: &Table, seed: u64) -> CurveTrialResult {
    let trial =
        CurveTrial { table: points(table), noise: NOISE, seed, costs: COSTS, settings: settings(table) };
    trial.run().expect("a table with rates")
}

/// The defaults, but at most half of a table's sizes are tried: else there would be nothing left to predict.
fn settings(table: &Table) -> AdvisorConfig {
    let settings = AdvisorConfig::default();
    let half = (table.len() / 2) as u32;
    AdvisorConfig { max_probes: settings.max_probes.min(half), ..settings }
}

/// Errors by table.
#[derive(Default)]
struct Columns {
    infill: Vec<f64>,
    descending: Vec<f64>,
    powers: Vec<f64>,
    linear: Vec<f64>,
    probes: usize,
    secs: f64,
}

impl Columns {
    fn add(&mut self, table: &Table, runs: &[CurveTrialResult]) {
        self.infill.push(runs.iter().map(|v| v.mape).sum::<f64>() / runs.len() as f64);
        let probes = runs.iter().map(|v| v.probes.len()).max().unwrap_or(0);
        assert!(probes <= settings(table).max_probes as usize, "more probes than there may be");
        self.probes = self.probes.max(probes);
        self.secs = runs.iter().map(|v| v.probe_secs).fold(self.secs, f64::max);
        let smallest = *table.keys().next().expect("a size");
        self.descending.push(interpolated(table, |n| n <= 4 * smallest));
        self.powers.push(interpolated(table, |n| (n / smallest).is_power_of_two() && n % smallest == 0));
        self.linear.push(error(table, |n| table[&smallest] * f64::from(n) / f64::from(smallest)));
    }

    fn print(&self, name: &str) {
        let median_and_worst = |errors: &[f64]| {
            let mut sorted = errors.to_vec();
            sorted.sort_by(f64::total_cmp);
            format!("{:5.1} % {:4.0} %", 100.0 * sorted[sorted.len() / 2], 100.0 * sorted[sorted.len() - 1])
        };
        let mut infill = self.infill.clone();
        infill.sort_by(f64::total_cmp);
        println!(
            "{name:20} {:6}   {:4.1} % {:5.1} % {:5} {:5.0}     {}  {}  {}",
            infill.len(),
            100.0 * infill[infill.len() / 2],
            100.0 * infill[infill.len() - 1],
            self.probes,
            self.secs,
            median_and_worst(&self.descending),
            median_and_worst(&self.powers),
            median_and_worst(&self.linear),
        );
    }
}

/// The error when some sizes are measured (with one report each: no noise is averaged out, so the table's own
/// rate is a favour) and the others lie on lines between them, flat beyond.
fn interpolated(table: &Table, measured: impl Fn(u32) -> bool) -> f64 {
    let known = points(table).into_iter().filter(|p| measured(p.nodes)).collect();
    let curve = ScalingCurve::new(known).expect("some sizes");
    error(table, |n| curve.rate(n))
}

fn error(table: &Table, predicted: impl Fn(u32) -> f64) -> f64 {
    table.iter().map(|(n, rate)| (predicted(*n) / rate - 1.0).abs()).sum::<f64>() / table.len() as f64
}

fn times() {
    let sizes = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64];
    let rate = |n: u32| f64::from(n) / (0.01 + 0.001 * f64::from(n).log2());
    let point = |n: &u32| SizePoint {
        nodes: *n,
        rate: rate(*n),
        error: 0.01,
        secs: 10.0,
        step_samples: None,
        hosts: None,
        spread: infill_model::Spread::Near,
        over_hosts: infill_model::Spread::Near,
        at: UnixTime(0),
    };
    let measured: Vec<SizePoint> = [1, 8, 24, 64].iter().map(point).collect();
    let all: Vec<SizePoint> = sizes.iter().map(point).collect();
    let fit = |points: &[SizePoint]| median_secs(1000, || FittedCurve::new(points, BatchMode::Auto, 64));
    println!("a fit of 4 sizes:  {:8.1} µs (median of 1,000)", 1e6 * fit(&measured));
    println!("a fit of 12 sizes: {:8.1} µs", 1e6 * fit(&all));
    let fitted = FittedCurve::new(&measured, BatchMode::Auto, 64).expect("a curve");
    let stakes = ProbeContext {
        sizes: sizes.to_vec(),
        probe_sizes: sizes.to_vec(),
        supplies: [8, 16, 32, 48, 64].iter().map(|n| (*n, 0.2)).collect(),
        present: 8,
        rivals: Vec::new(),
        elsewhere: None,
        horizon_secs: 86_400.0,
        probe_secs: 15.0,
        costs: COSTS,
    };
    let choose = || (0..200).filter_map(|_| best_probe(&fitted, &stakes)).count();
    println!("a choice among 200 jobs × 12 sizes: {:.1} ms (median of 21)", 1e3 * median_secs(21, choose));
}

fn median_secs<T>(times: usize, work: impl Fn() -> T) -> f64 {
    let mut secs: Vec<f64> = (0..times)
        .map(|_| {
            let clock = Instant::now();
            std::hint::black_box(work());
            clock.elapsed().as_secs_f64()
        })
        .collect();
    secs.sort_by(f64::total_cmp);
    secs[times / 2]
}
