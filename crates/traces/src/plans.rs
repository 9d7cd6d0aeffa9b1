//! Measured execution plans: CSV with a row for each plan on each placement, and another table with facts
//! about models.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::error::TraceError;
use super::line_reader::TraceSource;
use super::parse_field::{parse_count, parse_positive, truncate_text, wrong_value};
use super::table::{Table, TableDialect, TableRow};
use infill_model::{
    ExecPlan, MAX_NODES_A_JOB, ModelFacts, ParallelStrategy, Parallelism, PlanMeasurement, Precision,
};

/// Most rows of a model. The time to estimate what each row would teach about all others grows with the
/// square of their number.
const MAX_ROWS: usize = 1000;

/// Most models that a message names.
const MAX_NAMED: usize = 20;

/// Most programs in a file.
const MOST_PROGRAMS: usize = 200;

/// The largest number of layers, tokens, samples and so on.
const MOST_OF_A_FACT: u32 = 1_000_000_000;

/// Most GPUs of a row, and most GPUs over which one dimension divides a model.
const MAX_GPUS: u32 = 4096;

/// Reads the measurements of a model. The columns are `model`, `gpus`, `nodes`, `plan`, `dp`, `tp`, `pp`,
/// `global_batch` and `iter_time_s`. Optional columns are `placement` (a digit for each node, its number of
/// GPUs), `zero` (the stage), `offload` and `gc` (0 or 1), `micro_batches` or `ga` (micro-batches per step; 0
/// means 1), and `cpus_per_gpu`. Other columns and other models are ignored.
///
/// # Errors
/// If the file cannot be read, lacks a column, has no row of this model, or a row is malformed.
pub fn read_plans(path: &Path, model: &str) -> Result<Vec<PlanMeasurement>, TraceError> {
    parse_plans(TraceSource::open(path)?, model)
}

fn parse_plans(source: TraceSource, model: &str) -> Result<Vec<PlanMeasurement>, TraceError> {
    let table = Table::open(source, TableDialect::Csv)?;
    let columns = PlanColumns::from_table(&table)?;
    let mut others = OtherModels::from_table(&table, model);
    let mut measurements = Vec::new();
    let tally = table.for_each_row(|row| {
        if others.record_other(row.get(columns.model)) {
            return Ok(());
        }
        if measurements.len() == MAX_ROWS {
            return Err(format!("more than {MAX_ROWS} rows of {model}"));
        }
        measurements.push(columns.read_measurement(row)?);
        Ok(())
    })?;
    let measurements = tally.none_malformed()?.finish(measurements, true, "row")?.value;
    if measurements.is_empty() { Err(others.missing_model_error()) } else { Ok(measurements) }
}

/// Reads the measurements of all programs of a file. Each model is a program. With a column `precision`, each
/// precision of a model is a program of its own. So is each `compiled` variant. The other columns are those
/// of [`read_plans`].
///
/// # Errors
/// As for [`read_plans`].
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

/// Reads the facts about a model. The columns are `model` and `params_mi` (millions of parameters). Optional
/// columns are `layers`, `hidden`, `heads`, `seq` (tokens per sample) and `global_batch`.
///
/// # Errors
/// If the file cannot be read, lacks a column, has no row of the model, or a row is malformed.
pub fn read_model_facts(path: &Path, model: &str) -> Result<ModelFacts, TraceError> {
    let table = Table::open(TraceSource::open(path)?, TableDialect::Csv)?;
    let name = table.require_column("model")?;
    let params = table.require_column("params_mi")?;
    let [layers, hidden, heads, sequence, batch] =
        ["layers", "hidden", "heads", "seq", "global_batch"].map(|column| table.find_column(column));
    let mut facts = None;
    let mut others = OtherModels::from_table(&table, model);
    let tally = table.for_each_row(|row| {
        if others.record_other(row.get(name)) {
            return Ok(());
        }
        facts = Some(ModelFacts {
            params_mi: parse_positive("params_mi", row.get(params))?,
            layers: parse_fact("layers", row.get_if(layers))?,
            hidden: parse_fact("hidden", row.get_if(hidden))?,
            heads: parse_fact("heads", row.get_if(heads))?,
            sequence: parse_fact("seq", row.get_if(sequence))?,
            global_batch: parse_fact("global_batch", row.get_if(batch))?,
            precision: Precision::default(),
        });
        Ok(())
    })?;
    let facts = tally.none_malformed()?.finish(facts, true, "row")?.value;
    facts.ok_or_else(|| others.missing_model_error())
}

