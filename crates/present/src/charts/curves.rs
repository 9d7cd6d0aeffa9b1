//! Draws throughput curves as SVG.

use plotters::element::DashedPathElement;
use plotters::prelude::*;

use super::{CurveAxes, CurveFigure, FONT, GREY, ValueAxis, drawing_error, format_number};

/// Width and height of a panel, in pixels.
const SIZE: (u32, u32) = (860, 520);

const BLUE: RGBColor = RGBColor(31, 90, 166);
const ORANGE: RGBColor = RGBColor(200, 90, 10);
const GREEN: RGBColor = RGBColor(30, 130, 70);

/// Length of the ideal line's dashes and of the gaps between them, in pixels.
const DASH: (i32, i32) = (6, 5);

/// The most curves on the same axes that readers can distinguish.
const MOST_TOGETHER: usize = 12;

/// Radius of a measured size in the common panel, in pixels.
const DOT: i32 = 3;

/// Width of the ends of an interval, in pixels.
const CAP: u32 = 10;

/// Draws the figures one below the other. If there are 2 to 12, a first panel shows all curves on the same
/// axes, under the title `together`.
///
/// # Errors
/// When one of them has nothing to show.
pub fn draw_curves(figures: &[CurveFigure], together: &str) -> anyhow::Result<String> {
    let mut text = String::new();
    {
        let has_common_panel = (2..=MOST_TOGETHER).contains(&figures.len());
        let panels = u32::try_from(figures.len())?.max(1) + u32::from(has_common_panel);
        let root = SVGBackend::with_string(&mut text, (SIZE.0, SIZE.1 * panels)).into_drawing_area();
        root.fill(&WHITE).map_err(drawing_error)?;
        let areas = root.split_evenly((panels as usize, 1));
        let (common, separate) = areas.split_at(usize::from(has_common_panel));
        for area in common {
            draw_common_panel(area, together, figures)?;
        }
        for (area, figure) in separate.iter().zip(figures) {
            draw_panel(area, figure)?;
        }
        root.present().map_err(drawing_error)?;
    }
    Ok(text)
}

type PanelArea<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type CurveChart<'a, 'b> = ChartContext<'b, SVGBackend<'a>, Cartesian2d<ValueAxis, ValueAxis>>;

fn draw_panel<'a>(area: &PanelArea<'a>, figure: &CurveFigure) -> anyhow::Result<()> {
    let axes = figure.axes().ok_or_else(|| {
        anyhow::anyhow!("{}: nothing has been measured yet, so there is no curve", figure.title)
    })?;
    let mut chart = chart_on(area, &figure.title, axes)?;
    draw_band(&mut chart, figure, axes.rates)?;
    draw_ideal(&mut chart, figure, axes)?;
    draw_curve(&mut chart, figure)?;
    draw_measured(&mut chart, figure, axes.rates)?;
    draw_truth(&mut chart, figure)?;
    draw_current(&mut chart, figure)?;
    draw_legend(&mut chart)
}

/// Draws several curves on the same axes to compare a program's plans and node types. Each curve has its own
/// colour, and dots where it was measured.
fn draw_common_panel<'a>(area: &PanelArea<'a>, title: &str, figures: &[CurveFigure]) -> anyhow::Result<()> {
    let all_axes: Vec<CurveAxes> = figures.iter().filter_map(CurveFigure::axes).collect();
    let max_nodes = all_axes.iter().map(|axes| axes.nodes.max).fold(f64::MIN_POSITIVE, f64::max);
    let max_rate = all_axes.iter().map(|axes| axes.rates.max).fold(f64::MIN_POSITIVE, f64::max);
    let axes =
        CurveAxes { nodes: ValueAxis::for_nodes(max_nodes.max(1.0)), rates: ValueAxis::for_rates(max_rate) };
    let mut chart = chart_on(area, title, axes)?;
    for (number, figure) in figures.iter().enumerate() {
        draw_common_curve(&mut chart, number, figure)?;
    }
    draw_legend(&mut chart)
}

fn draw_common_curve(
    chart: &mut CurveChart<'_, '_>,
    number: usize,
    figure: &CurveFigure,
) -> anyhow::Result<()> {
    let colour = Palette99::pick(number).to_rgba();
    let line = figure.curve.iter().map(|r| (f64::from(r.nodes), r.rate));
    let drawn = chart.draw_series(LineSeries::new(line, colour.stroke_width(2))).map_err(drawing_error)?;
    drawn
        .label(&figure.title)
        .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
    let dots =
        figure.measured.iter().map(|r| Circle::new((f64::from(r.nodes), r.rate), DOT, colour.filled()));
    chart.draw_series(dots).map_err(drawing_error)?;
    Ok(())
}

