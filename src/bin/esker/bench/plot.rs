//! The measured part over time as an SVG: stacked panels that share the time axis.

use std::path::Path;

use plotters::coord::ranged1d::ValueFormatter;
use plotters::prelude::*;

use super::report::{Interval, Report};
use crate::failure::{Failure, Outcome};
use crate::picture::{
    Area, BLUE, Drawn, FAINT, GREEN, INK, ORANGE, RED, VIOLET, draw_heading, draw_name,
    format_tick, text,
};
use crate::size::{format_count, format_size};

const WIDTH: u32 = 1100;
const TITLE_HEIGHT: u32 = 64;
/// Room for the axis's name.
const MARGIN: u32 = 16;
/// Where the panels' axes are.
const LEFT: u32 = 100;
/// Below the last panel: the name of the time axis.
const FOOT_HEIGHT: u32 = 26;
/// Throughput, latency, write amplification, utilization, cleaning.
const PANEL_HEIGHTS: [u32; 5] = [190, 220, 180, 150, 180];

type Points = Vec<(f64, f64)>;

/// One curve of a panel.
struct Curve {
    name: &'static str,
    color: RGBColor,
    points: Points,
    shape: Shape,
}

#[derive(Clone, Copy)]
enum Shape {
    Line,
    Area,
    Dots,
}

impl Curve {
    fn line(name: &'static str, color: RGBColor, points: Points) -> Self {
        Self {
            name,
            color,
            points,
            shape: Shape::Line,
        }
    }

    fn area(name: &'static str, color: RGBColor, points: Points) -> Self {
        Self {
            name,
            color,
            points,
            shape: Shape::Area,
        }
    }

    fn dots(name: &'static str, color: RGBColor, points: Points) -> Self {
        Self {
            name,
            color,
            points,
            shape: Shape::Dots,
        }
    }
}

/// Draws the report's intervals to `path`.
pub fn draw(path: &Path, report: &Report) -> Outcome {
    let (heading, details) = title(report);
    draw_over_time(path, heading, details, &report.intervals)
}

/// Draws intervals to `path`, under two lines that say of what.
pub fn draw_over_time(
    path: &Path,
    heading: String,
    details: String,
    intervals: &[Interval],
) -> Outcome {
    draw_all(path, heading, details, intervals).map_err(|error| Failure::io("draw", path, error))
}

fn draw_all(path: &Path, heading: String, details: String, intervals: &[Interval]) -> Drawn {
    let height = TITLE_HEIGHT + PANEL_HEIGHTS.iter().sum::<u32>() + FOOT_HEIGHT;
    let root = SVGBackend::new(path, (WIDTH, height)).into_drawing_area();
    root.fill(&WHITE)?;
    let (title, mut rest) = root.split_vertically(TITLE_HEIGHT);
    draw_heading(&title, heading, details)?;
    let mut panels = Vec::new();
    for panel_height in PANEL_HEIGHTS {
        let (panel, below) = rest.split_vertically(panel_height);
        panels.push(panel);
        rest = below;
    }
    let rows = Rows::of(intervals);
    draw_speed(&panels, &rows)?;
    draw_writes(&panels, &rows)?;
    let axis = "seconds from the start of the measured part";
    rest.draw(&Text::new(axis, (WIDTH as i32 / 2 - 130, 4), text(13)))?;
    root.present()?;
    Ok(())
}

