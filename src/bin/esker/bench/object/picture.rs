//! A sweep over sizes as an SVG: throughput, latency, write amplification, CPU.

use std::path::Path;

use plotters::prelude::*;

use super::report::{Report, SizeReport};
use crate::failure::{Failure, Outcome};
use crate::picture::{
    Area, BLUE, Drawn, FAINT, GREEN, INK, ORANGE, RED, VIOLET, draw_heading, draw_name,
    format_tick, text,
};
use crate::size::format_size;

const WIDTH: u32 = 1000;
const TITLE_HEIGHT: u32 = 64;
const PANEL_HEIGHT: u32 = 210;
const FOOT_HEIGHT: u32 = 24;
const LEFT: u32 = 100;
const MARGIN: u32 = 16;

/// One curve: a value of each size.
struct Curve {
    name: &'static str,
    color: RGBColor,
    value: Value,
}

type Value = fn(&SizeReport) -> Option<f64>;

/// One panel.
struct Panel {
    unit: &'static str,
    is_log: bool,
    curves: Vec<Curve>,
}

/// Draws the sweep to `path`.
pub fn draw(path: &Path, report: &Report) -> Outcome {
    draw_all(path, report).map_err(|error| Failure::io("draw", path, error))
}

fn draw_all(path: &Path, report: &Report) -> Drawn {
    let curve = |name, color, value: Value| Curve { name, color, value };
    let panels = [
        Panel {
            unit: "ops / s",
            is_log: true,
            curves: vec![curve("operations", BLUE, |row| some(row.ops_per_second))],
        },
        Panel {
            unit: "MiB / s",
            is_log: false,
            curves: vec![curve("data", GREEN, |row| some(row.mib_per_second))],
        },
        Panel {
            unit: "latency, us",
            is_log: true,
            curves: vec![
                curve("p99.9", RED, |row| some(row.latency_us.p999)),
                curve("p99", ORANGE, |row| some(row.latency_us.p99)),
                curve("p50", BLUE, |row| some(row.latency_us.p50)),
            ],
        },
        Panel {
            unit: "device / data bytes",
            is_log: false,
            curves: vec![
                curve("WA", ORANGE, |row| row.write_amplification),
                curve("WA before cleaning", INK, |row| {
                    row.write_amplification_before_cleaning
                }),
            ],
        },
        Panel {
            unit: "us / operation",
            is_log: true,
            curves: vec![curve("CPU", VIOLET, |row| some(row.cpu_us_per_op))],
        },
    ];
    let height = TITLE_HEIGHT + PANEL_HEIGHT * panels.len() as u32 + FOOT_HEIGHT;
    let root = SVGBackend::new(path, (WIDTH, height)).into_drawing_area();
    root.fill(&WHITE)?;
    let (title, mut rest) = root.split_vertically(TITLE_HEIGHT);
    draw_heading(&title, report.heading(), report.details())?;
    for panel in &panels {
        let (area, below) = rest.split_vertically(PANEL_HEIGHT);
        draw_panel(&area, panel, &report.sizes)?;
        rest = below;
    }
    let axis = "bytes of an operation";
    rest.draw(&Text::new(axis, (WIDTH as i32 / 2 - 60, 4), text(13)))?;
    root.present()?;
    Ok(())
}

fn some(value: f64) -> Option<f64> {
    (value > 0.0).then_some(value)
}

/// Sizes are drawn at equal distances, in the order they were run.
fn draw_panel(area: &Area<'_>, panel: &Panel, sizes: &[SizeReport]) -> Drawn {
    // A logarithmic axis is a linear one of exponents, labelled with the powers.
    let scale = |value: f64| if panel.is_log { value.log10() } else { value };
    let values = panel
        .curves
        .iter()
        .flat_map(|curve| sizes.iter().filter_map(|row| (curve.value)(row)).map(scale));
    let (lowest, highest) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| {
        (low.min(v), high.max(v))
    });
    let (bottom, top) = match (panel.is_log, lowest.is_finite()) {
        (_, false) => (0.0, 1.0),
        (true, _) => (lowest.floor(), highest.ceil().max(lowest.floor() + 1.0)),
        (false, _) => (0.0, highest * 1.12),
    };
    let end = sizes.len() as f64 - 0.5;
    let mut chart = ChartBuilder::on(area)
        .margin_right(24)
        .margin_top(26)
        .margin_left(MARGIN)
        .x_label_area_size(22)
        .y_label_area_size(LEFT - MARGIN)
        .build_cartesian_2d(-0.5..end, bottom..top)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .y_desc(panel.unit)
        .x_labels(2 * sizes.len() + 1)
        .y_labels(5)
        .x_label_formatter(&|at| {
            let is_size = at.fract().abs() < 1e-6 && *at >= 0.0;
            let row = sizes.get(at.round() as usize).filter(|_| is_size);
            row.map_or(String::new(), |row| format_size(row.size_bytes))
        })
        .y_label_formatter(&|value| {
            format_tick(if panel.is_log {
                10_f64.powf(*value)
            } else {
                *value
            })
        })
        .axis_style(INK.mix(0.6))
        .bold_line_style(FAINT)
        .light_line_style(TRANSPARENT)
        .label_style(text(12))
        .axis_desc_style(text(13))
        .draw()?;
    let mut x = LEFT as i32;
    for curve in &panel.curves {
        let points: Vec<(f64, f64)> = sizes
            .iter()
            .enumerate()
            .filter_map(|(at, row)| (curve.value)(row).map(|value| (at as f64, scale(value))))
            .collect();
        let line = LineSeries::new(points.iter().copied(), curve.color.stroke_width(2));
        chart.draw_series(line)?;
        let dots = points
            .iter()
            .map(|&point| Circle::new(point, 3, curve.color.filled()));
        chart.draw_series(dots)?;
        draw_name(area, (x, 10), curve.color, curve.name)?;
        x += 40 + 7 * curve.name.len() as i32;
    }
    Ok(())
}
