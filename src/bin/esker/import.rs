//! `esker import`: the files of a directory become entries.

use std::collections::VecDeque;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::Args;
use esker::{Durability, Options};

use crate::failure::{Failure, Outcome};
use crate::opening::{StoreArgument, explain, open};
use crate::output::print_line;
use crate::progress::Progress;
use crate::size::{format_count, format_size};

/// The largest value a store takes.
const VALUE_BYTES_MAX: u64 = 64 << 20;

const EXAMPLES: &str = "\
Each regular file becomes an entry: its key is the path below DIR, byte for byte, its value the
contents, up to 64 MiB. Existing keys are overwritten. Symbolic links and special files are
skipped and counted; names, times and permissions of directories are not kept.

Examples:
  esker import my.esker photos
  esker export my.esker elsewhere && diff -r photos elsewhere";

/// Stores the files of a directory, recursively, under their relative paths.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    store: StoreArgument,

    /// The directory.
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// What a walk found.
#[derive(Default)]
struct Found {
    /// Regular files, with their sizes.
    files: Vec<(PathBuf, u64)>,
    bytes: u64,
    symlinks: u64,
    special: u64,
}

/// Runs `esker import`.
pub fn run(arguments: &Arguments) -> Outcome {
    let directory = &arguments.directory;
    let found = walk(directory)?;
    let path = &arguments.store.path;
    // One flush at the end makes all of it durable, which is all an import promises.
    let store = open(path, &Options::default().durability(Durability::Buffered))?;
    let mut bar = Progress::of_bytes("importing", found.bytes);
    let mut bytes = 0;
    for (file, size) in &found.files {
        if *size > VALUE_BYTES_MAX {
            return Err(Failure::failed(format!(
                "{} has {}, a value at most 64 MiB; split it or leave it out. The files before \
                 it are imported",
                file.display(),
                format_size(*size)
            )));
        }
        let value = fs::read(file).map_err(|error| Failure::io("read", file, error))?;
        let relative = file.strip_prefix(directory).unwrap_or(file);
        store
            .put(relative.as_os_str().as_bytes(), &value)
            .map_err(|error| explain(path, &error))?;
        bytes += value.len() as u64;
        bar.add(value.len() as u64);
    }
    store.sync().map_err(|error| explain(path, &error))?;
    store.close().map_err(|error| explain(path, &error))?;
    bar.finish();
    let mut summary = format!(
        "imported {} files, {}",
        format_count(found.files.len() as u64),
        format_size(bytes)
    );
    for (count, what) in [
        (found.symlinks, "symbolic links"),
        (found.special, "special files"),
    ] {
        if count > 0 {
            summary.push_str(&format!("; skipped {} {what}", format_count(count)));
        }
    }
    print_line(&summary)
}

/// All files below `directory`, breadth first, in the order of their names.
fn walk(directory: &Path) -> Outcome<Found> {
    let mut found = Found::default();
    let mut queue = VecDeque::from([directory.to_owned()]);
    while let Some(current) = queue.pop_front() {
        let fail = |error| Failure::io("read", &current, error);
        let mut items: Vec<_> = fs::read_dir(&current)
            .map_err(fail)?
            .collect::<Result<_, _>>()
            .map_err(fail)?;
        items.sort_by_key(fs::DirEntry::file_name);
        for item in items {
            let kind = item.file_type().map_err(fail)?;
            if kind.is_symlink() {
                found.symlinks += 1;
            } else if kind.is_dir() {
                queue.push_back(item.path());
            } else if kind.is_file() {
                let size = item.metadata().map_err(fail)?.len();
                found.bytes += size;
                found.files.push((item.path(), size));
            } else {
                found.special += 1;
            }
        }
    }
    Ok(found)
}
