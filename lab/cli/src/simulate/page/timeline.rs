//! Who is on the first nodes over time, as a raster: its size depends neither on how long nor on how busy the
//! log is.

use std::collections::BTreeMap;

use plotly::common::{ColorScale, ColorScaleElement, Marker, MarkerSymbol, Mode};
use plotly::{HeatMap, Scatter, Trace};

use super::figure::{self, COLOURS, Figure, axis, colour};
use infill_model::{JobId, NodeName};
use infill_present::days::Days;
use infill_present::escape;
use infill_sim::{Balance, Span};

/// Columns of the raster: about as many as a wide figure has dots.
const COLUMNS: usize = 900;

/// Rows of the raster at most.
const MOST_ROWS: usize = 128;

/// Pixels of a row at least and of the figure at most: it must fit a sheet of paper.
const ROW_HEIGHT: usize = 6;
const LARGEST_HEIGHT: usize = 740;

/// Most names of nodes beside it.
const MOST_TICKS: usize = 16;

/// A node that nobody uses.
const IDLE: &str = "#c9c9c9";

/// A cell's use: `None` for the main queue, else by whom, `None` for nobody.
type Cell = Option<Option<JobId>>;

/// Who is on the first nodes under a policy. `start` is the log's first moment, s.
pub fn timeline(outcome: &Balance, names: &[NodeName], start: i64, span_secs: f64) -> Figure {
    let rows = raster(&outcome.timeline, start, span_secs);
    let jobs: BTreeMap<JobId, &str> = outcome.jobs.iter().map(|j| (j.id, j.name.as_str())).collect();
    let used: BTreeMap<JobId, usize> = numbered(&rows);
    let (unit, unit_secs) = Days(span_secs).unit();
    let x: Vec<f64> = (0..=COLUMNS)
        .map(|i| (span_secs / unit_secs * i as f64 / COLUMNS as f64 * 1e4).round() / 1e4)
        .collect();
    let map: Box<dyn Trace> = HeatMap::new(x, (0..rows.len()).collect(), colours(&rows, &used))
        .text_matrix(words(&rows, &jobs))
        .hover_template("%{y}<br>%{x}: %{text}<extra></extra>")
        .color_scale(scale())
        .zmin(0.0)
        .zmax(COLOURS.len() as f64)
        .show_scale(false);
    let legend = legend(&used, &jobs);
    let (ticks, texts) = ticks(names, rows.len());
    let y = axis("node")
        .tick_values(ticks)
        .tick_text(texts)
        .range(vec![rows.len() as f64 - 0.5, -0.5])
        .zero_line(false)
        .show_grid(false);
    let height = (rows.len() * ROW_HEIGHT + 160).min(LARGEST_HEIGHT);
    Figure {
        id: "timeline",
        title: "Who is on the nodes",
        caption: caption(outcome, rows.len(), used.len()),
        traces: figure::traces(std::iter::once(map).chain(legend)),
        layout: figure::layout(height, axis(&format!("{unit}s since the log's start")), y),
    }
}

fn caption(outcome: &Balance, nodes: usize, jobs: usize) -> String {
    let colours = if jobs > COLOURS.len() {
        format!(" {jobs} jobs share {} colours; the name shows where you point.", COLOURS.len())
    } else {
        String::new()
    };
    format!(
        "The first {nodes} nodes under {}: grey where a node is idle, coloured where a malleable job holds it, blank \
         where the main queue does. Each cell shows who was there longest in its time.{colours}",
        outcome.policy
    )
}

/// Who was longest in each cell, by node.
fn raster(spans: &[Span], start: i64, span_secs: f64) -> Vec<Vec<Cell>> {
    let nodes = spans.iter().map(|s| s.node as usize + 1).max().unwrap_or(0).min(MOST_ROWS);
    let width = (span_secs / COLUMNS as f64).max(f64::MIN_POSITIVE);
    let mut rows = vec![vec![None; COLUMNS]; nodes];
    for (node, row) in rows.iter_mut().enumerate() {
        // Seconds in each cell by use; what is missing is the main queue's.
        let mut secs: Vec<BTreeMap<Option<JobId>, f64>> = vec![BTreeMap::new(); COLUMNS];
        for span in spans.iter().filter(|s| s.node as usize == node) {
            let (from, to) = ((span.from - start) as f64 / width, (span.to - start) as f64 / width);
            let last = (to.ceil().max(0.0) as usize).min(COLUMNS);
            for (i, cell) in secs.iter_mut().enumerate().take(last).skip(from.max(0.0) as usize) {
                let part = to.min(i as f64 + 1.0) - from.max(i as f64);
                *cell.entry(span.job).or_insert(0.0) += part.max(0.0);
            }
        }
        for (cell, secs) in row.iter_mut().zip(secs) {
            let main = 1.0 - secs.values().sum::<f64>();
            let longest = secs.into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
            *cell = longest.filter(|(_, part)| *part > main).map(|(job, _)| job);
        }
    }
    rows
}