/// A number in the facts about a model. `None` if the field is empty.
fn parse_fact(name: &str, text: &str) -> Result<Option<u32>, String> {
    if text.is_empty() { Ok(None) } else { parse_count(name, text, MOST_OF_A_FACT).map(Some) }
}

/// The names of the models in a file besides the requested one.
struct OtherModels {
    path: PathBuf,
    model: String,
    names: BTreeSet<String>,
}

impl OtherModels {
    fn from_table(table: &Table, model: &str) -> OtherModels {
        OtherModels { path: table.path(), model: model.to_owned(), names: BTreeSet::new() }
    }

    /// Whether a row is of another model. Records its name for the error message.
    fn record_other(&mut self, name: &str) -> bool {
        let is_other = name != self.model;
        if is_other && self.names.len() <= MAX_NAMED && !self.names.contains(name) {
            self.names.insert(truncate_text(name, 40));
        }
        is_other
    }

    /// The error for a file that has only other models.
    fn missing_model_error(self) -> TraceError {
        let mut names: Vec<String> = self.names.into_iter().collect();
        if names.len() > MAX_NAMED {
            names[MAX_NAMED] = "…".to_owned();
        }
        let found = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        TraceError::NoSuchModel { path: self.path, model: self.model, found }
    }
}

/// The columns of the table.
pub(super) struct PlanColumns {
    model: usize,
    plan: usize,
    gpus: usize,
    nodes: usize,
    split: SplitColumns,
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

/// The columns that say how the training is divided over GPUs.
pub(super) struct SplitColumns {
    pub(super) dp: usize,
    pub(super) tp: usize,
    pub(super) pp: usize,
}

impl SplitColumns {
    /// Finds the columns of a table.
    pub(super) fn from_table(table: &Table) -> Result<SplitColumns, TraceError> {
        Ok(SplitColumns {
            dp: table.require_column("dp")?,
            tp: table.require_column("tp")?,
            pp: table.require_column("pp")?,
        })
    }
}

impl PlanColumns {
    /// Finds the columns of a table.
    pub(super) fn from_table(table: &Table) -> Result<PlanColumns, TraceError> {
        Ok(PlanColumns {
            model: table.require_column("model")?,
            plan: table.require_column("plan")?,
            gpus: table.require_column("gpus")?,
            nodes: table.require_column("nodes")?,
            split: SplitColumns::from_table(table)?,
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

    /// Reads the measurement of a row.
    pub(super) fn read_measurement(&self, row: &TableRow) -> Result<PlanMeasurement, String> {
        let strategy = ParallelStrategy {
            tp: parse_count("tp", row.get(self.split.tp), MAX_GPUS)?,
            pp: parse_count("pp", row.get(self.split.pp), MAX_GPUS)?,
            zero: parse_stage("zero", row.get_if(self.zero), 3)?,
            offload: parse_stage("offload", row.get_if(self.offload), 1)? > 0,
            accumulate: self.micro_batches(row)?,
            checkpointing: parse_stage("gc", row.get_if(self.recompute), 1)? > 0,
        };
        let parallelism = Parallelism { dp: parse_count("dp", row.get(self.split.dp), MAX_GPUS)?, strategy };
        let gpus_by_node = self.placement(row)?;
        let gpus: u32 = gpus_by_node.iter().sum();
        if parallelism.gpus() != gpus {
            let dp = parallelism.dp;
            let ParallelStrategy { tp, pp, .. } = strategy;
            return Err(format!("dp × tp × pp is {dp} × {tp} × {pp}; expected {gpus}, the number of GPUs"));
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

    /// Micro-batches per step; 1 if the row does not say.
    fn micro_batches(&self, row: &TableRow) -> Result<u32, String> {
        let columns = [("micro_batches", self.micro_batches), ("ga", self.accumulate)];
        let mut fields = columns.into_iter().map(|(name, column)| (name, row.get_if(column)));
        match fields.find(|(_, text)| !text.is_empty()) {
            // Rubick's tables write 0 without gradient accumulation.
            None | Some((_, "0")) => Ok(1),
            Some((name, text)) => parse_count(name, text, MOST_OF_A_FACT),
        }
    }

    /// GPUs of each node, from the placement. Without a placement, each node has the same number.
    fn placement(&self, row: &TableRow) -> Result<Vec<u32>, String> {
        let gpus = parse_count("gpus", row.get(self.gpus), MAX_GPUS)?;
        let nodes = parse_count("nodes", row.get(self.nodes), MAX_NODES_A_JOB)?;
        let text = row.get_if(self.placement);
        if text.is_empty() {
            if gpus % nodes != 0 {
                return Err(format!("{gpus} GPUs on {nodes} nodes; expected a placement if nodes differ"));
            }
            return Ok(vec![gpus / nodes; nodes as usize]);
        }
        let by_node: Option<Vec<u32>> =
            text.chars().map(|c| c.to_digit(10).filter(|digit| *digit > 0)).collect();
        by_node
            .filter(|by_node| by_node.len() == nodes as usize && by_node.iter().sum::<u32>() == gpus)
            .ok_or_else(|| {
                let expected = format!("a digit for each of {nodes} nodes, its GPUs, with the sum {gpus}");
                wrong_value("placement", text, &expected)
            })
    }
}

/// A whole number from 0 to `most`; 0 if the field is empty.
fn parse_stage(name: &str, text: &str, most: u32) -> Result<u32, String> {
    if text.is_empty() {
        return Ok(0);
    }
    let stage = text.parse().ok().filter(|stage| *stage <= most);
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
    fn a_row_is_read_with_all_its_columns() {
        let rows = read("bert,32,4,3,112,zero,4,1,1,2,1,,0.5\nvit,64,1,1,1,ga,1,1,1,,,,0.1\n").unwrap();
        let strategy = ParallelStrategy { zero: 2, offload: true, ..ParallelStrategy::default() };
        let expected = PlanMeasurement {
            plan: ExecPlan("zero".to_owned()),
            parallelism: Parallelism { dp: 4, strategy },
            global_batch: 32.0,
            gpus_by_node: vec![1, 1, 2],
            cpus_per_gpu: None,
            rate: 64.0,
        };
        assert_eq!(rows, [expected]);
    }

    #[test]
    fn without_a_placement_nodes_are_alike() {
        assert_eq!(read("bert,32,4,2,,ga,4,1,1,,,,0.5\n").unwrap()[0].gpus_by_node, [2, 2]);
    }

    #[test]
    fn malformed_rows_are_refused_with_their_line() {
        for (row, problem) in [
            ("bert,32,4,2,13,ga,2,1,1,,,,0.5", "dp × tp × pp is 2 × 1 × 1; expected 4"),
            ("bert,32,4,2,112,ga,4,1,1,,,,0.5", "expected a digit for each of 2 nodes"),
            ("bert,32,4,3,,ga,4,1,1,,,,0.5", "expected a placement if nodes differ"),
            ("bert,32,4,2,22,ga,4,1,1,7,,,0.5", "zero is \"7\""),
            ("bert,32,4,2,22,ga,4,1,1,,,,0", "iter_time_s is \"0\""),
            ("bert,32,4,2,22,,4,1,1,,,,1", "no plan"),
        ] {
            let error = read(&format!("{row}\n")).unwrap_err();
            assert!(error.contains(problem) && error.contains("line 2"), "{row}: {error}");
        }
        assert!(
            read("vit,64,1,1,1,ga,1,1,1,,,,0.1\n")
                .unwrap_err()
                .contains("no row of the model \"bert\"; found rows of vit")
        );
    }
}
