//! Scaling curves: CSV with throughputs by number of nodes.

use std::collections::HashMap;
use std::path::Path;

use super::error::TraceError;
use super::line_reader::TraceSource;
use super::line_tally::LineTally;
use super::parse_field::{parse_count, parse_positive, wrong_value};
use super::table::{Table, TableDialect, TableRow};
use infill_model::{CurvePoint, MAX_NODES_A_JOB, NamedCurve, ParsedFile, ScalingCurve};

/// Possible names of the column with the throughput. The first one in the table counts.
const RATE_COLUMNS: [&str; 4] = ["throughput", "images_per_s", "samples_per_s", "rate"];

/// Reads scaling curves: CSV with a header, in one of two forms.
///
/// *Long*: there is a column `nodes`. With a column `model`, the file has a curve for each model, named after
/// it. Otherwise the file has one curve, named after the file's stem. The throughput is in `throughput`,
/// `images_per_s`, `samples_per_s` or `rate`. If none of these exists, it is in the last other column with a
/// number in the first row.
///
/// *Wide*: all columns except the first are named with a number of nodes. Each row is a curve, named with the
/// file's stem, a slash and the first field: `vgg16/256`.
///
/// Throughputs are positive, in samples a second or any other unit that is the same at all sizes. The curves
/// are in the file's order.
///
/// # Errors
/// If the file cannot be read, lacks a column, has too many malformed lines, has no curve, or has two rates
/// for one size.
pub fn read_curves(path: &Path) -> Result<ParsedFile<Vec<NamedCurve>>, TraceError> {
    parse(TraceSource::open(path)?)
}

pub(super) fn parse(source: TraceSource) -> Result<ParsedFile<Vec<NamedCurve>>, TraceError> {
    let stem = source.file_stem();
    let table = Table::open(source, TableDialect::Csv)?;
    let path = table.path();
    let mut builder = CurveBuilder::default();
    let tally = match (table.find_column("nodes"), wide_sizes(table.columns())) {
        (Some(nodes), _) => read_long(table, nodes, &stem, &mut builder),
        (None, Some(sizes)) => read_wide(table, &sizes, &stem, &mut builder),
        (None, None) => Err(table.missing_columns("nodes and throughput, or numbers of nodes".to_owned())),
    }?;
    let mut curves = Vec::new();
    for (name, points) in builder.curves {
        match ScalingCurve::new(points) {
            Ok(curve) => curves.push(NamedCurve { name, curve }),
            Err(source) => return Err(TraceError::Curve { path, name, source }),
        }
    }
    let has_curves = !curves.is_empty();
    tally.finish(curves, has_curves, "throughput")
}

/// The points of each curve. Curves are in the order of their first points.
#[derive(Default)]
struct CurveBuilder {
    indices: HashMap<String, usize>,
    curves: Vec<(String, Vec<CurvePoint>)>,
}

impl CurveBuilder {
    fn add_point(&mut self, name: &str, point: CurvePoint) {
        let index = match self.indices.get(name) {
            Some(index) => *index,
            None => {
                self.indices.insert(name.to_owned(), self.curves.len());
                self.curves.push((name.to_owned(), Vec::new()));
                self.curves.len() - 1
            }
        };
        if let Some((_, points)) = self.curves.get_mut(index) {
            points.push(point);
        }
    }
}

fn read_long(
    table: Table,
    nodes: usize,
    stem: &str,
    builder: &mut CurveBuilder,
) -> Result<LineTally, TraceError> {
    let model = table.find_column("model");
    let mut rate = RATE_COLUMNS.iter().find_map(|name| table.find_column(name));
    let others: Vec<usize> =
        (0..table.columns().len()).filter(|column| *column != nodes && Some(*column) != model).collect();
    if others.is_empty() {
        return Err(
            table.missing_columns(format!("a column with the throughput, such as {}", RATE_COLUMNS[0]))
        );
    }
    table.for_each_row(|row| {
        rate = rate.or_else(|| last_number(row, &others));
        let rate = rate.ok_or("no number besides the number of nodes; expected a throughput")?;
        let name = model.map_or(stem, |column| row.get(column));
        if name.is_empty() {
            return Err(wrong_value("model", name, "a name"));
        }
        let nodes = parse_count("nodes", row.get(nodes), MAX_NODES_A_JOB)?;
        let rate = parse_positive("throughput", row.get(rate))?;
        builder.add_point(name, CurvePoint { nodes, rate });
        Ok(())
    })
}

/// The last of these columns that has a number in this row.
fn last_number(row: &TableRow, columns: &[usize]) -> Option<usize> {
    columns.iter().rev().copied().find(|column| row.get(*column).parse().is_ok_and(f64::is_finite))
}

/// The numbers of nodes that are the names of all columns except the first. `None` if the names are others.
fn wide_sizes(columns: &[String]) -> Option<Vec<u32>> {
    let sizes = columns.get(1..).filter(|sizes| !sizes.is_empty())?;
    sizes.iter().map(|size| parse_count("nodes", size, MAX_NODES_A_JOB).ok()).collect()
}

/// Reads a wide table. Empty fields were not measured.
fn read_wide(
    table: Table,
    sizes: &[u32],
    stem: &str,
    builder: &mut CurveBuilder,
) -> Result<LineTally, TraceError> {
    table.for_each_row(|row| {
        let name = format!("{stem}/{}", row.get(0));
        let mut points = Vec::new();
        for (column, nodes) in (1..).zip(sizes.iter().copied()) {
            let text = row.get(column);
            if !text.is_empty() {
                points.push(CurvePoint { nodes, rate: parse_positive("throughput", text)? });
            }
        }
        // A row counts as a whole: a malformed field discards all its points.
        for point in points {
            builder.add_point(&name, point);
        }
        Ok(())
    })
}
