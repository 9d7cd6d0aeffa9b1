//! A throughput curve in characters.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use ratatui::symbols::Marker;
use ratatui::widgets::Widget;
use ratatui::widgets::canvas::{Canvas, Context, Line, Points};

use super::output;
use crate::charts::{CurveFigure, ValueAxis};

/// Rows of the field in which the curve lies.
const ROWS: u16 = 16;

/// Columns of the narrowest picture, as the legend needs them; a narrower terminal wraps it.
const NARROWEST: u16 = 72;

/// Columns of the widest: beyond, the eye must travel too far.
const WIDEST: u16 = 120;

/// Columns of a label of the axis of rates at most.
const LONGEST_LABEL: u16 = 20;

/// Columns to the right of the field, for the half of the last label that reaches out.
const MARGIN: u16 = 3;

const BAND: (char, Color) = ('░', Color::DarkGray);
const IDEAL: (char, Color) = ('·', Color::Gray);
const CURVE: Color = Color::Cyan;
const INTERVAL: (char, Color) = ('│', Color::Yellow);
const TRUTH: (char, Color) = ('○', Color::Green);
const MEASURED: (char, Color) = ('●', Color::Yellow);

/// Draws the picture, so many columns wide. Empty when there is nothing to draw.
pub fn draw_terminal_curve(picture: &CurveFigure, width: usize, colour: bool) -> String {
    let Some(axes) = picture.axes() else { return String::new() };
    let width = u16::try_from(width).unwrap_or(WIDEST).clamp(NARROWEST, WIDEST);
    let labels = axes.1.tick_values().map(|t| output::format_number(t).chars().count()).max().unwrap_or(0);
    let left = u16::try_from(labels).unwrap_or(LONGEST_LABEL).min(LONGEST_LABEL) + 2;
    let mut buf = Buffer::empty(Rect::new(0, 0, width, ROWS + 4));
    let field = Rect::new(left, 1, width - left - MARGIN, ROWS);
    draw_axes(axes, field, &mut buf);
    draw_field(picture, axes, field, &mut buf);
    draw_legend(picture, ROWS + 3, &mut buf);
    buffer_text(&buf, colour)
}

fn draw_axes((nodes, rates): (ValueAxis, ValueAxis), field: Rect, buf: &mut Buffer) {
    put_text(buf, 0, 0, "samples/s");
    for y in field.top()..field.bottom() {
        put_text(buf, field.left() - 1, y, "│");
    }
    for tick in rates.tick_values() {
        let y = field.bottom() - 1 - cell_of(tick, rates, field.height);
        let label =
            format!("{:>width$} ┤", output::format_number(tick), width = usize::from(field.left()) - 2);
        put_text(buf, 0, y, &label);
    }
    let base = field.bottom();
    put_text(buf, field.left() - 1, base, &format!("└{}", "─".repeat(usize::from(field.width))));
    for tick in nodes.tick_values() {
        let x = field.left() + cell_of(tick, nodes, field.width);
        let label = format!("{tick:.0}");
        put_text(buf, x, base, "┬");
        put_text(buf, x - (label.len() / 2) as u16, base + 1, &label);
    }
    put_text(buf, 0, base + 1, "nodes");
}

/// The cell of an axis at which a value lies.
fn cell_of(value: f64, axis: ValueAxis, cells: u16) -> u16 {
    (value / axis.max * f64::from(cells - 1)).round() as u16
}

fn draw_field(picture: &CurveFigure, (nodes, rates): (ValueAxis, ValueAxis), field: Rect, buf: &mut Buffer) {
    Canvas::default()
        .x_bounds([0.0, nodes.max])
        .y_bounds([0.0, rates.max])
        .paint(|context| {
            // What comes later covers what came before.
            let cell = (nodes.max / f64::from(field.width - 1), rates.max / f64::from(field.height - 1));
            scatter(context, BAND, &band_cells(picture, nodes, cell));
            scatter(context, IDEAL, &ideal_cells(picture, nodes, cell));
            draw_curve(context, picture);
            scatter(context, INTERVAL, &intervals(picture, cell.1));
            let truth: Vec<_> = picture.truth.iter().map(|p| (f64::from(p.nodes), p.rate)).collect();
            scatter(context, TRUTH, &truth);
            let measured: Vec<_> = picture.measured.iter().map(|p| (f64::from(p.nodes), p.rate)).collect();
            scatter(context, MEASURED, &measured);
        })
        .render(field, buf);
}

