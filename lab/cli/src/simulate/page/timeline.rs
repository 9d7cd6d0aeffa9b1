//! A raster of the jobs on the first nodes over time. Its size does not depend on the length of the log, or
//! on how busy it is.

use std::collections::BTreeMap;

use super::figure::PageFigure;
use infill_model::{JobId, NodeName};
use infill_present::charts::inline::{CellKind, RasterFigure, SeriesColour};
use infill_sim::NodeSpan;

/// Most columns of the raster: about the pixels of a wide figure.
const MAX_COLUMNS: usize = 900;

/// Fewest columns of the raster, for the busiest log.
const MIN_COLUMNS: usize = MAX_COLUMNS / 32;

/// Most rows of the raster.
const MAX_ROWS: usize = 128;

/// Most bytes of the drawing. With more, the number of columns is halved.
const MAX_DRAWING_BYTES: usize = 150_000;

/// A cell's use: `None` for the main queue, `Some(None)` for an idle node, else the malleable job.
type RasterCell = Option<Option<JobId>>;

/// What a raster shows.
pub(crate) struct TimelineInput<'a> {
    /// Who was on the first nodes.
    pub spans: &'a [NodeSpan],
    /// The names of malleable jobs.
    pub job_names: BTreeMap<JobId, String>,
    /// The names of the nodes, by number.
    pub node_names: &'a [NodeName],
    /// The name of the policy.
    pub policy: &'a str,
    /// The first moment, s.
    pub start: i64,
    /// The seconds that it shows.
    pub span_secs: f64,
    /// What times are counted from, such as `the log's start`.
    pub origin: &'a str,
    /// The unit of times, such as `hour`.
    pub unit: &'a str,
    /// The seconds of this unit.
    pub unit_secs: f64,
}

/// The jobs on the first nodes under a policy.
pub(crate) fn timeline_figure(input: &TimelineInput<'_>) -> PageFigure {
    let mut columns = MAX_COLUMNS;
    loop {
        let figure = raster_figure(input, columns);
        if figure.drawing.len() <= MAX_DRAWING_BYTES || columns <= MIN_COLUMNS {
            return figure;
        }
        columns /= 2;
    }
}

fn raster_figure(input: &TimelineInput<'_>, columns: usize) -> PageFigure {
    let rows = rasterize_spans(input.spans, input.start, input.span_secs, columns);
    let used = number_jobs(&rows);
    let idle = CellKind { name: "idle".to_owned(), colour: SeriesColour::Grey };
    let held = used.iter().map(|(id, i)| CellKind {
        name: input.job_names.get(id).cloned().unwrap_or_else(|| id.to_string()),
        colour: SeriesColour::Of(*i),
    });
    let title = "Who is on the nodes";
    let cells = RasterFigure {
        title,
        times: &format!("{}s since {}", input.unit, input.origin),
        end: input.span_secs / input.unit_secs,
        row: "node",
        names: input.node_names.iter().take(rows.len()).map(|name| name.as_str().to_owned()).collect(),
        cells: cell_kinds(&rows, &used),
        kinds: std::iter::once(idle).chain(held).collect(),
        is_named: used.len() <= SeriesColour::COUNT,
    };
    let caption = raster_caption(input.policy, rows.len(), used.len());
    PageFigure { title, caption, drawing: cells.to_html(), table: None }
}

fn raster_caption(policy: &str, nodes: usize, jobs: usize) -> String {
    let colours = if jobs > SeriesColour::COUNT {
        format!(" {jobs} jobs share {} colours; the name shows where you point.", SeriesColour::COUNT)
    } else {
        String::new()
    };
    format!(
        "The first {nodes} nodes under {policy}: grey where a node is idle, coloured where a malleable job holds it, blank \
         where the main queue does. Each cell shows who was there longest in its time.{colours}"
    )
}

