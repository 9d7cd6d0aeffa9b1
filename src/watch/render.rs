//! Draws the cluster over time: a row for each node, with the past on the left of a line and the windows
//! ahead on its right.
//!
//! The functions are pure: they turn the history, the status and a moment into cells of the terminal.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};

use super::history::{NodeCell, WatchHistory};
use crate::summary::node_counts;
use infill_api::{DaemonStatus, JobView, NodeView};
use infill_model::{JobId, UnixTime, duration};
use infill_present::output::{self, DisplayClock};

/// Zoom, scroll position and colours.
#[derive(Clone, Copy, Debug)]
pub struct ViewOptions {
    /// Seconds per column.
    pub column_secs: u32,
    /// The number of nodes above the first visible one.
    pub scroll: usize,
    /// Whether colours are allowed.
    pub colour: bool,
}

/// The data that the screen shows.
#[derive(Clone, Copy)]
pub struct ScreenContent<'a> {
    /// The past of the nodes.
    pub history: &'a WatchHistory,
    /// The last answer of the daemon.
    pub status: &'a DaemonStatus,
    /// Why there is no newer answer. `None` if the last one is current.
    pub lost: Option<&'a str>,
    /// The present moment and the time zone.
    pub when: DisplayClock,
}

/// Colours of jobs. Jobs that share a colour have different letters.
const PALETTE: [Color; 6] =
    [Color::Green, Color::Cyan, Color::Yellow, Color::Magenta, Color::Blue, Color::LightRed];
/// The longest node name that is not cut, in characters.
const MAX_LABEL: usize = 16;
/// The share of the axis of time that shows the past.
const PAST_SHARE: f64 = 0.5;
/// Rows that are reserved for jobs however many nodes there are.
const MIN_JOB_ROWS: u16 = 3;

/// Draws the whole screen.
pub fn draw_screen(content: ScreenContent<'_>, view: ViewOptions, area: Rect, buf: &mut Buffer) {
    let jobs = u16::try_from(content.status.jobs.len()).unwrap_or(u16::MAX);
    let nodes = u16::try_from(content.status.nodes.len()).unwrap_or(u16::MAX);
    let fixed = 5;
    let job_rows = jobs.min(area.height.saturating_sub(fixed + nodes).max(MIN_JOB_ROWS));
    let [head, axis, grid, title, list, foot] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(1),
        Constraint::Max(nodes),
        Constraint::Length(1),
        Constraint::Length(job_rows),
        Constraint::Length(1),
    ])
    .areas(area);
    draw_head(content, head, buf, view);
    let time = TimeAxis::new(content, view, grid.width);
    draw_axis(content, &time, axis, buf);
    for (row, node) in grid.rows().zip(content.status.nodes.iter().skip(view.scroll)) {
        draw_node(content, view, &time, node, row, buf);
    }
    draw_jobs(content, view, title, list, buf);
    let keys =
        "q quit  +/- zoom  j/k scroll   letters: jobs   █ main job   · idle gap   ░ window ahead   x refused";
    put_text(buf, foot, keys, allowed_style(view, Style::new().add_modifier(Modifier::DIM)));
}

/// The axis of time of the grid. Widths are in columns.
struct TimeAxis {
    /// Width of the nodes' names.
    label: u16,
    /// Width of the past.
    past: u16,
    /// Width of the windows ahead.
    ahead: u16,
    column_secs: i64,
    now: UnixTime,
}

impl TimeAxis {
    fn new(content: ScreenContent<'_>, view: ViewOptions, width: u16) -> TimeAxis {
        let names = content.status.nodes.iter().map(|n| n.node.as_str().chars().count());
        let longest = names.max().unwrap_or(0).min(MAX_LABEL);
        let label = u16::try_from(longest).unwrap_or(0) + 1;
        // One column is for the line between past and future.
        let columns = width.saturating_sub(label + 1);
        let past = (f64::from(columns) * PAST_SHARE) as u16;
        let column_secs = i64::from(view.column_secs.max(1));
        TimeAxis { label, past, ahead: columns - past, column_secs, now: content.when.now }
    }

    /// The moment that a column of the past shows. Columns count from the left.
    fn past_at(&self, column: u16) -> UnixTime {
        self.now + -(i64::from(self.past - 1 - column) * self.column_secs)
    }

    /// The moment that a column on the right of the line shows. Columns count from the line.
    fn ahead_at(&self, column: u16) -> UnixTime {
        self.now + i64::from(column) * self.column_secs
    }
}

fn draw_head(content: ScreenContent<'_>, area: Rect, buf: &mut Buffer, view: ViewOptions) {
    let status = content.status;
    let [first, second] = Layout::vertical([Constraint::Length(1); 2]).areas(area);
    let round = status
        .last_round
        .map_or_else(|| "no round yet".to_owned(), |t| format!("round {} ago", content.when.time_since(t)));
    let mode = format!("{:?}", status.mode).to_lowercase();
    let control = format!("{:?}", status.control).to_lowercase();
    put_text(
        buf,
        first,
        &format!("infill {mode}/{control}  nodes {}  {round}", node_counts(status)),
        Style::new(),
    );
    let trouble = content.lost.map(|why| format!("no answer: {}", why.lines().next().unwrap_or(why)));
    let trouble = trouble.or_else(|| match status.problems.as_slice() {
        [] => None,
        [one] => Some(format!("problem: {one}")),
        many => Some(format!("{} problems: {}", many.len(), many[0])),
    });
    put_text(buf, second, &trouble.unwrap_or_default(), allowed_style(view, Style::new().fg(Color::Red)));
}