fn scatter(context: &mut Context<'_>, (symbol, color): (char, Color), coords: &[(f64, f64)]) {
    context.marker(Marker::Custom(symbol));
    context.draw(&Points { coords, color });
}

fn draw_curve(context: &mut Context<'_>, picture: &CurveFigure) {
    context.marker(Marker::Braille);
    for w in picture.curve.windows(2) {
        let x1 = f64::from(w[0].nodes);
        let x2 = f64::from(w[1].nodes);
        context.draw(&Line { x1, y1: w[0].rate, x2, y2: w[1].rate, color: CURVE });
    }
}

/// The cells between the ends of the curve's interval, where it is wider than a cell.
fn band_cells(picture: &CurveFigure, nodes: ValueAxis, cell: (f64, f64)) -> Vec<(f64, f64)> {
    columns(nodes, cell.0)
        .filter_map(|x| picture.interpolate_at(x).map(|(low, _, high)| (x, low, high)))
        .flat_map(|(x, low, high)| cells_between(low, high, cell.1).map(move |y| (x, y)))
        .collect()
}

fn intervals(picture: &CurveFigure, height: f64) -> Vec<(f64, f64)> {
    let bars = picture.measured.iter();
    bars.flat_map(|p| cells_between(p.low, p.high, height).map(|y| (f64::from(p.nodes), y))).collect()
}

/// Every other cell of the line.
fn ideal_cells(picture: &CurveFigure, nodes: ValueAxis, cell: (f64, f64)) -> Vec<(f64, f64)> {
    let Some(one) = picture.ideal_rate() else { return Vec::new() };
    columns(nodes, cell.0).step_by(2).map(|x| (x, one * x)).collect()
}

fn columns(nodes: ValueAxis, width: f64) -> impl Iterator<Item = f64> {
    (0..=(nodes.max / width).round() as u32).map(move |i| f64::from(i) * width)
}

/// The middles of the cells that lie between two rates.
fn cells_between(low: f64, high: f64, height: f64) -> impl Iterator<Item = f64> {
    let first = (low / height).ceil() as u32;
    let last = (high / height).floor().min(f64::from(ROWS)) as u32;
    (first..=last).filter(move |_| high - low > height).map(move |i| f64::from(i) * height)
}

fn draw_legend(picture: &CurveFigure, y: u16, buf: &mut Buffer) {
    let mut x = 0;
    let truth = (!picture.truth.is_empty()).then_some((TRUTH, "true"));
    let rest = [(('⠒', CURVE), "fitted"), (BAND, "90 % interval"), (IDEAL, "proportional")];
    for ((symbol, colour), word) in [(MEASURED, "measured")].into_iter().chain(truth).chain(rest) {
        let room = usize::from(buf.area.right().saturating_sub(x));
        (x, _) = buf.set_stringn(x, y, symbol.to_string(), room, Style::new().fg(colour));
        (x, _) = buf.set_stringn(x, y, format!(" {word}   "), room, Style::new());
    }
}

fn put_text(buf: &mut Buffer, x: u16, y: u16, text: &str) {
    let room = usize::from(buf.area.right().saturating_sub(x));
    buf.set_stringn(x, y, text, room, Style::new());
}

/// The buffer as lines, with the colours of the few that are used here.
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

/// The terminal's code of a colour.
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
    fn any_width_will_do() {
        for width in [0, 1, 40, 200, usize::MAX] {
            let text = draw_terminal_curve(&picture(), width, false);
            assert!(text.lines().all(|l| (0..=120).contains(&l.chars().count())), "{width}: {text}");
        }
    }

    #[test]
    fn what_is_not_measured_is_not_drawn() {
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
