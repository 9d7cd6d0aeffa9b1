//! Figures over time: stacked areas, or a dot for each event.

use chrono::DateTime;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::prelude::*;

use super::{FONT, GREY, ValueAxis, drawing_error, format_number};
use infill_model::UnixTime;

/// Width and height, in pixels.
const SIZE: (u32, u32) = (860, 300);

/// The most ticks of the axis of time.
const MOST_TICKS: i64 = 10;

const DAY_SECS: i64 = 86_400;

/// Possible distances between these ticks, in seconds.
const STEPS: [i64; 12] = [
    60,
    300,
    900,
    1800,
    3600,
    3 * 3600,
    6 * 3600,
    12 * 3600,
    DAY_SECS,
    2 * DAY_SECS,
    7 * DAY_SECS,
    28 * DAY_SECS,
];

/// Radius of a dot, in pixels.
const DOT: i32 = 3;

/// One area of a stack.
#[derive(Clone, Debug)]
pub struct StackedArea<'a> {
    /// Its name in the legend.
    pub name: &'a str,
    /// Red, green and blue.
    pub colour: (u8, u8, u8),
    /// Its heights; each holds for an equal part of the time. None is negative.
    pub values: Vec<f64>,
}

/// The marks of a figure.
#[derive(Clone, Debug)]
pub enum TimeMarks<'a> {
    /// Stacked areas, the first at the bottom. All have the same number of values.
    Areas(Vec<StackedArea<'a>>),
    /// A dot for each event: its time and its value.
    Dots(&'a [(UnixTime, f64)]),
}

/// A figure over time.
#[derive(Clone, Debug)]
pub struct TimeFigure<'a> {
    /// The title above the figure.
    pub title: &'a str,
    /// The unit of the values, which labels the vertical axis.
    pub unit: &'a str,
    /// The left end of the axis of time.
    pub from: UnixTime,
    /// The right end of the axis of time.
    pub to: UnixTime,
    /// The offset of the reader's time zone from UTC, in seconds; positive in the east.
    pub zone_secs: i64,
    /// The marks to draw. Dots outside of the time shown are left out.
    pub marks: TimeMarks<'a>,
}

type TimeChart<'a, 'b> = ChartContext<'b, SVGBackend<'a>, Cartesian2d<ClockAxis, ValueAxis>>;