/// The jobs of a raster, numbered from 0 in the order of their ids.
fn numbered(rows: &[Vec<Cell>]) -> BTreeMap<JobId, usize> {
    let mut jobs: Vec<JobId> = rows.iter().flatten().filter_map(|cell| (*cell)?).collect();
    jobs.sort_unstable();
    jobs.dedup();
    jobs.into_iter().zip(0..).collect()
}

/// 0 for an idle node, 1 and more for the colours of jobs.
fn colours(rows: &[Vec<Cell>], used: &BTreeMap<JobId, usize>) -> Vec<Vec<Option<usize>>> {
    let number = |job: &JobId| used.get(job).map_or(0, |i| 1 + i % COLOURS.len());
    let cell = |cell: &Cell| cell.as_ref().map(|job| job.as_ref().map_or(0, number));
    rows.iter().map(|row| row.iter().map(cell).collect()).collect()
}

/// What is said of a cell.
fn words(rows: &[Vec<Cell>], jobs: &BTreeMap<JobId, &str>) -> Vec<Vec<String>> {
    let labels: BTreeMap<JobId, String> = jobs.iter().map(|(id, name)| (*id, escape::label(name))).collect();
    let word = |cell: &Cell| match cell {
        None => String::new(),
        Some(None) => "idle".to_owned(),
        Some(Some(job)) => labels.get(job).cloned().unwrap_or_else(|| job.to_string()),
    };
    rows.iter().map(|row| row.iter().map(word).collect()).collect()
}

/// A colour for each number, without any between them.
fn scale() -> ColorScale {
    let count = COLOURS.len() + 1;
    let all = std::iter::once(IDLE).chain(COLOURS).enumerate();
    let steps = all.flat_map(|(i, colour)| {
        [i, i + 1].map(|edge| ColorScaleElement(edge as f64 / count as f64, colour.to_owned()))
    });
    ColorScale::Vector(steps.collect())
}

/// Names of the jobs beside their colours, if each has its own.
fn legend(used: &BTreeMap<JobId, usize>, jobs: &BTreeMap<JobId, &str>) -> Vec<Box<dyn Trace>> {
    if used.len() > COLOURS.len() {
        return Vec::new();
    }
    let entry = |name: &str, colour: &'static str| -> Box<dyn Trace> {
        // A point that is nowhere: only its entry is wanted.
        Scatter::new(vec![None::<f64>], vec![None::<f64>])
            .mode(Mode::Markers)
            .name(name)
            .marker(Marker::new().symbol(MarkerSymbol::Square).size(10).color(colour))
    };
    let named = used.iter().filter_map(|(id, i)| Some(entry(&escape::label(jobs.get(id)?), colour(*i))));
    std::iter::once(entry("idle", IDLE)).chain(named).collect()
}

/// Every so many nodes have their name at the axis.
fn ticks(names: &[NodeName], rows: usize) -> (Vec<f64>, Vec<String>) {
    let step = rows.div_ceil(MOST_TICKS).max(1);
    let shown = names.iter().take(rows).enumerate().step_by(step);
    shown.map(|(i, name)| (i as f64, escape::label(name.as_str()))).unzip()
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: Option<JobId> = Some(JobId(7));

    fn span(node: u32, from: i64, to: i64, job: Option<JobId>) -> Span {
        Span { node, from, to, job }
    }

    #[test]
    fn a_cell_shows_who_was_there_longest() {
        // 10 s a cell.
        let spans = [
            span(1, 100, 106, None),
            span(1, 106, 114, JOB),
            span(1, 114, 119, None),
            span(1, 130, 150, JOB),
        ];
        let rows = raster(&spans, 100, 10.0 * COLUMNS as f64);
        assert_eq!((rows.len(), rows[0].len()), (2, COLUMNS));
        assert!(rows[0].iter().all(Option::is_none));
        // Idle 6 of 10 s; idle 5 s, held 4 s, main 1 s; the main queue's; held.
        assert_eq!(rows[1][..6], [Some(None), Some(None), None, Some(JOB), Some(JOB), None]);
    }

    #[test]
    fn what_lies_outside_is_cut() {
        let rows = raster(&[span(0, -500, 1_000_000, JOB)], 0, 9000.0);
        assert!(rows[0].iter().all(|cell| *cell == Some(JOB)));
        assert!(raster(&[], 0, 0.0).is_empty());
        assert_eq!(raster(&[span(5000, 0, 9, JOB)], 0, 9.0).len(), MOST_ROWS);
    }

    #[test]
    fn each_number_has_its_colour() {
        let ColorScale::Vector(steps) = scale() else { panic!() };
        let z = |number: usize| {
            // As plotly scales it between zmin and zmax.
            let at = number as f64 / COLOURS.len() as f64;
            steps
                .windows(2)
                .find(|w| w[0].0 <= at && at <= w[1].0 && w[0].1 == w[1].1)
                .map(|w| w[0].1.clone())
        };
        assert_eq!(z(0).as_deref(), Some(IDLE));
        assert_eq!(z(1).as_deref(), Some(COLOURS[0]));
        assert_eq!(z(COLOURS.len()).as_deref(), Some(COLOURS[COLOURS.len() - 1]));
    }
}
