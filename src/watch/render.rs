//! The picture: a row a node, time along the x axis, the past left of the line and the windows ahead right of
//! it.
//!
//! Pure: history, status, area and moment in, cells of the terminal out.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};

use super::history::{NodeCell, WatchHistory};
use crate::summary::node_counts;
use infill_api::{DaemonStatus, JobView, NodeView};
use infill_model::{JobId, UnixTime, duration};
use infill_present::output::{self, DisplayClock};

/// How the picture is looked at.
#[derive(Clone, Copy, Debug)]
pub struct ViewOptions {
    /// Seconds that a column stands for.
    pub column_secs: u32,
    /// Nodes scrolled past.
    pub scroll: usize,
    /// Whether colours are allowed.
    pub colour: bool,
}

/// What is shown.
#[derive(Clone, Copy)]
pub struct ScreenContent<'a> {
    /// The past.
    pub history: &'a WatchHistory,
    /// The last answer of the daemon.
    pub status: &'a DaemonStatus,
    /// Why there was no newer one, if so.
    pub lost: Option<&'a str>,
    /// This moment.
    pub when: DisplayClock,
}

/// Colours of jobs; the letter tells those apart that share one.
const PALETTE: [Color; 6] =
    [Color::Green, Color::Cyan, Color::Yellow, Color::Magenta, Color::Blue, Color::LightRed];
/// Widest node name that is shown in full.
const MAX_LABEL: usize = 16;
/// Part of the x axis that the past takes.
const PAST_SHARE: f64 = 0.5;
/// Job rows that are shown however many nodes there are.
const MIN_JOB_ROWS: u16 = 3;

/// Draws the scene.
pub fn draw_screen(scene: ScreenContent<'_>, view: ViewOptions, area: Rect, buf: &mut Buffer) {
    let jobs = u16::try_from(scene.status.jobs.len()).unwrap_or(u16::MAX);
    let nodes = u16::try_from(scene.status.nodes.len()).unwrap_or(u16::MAX);
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
    draw_head(scene, head, buf, view);
    let time = TimeAxis::new(scene, view, grid.width);
    draw_axis(scene, &time, axis, buf);
    for (row, node) in grid.rows().zip(scene.status.nodes.iter().skip(view.scroll)) {
        draw_node(scene, view, &time, node, row, buf);
    }
    draw_jobs(scene, view, title, list, buf);
    let keys =
        "q quit  +/- zoom  j/k scroll   letters: jobs   █ main job   · idle gap   ░ window ahead   x refused";
    put_text(buf, foot, keys, allowed_style(view, Style::new().add_modifier(Modifier::DIM)));
}

/// The x axis of the grid, in columns.
struct TimeAxis {
    label: u16,
    past: u16,
    ahead: u16,
    column_secs: i64,
    now: UnixTime,
}

impl TimeAxis {
    fn new(scene: ScreenContent<'_>, view: ViewOptions, width: u16) -> TimeAxis {
        let names = scene.status.nodes.iter().map(|n| n.node.as_str().chars().count());
        let longest = names.max().unwrap_or(0).min(MAX_LABEL);
        let label = u16::try_from(longest).unwrap_or(0) + 1;
        // One column is the line between past and future.
        let columns = width.saturating_sub(label + 1);
        let past = (f64::from(columns) * PAST_SHARE) as u16;
        let column_secs = i64::from(view.column_secs.max(1));
        TimeAxis { label, past, ahead: columns - past, column_secs, now: scene.when.now }
    }

    /// Start of a past column, counted from the left.
    fn past_at(&self, column: u16) -> UnixTime {
        self.now + -(i64::from(self.past - 1 - column) * self.column_secs)
    }

    /// Start of a column ahead, counted from the line.
    fn ahead_at(&self, column: u16) -> UnixTime {
        self.now + i64::from(column) * self.column_secs
    }
}

fn draw_head(scene: ScreenContent<'_>, area: Rect, buf: &mut Buffer, view: ViewOptions) {
    let status = scene.status;
    let [first, second] = Layout::vertical([Constraint::Length(1); 2]).areas(area);
    let round = status
        .last_round
        .map_or_else(|| "no round yet".to_owned(), |t| format!("round {} ago", scene.when.time_since(t)));
    let mode = format!("{:?}", status.mode).to_lowercase();
    let control = format!("{:?}", status.control).to_lowercase();
    put_text(
        buf,
        first,
        &format!("infill {mode}/{control}  nodes {}  {round}", node_counts(status)),
        Style::new(),
    );
    let trouble = scene.lost.map(|why| format!("no answer: {}", why.lines().next().unwrap_or(why)));
    let trouble = trouble.or_else(|| match status.problems.as_slice() {
        [] => None,
        [one] => Some(format!("problem: {one}")),
        many => Some(format!("{} problems: {}", many.len(), many[0])),
    });
    put_text(buf, second, &trouble.unwrap_or_default(), allowed_style(view, Style::new().fg(Color::Red)));
}

