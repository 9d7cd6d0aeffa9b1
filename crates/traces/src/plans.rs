//! Measured execution plans: CSV with a row for each plan on each placement, and another with facts of
//! models.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::error::TraceError;
use super::line_reader::TraceSource;
use super::parse_field::{parse_count, parse_positive, truncate_text, wrong_value};
use super::table::{Table, TableDialect, TableRow};
use infill_model::{
    ExecPlan, MAX_NODES_A_JOB, ModelFacts, ParallelStrategy, Parallelism, PlanMeasurement, Precision,
};

/// Most rows of a model: weighing what each would teach of all others takes time by the square of their
/// number.
const MAX_ROWS: usize = 1000;

/// Models that a message names.
const MAX_NAMED: usize = 20;

/// Most programs of a file.
const MOST_PROGRAMS: usize = 200;

/// Most layers, tokens, samples and so on.
const MOST_OF_A_FACT: u32 = 1_000_000_000;

/// Most GPUs of a node, and most ways of splitting a model.
const MAX_GPUS: u32 = 4096;

/// Reads what was measured of a model: columns `model`, `gpus`, `nodes`, `plan`, `dp`, `tp`, `pp`,
/// `global_batch` and `iter_time_s`; where there are any, `placement` (a digit a node: its GPUs), `zero` (the
/// stage), `offload` and `gc` (0 or 1), `micro_batches` or `ga` (micro-batches of a step; 0 is 1),
/// `cpus_per_gpu`. Other columns and models are passed over.
///
/// # Errors
/// When the file cannot be read, lacks a column, has no row of this model, or any of them is malformed.
pub fn read_plans(path: &Path, model: &str) -> Result<Vec<PlanMeasurement>, TraceError> {
    parse_plans(TraceSource::open(path)?, model)
}

fn parse_plans(source: TraceSource, model: &str) -> Result<Vec<PlanMeasurement>, TraceError> {
    let table = Table::open(source, TableDialect::Csv)?;
    let columns = PlanColumns::from_table(&table)?;
    let mut others = OtherModels::from_table(&table, model);
    let mut found = Vec::new();
    let tally = table.for_each_row(|row| {
        if others.record_other(row.get(columns.model)) {
            return Ok(());
        }
        if found.len() == MAX_ROWS {
            return Err(format!("more than {MAX_ROWS} rows of {model}"));
        }
        found.push(columns.read_measurement(row)?);
        Ok(())
    })?;
    let some = !found.is_empty();
    let found = tally.none_malformed()?.finish(found, true, "row")?.value;
    if some { Ok(found) } else { Err(others.missing_model_error()) }
}

/// Reads what was measured of all programs of a file: of each model, and of each `precision` of it where the
/// table has such a column; what was `compiled` is a program of its own, too. Columns are those of
/// [`read_plans`].
///
/// # Errors
/// As [`read_plans`].
pub fn read_programs(path: &Path) -> Result<BTreeMap<String, Vec<PlanMeasurement>>, TraceError> {
    let table = Table::open(TraceSource::open(path)?, TableDialect::Csv)?;
    let columns = PlanColumns::from_table(&table)?;
    let precision = table.find_column("precision");
    let compiled = table.find_column("compiled");
    let mut programs: BTreeMap<String, Vec<PlanMeasurement>> = BTreeMap::new();
    let tally = table.for_each_row(|row| {
        let mut name = columns.model(row)?;
        let precision = row.get_if(precision);
        if !precision.is_empty() {
            name = format!("{name} {precision}");
        }
        if row.get_if(compiled) == "1" {
            name.push_str(" compiled");
        }
        if programs.len() == MOST_PROGRAMS && !programs.contains_key(&name) {
            return Err(format!("more than {MOST_PROGRAMS} programs"));
        }
        let runs = programs.entry(name).or_default();
        if runs.len() == MAX_ROWS {
            return Err(format!("more than {MAX_ROWS} rows of a program"));
        }
        runs.push(columns.read_measurement(row)?);
        Ok(())
    })?;
    Ok(tally.none_malformed()?.finish(programs, true, "row")?.value)
}

/// Reads the facts of a model: columns `model` and `params_mi` (millions of parameters); where there are any,
/// `layers`, `hidden`, `heads`, `seq` (tokens of a sample) and `global_batch`.
///
/// # Errors
/// When the file cannot be read, lacks a column, does not know the model, or knows it wrongly.
pub fn read_model_facts(path: &Path, model: &str) -> Result<ModelFacts, TraceError> {
    let table = Table::open(TraceSource::open(path)?, TableDialect::Csv)?;
    let name = table.require_column("model")?;
    let params = table.require_column("params_mi")?;
    let [layers, hidden, heads, sequence, batch] =
        ["layers", "hidden", "heads", "seq", "global_batch"].map(|column| table.find_column(column));
    let mut found = None;
    let mut others = OtherModels::from_table(&table, model);
    let tally = table.for_each_row(|row| {
        if !others.record_other(row.get(name)) {
            found = Some(ModelFacts {
                params_mi: parse_positive("params_mi", row.get(params))?,
                layers: parse_fact("layers", row.get_if(layers))?,
                hidden: parse_fact("hidden", row.get_if(hidden))?,
                heads: parse_fact("heads", row.get_if(heads))?,
                sequence: parse_fact("seq", row.get_if(sequence))?,
                global_batch: parse_fact("global_batch", row.get_if(batch))?,
                precision: Precision::default(),
            });
        }
        Ok(())
    })?;
    tally.none_malformed()?.finish(found, true, "row")?.value.ok_or_else(|| others.missing_model_error())
}

