//! `esker export`: entries become files of a directory, and never leave it; collections of
//! objects become an archive.
//!
//! Keys are anybody's bytes. One that is absolute, climbs with `..`, has an empty or `.`
//! component or a NUL is refused and counted; and since components are opened one below the
//! other without following symbolic links, a link that is in the way cannot lead out either.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::Args;
use esker::{CollectionName, ObjectStore};
use rustix::fs::{Mode, OFlags, mkdirat, open, openat};
use rustix::io::Errno;

use crate::archive::{self, ExportError};
use crate::escape::escape;
use crate::failure::{Failure, Outcome};
use crate::object::naming::parse_collection;
use crate::opening::{StoreArgument, explain, open_read_only};
use crate::output::print_line;
use crate::progress::Progress;
use crate::size::{format_count, format_size};

const EXAMPLES: &str = "\
Keys and values: each entry becomes a file: its key is the path below TO, its value the contents.
Keys that are no relative path inside TO (absolute, with `..`, `.`, an empty component or a NUL,
or empty) are refused, named on standard error, counted, and the exit code is 1; so are keys that
need a file where a directory must be. Existing files are overwritten.

Objects: with --collection TO is an archive, which holds every object of the collection with
its data, holes, attributes, omap header and omap. Each frame of it is checksummed; `esker
import` takes it back. What clones share is in it for each.

Examples:
  esker export my.esker elsewhere
  esker export my.esker pool1.arc --collection 1.0
  esker export my.esker - --all-collections | zstd > objects.arc.zst";

/// Writes every entry of a store to a file below a directory, or collections to an archive.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    store: StoreArgument,

    /// The directory, which is made when it does not exist; the archive when collections are
    /// exported, a file or `-` for standard output.
    #[arg(value_name = "TO")]
    to: PathBuf,

    /// Exports the objects of this collection; may be given more than once.
    #[arg(long, value_name = "COLLECTION", value_parser = parse_collection)]
    collection: Vec<CollectionName>,

    /// Exports the objects of all collections.
    #[arg(long, conflicts_with = "collection")]
    all_collections: bool,

    /// Overwrites an archive that exists.
    #[arg(long)]
    force: bool,
}

/// Runs `esker export`.
pub fn run(arguments: &Arguments) -> Outcome {
    if arguments.all_collections || !arguments.collection.is_empty() {
        return export_archive(arguments);
    }
    let path = &arguments.store.path;
    let directory = &arguments.to;
    let store = open_read_only(path)?;
    fs::create_dir_all(directory).map_err(|error| Failure::io("make", directory, error))?;
    let root = open(
        directory,
        OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .map_err(|error| Failure::io("open", directory, error))?;
    let (mut files, mut bytes, mut refused) = (0_u64, 0_u64, 0_u64);
    let mut bar = Progress::of_count("exporting", store.stats().entries);
    for item in store.scan() {
        let (key, value) = item.map_err(|error| explain(path, &error))?;
        bar.add(1);
        let written = components(&key)
            .map_err(|why| Refusal::Key(why.to_owned()))
            .and_then(|parts| write_file(&root, &parts, &value));
        match written {
            Ok(()) => {
                files += 1;
                bytes += value.len() as u64;
            }
            Err(Refusal::Key(why)) => {
                refused += 1;
                eprintln!("esker: refused key `{}`: {why}", escape(&key));
            }
            Err(Refusal::Failed(error)) => {
                return Err(Failure::failed(format!(
                    "cannot write `{}` below {}: {error}",
                    escape(&key),
                    directory.display()
                )));
            }
        }
    }
    bar.finish();
    print_line(&format!(
        "exported {} files, {}",
        format_count(files),
        format_size(bytes)
    ))?;
    if refused > 0 {
        return Err(Failure::failed(format!(
            "{} keys are no paths inside {} and were refused; use `esker get` for them",
            format_count(refused),
            directory.display()
        )));
    }
    Ok(())
}

/// Writes collections to an archive.
fn export_archive(arguments: &Arguments) -> Outcome {
    let (path, to) = (&arguments.store.path, &arguments.to);
    let is_stream = to == Path::new("-");
    let store = ObjectStore::on(open_read_only(path)?);
    let mut collections = arguments.collection.clone();
    if arguments.all_collections {
        collections = store.list_collections();
    }
    collections.sort_unstable();
    collections.dedup();
    if let Some(missing) = collections
        .iter()
        .find(|name| !store.collection_exists(name))
    {
        return Err(Failure::failed(format!(
            "there is no collection {missing}; `esker collection ls` lists those there are"
        )));
    }
    let mut bar = Progress::of_count("exporting objects", store.statfs().objects);
    let mut output: Box<dyn Write> = if is_stream {
        Box::new(BufWriter::new(io::stdout().lock()))
    } else {
        let mut options = File::options();
        options.write(true).truncate(true);
        if arguments.force {
            options.create(true);
        } else {
            options.create_new(true);
        }
        let file = options.open(to).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => Failure::failed(format!(
                "{} exists; give another path, or --force to overwrite it",
                to.display()
            )),
            _ => Failure::io("write", to, error),
        })?;
        Box::new(BufWriter::new(file))
    };
    let exported = archive::export(&store, &collections, &mut output, &mut |n| bar.add(n));
    let (summary, _) = exported.map_err(|error| match error {
        ExportError::Store(error) => explain(path, &error),
        ExportError::Io(error) if is_stream => error.into(),
        ExportError::Io(error) => Failure::io("write", to, error),
    })?;
    output
        .flush()
        .map_err(|error| Failure::io("write", to, error))?;
    drop(output);
    if !is_stream {
        let synced = File::open(to).and_then(|file| file.sync_all());
        synced.map_err(|error| Failure::io("sync", to, error))?;
    }
    bar.finish();
    if is_stream {
        return Ok(());
    }
    print_line(&format!("exported {}", summary.describe()))
}