/// The use of each cell that lasted longest, by node.
fn rasterize_spans(spans: &[NodeSpan], start: i64, span_secs: f64, columns: usize) -> Vec<Vec<RasterCell>> {
    let nodes = spans.iter().map(|s| s.node as usize + 1).max().unwrap_or(0).min(MAX_ROWS);
    let width = (span_secs / columns as f64).max(f64::MIN_POSITIVE);
    let mut rows = vec![vec![None; columns]; nodes];
    for (node, row) in rows.iter_mut().enumerate() {
        // The part of each cell by use. The rest of a cell is the main queue's.
        let mut secs: Vec<BTreeMap<Option<JobId>, f64>> = vec![BTreeMap::new(); columns];
        for span in spans.iter().filter(|s| s.node as usize == node) {
            let from = (span.from - start) as f64 / width;
            let to = (span.to - start) as f64 / width;
            let last = (to.ceil().max(0.0) as usize).min(columns);
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
fn number_jobs(rows: &[Vec<RasterCell>]) -> BTreeMap<JobId, usize> {
    let mut jobs: Vec<JobId> = rows.iter().flatten().filter_map(|cell| (*cell)?).collect();
    jobs.sort_unstable();
    jobs.dedup();
    jobs.into_iter().zip(0..).collect()
}

/// The kind of each cell: 0 for an idle node, 1 and more for jobs, `None` for the main queue.
fn cell_kinds(rows: &[Vec<RasterCell>], used: &BTreeMap<JobId, usize>) -> Vec<Vec<Option<usize>>> {
    rows.iter().map(|row| row.iter().map(|cell| cell.map(|job| job_kind(job, used))).collect()).collect()
}

fn job_kind(job: Option<JobId>, used: &BTreeMap<JobId, usize>) -> usize {
    job.and_then(|job| used.get(&job)).map_or(0, |number| number + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: Option<JobId> = Some(JobId(7));

    fn span(node: u32, from: i64, to: i64, job: Option<JobId>) -> NodeSpan {
        NodeSpan { node, from, to, job }
    }

    fn input(spans: &[NodeSpan]) -> TimelineInput<'_> {
        TimelineInput {
            spans,
            job_names: BTreeMap::new(),
            node_names: &[],
            policy: "infill",
            start: 0,
            span_secs: 10.0 * MAX_COLUMNS as f64,
            origin: "the log's start",
            unit: "hour",
            unit_secs: 3600.0,
        }
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
        let rows = rasterize_spans(&spans, 100, 10.0 * MAX_COLUMNS as f64, MAX_COLUMNS);
        assert_eq!((rows.len(), rows[0].len()), (2, MAX_COLUMNS));
        assert!(rows[0].iter().all(Option::is_none));
        // Idle 6 of 10 s; idle 5 s, held 4 s, main 1 s; the main queue's; held.
        assert_eq!(rows[1][..6], [Some(None), Some(None), None, Some(JOB), Some(JOB), None]);
    }

    #[test]
    fn what_lies_outside_is_cut() {
        let rows = rasterize_spans(&[span(0, -500, 1_000_000, JOB)], 0, 9000.0, MAX_COLUMNS);
        assert!(rows[0].iter().all(|cell| *cell == Some(JOB)));
        assert!(rasterize_spans(&[], 0, 0.0, MAX_COLUMNS).is_empty());
        assert_eq!(rasterize_spans(&[span(5000, 0, 9, JOB)], 0, 9.0, MAX_COLUMNS).len(), MAX_ROWS);
    }

    #[test]
    fn the_busiest_log_makes_no_large_page() {
        // A job of its own in every cell of every row.
        let spans = (0..200_u32).flat_map(|node| {
            let own = move |i: i64| span(node, i * 10, (i + 1) * 10, Some(JobId(node * 1000 + i as u32)));
            (0..MAX_COLUMNS as i64).map(own)
        });
        let busy: Vec<NodeSpan> = spans.collect();
        let figure = timeline_figure(&input(&busy));
        assert!(figure.drawing.len() <= 250_000, "{}", figure.drawing.len());
        assert!(figure.caption.contains("The first 128 nodes"), "{}", figure.caption);
        assert!(figure.caption.contains("3584 jobs share 12 colours"), "{}", figure.caption);
        // A job and the main queue in turn on all of them: the raster keeps what columns it can.
        let spans = (0..128).flat_map(|node| (0..180).map(move |i| span(node, i * 50, i * 50 + 25, JOB)));
        let calm: Vec<NodeSpan> = spans.collect();
        let figure = timeline_figure(&input(&calm));
        assert!(figure.drawing.len() <= MAX_DRAWING_BYTES, "{}", figure.drawing.len());
    }
}
