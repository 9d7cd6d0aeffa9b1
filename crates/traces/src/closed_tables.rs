//! Tables for closed machines: the training speed of models on each placement, and the jobs that train them.

use std::collections::BTreeSet;
use std::path::Path;

use super::error::TraceError;
use super::line_reader::TraceSource;
use super::parse_field::{parse_count, parse_positive, parse_secs, wrong_value};
use super::plans;
use super::table::{Table, TableDialect, TableRow};
use infill_model::{ClosedJob, ExecPlan, MAX_NODES_A_JOB, NodeType, ParsedFile, SpeedRow};

/// Most rows in a table of speeds.
const MAX_ROWS: usize = 20_000;

/// Most jobs in a workload.
const MAX_JOBS: usize = 100_000;

/// Most GPUs that a job may ask for.
const MAX_GPUS: u32 = 65_536;

/// Most steps in a job.
const MAX_STEPS: f64 = 1e12;

/// The plan's name in a table without plans: each row has the best plan.
const BEST_PLAN: &str = "best";

/// Reads a row. `None` if the row has no speed.
type ReadRow = dyn Fn(&TableRow) -> Result<Option<SpeedRow>, String>;

/// Reads the training speed of models. A table with a column `plan` has execution plans of all its models, as
/// for [`read_plans`](super::read_plans). Any other table has the best plans, with the columns `model`,
/// `gpu_type`, `gpus`, `nodes`, `batch` and `iter_time_s`. If there is a column `params`, a model's name is
/// made of model, parameters and batch: `bert-1.3B-128`.
///
/// # Errors
/// If the file cannot be read, lacks a column, has no row, or a row is malformed.
pub fn read_speeds(path: &Path) -> Result<Vec<SpeedRow>, TraceError> {
    parse_speeds(TraceSource::open(path)?)
}

fn parse_speeds(source: TraceSource) -> Result<Vec<SpeedRow>, TraceError> {
    let table = Table::open(source, TableDialect::Csv)?;
    let read_row: Box<ReadRow> = if table.find_column("plan").is_some() {
        let columns = plans::PlanColumns::from_table(&table)?;
        let node_type = table.find_column("gpu_type");
        Box::new(move |row| read_measured_row(&columns, node_type, row).map(Some))
    } else {
        let columns = BestColumns::from_table(&table)?;
        Box::new(move |row| columns.read_row(row))
    };
    let mut rows = Vec::new();
    let tally = table.for_each_row(|row| {
        if rows.len() == MAX_ROWS {
            return Err(format!("more than {MAX_ROWS} rows"));
        }
        rows.extend(read_row(row)?);
        Ok(())
    })?;
    let has_rows = !rows.is_empty();
    Ok(tally.none_malformed()?.finish(rows, has_rows, "row")?.value)
}

/// Reads a row of a table of execution plans.
fn read_measured_row(
    columns: &plans::PlanColumns,
    node_type: Option<usize>,
    row: &TableRow,
) -> Result<SpeedRow, String> {
    let model = columns.model(row)?;
    let run = columns.read_measurement(row)?;
    let mut gpus_by_node = run.gpus_by_node;
    gpus_by_node.sort_unstable();
    Ok(SpeedRow {
        model,
        node_type: row.get_filled(node_type).map(NodeType::new),
        plan: run.plan,
        parallelism: Some(run.parallelism),
        batch: run.global_batch,
        gpus_by_node,
        step_secs: run.global_batch / run.rate,
    })
}

/// Whether the time of a step says that the model does not fit into memory: −1 or `inf`.
pub(super) fn does_not_fit(secs: &str) -> bool {
    matches!(secs.parse(), Ok(-1.0) | Ok(f64::INFINITY))
}

/// The columns that make up a model's name.
pub(super) struct ModelColumns {
    model: usize,
    params: Option<usize>,
    batch: Option<usize>,
}

impl ModelColumns {
    /// Finds the columns of a table.
    pub(super) fn from_table(table: &Table) -> Result<ModelColumns, TraceError> {
        let params = table.find_column("params");
        let batch = table.find_column("batch").filter(|_| params.is_some());
        Ok(ModelColumns { model: table.require_column("model")?, params, batch })
    }

    /// The model of a row.
    pub(super) fn read_model(&self, row: &TableRow) -> Result<String, String> {
        if row.get(self.model).is_empty() {
            return Err(wrong_value("model", "", "a name"));
        }
        let parts = [Some(self.model), self.params, self.batch].map(|column| row.get_if(column));
        let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        Ok(parts.join("-"))
    }
}