impl TimeFigure<'_> {
    /// Draws the figure as SVG.
    ///
    /// # Errors
    /// When the drawing library fails.
    pub fn to_svg(&self) -> anyhow::Result<String> {
        let mut text = String::new();
        {
            let root = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
            root.fill(&WHITE).map_err(drawing_error)?;
            let clock = ClockAxis { from: self.from.0, to: self.to.0, zone_secs: self.zone_secs };
            let mut chart = ChartBuilder::on(&root)
                .caption(self.title, (FONT, 19))
                .margin(10)
                .x_label_area_size(28)
                .y_label_area_size(64)
                .build_cartesian_2d(clock, ValueAxis::for_rates(self.top()))
                .map_err(drawing_error)?;
            self.mesh(&mut chart)?;
            match &self.marks {
                TimeMarks::Areas(areas) => self.areas(&mut chart, areas)?,
                TimeMarks::Dots(dots) => self.dots(&mut chart, dots)?,
            }
            root.present().map_err(drawing_error)?;
        }
        Ok(text)
    }

    /// The largest value or stack; 1 if there is none.
    fn top(&self) -> f64 {
        let top = match &self.marks {
            TimeMarks::Areas(areas) => {
                let parts = areas.iter().map(|area| area.values.len()).max().unwrap_or(0);
                (0..parts)
                    .map(|part| areas.iter().filter_map(|area| area.values.get(part)).sum::<f64>())
                    .fold(0.0, f64::max)
            }
            TimeMarks::Dots(dots) => dots.iter().map(|(_, value)| *value).fold(0.0, f64::max),
        };
        if top.is_normal() { top } else { 1.0 }
    }

    fn mesh(&self, chart: &mut TimeChart<'_, '_>) -> anyhow::Result<()> {
        let clock = ClockAxis { from: self.from.0, to: self.to.0, zone_secs: self.zone_secs };
        chart
            .configure_mesh()
            .y_desc(self.unit)
            .x_label_formatter(&|at| clock.tick_label(*at))
            .y_label_formatter(&|y| format_number(*y))
            .label_style((FONT, 15))
            .axis_desc_style((FONT, 15))
            .light_line_style(TRANSPARENT)
            .bold_line_style(GREY.mix(0.2))
            .draw()
            .map_err(drawing_error)
    }

    fn areas<'a: 'b, 'b>(
        &self,
        chart: &mut TimeChart<'a, 'b>,
        areas: &[StackedArea<'_>],
    ) -> anyhow::Result<()> {
        let parts = areas.iter().map(|area| area.values.len()).max().unwrap_or(0);
        let mut below = vec![0.0; parts];
        for area in areas {
            let above: Vec<f64> = below
                .iter()
                .enumerate()
                .map(|(part, y)| y + area.values.get(part).copied().unwrap_or(0.0))
                .collect();
            let (red, green, blue) = area.colour;
            let colour = RGBColor(red, green, blue);
            let outline: Vec<(i64, f64)> =
                self.steps(&below).chain(self.steps(&above).collect::<Vec<_>>().into_iter().rev()).collect();
            if !outline.is_empty() {
                let drawn =
                    chart.draw_series([Polygon::new(outline, colour.filled())]).map_err(drawing_error)?;
                drawn
                    .label(area.name)
                    .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 14, y + 5)], colour.filled()));
            }
            below = above;
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .label_font((FONT, 14))
            .background_style(WHITE.mix(0.8))
            .border_style(GREY.mix(0.3))
            .draw()
            .map_err(drawing_error)
    }

    /// The upper edge of values that each hold for an equal part of the time.
    fn steps<'v>(&self, values: &'v [f64]) -> impl Iterator<Item = (i64, f64)> + use<'v> {
        let from = self.from.0;
        let length = (self.to.0 - from) as f64;
        let parts = values.len() as f64;
        values.iter().enumerate().flat_map(move |(part, y)| {
            let begin = from + (length * part as f64 / parts).round() as i64;
            let end = from + (length * (part + 1) as f64 / parts).round() as i64;
            [(begin, *y), (end, *y)]
        })
    }

    fn dots(&self, chart: &mut TimeChart<'_, '_>, dots: &[(UnixTime, f64)]) -> anyhow::Result<()> {
        let within = dots.iter().filter(|(at, _)| (self.from..self.to).contains(at));
        let colour = RGBColor(200, 90, 10);
        let dots = within.map(|(at, value)| Circle::new((at.0, *value), DOT, colour.filled()));
        chart.draw_series(dots).map_err(drawing_error)?;
        Ok(())
    }
}

/// An axis of time, in seconds since 1970.
#[derive(Clone, Copy, Debug)]
struct ClockAxis {
    from: i64,
    to: i64,
    zone_secs: i64,
}

impl ClockAxis {
    /// The distance between ticks, in seconds.
    fn step(&self) -> i64 {
        let length = self.to - self.from;
        STEPS.into_iter().find(|step| length / step <= MOST_TICKS).unwrap_or(length / MOST_TICKS + 1)
    }

    /// The label of a tick, in the reader's time zone.
    fn tick_label(&self, at: i64) -> String {
        let format = if self.step() < DAY_SECS { "%H:%M" } else { "%m-%d" };
        let at = DateTime::from_timestamp(at + self.zone_secs, 0);
        at.map_or_else(String::new, |at| at.format(format).to_string())
    }
}

impl Ranged for ClockAxis {
    type FormatOption = DefaultFormatting;
    type ValueType = i64;

    fn map(&self, value: &i64, limits: (i32, i32)) -> i32 {
        let (from, to) = limits;
        let share = (value - self.from) as f64 / (self.to - self.from).max(1) as f64;
        from + (share * f64::from(to - from)).round() as i32
    }

    /// Round times of the reader's clock.
    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<i64> {
        let step = self.step();
        let first = (self.from + self.zone_secs).div_euclid(step) * step - self.zone_secs;
        (0..=MOST_TICKS + 1)
            .map(|i| first + i * step)
            .filter(|at| (self.from..=self.to).contains(at))
            .collect()
    }

    fn range(&self) -> std::ops::Range<i64> {
        self.from..self.to
    }
}
