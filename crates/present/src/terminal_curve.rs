//! Throughput curves drawn with characters, for the terminal.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use ratatui::symbols::Marker;
use ratatui::widgets::Widget;
use ratatui::widgets::canvas::{Canvas, Context, Line, Points};

use super::output;
use crate::charts::{CurveAxes, CurveFigure, ValueAxis};

/// Height of the plot area, in rows.
const ROWS: u16 = 16;

/// The narrowest drawing, in columns: the legend needs them. A narrower terminal wraps the lines.
const NARROWEST: u16 = 72;

/// The widest drawing, in columns: wider ones are hard to read.
const WIDEST: u16 = 120;

/// The longest label of the axis of rates, in columns.
const LONGEST_LABEL: u16 = 20;

/// Columns to the right of the plot area, for half of the last label below it.
const MARGIN: u16 = 3;

/// A character with its colour.
#[derive(Clone, Copy)]
struct PlotMark {
    symbol: char,
    colour: Color,
}

const BAND: PlotMark = PlotMark { symbol: '░', colour: Color::DarkGray };
const IDEAL: PlotMark = PlotMark { symbol: '·', colour: Color::Gray };
const INTERVAL: PlotMark = PlotMark { symbol: '│', colour: Color::Yellow };
const TRUTH: PlotMark = PlotMark { symbol: '○', colour: Color::Green };
const MEASURED: PlotMark = PlotMark { symbol: '●', colour: Color::Yellow };

/// The curve as the legend shows it. The plot area draws it with Braille dots.
const CURVE: PlotMark = PlotMark { symbol: '⠒', colour: Color::Cyan };

/// Draws the figure `width` columns wide, within limits. Empty if there is nothing to draw.
pub fn draw_terminal_curve(figure: &CurveFigure, width: usize, colour: bool) -> String {
    let Some(axes) = figure.axes() else { return String::new() };
    let width = u16::try_from(width).unwrap_or(WIDEST).clamp(NARROWEST, WIDEST);
    let longest_label =
        axes.rates.tick_values().map(|t| output::format_number(t).chars().count()).max().unwrap_or(0);
    let left = u16::try_from(longest_label).unwrap_or(LONGEST_LABEL).min(LONGEST_LABEL) + 2;
    let mut buf = Buffer::empty(Rect::new(0, 0, width, ROWS + 4));
    let field = Rect::new(left, 1, width - left - MARGIN, ROWS);
    draw_axes(axes, field, &mut buf);
    draw_field(figure, axes, field, &mut buf);
    draw_legend(figure, ROWS + 3, &mut buf);
    buffer_text(&buf, colour)
}

fn draw_axes(axes: CurveAxes, field: Rect, buf: &mut Buffer) {
    put_text(buf, 0, 0, "samples/s");
    for y in field.top()..field.bottom() {
        put_text(buf, field.left() - 1, y, "│");
    }
    for tick in axes.rates.tick_values() {
        let y = field.bottom() - 1 - cell_of(tick, axes.rates, field.height);
        let label =
            format!("{:>width$} ┤", output::format_number(tick), width = usize::from(field.left()) - 2);
        put_text(buf, 0, y, &label);
    }
    let base = field.bottom();
    put_text(buf, field.left() - 1, base, &format!("└{}", "─".repeat(usize::from(field.width))));
    for tick in axes.nodes.tick_values() {
        let x = field.left() + cell_of(tick, axes.nodes, field.width);
        let label = format!("{tick:.0}");
        put_text(buf, x, base, "┬");
        put_text(buf, x - (label.len() / 2) as u16, base + 1, &label);
    }
    put_text(buf, 0, base + 1, "nodes");
}

/// The cell of an axis that shows a value, counted from the axis's start.
fn cell_of(value: f64, axis: ValueAxis, cells: u16) -> u16 {
    (value / axis.max * f64::from(cells - 1)).round() as u16
}

/// A cell's size in the units of the two axes.
#[derive(Clone, Copy)]
struct CellSize {
    nodes: f64,
    rate: f64,
}

