//! What changes over time: areas one on the other, or dots where something happened.

use chrono::DateTime;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::prelude::*;

use super::{FONT, GREY, ValueAxis, drawing_error, format_number};
use infill_model::UnixTime;

/// Width and height.
const SIZE: (u32, u32) = (860, 300);

/// Most marks of the axis of time.
const MOST_TICKS: i64 = 10;

const DAY_SECS: i64 = 86_400;

/// Distances of these marks, seconds.
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

/// Radius of a dot.
const DOT: i32 = 3;

/// An area.
#[derive(Clone, Debug)]
pub struct StackedArea<'a> {
    /// What it is of.
    pub name: &'a str,
    /// Red, green, blue.
    pub colour: (u8, u8, u8),
    /// Each holds for an equal part of the time. None is negative.
    pub values: Vec<f64>,
}

/// What is drawn.
#[derive(Clone, Debug)]
pub enum TimeMarks<'a> {
    /// Areas one on the other, the first at the bottom; of equally many values.
    Areas(Vec<StackedArea<'a>>),
    /// Dots: when, and how much.
    Dots(&'a [(UnixTime, f64)]),
}

/// A drawing.
#[derive(Clone, Debug)]
pub struct TimeFigure<'a> {
    /// Its title.
    pub title: &'a str,
    /// Of what the values are.
    pub unit: &'a str,
    /// Begin.
    pub from: UnixTime,
    /// End.
    pub to: UnixTime,
    /// By how many seconds the reader's clock is ahead of UTC.
    pub zone_secs: i64,
    /// What is drawn.
    pub marks: TimeMarks<'a>,
}

type TimeChart<'a, 'b> = ChartContext<'b, SVGBackend<'a>, Cartesian2d<ClockAxis, ValueAxis>>;

impl TimeFigure<'_> {
    /// As SVG.
    ///
    /// # Errors
    /// When the library cannot draw it.
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

    /// The largest of what is drawn; one where that is nothing.
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
            .x_label_formatter(&|at| clock.word(*at))
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

    /// The upper edge of what holds for equal parts of the time.
    fn steps<'v>(&self, values: &'v [f64]) -> impl Iterator<Item = (i64, f64)> + use<'v> {
        let (from, length) = (self.from.0, (self.to.0 - self.from.0) as f64);
        let at = move |part: usize, parts: usize| from + (length * part as f64 / parts as f64).round() as i64;
        let parts = values.len();
        values
            .iter()
            .enumerate()
            .flat_map(move |(part, y)| [(at(part, parts), *y), (at(part + 1, parts), *y)])
    }

    fn dots(&self, chart: &mut TimeChart<'_, '_>, dots: &[(UnixTime, f64)]) -> anyhow::Result<()> {
        let within = dots.iter().filter(|(at, _)| (self.from..self.to).contains(at));
        let colour = RGBColor(200, 90, 10);
        let dots = within.map(|(at, value)| Circle::new((at.0, *value), DOT, colour.filled()));
        chart.draw_series(dots).map_err(drawing_error)?;
        Ok(())
    }
}

/// An axis of time, seconds since 1970.
#[derive(Clone, Copy, Debug)]
struct ClockAxis {
    from: i64,
    to: i64,
    zone_secs: i64,
}

impl ClockAxis {
    fn step(&self) -> i64 {
        STEPS
            .into_iter()
            .find(|step: &i64| (self.to - self.from) / step <= MOST_TICKS)
            .unwrap_or((self.to - self.from) / MOST_TICKS + 1)
    }

    /// A mark in the reader's time.
    fn word(&self, at: i64) -> String {
        let format = if self.step() < DAY_SECS { "%H:%M" } else { "%m-%d" };
        let at = DateTime::from_timestamp(at + self.zone_secs, 0);
        at.map_or_else(String::new, |at| at.format(format).to_string())
    }
}

impl Ranged for ClockAxis {
    type FormatOption = DefaultFormatting;
    type ValueType = i64;

    fn map(&self, value: &i64, (from, to): (i32, i32)) -> i32 {
        let share = (value - self.from) as f64 / (self.to - self.from).max(1) as f64;
        from + (share * f64::from(to - from)).round() as i32
    }

    /// Round moments of the reader's clock.
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
