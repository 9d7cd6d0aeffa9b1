//! Throughput curves.

use plotters::element::DashedPathElement;
use plotters::prelude::*;

use super::{CurveFigure, FONT, GREY, ValueAxis, drawing_error, format_number};
use infill_api::CurveRow;

/// Width and height of one picture.
const SIZE: (u32, u32) = (860, 520);

const BLUE: RGBColor = RGBColor(31, 90, 166);
const ORANGE: RGBColor = RGBColor(200, 90, 10);
const GREEN: RGBColor = RGBColor(30, 130, 70);

/// Length of the ideal line's dashes and of the gaps between them.
const DASH: (i32, i32) = (6, 5);

/// Most curves on the same axes that the eye tells apart.
const MOST_TOGETHER: usize = 12;

/// Radius of a measured size of one of these.
const DOT: i32 = 3;

/// Width of the ends of an interval.
const CAP: u32 = 10;

/// The pictures one below the other. Where there are several, but not more than can be told apart, the first
/// panel has the curves of all of them, under the title `together`.
///
/// # Errors
/// When one of them has nothing to show.
pub fn draw_curves(pictures: &[CurveFigure], together: &str) -> anyhow::Result<String> {
    let mut text = String::new();
    {
        let all = (2..=MOST_TOGETHER).contains(&pictures.len());
        let rows = u32::try_from(pictures.len())?.max(1) + u32::from(all);
        let root = SVGBackend::with_string(&mut text, (SIZE.0, SIZE.1 * rows)).into_drawing_area();
        root.fill(&WHITE).map_err(drawing_error)?;
        let areas = root.split_evenly((rows as usize, 1));
        for area in areas.iter().take(usize::from(all)) {
            draw_common_panel(area, together, pictures)?;
        }
        for (area, picture) in areas.iter().skip(usize::from(all)).zip(pictures) {
            draw_panel(area, picture)?;
        }
        root.present().map_err(drawing_error)?;
    }
    Ok(text)
}

type PanelArea<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type CurveChart<'a, 'b> = ChartContext<'b, SVGBackend<'a>, Cartesian2d<ValueAxis, ValueAxis>>;

fn draw_panel<'a>(area: &PanelArea<'a>, picture: &CurveFigure) -> anyhow::Result<()> {
    let axes = picture.axes().ok_or_else(|| {
        anyhow::anyhow!("{}: nothing was measured yet, so there is no curve", picture.title)
    })?;
    let mut chart = chart_on(area, &picture.title, axes)?;
    draw_band(&mut chart, picture, axes.1)?;
    draw_ideal(&mut chart, picture, axes)?;
    draw_curve(&mut chart, picture)?;
    draw_measured(&mut chart, picture, axes.1)?;
    draw_truth(&mut chart, picture)?;
    draw_current(&mut chart, picture)?;
    draw_legend(&mut chart)
}

/// Several pictures on the same axes, so that they can be compared: what a program makes with each of its
/// plans on each type of nodes. Each has a colour of its own, and dots where it was measured.
fn draw_common_panel<'a>(area: &PanelArea<'a>, title: &str, pictures: &[CurveFigure]) -> anyhow::Result<()> {
    let axes: Vec<(ValueAxis, ValueAxis)> = pictures.iter().filter_map(CurveFigure::axes).collect();
    let largest =
        |of: fn(&(ValueAxis, ValueAxis)) -> f64| axes.iter().map(of).fold(f64::MIN_POSITIVE, f64::max);
    let nodes = ValueAxis::for_nodes(largest(|(nodes, _)| nodes.max).max(1.0));
    let rates = ValueAxis::for_rates(largest(|(_, rates)| rates.max));
    let mut chart = chart_on(area, title, (nodes, rates))?;
    for (number, picture) in pictures.iter().enumerate() {
        draw_common_curve(&mut chart, number, picture)?;
    }
    draw_legend(&mut chart)
}

fn draw_common_curve(
    chart: &mut CurveChart<'_, '_>,
    number: usize,
    picture: &CurveFigure,
) -> anyhow::Result<()> {
    let colour = Palette99::pick(number).to_rgba();
    let line = picture.curve.iter().map(|r| (f64::from(r.nodes), r.rate));
    let drawn = chart.draw_series(LineSeries::new(line, colour.stroke_width(2))).map_err(drawing_error)?;
    drawn
        .label(&picture.title)
        .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
    chart
        .draw_series(
            picture
                .measured
                .iter()
                .map(|r: &CurveRow| Circle::new((f64::from(r.nodes), r.rate), DOT, colour.filled())),
        )
        .map_err(drawing_error)?;
    Ok(())
}