/// Why an entry did not become a file.
enum Refusal {
    /// Its key cannot be a path here; others can.
    Key(String),
    /// The file system failed.
    Failed(Errno),
}

/// The parts of a key that is a relative path, or why it is none.
fn components(key: &[u8]) -> Result<Vec<&OsStr>, &'static str> {
    if key.is_empty() {
        return Err("it is empty");
    }
    if key.contains(&0) {
        return Err("it has a NUL");
    }
    if key[0] == b'/' {
        return Err("it is an absolute path");
    }
    key.split(|&byte| byte == b'/')
        .map(|part| match part {
            b"" => Err("it has an empty component"),
            b"." | b".." => Err("it has a `.` or `..` component"),
            _ => Ok(OsStr::from_bytes(part)),
        })
        .collect()
}

/// Writes one file below `root`, its directories made as needed, no link followed.
fn write_file(root: &OwnedFd, parts: &[&OsStr], value: &[u8]) -> Result<(), Refusal> {
    let refuse = |error: Errno| match error {
        Errno::LOOP => Refusal::Key("a symbolic link is in its way".into()),
        Errno::NOTDIR => Refusal::Key("a file is where it needs a directory".into()),
        Errno::ISDIR => Refusal::Key("a directory is where it needs a file".into()),
        Errno::NAMETOOLONG => Refusal::Key("a component is longer than names may be".into()),
        error => Refusal::Failed(error),
    };
    let Some((name, parents)) = parts.split_last() else {
        return Err(Refusal::Key("it is empty".into()));
    };
    let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut current: Option<OwnedFd> = None;
    for part in parents {
        let at = current.as_ref().unwrap_or(root);
        match mkdirat(at, *part, Mode::from(0o777)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(refuse(error)),
        }
        let below = openat(at, *part, flags | OFlags::DIRECTORY, Mode::empty());
        current = Some(below.map_err(refuse)?);
    }
    let at = current.as_ref().unwrap_or(root);
    // A pipe or device that is in the way is not waited for, and not written to.
    let flags = flags | OFlags::WRONLY | OFlags::CREATE | OFlags::NONBLOCK;
    let file = File::from(openat(at, *name, flags, Mode::from(0o666)).map_err(refuse)?);
    let failed =
        |error: std::io::Error| Refusal::Failed(Errno::from_io_error(&error).unwrap_or(Errno::IO));
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(Refusal::Key("a special file is in its way".into()));
    }
    file.set_len(0).map_err(failed)?;
    (&file).write_all(value).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_relative_paths_inside_are_taken() {
        for key in [
            "a",
            "a/b",
            "..a",
            "a..",
            "...",
            ".hidden/x",
            "-rf",
            " ",
            "a\\b",
        ] {
            assert!(components(key.as_bytes()).is_ok(), "{key}");
        }
        let refused = [
            "", "/", "/a", "..", "../x", "a/../b", "a/..", ".", "./a", "a/./b", "a//b", "a/",
            "a\0b",
        ];
        for key in refused {
            assert!(components(key.as_bytes()).is_err(), "{key}");
        }
    }
}