/// A number of a model; nothing where none is given.
fn parse_fact(name: &str, text: &str) -> Result<Option<u32>, String> {
    if text.is_empty() { Ok(None) } else { parse_count(name, text, MOST_OF_A_FACT).map(Some) }
}

/// The models of a file that are not the one that was asked for.
struct OtherModels {
    path: PathBuf,
    model: String,
    names: BTreeSet<String>,
}

impl OtherModels {
    fn from_table(table: &Table, model: &str) -> OtherModels {
        OtherModels { path: table.path(), model: model.to_owned(), names: BTreeSet::new() }
    }

    /// Whether a row is of another model.
    fn record_other(&mut self, name: &str) -> bool {
        let other = name != self.model;
        if other && self.names.len() <= MAX_NAMED && !self.names.contains(name) {
            self.names.insert(truncate_text(name, 40));
        }
        other
    }

    /// The error for a file that has no others.
    fn missing_model_error(self) -> TraceError {
        let mut names: Vec<String> = self.names.into_iter().collect();
        if names.len() > MAX_NAMED {
            names[MAX_NAMED] = "…".to_owned();
        }
        let found = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        TraceError::NoSuchModel { path: self.path, model: self.model, found }
    }
}

/// Where the columns are.
pub(super) struct PlanColumns {
    model: usize,
    plan: usize,
    gpus: usize,
    nodes: usize,
    split: [usize; 3],
    global_batch: usize,
    secs: usize,
    placement: Option<usize>,
    zero: Option<usize>,
    offload: Option<usize>,
    recompute: Option<usize>,
    micro_batches: Option<usize>,
    accumulate: Option<usize>,
    cpus_per_gpu: Option<usize>,
}

impl PlanColumns {
    /// Finds them.
    pub(super) fn from_table(table: &Table) -> Result<PlanColumns, TraceError> {
        Ok(PlanColumns {
            model: table.require_column("model")?,
            plan: table.require_column("plan")?,
            gpus: table.require_column("gpus")?,
            nodes: table.require_column("nodes")?,
            split: [table.require_column("dp")?, table.require_column("tp")?, table.require_column("pp")?],
            global_batch: table.require_column("global_batch")?,
            secs: table.require_column("iter_time_s")?,
            placement: table.find_column("placement"),
            zero: table.find_column("zero"),
            offload: table.find_column("offload"),
            recompute: table.find_column("gc"),
            micro_batches: table.find_column("micro_batches"),
            accumulate: table.find_column("ga"),
            cpus_per_gpu: table.find_column("cpus_per_gpu"),
        })
    }

    /// The model of a row.
    pub(super) fn model(&self, row: &TableRow) -> Result<String, String> {
        match row.get(self.model) {
            "" => Err(wrong_value("model", "", "a name")),
            name => Ok(name.to_owned()),
        }
    }

    /// What was measured of it.
    pub(super) fn read_measurement(&self, row: &TableRow) -> Result<PlanMeasurement, String> {
        let [dp, tp, pp] = self.split;
        let strategy = ParallelStrategy {
            tp: parse_count("tp", row.get(tp), MAX_GPUS)?,
            pp: parse_count("pp", row.get(pp), MAX_GPUS)?,
            zero: parse_stage("zero", row.get_if(self.zero), 3)?,
            offload: parse_stage("offload", row.get_if(self.offload), 1)? > 0,
            accumulate: self.micro_batches(row)?,
            checkpointing: parse_stage("gc", row.get_if(self.recompute), 1)? > 0,
        };
        let parallelism = Parallelism { dp: parse_count("dp", row.get(dp), MAX_GPUS)?, strategy };
        let gpus_by_node = self.placement(row)?;
        let gpus: u32 = gpus_by_node.iter().sum();
        if parallelism.gpus() != gpus {
            let dp = parallelism.dp;
            let ParallelStrategy { tp, pp, .. } = strategy;
            return Err(format!(
                "dp × tp × pp is {dp} × {tp} × {pp}; expected {gpus}, as many as there are GPUs"
            ));
        }
        if row.get(self.plan).is_empty() {
            return Err("no plan; expected its name".to_owned());
        }
        let global_batch = parse_positive("global_batch", row.get(self.global_batch))?;
        let rate = global_batch / parse_positive("iter_time_s", row.get(self.secs))?;
        let plan = ExecPlan(row.get(self.plan).to_owned());
        let cpus = row.get_if(self.cpus_per_gpu);
        let cpus_per_gpu = if cpus.is_empty() { None } else { Some(parse_positive("cpus_per_gpu", cpus)?) };
        Ok(PlanMeasurement { plan, parallelism, global_batch, gpus_by_node, cpus_per_gpu, rate })
    }