/// An empty chart with its title, axes and grid.
fn chart_on<'a, 'b>(
    area: &'b PanelArea<'a>,
    title: &str,
    axes: CurveAxes,
) -> anyhow::Result<CurveChart<'a, 'b>> {
    let mut chart = ChartBuilder::on(area)
        .caption(title, (FONT, 21))
        .margin(14)
        .x_label_area_size(46)
        .y_label_area_size(70)
        .build_cartesian_2d(axes.nodes, axes.rates)
        .map_err(drawing_error)?;
    draw_mesh(&mut chart)?;
    Ok(chart)
}

/// Names each line and mark.
fn draw_legend<'a: 'b, 'b>(chart: &mut CurveChart<'a, 'b>) -> anyhow::Result<()> {
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .label_font((FONT, 16))
        .background_style(WHITE.mix(0.85))
        .border_style(GREY.mix(0.4))
        .draw()
        .map_err(drawing_error)
}

fn draw_mesh(chart: &mut CurveChart<'_, '_>) -> anyhow::Result<()> {
    chart
        .configure_mesh()
        .x_desc("nodes")
        .y_desc("throughput, samples/s")
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| format_number(*y))
        .label_style((FONT, 16))
        .axis_desc_style((FONT, 17))
        .light_line_style(TRANSPARENT)
        .bold_line_style(GREY.mix(0.2))
        .draw()
        .map_err(drawing_error)
}

fn draw_band(chart: &mut CurveChart<'_, '_>, figure: &CurveFigure, rates: ValueAxis) -> anyhow::Result<()> {
    let low_edge = figure.curve.iter().map(|r| (f64::from(r.nodes), r.low.min(rates.max)));
    let high_edge = figure.curve.iter().map(|r| (f64::from(r.nodes), r.high.min(rates.max)));
    let outline: Vec<(f64, f64)> = low_edge.chain(high_edge.rev()).collect();
    if outline.is_empty() {
        return Ok(());
    }
    let drawn = chart.draw_series([Polygon::new(outline, BLUE.mix(0.15))]).map_err(drawing_error)?;
    drawn
        .label("90 % interval of the fit")
        .legend(|(x, y)| Rectangle::new([(x, y - 5), (x + 18, y + 5)], BLUE.mix(0.15).filled()));
    Ok(())
}

fn draw_ideal(chart: &mut CurveChart<'_, '_>, figure: &CurveFigure, axes: CurveAxes) -> anyhow::Result<()> {
    let Some(one_node_rate) = figure.ideal_rate() else { return Ok(()) };
    let end = axes.nodes.max.min(axes.rates.max / one_node_rate);
    let style = GREY.stroke_width(1);
    let series = DashedLineSeries::new([(0.0, 0.0), (end, one_node_rate * end)], DASH.0, DASH.1, style);
    let drawn = chart.draw_series(series).map_err(drawing_error)?;
    drawn
        .label("proportional")
        .legend(move |(x, y)| DashedPathElement::new([(x, y), (x + 18, y)], DASH.0, DASH.1, style));
    Ok(())
}

fn draw_curve(chart: &mut CurveChart<'_, '_>, figure: &CurveFigure) -> anyhow::Result<()> {
    let line = figure.curve.iter().map(|r| (f64::from(r.nodes), r.rate));
    let drawn = chart.draw_series(LineSeries::new(line, BLUE.stroke_width(2))).map_err(drawing_error)?;
    drawn.label("fitted").legend(|(x, y)| PathElement::new([(x, y), (x + 18, y)], BLUE.stroke_width(2)));
    Ok(())
}

fn draw_measured(
    chart: &mut CurveChart<'_, '_>,
    figure: &CurveFigure,
    rates: ValueAxis,
) -> anyhow::Result<()> {
    let bars = figure.measured.iter().map(|p| {
        let high = p.high.min(rates.max);
        ErrorBar::new_vertical(f64::from(p.nodes), p.low, p.rate, high, ORANGE.filled(), CAP)
    });
    let drawn = chart.draw_series(bars).map_err(drawing_error)?;
    drawn
        .label("measured, with its 90 % interval")
        .legend(|(x, y)| Circle::new((x + 9, y), 4, ORANGE.filled()));
    Ok(())
}

fn draw_truth(chart: &mut CurveChart<'_, '_>, figure: &CurveFigure) -> anyhow::Result<()> {
    if figure.truth.is_empty() {
        return Ok(());
    }
    let points = figure.truth.iter().map(|p| Circle::new((f64::from(p.nodes), p.rate), 4, GREEN));
    let drawn = chart.draw_series(points).map_err(drawing_error)?;
    drawn.label("true").legend(|(x, y)| Circle::new((x + 9, y), 4, GREEN));
    Ok(())
}

fn draw_current(chart: &mut CurveChart<'_, '_>, figure: &CurveFigure) -> anyhow::Result<()> {
    let Some(now) = figure.now else { return Ok(()) };
    let cross = Cross::new((f64::from(now.nodes), now.rate), 7, BLACK.stroke_width(2));
    let drawn = chart.draw_series([cross]).map_err(drawing_error)?;
    drawn.label("the job, now").legend(|(x, y)| Cross::new((x + 9, y), 5, BLACK.stroke_width(2)));
    Ok(())
}
