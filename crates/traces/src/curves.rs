//! Scaling curves: CSV with throughputs by number of nodes.

use std::collections::HashMap;
use std::path::Path;

use super::error::TraceError;
use super::line_reader::TraceSource;
use super::line_tally::LineTally;
use super::parse_field::{parse_count, parse_positive, wrong_value};
use super::table::{Table, TableDialect, TableRow};
use infill_model::{CurvePoint, MAX_NODES_A_JOB, NamedCurve, ParsedFile, ScalingCurve};

/// Names of the column with the throughput, the first that is there counts.
const RATE_COLUMNS: [&str; 4] = ["throughput", "images_per_s", "samples_per_s", "rate"];

/// Reads scaling curves: CSV with a header, in one of two forms.
///
/// *Long*: a column `nodes`, perhaps a column `model` (then the file has a curve a model, named by it; else
/// one curve, named by the file's stem), and the throughput in `throughput`, `images_per_s`, `samples_per_s`
/// or `rate`, or, where there is none of these, in the last other column that has a number in the first row.
///
/// *Wide*: all columns but the first are named by a number of nodes, and each row is a curve, named by the
/// file's stem, a slash and the first field: `vgg16/256`.
///
/// Throughputs are positive, in samples a second or any unit that is the same at all sizes. Curves come in
/// the file's order.
///
/// # Errors
/// When the file cannot be read, lacks a column, has too many malformed lines, no curve, or two rates for one
/// size.
pub fn read_curves(path: &Path) -> Result<ParsedFile<Vec<NamedCurve>>, TraceError> {
    parse(TraceSource::open(path)?)
}

pub(super) fn parse(source: TraceSource) -> Result<ParsedFile<Vec<NamedCurve>>, TraceError> {
    let stem = source.file_stem();
    let table = Table::open(source, TableDialect::Csv)?;
    let path = table.path();
    let mut points = CurveBuilder::default();
    let tally = match (table.find_column("nodes"), wide_sizes(table.columns())) {
        (Some(nodes), _) => read_long(table, nodes, &stem, &mut points),
        (None, Some(sizes)) => read_wide(table, &sizes, &stem, &mut points),
        (None, None) => Err(table.missing_columns("nodes and throughput, or numbers of nodes".to_owned())),
    }?;
    let curves = points
        .curves
        .into_iter()
        .map(|(name, points): (String, Vec<CurvePoint>)| match ScalingCurve::new(points) {
            Ok(curve) => Ok(NamedCurve { name, curve }),
            Err(source) => Err(TraceError::Curve { path: path.clone(), name, source }),
        })
        .collect::<Result<Vec<_>, _>>()?;
    let some = !curves.is_empty();
    tally.finish(curves, some, "throughput")
}

/// Points by curve, curves in the order in which they were met.
#[derive(Default)]
struct CurveBuilder {
    places: HashMap<String, usize>,
    curves: Vec<(String, Vec<CurvePoint>)>,
}

impl CurveBuilder {
    fn add_point(&mut self, name: &str, point: CurvePoint) {
        let place = match self.places.get(name) {
            Some(place) => *place,
            None => {
                self.places.insert(name.to_owned(), self.curves.len());
                self.curves.push((name.to_owned(), Vec::new()));
                self.curves.len() - 1
            }
        };
        if let Some((_, points)) = self.curves.get_mut(place) {
            points.push(point);
        }
    }
}

fn read_long(
    table: Table,
    nodes: usize,
    stem: &str,
    points: &mut CurveBuilder,
) -> Result<LineTally, TraceError> {
    let model = table.find_column("model");
    let mut rate = RATE_COLUMNS.iter().find_map(|name| table.find_column(name));
    let others: Vec<usize> =
        (0..table.columns().len()).filter(|c| *c != nodes && Some(*c) != model).collect();
    if others.is_empty() {
        return Err(
            table.missing_columns(format!("a column with the throughput, such as {}", RATE_COLUMNS[0]))
        );
    }
    table.for_each_row(|row| {
        rate = rate.or_else(|| last_number(row, &others));
        let rate = rate.ok_or("no number beside that of nodes; expected a throughput")?;
        let name = model.map_or(stem, |m| row.get(m));
        if name.is_empty() {
            return Err(wrong_value("model", name, "a name"));
        }
        let nodes = parse_count("nodes", row.get(nodes), MAX_NODES_A_JOB)?;
        points.add_point(name, CurvePoint { nodes, rate: parse_positive("throughput", row.get(rate))? });
        Ok(())
    })
}

fn last_number(row: &TableRow, columns: &[usize]) -> Option<usize> {
    columns.iter().rev().copied().find(|c| row.get(*c).parse().is_ok_and(f64::is_finite))
}

/// The numbers of nodes that name all columns but the first, if they do.
fn wide_sizes(columns: &[String]) -> Option<Vec<u32>> {
    let sizes = columns.get(1..).filter(|sizes| !sizes.is_empty())?;
    sizes.iter().map(|size| parse_count("nodes", size, MAX_NODES_A_JOB).ok()).collect()
}

/// A field that is empty was not measured.
fn read_wide(
    table: Table,
    sizes: &[u32],
    stem: &str,
    points: &mut CurveBuilder,
) -> Result<LineTally, TraceError> {
    table.for_each_row(|row| {
        let name = format!("{stem}/{}", row.get(0));
        let measured = (1..).zip(sizes.iter().copied()).filter(|(column, _)| !row.get(*column).is_empty());
        let point = |(column, nodes)| {
            let rate = parse_positive("throughput", row.get(column))?;
            Ok(CurvePoint { nodes, rate })
        };
        // The whole row or nothing of it.
        let found = measured.map(point).collect::<Result<Vec<CurvePoint>, String>>()?;
        found.into_iter().for_each(|point| points.add_point(&name, point));
        Ok(())
    })
}