/// An empty chart with its title, axes and grid.
fn chart_on<'a, 'b>(
    area: &'b PanelArea<'a>,
    title: &str,
    axes: (ValueAxis, ValueAxis),
) -> anyhow::Result<CurveChart<'a, 'b>> {
    let mut chart = ChartBuilder::on(area)
        .caption(title, (FONT, 21))
        .margin(14)
        .x_label_area_size(46)
        .y_label_area_size(70)
        .build_cartesian_2d(axes.0, axes.1)
        .map_err(drawing_error)?;
    draw_mesh(&mut chart)?;
    Ok(chart)
}

/// Says what each line and mark is.
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

fn draw_band(chart: &mut CurveChart<'_, '_>, picture: &CurveFigure, rates: ValueAxis) -> anyhow::Result<()> {
    let edge = |r: &CurveRow, y: f64| (f64::from(r.nodes), y.min(rates.max));
    let low = picture.curve.iter().map(|r| edge(r, r.low));
    let high = picture.curve.iter().rev().map(|r| edge(r, r.high));
    let outline: Vec<(f64, f64)> = low.chain(high).collect();
    if outline.is_empty() {
        return Ok(());
    }
    let drawn = chart.draw_series([Polygon::new(outline, BLUE.mix(0.15))]).map_err(drawing_error)?;
    drawn
        .label("90 % interval of the fit")
        .legend(|(x, y)| Rectangle::new([(x, y - 5), (x + 18, y + 5)], BLUE.mix(0.15).filled()));
    Ok(())
}

fn draw_ideal(
    chart: &mut CurveChart<'_, '_>,
    picture: &CurveFigure,
    (nodes, rates): (ValueAxis, ValueAxis),
) -> anyhow::Result<()> {
    let Some(one) = picture.ideal_rate() else { return Ok(()) };
    let end = nodes.max.min(rates.max / one);
    let style = GREY.stroke_width(1);
    let series = DashedLineSeries::new([(0.0, 0.0), (end, one * end)], DASH.0, DASH.1, style);
    let drawn = chart.draw_series(series).map_err(drawing_error)?;
    drawn
        .label("proportional")
        .legend(move |(x, y)| DashedPathElement::new([(x, y), (x + 18, y)], DASH.0, DASH.1, style));
    Ok(())
}

fn draw_curve(chart: &mut CurveChart<'_, '_>, picture: &CurveFigure) -> anyhow::Result<()> {
    let line = picture.curve.iter().map(|r| (f64::from(r.nodes), r.rate));
    let drawn = chart.draw_series(LineSeries::new(line, BLUE.stroke_width(2))).map_err(drawing_error)?;
    drawn.label("fitted").legend(|(x, y)| PathElement::new([(x, y), (x + 18, y)], BLUE.stroke_width(2)));
    Ok(())
}

fn draw_measured(
    chart: &mut CurveChart<'_, '_>,
    picture: &CurveFigure,
    rates: ValueAxis,
) -> anyhow::Result<()> {
    let drawn = chart
        .draw_series(picture.measured.iter().map(|p: &CurveRow| {
            let high = p.high.min(rates.max);
            ErrorBar::new_vertical(f64::from(p.nodes), p.low, p.rate, high, ORANGE.filled(), CAP)
        }))
        .map_err(drawing_error)?;
    drawn
        .label("measured, with its 90 % interval")
        .legend(|(x, y)| Circle::new((x + 9, y), 4, ORANGE.filled()));
    Ok(())
}

fn draw_truth(chart: &mut CurveChart<'_, '_>, picture: &CurveFigure) -> anyhow::Result<()> {
    if picture.truth.is_empty() {
        return Ok(());
    }
    let points = picture.truth.iter().map(|p| Circle::new((f64::from(p.nodes), p.rate), 4, GREEN));
    let drawn = chart.draw_series(points).map_err(drawing_error)?;
    drawn.label("true").legend(|(x, y)| Circle::new((x + 9, y), 4, GREEN));
    Ok(())
}

fn draw_current(chart: &mut CurveChart<'_, '_>, picture: &CurveFigure) -> anyhow::Result<()> {
    let Some(now) = picture.now else { return Ok(()) };
    let cross = Cross::new((f64::from(now.nodes), now.rate), 7, BLACK.stroke_width(2));
    let drawn = chart.draw_series([cross]).map_err(drawing_error)?;
    drawn.label("the job, now").legend(|(x, y)| Cross::new((x + 9, y), 5, BLACK.stroke_width(2)));
    Ok(())
}