fn draw_field(figure: &CurveFigure, axes: CurveAxes, field: Rect, buf: &mut Buffer) {
    Canvas::default()
        .x_bounds([0.0, axes.nodes.max])
        .y_bounds([0.0, axes.rates.max])
        .paint(|context| {
            // Later marks cover earlier ones.
            let cell = CellSize {
                nodes: axes.nodes.max / f64::from(field.width - 1),
                rate: axes.rates.max / f64::from(field.height - 1),
            };
            scatter(context, BAND, &band_cells(figure, axes.nodes, cell));
            scatter(context, IDEAL, &ideal_cells(figure, axes.nodes, cell));
            draw_curve(context, figure);
            scatter(context, INTERVAL, &interval_cells(figure, cell));
            let truth: Vec<_> = figure.truth.iter().map(|p| (f64::from(p.nodes), p.rate)).collect();
            scatter(context, TRUTH, &truth);
            let measured: Vec<_> = figure.measured.iter().map(|p| (f64::from(p.nodes), p.rate)).collect();
            scatter(context, MEASURED, &measured);
        })
        .render(field, buf);
}

fn scatter(context: &mut Context<'_>, mark: PlotMark, coords: &[(f64, f64)]) {
    context.marker(Marker::Custom(mark.symbol));
    context.draw(&Points { coords, color: mark.colour });
}

fn draw_curve(context: &mut Context<'_>, figure: &CurveFigure) {
    context.marker(Marker::Braille);
    for w in figure.curve.windows(2) {
        let x1 = f64::from(w[0].nodes);
        let x2 = f64::from(w[1].nodes);
        context.draw(&Line { x1, y1: w[0].rate, x2, y2: w[1].rate, color: CURVE.colour });
    }
}

/// The cells between the ends of the curve's interval, where it is wider than a cell.
fn band_cells(figure: &CurveFigure, nodes: ValueAxis, cell: CellSize) -> Vec<(f64, f64)> {
    column_positions(nodes, cell.nodes)
        .filter_map(|x| figure.interpolate_at(x).map(|(low, _, high)| (x, low, high)))
        .flat_map(|(x, low, high)| cells_between(low, high, cell.rate).map(move |y| (x, y)))
        .collect()
}

/// The cells between the ends of the measured sizes' intervals.
fn interval_cells(figure: &CurveFigure, cell: CellSize) -> Vec<(f64, f64)> {
    let points = figure.measured.iter();
    points.flat_map(|p| cells_between(p.low, p.high, cell.rate).map(|y| (f64::from(p.nodes), y))).collect()
}

/// Every other cell of the line of proportional scaling.
fn ideal_cells(figure: &CurveFigure, nodes: ValueAxis, cell: CellSize) -> Vec<(f64, f64)> {
    let Some(one_node_rate) = figure.ideal_rate() else { return Vec::new() };
    column_positions(nodes, cell.nodes).step_by(2).map(|x| (x, one_node_rate * x)).collect()
}

/// The columns of the plot area, as positions on the axis of nodes.
fn column_positions(nodes: ValueAxis, width: f64) -> impl Iterator<Item = f64> {
    (0..=(nodes.max / width).round() as u32).map(move |i| f64::from(i) * width)
}

/// The middles of the cells that lie between two rates. `height` is the height of a cell.
fn cells_between(low: f64, high: f64, height: f64) -> impl Iterator<Item = f64> {
    let first = (low / height).ceil() as u32;
    let last = (high / height).floor().min(f64::from(ROWS)) as u32;
    (first..=last).filter(move |_| high - low > height).map(move |i| f64::from(i) * height)
}

fn draw_legend(figure: &CurveFigure, y: u16, buf: &mut Buffer) {
    let mut entries = vec![(MEASURED, "measured")];
    if !figure.truth.is_empty() {
        entries.push((TRUTH, "true"));
    }
    entries.extend([(CURVE, "fitted"), (BAND, "90 % interval"), (IDEAL, "proportional")]);
    let mut x = 0;
    for (mark, word) in entries {
        let width = columns_right_of(x, buf);
        (x, _) = buf.set_stringn(x, y, mark.symbol.to_string(), width, Style::new().fg(mark.colour));
        (x, _) = buf.set_stringn(x, y, format!(" {word}   "), width, Style::new());
    }
}

