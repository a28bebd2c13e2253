//! `esker import`: the files of a directory become entries, an archive becomes objects.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::Args;
use esker::{Durability, ObjectStore, Options};

use crate::archive::{self, Fault, ImportError};
use crate::failure::{Failure, Outcome};
use crate::opening::{StoreArgument, explain, open};
use crate::output::print_line;
use crate::progress::Progress;
use crate::size::{format_count, format_size};

/// The largest value a store takes.
const VALUE_BYTES_MAX: u64 = 64 << 20;

const EXAMPLES: &str = "\
A directory: each regular file becomes an entry: its key is the path below FROM, byte for byte,
its value the contents, up to 64 MiB. Existing keys are overwritten. Symbolic links and special
files are skipped and counted; names, times and permissions of directories are not kept.

An archive of `esker export --collection`: its collections are made if they are not there, and
its objects in them. An archive in a file is checked as a whole before anything is changed. One
that comes from standard input is checked frame by frame: if it is damaged, what came before the
damage is imported, and the command fails.

Examples:
  esker import my.esker photos
  esker import my.esker pool1.arc
  zstd -dc objects.arc.zst | esker import my.esker -
  esker export my.esker elsewhere && diff -r photos elsewhere";

/// Stores the files of a directory under their relative paths, or the objects of an archive.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    store: StoreArgument,

    /// The directory, or the archive: a file, or `-` for standard input.
    #[arg(value_name = "FROM")]
    from: PathBuf,

    /// Replaces objects that have the names of the archive's; without it, collections that
    /// have objects are refused.
    #[arg(long)]
    overwrite: bool,
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
    let directory = &arguments.from;
    if directory == Path::new("-") || directory.is_file() {
        return import_archive(arguments);
    }
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

/// Makes the objects of an archive.
fn import_archive(arguments: &Arguments) -> Outcome {
    let (path, from) = (&arguments.store.path, &arguments.from);
    let is_stream = from == Path::new("-");
    let name = if is_stream {
        "stdin".into()
    } else {
        from.display().to_string()
    };
    let bad = |fault: Fault, effect: &str| match fault {
        Fault::Bad(offset, why) => Failure::failed(format!(
            "{name} cannot be imported: at byte {offset} {why}; {effect}"
        )),
        Fault::Io(error) => Failure::failed(format!("cannot read {name}: {error}; {effect}")),
    };
    let open_file = || File::open(from).map_err(|error| Failure::io("read", from, error));
    let mut len = 0;
    if !is_stream {
        let file = open_file()?;
        len = file.metadata().map_or(0, |of| of.len());
        let mut bar = Progress::of_bytes("checking", len);
        let checked = archive::verify(BufReader::new(file), &mut |done| bar.set(done, len));
        checked.map_err(|fault| bad(fault, "nothing was changed"))?;
        bar.finish();
    }
    let store = ObjectStore::on(open(path, &Options::default())?);
    let mut bar = Progress::of_bytes("importing", len);
    let input: Box<dyn Read> = if is_stream {
        Box::new(io::stdin().lock())
    } else {
        Box::new(open_file()?)
    };
    let imported = archive::import(
        &store,
        BufReader::new(input),
        arguments.overwrite,
        &mut |done| bar.set(done, len.max(done)),
    );
    // What was queued is there whatever became of the rest.
    let closed = store.close().map_err(|error| explain(path, &error));
    bar.finish();
    let summary = imported.map_err(|error| match error {
        ImportError::Archive(fault) => bad(fault, "what came before it is imported"),
        ImportError::Store(error) => explain(path, &error),
        ImportError::Occupied(collection) => Failure::failed(format!(
            "the collection {collection} has objects; remove it first, or add --overwrite"
        )),
    })?;
    closed?;
    print_line(&format!("imported {}", summary.describe()))
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
