//! The results as a table on a terminal.

use super::contest::Results;
use crate::bench::report::{Report, format_us};
use crate::size::{format_count, format_size};

/// Lines of cells, aligned: the first column to the left, the others to the right.
fn align(lines: &[Vec<String>]) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        lines
            .iter()
            .filter_map(|line| line.get(column))
            .map(String::len)
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for line in lines {
        for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
            if column == 0 {
                text.push_str(&format!("{cell:<width$}"));
            } else {
                text.push_str(&format!("  {cell:>width$}"));
            }
        }
        text.push('\n');
    }
    text
}

fn cells(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn amplification(value: Option<f64>) -> String {
    value.map_or_else(|| "-".into(), |value| format!("{value:.2}"))
}

fn row(name: String, run: &Report) -> Vec<String> {
    vec![
        name,
        format_size(run.space_bytes_peak),
        format!(
            "{:.2}",
            run.space_bytes_peak as f64 / run.data_set_bytes.max(1) as f64
        ),
        format_count(run.ops_per_second as u64),
        format_count(run.ops_per_second_settled as u64),
        amplification(run.write_amplification),
        format_us(run.latency_us.p50),
        format_us(run.latency_us.p99),
        format_us(run.latency_us.p999),
        format_us(run.latency_us.max),
        format!("{:.1}", run.cpu_us_per_op),
    ]
}

/// All of it.
pub fn render(results: &Results) -> String {
    let a = &results.arguments;
    let mut text = format!(
        "{} keys x {}, {}, {}, {}, {} threads, {} of data\n\n",
        format_count(a.keys),
        format_size(a.value_bytes),
        a.workload,
        a.distribution,
        a.durability.name(),
        a.threads,
        format_size(a.user_bytes())
    );
    let mut lines = vec![cells(&[
        "engine",
        "peak space",
        "/ data",
        "ops/s",
        "settled",
        "WA",
        "p50",
        "p99",
        "p99.9",
        "max",
        "CPU us",
    ])];
    for (number, run) in results.runs.iter().enumerate() {
        let own = format!("esker, u = {}", a.utilization);
        lines.push(row(if number == 0 { own } else { run.engine.clone() }, run));
    }
    text.push_str(&align(&lines));
    text.push_str("ops/s while operations ran; settled: the time to settle afterwards too\n");
    text.push_str(&equal_space(results));
    text.push_str(&conditions(results));
    text
}

/// Esker at the space of each rival.
fn equal_space(results: &Results) -> String {
    if results.equal_space.is_empty() {
        return String::new();
    }
    let mut lines = vec![cells(&[
        "rival",
        "space",
        "/ data",
        "its WA",
        "esker WA",
        "ratio",
        "its ops/s",
        "esker ops/s",
        "ratio",
    ])];
    for equal in &results.equal_space {
        let ratio = match (
            equal.rival_write_amplification,
            equal.esker_write_amplification,
        ) {
            (Some(rival), Some(esker)) if esker > 0.0 => format!("{:.2}", rival / esker),
            _ => "-".into(),
        };
        let speedup = equal.esker_ops_per_second / equal.rival_ops_per_second.max(1e-9);
        lines.push(vec![
            equal.rival.clone(),
            format_size(equal.space_bytes),
            format!("{:.2}", equal.space_per_data),
            amplification(equal.rival_write_amplification),
            amplification(equal.esker_write_amplification),
            ratio,
            format_count(equal.rival_ops_per_second as u64),
            format_count(equal.esker_ops_per_second as u64),
            format!("{speedup:.2}"),
        ]);
    }
    let mut text = format!("\nat the peak space of each rival\n{}", align(&lines));
    for equal in &results.equal_space {
        if let Some(why) = &equal.failure {
            text.push_str(&format!("{}: {why}\n", equal.rival));
        }
    }
    text
}

/// The version and the options of the rivals: what all share, then what differs.
fn conditions(results: &Results) -> String {
    let rivals = results.runs.get(1..).unwrap_or_default();
    let Some(first) = rivals.first() else {
        return String::new();
    };
    let shared = |option: &&(String, String)| {
        rivals
            .iter()
            .all(|rival| rival.engine_options.contains(option))
    };
    let join = |options: Vec<&(String, String)>| {
        let words: Vec<String> = options.iter().map(|(n, v)| format!("{n}={v}")).collect();
        words.join("; ")
    };
    let mut text = format!(
        "\nRocksDB {}, device bytes: {}\nall rivals: {}\n",
        first.version,
        first.device_bytes_counted_by,
        join(first.engine_options.iter().filter(shared).collect())
    );
    for rival in rivals {
        let own: Vec<_> = rival.engine_options.iter().filter(|o| !shared(o)).collect();
        if !own.is_empty() {
            text.push_str(&format!("{}: {}\n", rival.engine, join(own)));
        }
    }
    text
}
