//! `esker object put`, `get`, `rm`: the data of objects.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use esker::Transaction;

use super::naming::ObjectArgument;
use super::{CollectionArgument, open_input};
use crate::failure::{Failure, Outcome};
use crate::progress::Progress;
use crate::size::parse_size;

/// Data is read and written in pieces of this size.
const PIECE_BYTES: usize = 4 << 20;

const PUT_EXAMPLES: &str = "\
The object's data becomes that of the file; attributes and omap stay as they are. With --offset
the bytes are written there and the rest stays. More than 4 MiB are written in steps: if the
command is killed half way, the first of them are there. The object is made if there is none.

OBJECT is its name; pool and shard are the collection's, and the hash is the one Ceph computes
from the name, so that objects have the places that clients of a cluster would look in. The
options below say more, and the full form says everything.

Examples:
  esker object put my.esker 1.0 cat cat.jpg
  date | esker object put my.esker 1.0 now
  esker object put my.esker 1.0 disk sector --offset 4K
  esker object put my.esker 1.0 cat cat.jpg --nspace pets --snap 4
  esker object put my.esker 1.0 '#1:602f83fe:::foo:head#' data";

/// Writes a file into the data of an object.
#[derive(Args, Debug)]
#[command(after_help = PUT_EXAMPLES)]
pub struct PutArguments {
    #[command(flatten)]
    place: CollectionArgument,

    #[command(flatten)]
    object: ObjectArgument,

    /// The file; standard input when not given, or `-`.
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,

    /// Writes from this byte on, and leaves the rest of the object as it is.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    offset: Option<u64>,
}

const GET_EXAMPLES: &str = "\
Writes the bytes of the object and nothing else; holes are zeros. A range that leaves the object
ends where the object does.

Examples:
  esker object get my.esker 1.0 cat > cat.jpg
  esker object get my.esker 1.0 disk sector.bin --offset 4K --length 512";

/// Writes the data of an object to a file or standard output.
#[derive(Args, Debug)]
#[command(after_help = GET_EXAMPLES)]
pub struct GetArguments {
    #[command(flatten)]
    place: CollectionArgument,

    #[command(flatten)]
    object: ObjectArgument,

    /// The file, which is overwritten; standard output when not given, or `-`.
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,

    /// First byte.
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = parse_size)]
    offset: u64,

    /// How many bytes; all to the end when not given.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    length: Option<u64>,
}

const RM_EXAMPLES: &str = "\
Examples:
  esker object rm my.esker 1.0 cat
  esker object rm my.esker 1.0 cat --force        no error if it is not there";

/// Removes an object with all its parts.
#[derive(Args, Debug)]
#[command(after_help = RM_EXAMPLES)]
pub struct RmArguments {
    #[command(flatten)]
    place: CollectionArgument,

    #[command(flatten)]
    object: ObjectArgument,

    /// Does not mind a missing object.
    #[arg(short, long)]
    force: bool,
}

/// Runs `esker object put`.
pub fn put(arguments: &PutArguments) -> Outcome {
    // What cannot be read is found before anything is opened for writing.
    let file = arguments.file.as_deref();
    let mut input = open_input(file)?;
    let len = file
        .and_then(|path| fs::metadata(path).ok())
        .map_or(0, |of| of.len());
    let mut piece = vec![0; PIECE_BYTES];
    let mut filled = fill(&mut *input, &mut piece, file)?;
    let place = arguments.place.open(true)?;
    let name = Arc::new(place.name(&arguments.object)?);
    let mut at = arguments.offset.unwrap_or(0);
    let mut bar = Progress::of_bytes("putting", len);
    let mut is_first = true;
    while is_first || filled > 0 {
        let mut transaction = Transaction::new();
        if is_first {
            transaction.touch(place.id, &name);
            if arguments.offset.is_none() {
                transaction.truncate(place.id, &name, 0);
            }
        }
        transaction.write(place.id, &name, at, [&piece[..filled]]);
        place.apply(transaction)?;
        bar.add(filled as u64);
        at += filled as u64;
        is_first = false;
        filled = fill(&mut *input, &mut piece, file)?;
    }
    bar.finish();
    place.close()
}

/// Reads until `into` is full or the input ends.
fn fill(input: &mut dyn Read, into: &mut [u8], file: Option<&Path>) -> Outcome<usize> {
    let mut filled = 0;
    while filled < into.len() {
        match input.read(&mut into[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                return Err(Failure::io(
                    "read",
                    file.unwrap_or(Path::new("stdin")),
                    error,
                ));
            }
        }
    }
    Ok(filled)
}

/// Runs `esker object get`.
pub fn get(arguments: &GetArguments) -> Outcome {
    let place = arguments.place.open(false)?;
    let name = place.existing(&arguments.object)?;
    let stat = place.store.stat(&place.collection, &name);
    let size = stat
        .map_err(|error| place.explain_object(&name, &error))?
        .size;
    let mut output: Box<dyn Write> = match &arguments.file {
        Some(path) if path != Path::new("-") => {
            let file = File::create(path);
            Box::new(file.map_err(|error| Failure::io("write", path, error))?)
        }
        _ => Box::new(io::stdout().lock()),
    };
    let end = arguments
        .length
        .map_or(size, |len| arguments.offset.saturating_add(len).min(size));
    let mut at = arguments.offset.min(end);
    let mut bar = Progress::of_bytes("getting", end - at);
    let mut piece = vec![0; PIECE_BYTES.min((end - at) as usize)];
    while at < end {
        let wanted = (end - at).min(PIECE_BYTES as u64) as usize;
        let read = place
            .store
            .read_into(&place.collection, &name, at, &mut piece[..wanted])
            .map_err(|error| place.explain_object(&name, &error))?;
        output.write_all(&piece[..read])?;
        at += read as u64;
        bar.add(read as u64);
    }
    output.flush()?;
    bar.finish();
    Ok(())
}

/// Runs `esker object rm`.
pub fn rm(arguments: &RmArguments) -> Outcome {
    let place = arguments.place.open(true)?;
    let name = if arguments.force {
        place.name(&arguments.object)?
    } else {
        place.existing(&arguments.object)?
    };
    let mut transaction = Transaction::new();
    transaction.remove(place.id, &Arc::new(name));
    place.apply(transaction)?;
    place.close()
}