fn draw_axis(content: ScreenContent<'_>, time: &TimeAxis, area: Rect, buf: &mut Buffer) {
    let past_secs = (i64::from(time.past) * time.column_secs) as f64;
    let past = format!("-{}", duration::format_duration(past_secs));
    put_text(buf, shift_right(area, time.label), &past, Style::new());
    let now = content.when.format_clock(content.when.now);
    let half = u16::try_from(now.len() / 2).unwrap_or(0);
    put_text(buf, shift_right(area, (time.label + time.past).saturating_sub(half)), &now, Style::new());
    let ahead_secs = (i64::from(time.ahead) * time.column_secs) as f64;
    let ahead = format!("+{}", duration::format_duration(ahead_secs));
    let end = area.width.saturating_sub(u16::try_from(ahead.len()).unwrap_or(0));
    put_text(buf, shift_right(area, end), &ahead, Style::new());
}

fn draw_node(
    content: ScreenContent<'_>,
    view: ViewOptions,
    time: &TimeAxis,
    node: &NodeView,
    row: Rect,
    buf: &mut Buffer,
) {
    let name: String = node.node.as_str().chars().take(MAX_LABEL).collect();
    put_text(buf, row, &name, Style::new());
    let history = content.history;
    let past =
        (0..time.past).map(|column| past_cell(history, history.cell_at(&node.node, time.past_at(column))));
    let ahead = (0..time.ahead).map(|column| ahead_cell(history, node, time.ahead_at(column)));
    let cells = past.chain([('│', Style::new())]).chain(ahead);
    for (column, (symbol, style)) in (time.label..row.width).zip(cells) {
        buf[(row.x + column, row.y)].set_char(symbol).set_style(allowed_style(view, style));
    }
}

fn past_cell(history: &WatchHistory, cell: NodeCell) -> (char, Style) {
    match cell {
        NodeCell::Unknown => (' ', Style::new()),
        NodeCell::Main => ('█', Style::new().fg(Color::DarkGray)),
        NodeCell::Gap => ('·', Style::new()),
        NodeCell::Refused => ('x', Style::new().fg(Color::Red)),
        NodeCell::Held => ('?', Style::new().fg(Color::Green)),
        NodeCell::Job(job) => (history.job_letter(job), job_style(history, job)),
    }
}

/// A node at a future moment: its window while that lasts, then the main queue.
fn ahead_cell(history: &WatchHistory, node: &NodeView, at: UnixTime) -> (char, Style) {
    let wanted = node.window_end.is_some_and(|end| at >= end);
    let is_usable = node.usable_until.is_none_or(|end| at < end);
    match NodeCell::from_view(node) {
        NodeCell::Main | NodeCell::Refused => (' ', Style::new()),
        _ if wanted => ('█', Style::new().fg(Color::DarkGray)),
        _ if !is_usable => (' ', Style::new()),
        NodeCell::Job(job) => ('░', Style::new().fg(job_colour(history, job))),
        NodeCell::Held => ('░', Style::new().fg(Color::Green)),
        NodeCell::Gap | NodeCell::Unknown => ('·', Style::new()),
    }
}

fn draw_jobs(content: ScreenContent<'_>, view: ViewOptions, title: Rect, list: Rect, buf: &mut Buffer) {
    let bold = allowed_style(view, Style::new().add_modifier(Modifier::BOLD));
    let head = format!(
        "  {:<9} {:<10} {:<10} {:>5} {:>8} {:>7}  {}",
        "JOBID", "USER", "STATE", "NODES", "STEP", "RATE", "NAME"
    );
    put_text(buf, title, &head, bold);
    let hidden = content.status.jobs.len().saturating_sub(usize::from(list.height));
    for (i, (row, job)) in list.rows().zip(&content.status.jobs).enumerate() {
        if hidden > 0 && i + 1 == usize::from(list.height) {
            put_text(buf, row, &format!("  and {} more (infill jobs)", hidden + 1), Style::new());
            break;
        }
        let letter = content.history.job_letter(job.job);
        put_text(buf, row, &letter.to_string(), allowed_style(view, job_style(content.history, job.job)));
        put_text(buf, shift_right(row, 2), &job_line(job), Style::new());
    }
}

fn job_line(job: &JobView) -> String {
    let step = job.step.map_or_else(|| "-".to_owned(), |s| s.to_string());
    let rate = job.rate.map_or_else(|| "-".to_owned(), output::format_number);
    let id = job.display_name();
    let nodes = job.nodes.len();
    format!("{id:<9} {:<10} {:<10} {nodes:>5} {step:>8} {rate:>7}  {}", job.user, job.state, job.name)
}