fn draw_axis(scene: ScreenContent<'_>, time: &TimeAxis, area: Rect, buf: &mut Buffer) {
    let width = |columns: u16| duration::format_duration((i64::from(columns) * time.column_secs) as f64);
    let past = format!("-{}", width(time.past));
    put_text(buf, shift_right(area, time.label), &past, Style::new());
    let now = scene.when.format_clock(scene.when.now);
    let half = u16::try_from(now.len() / 2).unwrap_or(0);
    put_text(buf, shift_right(area, (time.label + time.past).saturating_sub(half)), &now, Style::new());
    let ahead = format!("+{}", width(time.ahead));
    let end = area.width.saturating_sub(u16::try_from(ahead.len()).unwrap_or(0));
    put_text(buf, shift_right(area, end), &ahead, Style::new());
}

fn draw_node(
    scene: ScreenContent<'_>,
    view: ViewOptions,
    time: &TimeAxis,
    node: &NodeView,
    row: Rect,
    buf: &mut Buffer,
) {
    let name: String = node.node.as_str().chars().take(MAX_LABEL).collect();
    put_text(buf, row, &name, Style::new());
    let mut put_cell = |column: u16, symbol: char, style: Style| {
        if column < row.width {
            buf[(row.x + column, row.y)].set_char(symbol).set_style(allowed_style(view, style));
        }
    };
    for column in 0..time.past {
        let (symbol, style) =
            past_cell(scene.history, scene.history.cell_at(&node.node, time.past_at(column)));
        put_cell(time.label + column, symbol, style);
    }
    put_cell(time.label + time.past, '│', Style::new());
    for column in 0..time.ahead {
        let (symbol, style) = ahead_cell(scene.history, node, time.ahead_at(column));
        put_cell(time.label + time.past + 1 + column, symbol, style);
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

/// What is expected of a node: its window while it lasts, then the main queue.
fn ahead_cell(history: &WatchHistory, node: &NodeView, at: UnixTime) -> (char, Style) {
    let wanted = node.window_end.is_some_and(|end| at >= end);
    let counted_on = node.usable_until.is_none_or(|end| at < end);
    match NodeCell::from_view(node) {
        NodeCell::Main | NodeCell::Refused => (' ', Style::new()),
        _ if wanted => ('█', Style::new().fg(Color::DarkGray)),
        _ if !counted_on => (' ', Style::new()),
        NodeCell::Job(job) => ('░', Style::new().fg(job_colour(history, job))),
        NodeCell::Held => ('░', Style::new().fg(Color::Green)),
        NodeCell::Gap | NodeCell::Unknown => ('·', Style::new()),
    }
}

fn draw_jobs(scene: ScreenContent<'_>, view: ViewOptions, title: Rect, list: Rect, buf: &mut Buffer) {
    let bold = allowed_style(view, Style::new().add_modifier(Modifier::BOLD));
    let head = format!(
        "  {:<9} {:<10} {:<10} {:>5} {:>8} {:>7}  {}",
        "JOBID", "USER", "STATE", "NODES", "STEP", "RATE", "NAME"
    );
    put_text(buf, title, &head, bold);
    let hidden = scene.status.jobs.len().saturating_sub(usize::from(list.height));
    for (i, (row, job)) in list.rows().zip(&scene.status.jobs).enumerate() {
        if hidden > 0 && i + 1 == usize::from(list.height) {
            put_text(buf, row, &format!("  and {} more (infill jobs)", hidden + 1), Style::new());
            break;
        }
        let letter = scene.history.job_letter(job.job);
        put_text(buf, row, &letter.to_string(), allowed_style(view, job_style(scene.history, job.job)));
        put_text(buf, shift_right(row, 2), &job_line(job), Style::new());
    }
}

fn job_line(job: &JobView) -> String {
    let step = job.step.map_or_else(|| "-".to_owned(), |s| s.to_string());
    let rate = job.rate.map_or_else(|| "-".to_owned(), output::format_number);
    let id = job.job.to_string();
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
        let scene = ScreenContent { history, status, lost: None, when: samples::sample_moment() };
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw_screen(scene, view, frame.area(), frame.buffer_mut())).unwrap();
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
    fn past_line_and_windows() {
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
    fn no_size_is_too_small() {
        for (width, height) in [(1, 1), (0, 0), (3, 200), (200, 2), (12, 7)] {
            let area = Rect::new(0, 0, width, height);
            let history = past();
            let status = samples::sample_status();
            let scene = ScreenContent {
                history: &history,
                status: &status,
                lost: Some("gone"),
                when: samples::sample_moment(),
            };
            draw_screen(scene, VIEW, area, &mut Buffer::empty(area));
        }
    }

    #[test]
    fn colours_stay_away_when_unwanted() {
        let area = Rect::new(0, 0, 76, 14);
        let history = past();
        let status = samples::sample_status();
        let scene =
            ScreenContent { history: &history, status: &status, lost: None, when: samples::sample_moment() };
        let coloured = |colour| {
            let mut buf = Buffer::empty(area);
            draw_screen(scene, ViewOptions { colour, ..VIEW }, area, &mut buf);
            buf.content.iter().any(|c| c.fg != Color::Reset || c.bg != Color::Reset)
        };
        assert_eq!((coloured(true), coloured(false)), (true, false));
    }
}
