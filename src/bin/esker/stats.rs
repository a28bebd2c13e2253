//! `esker stats`: space, segments, objects, write amplification by cause, memory.

use clap::Args;
use esker::Stats;

use crate::failure::Outcome;
use crate::opening::{StoreArgument, open_read_only};
use crate::output::{OutputArgument, print_line};
use crate::size::{format_count, format_size};

const EXAMPLES: &str = "\
Opens the store for reading, so it must not be open elsewhere. Byte counters count from that
opening; `esker bench` shows them over a workload. Utilization is live / usable bytes.

Examples:
  esker stats my.esker
  esker stats my.esker --json | jq .utilization";

/// Shows space, segments by state and class, objects, bytes written by cause, and memory.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    store: StoreArgument,

    #[command(flatten)]
    output: OutputArgument,
}

/// Runs `esker stats`.
pub fn run(arguments: &Arguments) -> Outcome {
    let store = open_read_only(&arguments.store.path)?;
    arguments.output.print(&store.stats(), |stats| {
        print_line(describe(stats).trim_end())
    })
}

type Line = (String, String);

fn line(name: &str, value: String) -> Line {
    (name.to_owned(), value)
}

/// The statistics for people.
fn describe(stats: &Stats) -> String {
    let mut text = format!("store {}\n", stats.uuid);
    for (name, value) in space(stats)
        .into_iter()
        .chain(objects(stats))
        .chain(writes(stats))
        .chain(reads(stats))
    {
        text.push_str(&format!("  {name:<16} {value}\n"));
    }
    text
}

/// Device, capacity, live bytes, segments by state and class.
fn space(stats: &Stats) -> Vec<Line> {
    let (device, segments) = (&stats.device, &stats.segments);
    let device = format!(
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
    );
    let capacity = format!(
        "{}, usable {}",
        format_size(stats.capacity_bytes),
        format_size(stats.usable_bytes)
    );
    let live = format!(
        "{} in {} entries, utilization {:.3}",
        format_size(stats.live_bytes),
        format_count(stats.entries),
        stats.utilization
    );
    let states = format!(
        "{} of {}: {} free, {} open, {} sealed, {} cleaning, {} checkpoint",
        format_count(segments.total),
        format_size(stats.segment_bytes),
        format_count(segments.free),
        format_count(segments.open),
        format_count(segments.sealed),
        format_count(segments.cleaning),
        format_count(segments.checkpoint)
    );
    let mut lines = vec![
        line("device", device),
        line("capacity", capacity),
        line("live", live),
        line("segments", states),
    ];
    for class in stats.classes.iter().filter(|class| class.segments > 0) {
        let held_bytes = class.segments * stats.segment_bytes;
        let value = format!(
            "{} segments, {} live ({:.0}%)",
            format_count(class.segments),
            format_size(class.live_bytes),
            class.live_bytes as f64 / held_bytes.max(1) as f64 * 100.0
        );
        lines.push(line(&format!("  class {}", class.class), value));
    }
    lines
}

/// The object layer, if there is anything of it.
fn objects(stats: &Stats) -> Vec<Line> {
    let objects = &stats.objects;
    if objects.collections == 0 {
        return Vec::new();
    }
    let counts = format!(
        "{} in {} collections",
        format_count(objects.objects),
        format_count(objects.collections)
    );
    let data = format!(
        "{} allocated for {} stored",
        format_size(objects.allocated_bytes),
        format_size(objects.stored_bytes)
    );
    let nodes = format!(
        "{} of DRAM, {:.0} B per object",
        format_size(objects.node_bytes),
        objects.node_bytes_per_object
    );
    let parts = format!(
        "{:.0} B per object with its name and xattrs, {:.1} B per 4 KiB, {:.1} B per omap key",
        objects.node_bytes_per_bare_object,
        objects.extent_bytes_per_block,
        objects.omap_bytes_per_key
    );
    vec![
        line("objects", counts),
        line("  data", data),
        line("  omap", format_size(objects.omap_bytes)),
        line("  nodes", nodes),
        line("  of them", parts),
    ]
}

/// Bytes written by cause, cleaning, commits.
fn writes(stats: &Stats) -> Vec<Line> {
    let written = &stats.written;
    let all = format!(
        "{} for {} of keys and values, WA {:.3}",
        format_size(written.device_bytes()),
        format_size(written.user_bytes),
        written.write_amplification()
    );
    let cleaned = format!(
        "{} segments, {} waits for room; {} checkpoints; {} discarded",
        format_count(stats.victims_cleaned),
        format_count(stats.waits_for_room),
        format_count(stats.checkpoints_taken),
        format_size(stats.discarded_bytes)
    );
    let commits = format!(
        "{} groups, {} flushes; a crash now replays at most {}",
        format_count(stats.groups),
        format_count(stats.flushes),
        format_size(stats.replay_bytes)
    );
    vec![
        line("written", all),
        line("  user records", format_size(written.record_bytes)),
        line("  cleaning", format_size(written.cleaning_bytes)),
        line("  checkpoint", format_size(written.checkpoint_bytes)),
        line("  padding", format_size(written.padding_bytes)),
        line("  prewrite", format_size(written.prewrite_bytes)),
        line("cleaned", cleaned),
        line("commits", commits),
    ]
}

/// Memory and reads.
fn reads(stats: &Stats) -> Vec<Line> {
    let memory = format!(
        "index {}, cache {} ({} hits, {} misses)",
        format_size(stats.index_bytes),
        format_size(stats.cache_bytes),
        format_count(stats.cache_hits),
        format_count(stats.cache_misses)
    );
    let again = format!(
        "{} repeated, {} failed",
        format_count(stats.read_retries),
        format_count(stats.read_errors)
    );
    vec![line("memory", memory), line("reads", again)]
}