/// Throughput and latency.
fn draw_speed(panels: &[Area<'_>], rows: &Rows<'_>) -> Drawn {
    let throughput = rows.points(&|row| Some(row.ops_per_second / 1e3));
    let curves = [Curve::area("throughput", BLUE, throughput)];
    linear_panel(&panels[0], rows.end_s, "K ops/s", top(&curves), &curves)?;
    let some = |row: &Interval, us: f64| (row.latency_us.count > 0).then_some(us.max(0.1));
    let curves = [
        Curve::line(
            "max",
            RED,
            rows.points(&|row| some(row, row.latency_us.max)),
        ),
        Curve::line(
            "p99",
            ORANGE,
            rows.points(&|row| some(row, row.latency_us.p99)),
        ),
        Curve::line(
            "p50",
            BLUE,
            rows.points(&|row| some(row, row.latency_us.p50)),
        ),
    ];
    log_panel(&panels[1], rows.end_s, "latency, us", &curves)
}

/// Write amplification, utilization, cleaning.
fn draw_writes(panels: &[Area<'_>], rows: &Rows<'_>) -> Drawn {
    let each = rows.points(&|row| row.write_amplification);
    let so_far = rows.points(&|row| row.write_amplification_so_far);
    let curves = [
        Curve::area("WA per interval", ORANGE, each),
        Curve::line("WA so far", INK, so_far),
    ];
    linear_panel(
        &panels[2],
        rows.end_s,
        "device / user bytes",
        top(&curves),
        &curves,
    )?;

    let utilization = rows.points(&|row| Some(row.utilization));
    let curves = [Curve::area("utilization", GREEN, utilization)];
    linear_panel(&panels[3], rows.end_s, "live / usable", 1.05, &curves)?;

    let cleaned = Curve::area(
        "victims cleaned",
        VIOLET,
        rows.rates(&|row| row.victims_cleaned),
    );
    // Checkpoints are too rare for a rate: each interval that completed one gets a dot.
    let height = top(std::slice::from_ref(&cleaned)) * 0.06;
    let checkpoints = rows.rows.iter().filter(|row| row.checkpoints_taken > 0);
    let dots = checkpoints.map(|row| (row.end_s, height)).collect();
    let curves = [cleaned, Curve::dots("checkpoint completed", GREEN, dots)];
    linear_panel(
        &panels[4],
        rows.end_s,
        "segments / s",
        top(&curves),
        &curves,
    )
}

/// The intervals worth drawing.
struct Rows<'a> {
    rows: &'a [Interval],
    end_s: f64,
}

impl<'a> Rows<'a> {
    fn of(intervals: &'a [Interval]) -> Self {
        let mut rows = intervals;
        // The last interval may be a sliver whose rates say nothing.
        if let [.., before, last] = rows
            && last.end_s - before.end_s < 0.1
        {
            rows = &rows[..rows.len() - 1];
        }
        let end_s = rows.last().map_or(1.0, |row| row.end_s.max(1e-3));
        Self { rows, end_s }
    }

    /// A value of each interval.
    fn points(&self, value: &dyn Fn(&Interval) -> Option<f64>) -> Points {
        let points = self
            .rows
            .iter()
            .filter_map(|row| value(row).map(|v| (row.end_s, v)));
        from_zero(points.collect())
    }

    /// A count of each interval, per second.
    fn rates(&self, count: &dyn Fn(&Interval) -> u64) -> Points {
        let starts = std::iter::once(0.0).chain(self.rows.iter().map(|row| row.end_s));
        let points = self.rows.iter().zip(starts).map(|(row, start_s)| {
            (
                row.end_s,
                count(row) as f64 / (row.end_s - start_s).max(1e-3),
            )
        });
        from_zero(points.collect())
    }
}

/// An interval's value stands for the time before its end, so the first reaches back to 0.
fn from_zero(mut points: Points) -> Points {
    if let Some(&(_, value)) = points.first() {
        points.insert(0, (0.0, value));
    }
    points
}

fn title(report: &Report) -> (String, String) {
    let a = &report.arguments;
    let heading = format!(
        "{}: {}, {}, {}, {} threads",
        report.engine,
        a.workload,
        a.distribution,
        a.durability.name(),
        a.threads
    );
    let amplification = report
        .write_amplification
        .map_or(String::new(), |wa| format!(", WA {wa:.2}"));
    let details = format!(
        "{} keys x {}, utilization {}, after {:.1} overwrites: {} ops/s, p99 {:.0} us{}",
        format_count(a.keys),
        format_size(a.value_bytes),
        a.utilization,
        report.warmup_overwrites,
        format_count(report.ops_per_second as u64),
        report.latency_us.p99,
        amplification
    );
    (heading, details)
}

/// The largest value of the curves, with head room; never nothing.
fn top(curves: &[Curve]) -> f64 {
    let largest = curves
        .iter()
        .flat_map(|curve| &curve.points)
        .map(|point| point.1)
        .fold(0.0, f64::max);
    if largest > 0.0 { largest * 1.12 } else { 1.0 }
}

fn linear_panel(area: &Area<'_>, end_s: f64, unit: &str, top: f64, curves: &[Curve]) -> Drawn {
    let mut chart = ChartBuilder::on(area)
        .margin_right(24)
        .margin_top(26)
        .margin_left(MARGIN)
        .x_label_area_size(22)
        .y_label_area_size(LEFT - MARGIN)
        .build_cartesian_2d(0.0..end_s, 0.0..top)?;
    draw_mesh(&mut chart, unit, 5, TRANSPARENT)?;
    for curve in curves {
        let color = curve.color;
        let points = curve.points.iter().copied();
        match curve.shape {
            Shape::Area => {
                let series = AreaSeries::new(points, 0.0, color.mix(0.18));
                chart.draw_series(series.border_style(color.stroke_width(2)))?;
            }
            Shape::Line => {
                chart.draw_series(LineSeries::new(points, color.stroke_width(2)))?;
            }
            Shape::Dots => {
                chart.draw_series(points.map(|point| Circle::new(point, 3, color.filled())))?;
            }
        }
    }
    legend(area, curves)
}

type Chart<'a, 'b, X, Y> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<X, Y>>;

/// Axes and grid of a panel.
fn draw_mesh<X, Y>(
    chart: &mut Chart<'_, '_, X, Y>,
    unit: &str,
    y_labels: usize,
    light: impl Into<ShapeStyle>,
) -> Drawn
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    chart
        .configure_mesh()
        .y_desc(unit)
        .x_labels(12)
        .y_labels(y_labels)
        .y_label_formatter(&|value| format_tick(*value))
        .x_label_formatter(&|value| format_tick(*value))
        .axis_style(INK.mix(0.6))
        .bold_line_style(FAINT)
        .light_line_style(light)
        .label_style(text(12))
        .axis_desc_style(text(13))
        .draw()?;
    Ok(())
}