fn put_text(buf: &mut Buffer, x: u16, y: u16, text: &str) {
    buf.set_stringn(x, y, text, columns_right_of(x, buf), Style::new());
}

/// Columns from `x` to the right edge.
fn columns_right_of(x: u16, buf: &Buffer) -> usize {
    usize::from(buf.area.right().saturating_sub(x))
}

/// The buffer as lines of text, with escape sequences if colours are wanted.
fn buffer_text(buf: &Buffer, colour: bool) -> String {
    let mut text = String::new();
    for y in buf.area.top()..buf.area.bottom() {
        let mut line = String::new();
        let mut present = Color::Reset;
        for x in buf.area.left()..buf.area.right() {
            let cell = &buf[(x, y)];
            if colour && cell.fg != present && cell.symbol() != " " {
                present = cell.fg;
                line.push_str(ansi_code(present));
            }
            line.push_str(cell.symbol());
        }
        text.push_str(line.trim_end());
        text.push_str(if present == Color::Reset { "\n" } else { "\u{1b}[0m\n" });
    }
    text
}

/// The escape sequence of a colour that is used here; a reset for others.
fn ansi_code(colour: Color) -> &'static str {
    match colour {
        Color::DarkGray => "\u{1b}[90m",
        Color::Gray => "\u{1b}[37m",
        Color::Cyan => "\u{1b}[36m",
        Color::Yellow => "\u{1b}[33m",
        Color::Green => "\u{1b}[32m",
        _ => "\u{1b}[0m",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::picture;

    #[test]
    fn in_characters() {
        insta::assert_snapshot!(draw_terminal_curve(&picture(), 72, false), @r"
        samples/s
        3000 ┤                                                        ·
             │                                                    · ·
        2500 ┤                                                · ·          ░░
             │                                            · ·        ░░░░░░░░
             │                                        · ·       ░░░░░░⣀⣀⣀⠤⠤⠔○
        2000 ┤                                    · ·      ░░░⣀⣀⠤⠤⠒⠒⠉⠉░░░░░░░
             │                                  ·     ░⢀⣀⡠⠤⠒⠊⠉░░░░░░░░░░░░░░░
        1500 ┤                              · ·  ⢀⣀⠤⠔⠒⠉⠁░░░
             │                          · · ⣀●⠔⠒⠉⠁
             │                      · ⢀⣀⠤⠒⠊⠉
        1000 ┤                  · ⣀⠤⠒⠉⠁
             │              ·⣀●⠔⠊⠉
         500 ┤          ·⣀⠤⠒⠉
             │      · ●⠒⠉
             │  · ·
           0 ┤·
             └┬───────┬───────┬──────┬───────┬───────┬───────┬──────┬───────┬
        nodes 0       1       2      3       4       5       6      7       8
        ● measured   ○ true   ⠒ fitted   ░ 90 % interval   · proportional
        ");
    }

    #[test]
    fn colours_are_codes_around_the_same_characters() {
        let plain = draw_terminal_curve(&picture(), 72, false);
        let coloured = draw_terminal_curve(&picture(), 72, true);
        assert!(coloured.contains("\u{1b}[36m") && !plain.contains('\u{1b}'));
        let codes = regex::Regex::new("\u{1b}\\[[0-9]+m").unwrap();
        assert_eq!(codes.replace_all(&coloured, ""), plain);
    }

    #[test]
    fn every_width_gives_lines_within_the_limits() {
        for width in [0, 1, 40, 200, usize::MAX] {
            let text = draw_terminal_curve(&picture(), width, false);
            assert!(text.lines().all(|l| (0..=120).contains(&l.chars().count())), "{width}: {text}");
        }
    }

    #[test]
    fn a_figure_without_measurements_is_empty() {
        assert_eq!(draw_terminal_curve(&CurveFigure::default(), 80, false), "");
    }

    #[test]
    fn one_size_is_enough() {
        let mut one = picture();
        one.measured.truncate(1);
        one.curve.truncate(1);
        one.truth.clear();
        assert!(draw_terminal_curve(&one, 80, false).contains('●'));
    }
}
