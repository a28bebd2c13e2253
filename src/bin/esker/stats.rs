//! `esker stats`: space, segments, write amplification by cause, memory.

use clap::Args;
use esker::Stats;

use crate::failure::Outcome;
use crate::opening::{StoreArgument, open_read_only};
use crate::output::{print_json, print_line};
use crate::size::{format_count, format_size};

const EXAMPLES: &str = "\
Opens the store for reading, so it must not be open elsewhere. Byte counters count from that
opening; `esker bench` shows them over a workload. Utilization is live / usable bytes.

Examples:
  esker stats my.esker
  esker stats my.esker --json | jq .utilization";

/// Shows space, segments by state and class, bytes written by cause, and memory.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    store: StoreArgument,

    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

/// Runs `esker stats`.
pub fn run(arguments: &Arguments) -> Outcome {
    let store = open_read_only(&arguments.store.path)?;
    let stats = store.stats();
    if arguments.json {
        print_json(&stats)
    } else {
        print_line(describe(&stats).trim_end())
    }
}

/// The statistics for people.
fn describe(stats: &Stats) -> String {
    let mut text = format!("store {}\n", stats.uuid);
    let mut line = |name: &str, value: String| text.push_str(&format!("  {name:<16} {value}\n"));
    let device = &stats.device;
    line(
        "device",
        format!(
            "{}, {}{}, blocks of {} B{}",
            device.kind,
            device.io,
            if device.direct {
                " with O_DIRECT"
            } else {
                " through the page cache"
            },
            device.block_bytes,
            if device.discard {
                ", takes discards"
            } else {
                ""
            }
        ),
    );
    line(
        "capacity",
        format!(
            "{}, usable {}",
            format_size(stats.capacity_bytes),
            format_size(stats.usable_bytes)
        ),
    );
    line(
        "live",
        format!(
            "{} in {} entries, utilization {:.3}",
            format_size(stats.live_bytes),
            format_count(stats.entries),
            stats.utilization
        ),
    );
    let segments = &stats.segments;
    line(
        "segments",
        format!(
            "{} of {}: {} free, {} open, {} sealed, {} cleaning, {} checkpoint",
            format_count(segments.total),
            format_size(stats.segment_bytes),
            format_count(segments.free),
            format_count(segments.open),
            format_count(segments.sealed),
            format_count(segments.cleaning),
            format_count(segments.checkpoint)
        ),
    );
    for class in stats.classes.iter().filter(|class| class.segments > 0) {
        let held = class.segments * stats.segment_bytes;
        line(
            &format!("  class {}", class.class),
            format!(
                "{} segments, {} live ({:.0}%)",
                format_count(class.segments),
                format_size(class.live_bytes),
                class.live_bytes as f64 / held.max(1) as f64 * 100.0
            ),
        );
    }
    let written = &stats.written;
    line(
        "written",
        format!(
            "{} for {} of keys and values, WA {:.3}",
            format_size(written.device_bytes()),
            format_size(written.user_bytes),
            written.write_amplification()
        ),
    );
    for (cause, bytes) in [
        ("  user records", written.record_bytes),
        ("  cleaning", written.cleaning_bytes),
        ("  checkpoint", written.checkpoint_bytes),
        ("  padding", written.padding_bytes),
        ("  prewrite", written.prewrite_bytes),
    ] {
        line(cause, format_size(bytes));
    }
    line(
        "cleaned",
        format!(
            "{} segments; {} checkpoints; {} discarded",
            format_count(stats.victims_cleaned),
            format_count(stats.checkpoints_taken),
            format_size(stats.discarded_bytes)
        ),
    );
    line(
        "commits",
        format!(
            "{} groups, {} flushes; a crash now replays at most {}",
            format_count(stats.groups),
            format_count(stats.flushes),
            format_size(stats.replay_bytes)
        ),
    );
    line(
        "memory",
        format!(
            "index {}, cache {} ({} hits, {} misses)",
            format_size(stats.index_bytes),
            format_size(stats.cache_bytes),
            format_count(stats.cache_hits),
            format_count(stats.cache_misses)
        ),
    );
    line(
        "reads",
        format!(
            "{} repeated, {} failed",
            format_count(stats.read_retries),
            format_count(stats.read_errors)
        ),
    );
    text
}