fn job_colour(history: &WatchHistory, job: JobId) -> Color {
    PALETTE[history.job_letter(job) as usize % PALETTE.len()]
}

fn job_style(history: &WatchHistory, job: JobId) -> Style {
    Style::new().fg(Color::Black).bg(job_colour(history, job))
}

fn allowed_style(view: ViewOptions, style: Style) -> Style {
    if view.colour { style } else { Style::new() }
}

fn shift_right(area: Rect, columns: u16) -> Rect {
    let columns = columns.min(area.width);
    Rect { x: area.x + columns, width: area.width - columns, ..area }
}

fn put_text(buf: &mut Buffer, area: Rect, text: &str, style: Style) {
    if area.width > 0 && area.height > 0 {
        // Control characters in a name would move the terminal's cursor.
        let text = text.replace(char::is_control, "?");
        buf.set_stringn(area.x, area.y, text, usize::from(area.width), style);
    }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::samples::{self, NOW};

    fn picture(
        history: &WatchHistory,
        status: &DaemonStatus,
        width: u16,
        height: u16,
        view: ViewOptions,
    ) -> String {
        let content = ScreenContent { history, status, lost: None, when: samples::sample_moment() };
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw_screen(content, view, frame.area(), frame.buffer_mut())).unwrap();
        terminal.backend().to_string()
    }

    const VIEW: ViewOptions = ViewOptions { column_secs: 60, scroll: 0, colour: true };

    fn past() -> WatchHistory {
        let mut history = WatchHistory::default();
        let mut status = samples::sample_status();
        let now = status.nodes.clone();
        for node in &mut status.nodes[..3] {
            *node = samples::sample_node(node.node.as_str(), infill_api::NodeKind::Busy);
        }
        history.record_status(&status, NOW + -900);
        status.nodes[0] = samples::sample_node("n1", infill_api::NodeKind::Gap);
        history.record_status(&status, NOW + -600);
        status.nodes = now;
        history.record_status(&status, NOW + -300);
        history
    }

    #[test]
    fn the_past_and_the_windows_ahead() {
        insta::assert_snapshot!(picture(&past(), &samples::sample_status(), 76, 14, VIEW), @r#"
        "infill act/normal  nodes 5: 2 held, 1 gap, 1 busy, 1 refused  round 0:03 ago"
        "problem: node n5 drained after infill left it                               "
        "   -36:00                          22:10:17                           +36:00"
        "n1                     █████·····AAAAAA│░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░██████"
        "n2                     ██████████AAAAAA│░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░      "
        "n3                     ██████████······│····                                "
        "n4                     ████████████████│                                    "
        "n5                     xxxxxxxxxxxxxxxx│                                    "
        "  JOBID     USER       STATE      NODES     STEP    RATE  NAME              "
        "A 101       alice      running        2     4200     812  train-101         "
        "B 102       bob        queued         0        -       -  train-102         "
        "q quit  +/- zoom  j/k scroll   letters: jobs   █ main job   · idle gap   ░ w"
        "                                                                            "
        "                                                                            "
        "#);
    }

    #[test]
    fn a_small_terminal_keeps_the_jobs_and_scrolls_the_nodes() {
        let view = ViewOptions { scroll: 3, ..VIEW };
        insta::assert_snapshot!(picture(&past(), &samples::sample_status(), 40, 9, view), @r#"
        "infill act/normal  nodes 5: 2 held, 1 ga"
        "problem: node n5 drained after infill le"
        "   -18:00        22:10:17         +18:00"
        "n4   ████████████████│                  "
        "n5   xxxxxxxxxxxxxxxx│                  "
        "  JOBID     USER       STATE      NODES "
        "A 101       alice      running        2 "
        "B 102       bob        queued         0 "
        "q quit  +/- zoom  j/k scroll   letters: "
        "#);
    }

    #[test]
    fn any_size_can_be_drawn() {
        for (width, height) in [(1, 1), (0, 0), (3, 200), (200, 2), (12, 7)] {
            let area = Rect::new(0, 0, width, height);
            let history = past();
            let status = samples::sample_status();
            let content = ScreenContent {
                history: &history,
                status: &status,
                lost: Some("gone"),
                when: samples::sample_moment(),
            };
            draw_screen(content, VIEW, area, &mut Buffer::empty(area));
        }
    }

    #[test]
    fn colours_are_used_only_if_allowed() {
        let area = Rect::new(0, 0, 76, 14);
        let history = past();
        let status = samples::sample_status();
        let content =
            ScreenContent { history: &history, status: &status, lost: None, when: samples::sample_moment() };
        let coloured = |colour| {
            let mut buf = Buffer::empty(area);
            draw_screen(content, ViewOptions { colour, ..VIEW }, area, &mut buf);
            buf.content.iter().any(|c| c.fg != Color::Reset || c.bg != Color::Reset)
        };
        assert_eq!((coloured(true), coloured(false)), (true, false));
    }
}