/// The columns of a table with the best plans.
struct BestColumns {
    model: ModelColumns,
    batch: usize,
    node_type: usize,
    gpus: usize,
    nodes: usize,
    secs: usize,
}

impl BestColumns {
    fn from_table(table: &Table) -> Result<BestColumns, TraceError> {
        Ok(BestColumns {
            model: ModelColumns::from_table(table)?,
            batch: table.require_column("batch")?,
            node_type: table.require_column("gpu_type")?,
            gpus: table.require_column("gpus")?,
            nodes: table.require_column("nodes")?,
            secs: table.require_column("iter_time_s")?,
        })
    }

    /// Reads a row. `None` if the model does not fit into memory.
    fn read_row(&self, row: &TableRow) -> Result<Option<SpeedRow>, String> {
        if does_not_fit(row.get(self.secs)) {
            return Ok(None);
        }
        let gpus = parse_count("gpus", row.get(self.gpus), MAX_GPUS)?;
        let nodes = parse_count("nodes", row.get(self.nodes), MAX_NODES_A_JOB)?;
        if gpus % nodes != 0 {
            return Err(format!("{gpus} GPUs on {nodes} nodes; expected the same number on each"));
        }
        Ok(Some(SpeedRow {
            model: self.model.read_model(row)?,
            node_type: row.get_filled(Some(self.node_type)).map(NodeType::new),
            plan: ExecPlan(BEST_PLAN.to_owned()),
            parallelism: None,
            batch: parse_positive("batch", row.get(self.batch))?,
            gpus_by_node: vec![gpus / nodes; nodes as usize],
            step_secs: parse_positive("iter_time_s", row.get(self.secs))?,
        }))
    }
}

/// Reads the jobs of a closed machine. The columns are `name` or `job_id`, `submission_s`, `model` (with
/// optional `params` and `batch` as for [`read_speeds`]), `gpus`, and `steps` or `iterations`. Optional
/// columns are `gpu_type` and `plan_base` (the plan that the job was submitted with). Other columns are
/// ignored. The jobs are sorted by submission, the first at 0.
///
/// # Errors
/// If the file cannot be read, lacks a column, has too many malformed lines, or has no job.
pub fn read_closed_jobs(path: &Path) -> Result<ParsedFile<Vec<ClosedJob>>, TraceError> {
    parse_jobs(TraceSource::open(path)?)
}

fn parse_jobs(source: TraceSource) -> Result<ParsedFile<Vec<ClosedJob>>, TraceError> {
    let table = Table::open(source, TableDialect::Csv)?;
    let columns = JobColumns::from_table(&table)?;
    let mut jobs = Vec::new();
    let mut names = BTreeSet::new();
    let tally = table.for_each_row(|row| {
        if jobs.len() == MAX_JOBS {
            return Err(format!("more than {MAX_JOBS} jobs"));
        }
        let job = columns.read_job(row)?;
        if !names.insert(job.name.clone()) {
            return Err(wrong_value("name", &job.name, "a name that no earlier line has"));
        }
        jobs.push(job);
        Ok(())
    })?;
    jobs.sort_by(|a, b| a.submit_secs.total_cmp(&b.submit_secs));
    let first = jobs.first().map_or(0.0, |job| job.submit_secs);
    for job in &mut jobs {
        job.submit_secs -= first;
    }
    let has_jobs = !jobs.is_empty();
    tally.finish(jobs, has_jobs, "job")
}

/// The columns of a table of jobs.
struct JobColumns {
    name: usize,
    submit: usize,
    model: ModelColumns,
    gpus: usize,
    node_type: Option<usize>,
    plan: Option<usize>,
    steps: usize,
}

impl JobColumns {
    fn from_table(table: &Table) -> Result<JobColumns, TraceError> {
        Ok(JobColumns {
            name: table.require_either("name", "job_id")?,
            submit: table.require_column("submission_s")?,
            model: ModelColumns::from_table(table)?,
            gpus: table.require_column("gpus")?,
            node_type: table.find_column("gpu_type"),
            plan: table.find_column("plan_base"),
            steps: table.require_either("steps", "iterations")?,
        })
    }

    fn read_job(&self, row: &TableRow) -> Result<ClosedJob, String> {
        let name = row.get(self.name).to_owned();
        if name.is_empty() {
            return Err(wrong_value("name", "", "a name"));
        }
        Ok(ClosedJob {
            name,
            submit_secs: parse_secs("submission_s", row.get(self.submit))?,
            model: self.model.read_model(row)?,
            gpus: parse_count("gpus", row.get(self.gpus), MAX_GPUS)?,
            node_type: row.get_filled(self.node_type).map(NodeType::new),
            plan: row.get_filled(self.plan).map(|plan| ExecPlan(plan.to_owned())),
            steps: parse_positive("steps", row.get(self.steps)).and_then(check_steps)?,
        })
    }
}