    /// Micro-batches of a step: as told, else one.
    fn micro_batches(&self, row: &TableRow) -> Result<u32, String> {
        let told = [("micro_batches", self.micro_batches), ("ga", self.accumulate)];
        let told = told.map(|(name, column)| (name, row.get_if(column)));
        match told.into_iter().find(|(_, text)| !text.is_empty()) {
            // Rubick's tables write 0 where nothing is accumulated.
            None | Some((_, "0")) => Ok(1),
            Some((name, text)) => parse_count(name, text, MOST_OF_A_FACT),
        }
    }

    /// GPUs of each node: as the placement says, else as many on each.
    fn placement(&self, row: &TableRow) -> Result<Vec<u32>, String> {
        let gpus = parse_count("gpus", row.get(self.gpus), MAX_GPUS)?;
        let nodes = parse_count("nodes", row.get(self.nodes), MAX_NODES_A_JOB)?;
        let text = row.get_if(self.placement);
        if text.is_empty() {
            return match gpus % nodes {
                0 => Ok(vec![gpus / nodes; nodes as usize]),
                _ => Err(format!("{gpus} GPUs on {nodes} nodes; expected a placement where they differ")),
            };
        }
        let by_node: Option<Vec<u32>> = text.chars().map(|c| c.to_digit(10).filter(|d| *d > 0)).collect();
        let expected = || format!("a digit for each of {nodes} nodes, its GPUs, {gpus} together");
        by_node
            .filter(|by_node: &Vec<u32>| {
                by_node.len() == nodes as usize && by_node.iter().sum::<u32>() == gpus
            })
            .ok_or_else(|| wrong_value("placement", text, &expected()))
    }
}

/// A number from 0; nothing is 0.
fn parse_stage(name: &str, text: &str, most: u32) -> Result<u32, String> {
    if text.is_empty() {
        return Ok(0);
    }
    let stage = text.parse().ok().filter(|s| *s <= most);
    stage.ok_or_else(|| wrong_value(name, text, &format!("a whole number from 0 to {most}, or nothing")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str =
        "model,global_batch,gpus,nodes,placement,plan,dp,tp,pp,zero,offload,gc,iter_time_s\n";

    fn read(rows: &str) -> Result<Vec<PlanMeasurement>, String> {
        let bytes = format!("{HEADER}{rows}").into_bytes();
        let source = TraceSource::from_bytes("plans.csv", bytes, 1 << 20).unwrap();
        parse_plans(source, "bert").map_err(|e| e.to_string())
    }

    #[test]
    fn a_row_is_read_whole() {
        let rows = read("bert,32,4,3,112,zero,4,1,1,2,1,,0.5\nvit,64,1,1,1,ga,1,1,1,,,,0.1\n").unwrap();
        let strategy = ParallelStrategy { zero: 2, offload: true, ..ParallelStrategy::default() };
        let parallelism = Parallelism { dp: 4, strategy };
        let plan = ExecPlan("zero".to_owned());
        let global_batch = 32.0;
        let rate = 64.0;
        assert_eq!(
            rows,
            [PlanMeasurement {
                plan,
                parallelism,
                global_batch,
                gpus_by_node: vec![1, 1, 2],
                cpus_per_gpu: None,
                rate
            }]
        );
    }

    #[test]
    fn without_a_placement_nodes_are_alike() {
        assert_eq!(read("bert,32,4,2,,ga,4,1,1,,,,0.5\n").unwrap()[0].gpus_by_node, [2, 2]);
    }

    #[test]
    fn nonsense_is_refused_with_its_line() {
        for (row, says) in [
            ("bert,32,4,2,13,ga,2,1,1,,,,0.5", "dp × tp × pp is 2 × 1 × 1; expected 4"),
            ("bert,32,4,2,112,ga,4,1,1,,,,0.5", "expected a digit for each of 2 nodes"),
            ("bert,32,4,3,,ga,4,1,1,,,,0.5", "expected a placement where they differ"),
            ("bert,32,4,2,22,ga,4,1,1,7,,,0.5", "zero is \"7\""),
            ("bert,32,4,2,22,ga,4,1,1,,,,0", "iter_time_s is \"0\""),
            ("bert,32,4,2,22,,4,1,1,,,,1", "no plan"),
        ] {
            let error = read(&format!("{row}\n")).unwrap_err();
            assert!(error.contains(says) && error.contains("line 2"), "{row}: {error}");
        }
        assert!(
            read("vit,64,1,1,1,ga,1,1,1,,,,0.1\n")
                .unwrap_err()
                .contains("no row of the model \"bert\"; found rows of vit")
        );
    }
}