fn log_panel(area: &Area<'_>, end_s: f64, unit: &str, curves: &[Curve]) -> Drawn {
    let lowest = curves
        .iter()
        .flat_map(|curve| &curve.points)
        .map(|point| point.1)
        .fold(f64::INFINITY, f64::min);
    let bottom = if lowest.is_finite() {
        10_f64.powf(lowest.log10().floor())
    } else {
        0.1
    };
    let top = 10_f64.powf(top(curves).log10().ceil()).max(bottom * 10.0);
    let mut chart = ChartBuilder::on(area)
        .margin_right(24)
        .margin_top(26)
        .margin_left(MARGIN)
        .x_label_area_size(22)
        .y_label_area_size(LEFT - MARGIN)
        .build_cartesian_2d(0.0..end_s, (bottom..top).log_scale())?;
    draw_mesh(&mut chart, unit, 6, FAINT.mix(0.4))?;
    for curve in curves {
        let color = curve.color;
        let points = curve.points.iter().copied();
        chart.draw_series(LineSeries::new(points, color.stroke_width(2)))?;
    }
    legend(area, curves)
}

/// Names and colors of the curves in one line above the panel, where no curve is covered.
fn legend(area: &Area<'_>, curves: &[Curve]) -> Drawn {
    let mut x = LEFT as i32;
    for curve in curves {
        draw_name(area, (x, 10), curve.color, curve.name)?;
        // Seven pixels a letter is wide enough for any sans-serif of this size.
        x += 40 + 7 * curve.name.len() as i32;
    }
    Ok(())
}
