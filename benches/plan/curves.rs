//! Reads published scaling tables as curves: Summit by nodes, ElasticFlow by GPUs (one per node), Pollux by
//! nodes of four GPUs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use infill_model::{CurvePoint, ScalingCurve};

/// A table with fewer sizes does not say how a job scales.
const FEWEST_SIZES: usize = 3;

type Row = BTreeMap<String, String>;

/// Rates by table and size.
type Tables = BTreeMap<String, BTreeMap<u32, f64>>;

/// Reads all curves below `dir`, in a fixed order.
pub fn load(dir: &Path) -> Result<Vec<ScalingCurve>, String> {
    let mut tables = Tables::new();
    for row in rows(&dir.join("summit.csv"))? {
        let nodes = number(&row, "nodes")?;
        let rate = number(&row, "images_per_s")?;
        tables.entry(format!("summit {}", text(&row, "model")?)).or_default().insert(nodes as u32, rate);
    }
    for file in files(&dir.join("elasticflow-a100"))? {
        elasticflow(&file, &mut tables)?;
    }
    for folder in files(&dir.join("pollux"))? {
        let file = folder.join("scalability.csv");
        if file.is_file() {
            pollux(&file, &mut tables)?;
        }
    }
    let curves: Vec<ScalingCurve> = tables
        .values()
        .filter_map(|table| {
            let points = table.iter().map(|(nodes, rate)| CurvePoint { nodes: *nodes, rate: *rate });
            (table.len() >= FEWEST_SIZES).then(|| ScalingCurve::new(points.collect()).ok())?
        })
        .collect();
    if curves.is_empty() { Err(format!("no curve in {}", dir.display())) } else { Ok(curves) }
}

fn elasticflow(file: &Path, tables: &mut Tables) -> Result<(), String> {
    for row in rows(file)? {
        let batch = number(&row, "global_batch_size")?;
        let sizes = row.iter().filter_map(|(k, v)| Some((k.parse::<u32>().ok()?, v.parse::<f64>().ok()?)));
        let rates = sizes.filter(|(_, rate)| *rate > 0.0).map(|(n, rate)| (n, rate * batch));
        tables.entry(format!("{} {batch}", file.display())).or_default().extend(rates);
    }
    Ok(())
}

fn pollux(file: &Path, tables: &mut Tables) -> Result<(), String> {
    for row in rows(file)? {
        let nodes = number(&row, "num_nodes")? as u32;
        let gpus = number(&row, "num_replicas")? as u32;
        let batch = number(&row, "local_bsz")?;
        if gpus == 4 * nodes {
            let rate = f64::from(gpus) * batch / number(&row, "step_time")?;
            tables.entry(format!("{} {batch}", file.display())).or_default().insert(nodes, rate);
        }
    }
    Ok(())
}

fn rows(path: &Path) -> Result<Vec<Row>, String> {
    let failed = |e: csv::Error| format!("{}: {e}", path.display());
    let mut reader = csv::Reader::from_path(path).map_err(failed)?;
    reader.deserialize().collect::<Result<_, _>>().map_err(failed)
}

fn text<'a>(row: &'a Row, column: &str) -> Result<&'a str, String> {
    row.get(column).map(String::as_str).ok_or_else(|| format!("no column {column}"))
}

fn number(row: &Row, column: &str) -> Result<f64, String> {
    text(row, column)?.parse().map_err(|e| format!("column {column}: {e}"))
}

/// The entries of a folder, sorted.
fn files(dir: &Path) -> Result<Vec<PathBuf>, String> {
    let failed = |e: std::io::Error| format!("{}: {e}", dir.display());
    let entries = std::fs::read_dir(dir).map_err(failed)?;
    let mut found: Vec<PathBuf> =
        entries.map(|e| e.map(|e| e.path())).collect::<Result<_, _>>().map_err(failed)?;
    found.sort();
    Ok(found)
}