/// Checks that a simulation can reach the end of a job.
fn check_steps(steps: f64) -> Result<f64, String> {
    if steps > MAX_STEPS {
        return Err(format!("steps is {steps}; expected {MAX_STEPS:e} at most"));
    }
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speeds(text: &str) -> Result<Vec<SpeedRow>, String> {
        let source = TraceSource::from_bytes("speeds.csv", text.as_bytes().to_vec(), 1 << 20).unwrap();
        parse_speeds(source).map_err(|e| e.to_string())
    }

    fn jobs(text: &str) -> Result<ParsedFile<Vec<ClosedJob>>, String> {
        let source = TraceSource::from_bytes("jobs.csv", text.as_bytes().to_vec(), 1 << 20).unwrap();
        parse_jobs(source).map_err(|e| e.to_string())
    }

    #[test]
    fn a_table_of_plans_has_all_its_models() {
        let rows = speeds(
            "model,global_batch,gpus,nodes,placement,plan,dp,tp,pp,iter_time_s\n\
             bert,32,3,2,21,ga,3,1,1,0.5\nvit,64,1,1,1,ga,1,1,1,0.1\n",
        )
        .unwrap();
        assert_eq!(rows[0].model, "bert");
        assert_eq!((&rows[0].gpus_by_node[..], rows[0].gpus()), (&[1, 2][..], 3));
        assert_eq!((rows[0].batch, rows[0].step_secs), (32.0, 0.5));
        assert_eq!(rows[0].node_type, None);
        assert_eq!(rows[1].model, "vit");
    }

    #[test]
    fn a_table_of_best_plans_names_models_by_all_their_columns() {
        let header = "model,params,batch,gpu_type,gpus,nodes,gpus_per_node,iter_time_s\n";
        let rows = speeds(&format!("{header}bert,1.3B,128,a10,4,2,2,8.9\n")).unwrap();
        assert_eq!(rows[0].model, "bert-1.3B-128");
        assert_eq!(rows[0].node_type, Some(NodeType::new("a10")));
        assert_eq!((rows[0].plan.0.as_str(), rows[0].gpus_by_node.as_slice()), ("best", &[2, 2][..]));
        let rows = format!("{header}bert,1.3B,128,a10,4,2,2,8.9\nbert,15B,512,a10,16,8,2,-1.0\n");
        assert_eq!(speeds(&rows).unwrap().len(), 1, "a model that does not fit has no speed");
        let error = speeds(&format!("{header}bert,1.3B,128,a10,3,2,2,8.9\n")).unwrap_err();
        assert!(error.contains("line 2: 3 GPUs on 2 nodes"), "{error}");
        assert!(speeds(header).unwrap_err().contains("row"));
    }

    #[test]
    fn jobs_are_read_from_both_kinds_of_files() {
        let rubick =
            jobs("name,submission_s,model,gpus,plan_base,steps\nb,30,t5,4,ga,8\na,10,vit,2,zero-dp,3\n");
        let rubick = rubick.unwrap().value;
        assert_eq!((rubick[0].name.as_str(), rubick[0].submit_secs, rubick[0].gpus), ("a", 0.0, 2));
        assert_eq!(rubick[1].plan, Some(ExecPlan("ga".to_owned())));
        assert_eq!((rubick[1].submit_secs, rubick[1].node_type.clone()), (20.0, None));
        let arena = jobs(
            "job_id,submission_s,iterations,model,params,batch,gpus,gpu_type,deadline_s\n\
             f04,1945645,119965,bert,2.6B,256,4,a40,1956739\n",
        );
        let arena = arena.unwrap().value;
        assert_eq!((arena[0].model.as_str(), arena[0].steps), ("bert-2.6B-256", 119_965.0));
        assert_eq!((arena[0].node_type.clone(), arena[0].plan.clone()), (Some(NodeType::new("a40")), None));
    }

    #[test]
    fn a_malformed_job_is_skipped_and_reported() {
        let reading = jobs("name,submission_s,model,gpus,steps\na,0,vit,0,3\na,0,vit,1,3\na,1,vit,1,3\n");
        let reading = reading.unwrap();
        assert_eq!((reading.value.len(), reading.malformed_count), (1, 2));
        assert!(reading.malformed[0].what.contains("gpus is \"0\""));
        assert!(reading.malformed[1].what.contains("a name that no earlier line has"));
        assert!(jobs("name,model,gpus,steps\n").unwrap_err().contains("a column submission_s"));
    }
}
