//! The results side by side as an SVG: one panel a measure, one bar a run.

use std::path::Path;

use plotters::prelude::*;

use super::contest::Results;
use crate::bench::report::Report;
use crate::failure::{Failure, Outcome};
use crate::picture::{
    Area, BLUE, Drawn, FAINT, FONT, INK, ORANGE, draw_heading, draw_name, format_tick, text,
};
use crate::size::{format_count, format_size};

const SIZE: (u32, u32) = (1200, 900);
const TITLE_HEIGHT: u32 = 84;

/// One bar of each panel.
struct Entry<'a> {
    label: String,
    run: &'a Report,
    esker: bool,
}

/// Draws the results to `path`.
pub fn draw(path: &Path, results: &Results) -> Outcome {
    draw_all(path, results).map_err(|error| Failure::io("draw", path, error))
}

fn draw_all(path: &Path, results: &Results) -> Drawn {
    let mut entries = Vec::new();
    for (number, run) in results.runs.iter().enumerate() {
        let label = match run.engine.strip_prefix("rocksdb ") {
            Some(style) => style.to_owned(),
            None => format!("esker u={}", results.arguments.utilization),
        };
        entries.push(Entry {
            label,
            run,
            esker: number == 0,
        });
        let equal = results
            .equal_space
            .iter()
            .find(|equal| equal.rival == run.engine);
        if let Some(run) = equal.and_then(|equal| equal.run.as_ref()) {
            entries.push(Entry {
                label: "esker same space".into(),
                run,
                esker: true,
            });
        }
    }

    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let (title, body) = root.split_vertically(TITLE_HEIGHT);
    draw_title(&title, results)?;
    let panels = body.split_evenly((2, 3));
    type Measure = (&'static str, fn(&Report) -> f64);
    let measures: [Measure; 6] = [
        ("K operations per second", |run| run.ops_per_second / 1e3),
        ("write amplification", |run| {
            run.write_amplification.unwrap_or(0.0)
        }),
        ("peak space / data", |run| {
            run.space_bytes_peak as f64 / run.data_set_bytes.max(1) as f64
        }),
        ("p99 latency, us", |run| run.latency_us.p99),
        ("p99.9 latency, us", |run| run.latency_us.p999),
        ("maximum latency, ms", |run| run.latency_us.max / 1e3),
    ];
    for (panel, (name, measure)) in panels.iter().zip(measures) {
        draw_panel(panel, name, &entries, measure)?;
    }
    root.present()?;
    Ok(())
}

fn draw_title(area: &Area<'_>, results: &Results) -> Drawn {
    let a = &results.arguments;
    let heading = format!(
        "Esker and RocksDB {}: {}, {}, {}, {} threads",
        results.runs.get(1).map_or("", |run| run.version.as_str()),
        a.workload,
        a.distribution,
        a.durability.name(),
        a.threads
    );
    let details = format!(
        "{} keys x {}, {} of data; device bytes: {}",
        format_count(a.keys),
        format_size(a.value_bytes),
        format_size(a.user_bytes()),
        results
            .runs
            .first()
            .map_or("", |run| run.device_bytes_counted_by.as_str())
    );
    draw_heading(area, heading, details)?;
    draw_name(area, (20, 66), BLUE, "Esker")?;
    draw_name(area, (110, 66), ORANGE, "RocksDB")
}

fn draw_panel(
    area: &Area<'_>,
    name: &str,
    entries: &[Entry<'_>],
    measure: fn(&Report) -> f64,
) -> Drawn {
    let largest = entries
        .iter()
        .map(|entry| measure(entry.run))
        .fold(0.0, f64::max);
    let top = if largest > 0.0 { largest * 1.15 } else { 1.0 };
    let count = entries.len().max(1) as f64;
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .margin_bottom(96)
        .caption(name, text(15))
        .y_label_area_size(58)
        .build_cartesian_2d(0.0..count, 0.0..top)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .disable_x_axis()
        .y_labels(5)
        .y_label_formatter(&|value| format_tick(*value))
        .axis_style(INK.mix(0.6))
        .bold_line_style(FAINT)
        .light_line_style(TRANSPARENT)
        .label_style(text(12))
        .draw()?;
    for (number, entry) in entries.iter().enumerate() {
        let value = measure(entry.run);
        let left = number as f64 + 0.14;
        let color = if entry.esker { BLUE } else { ORANGE };
        let bar = Rectangle::new(
            [(left, 0.0), (left + 0.72, value)],
            color.mix(0.85).filled(),
        );
        chart.draw_series(std::iter::once(bar))?;
        let (x, y) = chart.backend_coord(&(number as f64 + 0.5, value));
        // Coordinates of the chart are those of the whole picture, those of the area its own.
        let (left, above) = area.get_base_pixel();
        let tick = format_tick(value);
        let half = tick.len() as i32 * 3;
        let place = (x - left - half, y - above - 14);
        area.draw(&Text::new(tick, place, text(11)))?;
        let foot = chart.backend_coord(&(number as f64 + 0.5, 0.0)).1 - above;
        let style = (FONT, 11)
            .into_font()
            .transform(FontTransform::Rotate90)
            .color(&INK);
        area.draw(&Text::new(
            entry.label.clone(),
            (x - left + 5, foot + 6),
            style,
        ))?;
    }
    Ok(())
}
