//! `esker mkfs`: makes a store.

use std::fs::{self, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use clap::Args;
use esker::{Options, Store};

use crate::failure::{Failure, Outcome};
use crate::opening::{StoreArgument, explain};
use crate::output::print_line;
use crate::size::{format_size, parse_size};

const EXAMPLES: &str = "\
Examples:
  esker mkfs my.esker --capacity 1G        a file that may grow to 1 GiB
  esker mkfs /dev/nvme0n1p3                a whole block device

Leave room: a store that is 80% live writes about 2.8 bytes for each byte of random overwrites,
one that is 50% live about 1.3.";

/// Makes a new, empty store in a file or on a block device.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    store: StoreArgument,

    /// Size of the store in bytes; needed for a file, a block device has its own.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    capacity: Option<u64>,

    /// Segment size in bytes, a power of two; chosen from the capacity when not given.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    segment_bytes: Option<u64>,

    /// Overwrites an existing store: all its entries are lost.
    #[arg(long)]
    force: bool,
}

/// Runs `esker mkfs`.
pub fn run(arguments: &Arguments) -> Outcome {
    let path = &arguments.store.path;
    let kind = fs::metadata(path).ok();
    let is_device = kind
        .as_ref()
        .is_some_and(|kind| kind.file_type().is_block_device());
    if arguments.capacity.is_none() && !is_device {
        return Err(Failure::usage(
            "a file needs its size: add --capacity, as in --capacity 1G",
        ));
    }
    if arguments
        .segment_bytes
        .is_some_and(|bytes| !bytes.is_power_of_two())
    {
        return Err(Failure::usage(
            "--segment-bytes must be a power of two, as in 1M",
        ));
    }
    let mut options = Options::default();
    options.capacity = arguments.capacity;
    options.segment_bytes = arguments.segment_bytes;
    if let Some(kind) = &kind {
        if !is_device && !kind.is_file() {
            return Err(Failure::failed(format!(
                "{} is neither a file nor a block device; give another path",
                path.display()
            )));
        }
        if !arguments.force && !is_device {
            return Err(Failure::failed(format!(
                "{} exists; give another path, or --force to overwrite it",
                path.display()
            )));
        }
    }
    let store = match (&kind, arguments.force) {
        (Some(_), true) if is_device => {
            refuse_in_use(path)?;
            clear_device(path)?;
            Store::create(path, &options)
        }
        (Some(_), true) => return replace_file(path, &options),
        _ => Store::create(path, &options),
    };
    finish(path, store.map_err(|error| explain(path, &error))?)
}

/// Makes the new store beside the old file and renames it over, so that a refused capacity
/// does not cost the old one.
fn replace_file(path: &Path, options: &Options) -> Outcome {
    refuse_in_use(path)?;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let beside = path.with_file_name(name);
    let store = Store::create(&beside, options).map_err(|error| explain(path, &error))?;
    let renamed = fs::rename(&beside, path);
    if let Err(error) = renamed {
        let _ = fs::remove_file(&beside);
        return Err(Failure::io("replace", path, error));
    }
    finish(path, store)
}

fn finish(path: &Path, store: Store) -> Outcome {
    let capacity = store.stats().capacity_bytes;
    store.close()?;
    print_line(&format!(
        "made {}, {}",
        path.display(),
        format_size(capacity)
    ))
}

/// A store somebody has open is not overwritten, whatever was asked.
fn refuse_in_use(path: &Path) -> Outcome {
    match Store::open(path, &Options::default().read_only(true)) {
        Err(error @ esker::Error::InUse) => Err(explain(path, &error)),
        _ => Ok(()),
    }
}

/// Destroys what marks a block device as a store: its superblocks, which are near both ends.
pub fn clear_device(path: &Path) -> Outcome {
    const MARGIN_BYTES: usize = 4 << 20;
    let clear = || -> std::io::Result<()> {
        let mut device = OpenOptions::new().write(true).open(path)?;
        let end = device.seek(SeekFrom::End(0))?;
        let zeros = vec![0; MARGIN_BYTES.min(end as usize)];
        device.seek(SeekFrom::Start(end - zeros.len() as u64))?;
        device.write_all(&zeros)?;
        device.seek(SeekFrom::Start(0))?;
        device.write_all(&zeros)?;
        device.sync_all()
    };
    clear().map_err(|error| Failure::io("overwrite", path, error))
}
