//! Estimates of the training speed of models on types of GPUs, made from profiles on one GPU and the duration
//! of collectives: CSV.

use std::path::Path;

use super::closed_tables::{ModelColumns, does_not_fit};
use super::error::TraceError;
use super::line_reader::TraceSource;
use super::parse_field::{parse_count, parse_positive, wrong_value};
use super::plans::SplitColumns;
use super::table::{Table, TableDialect, TableRow};
use infill_model::{EstimateRow, MAX_NODES_A_JOB, NodeType, ParallelStrategy, Parallelism};

/// Most rows in a table.
const MAX_ROWS: usize = 20_000;

/// Most GPUs of a row, and most GPUs over which one dimension divides a model.
const MAX_GPUS: u32 = 4096;

/// Reads estimates, with a row for each way to divide a model over a number of GPUs of a type. The columns
/// are `model` (with optional `params` and `batch` as for [`read_speeds`](super::read_speeds)), `gpu_type`,
/// `gpus`, `nodes`, `pp`, `dp`, `tp`, `compute_s` and `iter_time_s`. Rows that do not fit into memory, with
/// times of `inf` or −1, are left out.
///
/// # Errors
/// If the file cannot be read, lacks a column, has no row, or a row is malformed.
pub fn read_estimates(path: &Path) -> Result<Vec<EstimateRow>, TraceError> {
    parse(TraceSource::open(path)?)
}

fn parse(source: TraceSource) -> Result<Vec<EstimateRow>, TraceError> {
    let table = Table::open(source, TableDialect::Csv)?;
    let columns = EstimateColumns::from_table(&table)?;
    let mut rows = Vec::new();
    let tally = table.for_each_row(|row| {
        if rows.len() == MAX_ROWS {
            return Err(format!("more than {MAX_ROWS} rows"));
        }
        rows.extend(columns.read_row(row)?);
        Ok(())
    })?;
    let has_rows = !rows.is_empty();
    Ok(tally.none_malformed()?.finish(rows, has_rows, "row")?.value)
}

/// The columns of the table.
struct EstimateColumns {
    model: ModelColumns,
    node_type: usize,
    gpus: usize,
    nodes: usize,
    split: SplitColumns,
    compute: usize,
    secs: usize,
}

impl EstimateColumns {
    fn from_table(table: &Table) -> Result<EstimateColumns, TraceError> {
        Ok(EstimateColumns {
            model: ModelColumns::from_table(table)?,
            node_type: table.require_column("gpu_type")?,
            gpus: table.require_column("gpus")?,
            nodes: table.require_column("nodes")?,
            split: SplitColumns::from_table(table)?,
            compute: table.require_column("compute_s")?,
            secs: table.require_column("iter_time_s")?,
        })
    }

    /// Reads a row. `None` if the model does not fit into memory.
    fn read_row(&self, row: &TableRow) -> Result<Option<EstimateRow>, String> {
        if does_not_fit(row.get(self.secs)) {
            return Ok(None);
        }
        let gpus = parse_count("gpus", row.get(self.gpus), MAX_GPUS)?;
        let nodes = parse_count("nodes", row.get(self.nodes), MAX_NODES_A_JOB)?;
        let strategy = ParallelStrategy {
            tp: parse_count("tp", row.get(self.split.tp), MAX_GPUS)?,
            pp: parse_count("pp", row.get(self.split.pp), MAX_GPUS)?,
            ..ParallelStrategy::default()
        };
        let parallelism = Parallelism { dp: parse_count("dp", row.get(self.split.dp), MAX_GPUS)?, strategy };
        if gpus % nodes != 0 || parallelism.gpus() != gpus {
            let dp = parallelism.dp;
            let ParallelStrategy { tp, pp, .. } = strategy;
            return Err(format!(
                "{gpus} GPUs on {nodes} nodes, dp × tp × pp is {dp} × {tp} × {pp}; \
                         expected the same number on each node, and {gpus} in total"
            ));
        }
        let node_type = match row.get(self.node_type) {
            "" => return Err(wrong_value("gpu_type", "", "a name")),
            name => NodeType::new(name),
        };
        Ok(Some(EstimateRow {
            model: self.model.read_model(row)?,
            node_type,
            parallelism,
            gpus_by_node: vec![gpus / nodes; nodes as usize],
            compute_secs: parse_positive("compute_s", row.get(self.compute))?,
            step_secs: parse_positive("iter_time_s", row.get(self.secs))?,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "model,params,batch,gpu_type,gpus,nodes,pp,dp,tp,compute_s,iter_time_s\n";

    fn read(rows: &str) -> Result<Vec<EstimateRow>, String> {
        let source =
            TraceSource::from_bytes("estimates.csv", format!("{HEADER}{rows}").into_bytes(), 1 << 20)
                .unwrap();
        parse(source).map_err(|e| e.to_string())
    }

    #[test]
    fn rows_that_do_not_fit_are_left_out() {
        let rows = read("bert,1.3B,128,a100,4,2,2,1,2,5.5,7\nbert,1.3B,128,a10,1,1,1,1,1,inf,inf\n").unwrap();
        assert_eq!(rows.len(), 1);
        assert_eq!((rows[0].model.as_str(), rows[0].gpus_by_node.as_slice()), ("bert-1.3B-128", &[2, 2][..]));
        assert_eq!((rows[0].parallelism.strategy.pp, rows[0].compute_secs, rows[0].step_secs), (2, 5.5, 7.0));
    }

    #[test]
    fn malformed_rows_are_refused_with_their_line() {
        for (row, problem) in [
            ("bert,,,a100,4,3,1,4,1,1,1", "4 GPUs on 3 nodes"),
            ("bert,,,a100,4,2,1,2,1,1,1", "dp × tp × pp is 2 × 1 × 1"),
            ("bert,,,,4,2,1,4,1,1,1", "gpu_type"),
            ("bert,,,a100,4,2,1,4,1,0,1", "compute_s is \"0\""),
            ("bert,,,a100,4,2,1,4,1,1,x", "iter_time_s is \"x\""),
        ] {
            let error = read(&format!("{row}\n")).unwrap_err();
            assert!(error.contains(problem) && error.contains("line 2"), "{row}: {error}");
        }
    }
}
