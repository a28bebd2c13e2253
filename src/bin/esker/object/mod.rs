//! `esker object`: the objects of a collection: data, attributes, omap.

mod attributes;
mod data;
mod listing;
pub mod naming;
mod omap;

use std::ffi::OsString;
use std::io::{self, IsTerminal, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use esker::{Collection, CollectionName, Error, ObjectName, ObjectStore, Transaction};

use crate::failure::{Failure, Outcome};
use crate::opening::{StoreArgument, explain, open_read_only, open_writable};
use naming::{ObjectArgument, full_form, parse_collection};

const EXAMPLES: &str = "\
An object has data, attributes and an omap (ordered keys and values, and a header), and lives
in a collection, as in Ceph. Its short form is its name; see `esker object put --help`.

Examples:
  esker collection create my.esker 1.0
  esker object put my.esker 1.0 cat cat.jpg
  esker object get my.esker 1.0 cat > copy.jpg
  esker object setattr my.esker 1.0 cat owner tom
  esker object omap-set my.esker 1.0 cat born 2019
  esker object ls my.esker 1.0 -l
  esker object stat my.esker 1.0 cat";

/// Works with objects: put, get, rm, ls, stat, attributes, omap.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Put(data::PutArguments),
    Get(data::GetArguments),
    Rm(data::RmArguments),
    Ls(listing::LsArguments),
    Stat(listing::StatArguments),
    Setattr(attributes::SetArguments),
    Getattr(attributes::GetArguments),
    OmapSet(omap::SetArguments),
    OmapGet(omap::GetArguments),
    OmapLs(omap::LsArguments),
}

/// Runs `esker object`.
pub fn run(arguments: &Arguments) -> Outcome {
    match &arguments.command {
        Command::Put(arguments) => data::put(arguments),
        Command::Get(arguments) => data::get(arguments),
        Command::Rm(arguments) => data::rm(arguments),
        Command::Ls(arguments) => listing::ls(arguments),
        Command::Stat(arguments) => listing::stat(arguments),
        Command::Setattr(arguments) => attributes::set(arguments),
        Command::Getattr(arguments) => attributes::get(arguments),
        Command::OmapSet(arguments) => omap::set(arguments),
        Command::OmapGet(arguments) => omap::get(arguments),
        Command::OmapLs(arguments) => omap::ls(arguments),
    }
}

/// How a collection is given on the command line.
#[derive(Args, Debug)]
pub struct CollectionArgument {
    #[command(flatten)]
    pub store: StoreArgument,

    /// The collection: POOL.SEED with the seed in hexadecimal, as in 1.0 or 1.2f; 1.2fs3 for
    /// a shard of an erasure-coded pool; meta.
    #[arg(value_name = "COLLECTION", value_parser = parse_collection)]
    pub collection: CollectionName,
}

impl CollectionArgument {
    /// Opens the store and the collection.
    pub fn open(&self, writable: bool) -> Outcome<Place<'_>> {
        let path = &self.store.path;
        let store = if writable {
            open_writable(path)?
        } else {
            open_read_only(path)?
        };
        let store = ObjectStore::on(store);
        let collection = store.open_collection(&self.collection).ok_or_else(|| {
            Failure::failed(format!(
                "there is no collection {0} in {1}; make it with `esker collection create {1} {0}`",
                self.collection,
                path.display()
            ))
        })?;
        Ok(Place {
            store,
            collection,
            id: self.collection,
            path,
        })
    }
}

/// An open collection.
pub struct Place<'a> {
    pub store: ObjectStore,
    pub collection: Collection,
    pub id: CollectionName,
    path: &'a Path,
}

impl Place<'_> {
    /// What an error means here.
    pub fn explain(&self, error: &Error) -> Failure {
        explain(self.path, error)
    }

    /// As [`Place::explain`], of a call on an object.
    pub fn explain_object(&self, object: &ObjectName, error: &Error) -> Failure {
        match error {
            Error::NoEntry("object") => missing(self.id, object),
            error => self.explain(error),
        }
    }

    /// The name of an object, existing or not.
    pub fn name(&self, argument: &ObjectArgument) -> Outcome<ObjectName> {
        let bits = self.store.collection_bits(&self.collection)?;
        argument.name(&self.id, bits)
    }

    /// The name of an object that must exist.
    pub fn existing(&self, argument: &ObjectArgument) -> Outcome<ObjectName> {
        let name = self.name(argument)?;
        let exists = self.store.exists(&self.collection, &name);
        if exists.map_err(|error| self.explain(&error))? {
            Ok(name)
        } else {
            Err(missing(self.id, &name))
        }
    }

    /// Applies a transaction; it survives power loss when this returns.
    pub fn apply(&self, transaction: Transaction<'_>) -> Outcome {
        self.store
            .apply_transactions(&self.collection, &[transaction])
            .map_err(|error| self.explain(&error))
    }

    /// Ends a change in order.
    pub fn close(self) -> Outcome {
        let path = self.path;
        self.store.close().map_err(|error| explain(path, &error))
    }
}

/// The error of an object that is not there.
fn missing(collection: CollectionName, object: &ObjectName) -> Failure {
    Failure::failed(format!(
        "there is no object {} in {collection}; `esker object ls` lists those there are",
        full_form(object)
    ))
}

/// How a value is given on the command line.
#[derive(Args, Debug)]
struct ValueArgument {
    /// The value: its bytes as given; standard input when neither this nor --file is given.
    #[arg(conflicts_with = "file", allow_hyphen_values = true)]
    value: Option<OsString>,

    /// Reads the value from this file.
    #[arg(short, long)]
    file: Option<PathBuf>,
}

impl ValueArgument {
    /// The value, or a little more than `max` bytes of it.
    fn bytes(&self, max: usize) -> Outcome<Vec<u8>> {
        if let Some(value) = &self.value {
            return Ok(value.clone().into_vec());
        }
        let mut bytes = Vec::new();
        open_input(self.file.as_deref())?
            .take(max as u64 + 1)
            .read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

/// A file to read, or standard input for none and for `-`.
pub fn open_input(file: Option<&Path>) -> Outcome<Box<dyn Read>> {
    match file {
        Some(path) if path != Path::new("-") => {
            let file = std::fs::File::open(path);
            Ok(Box::new(
                file.map_err(|error| Failure::io("read", path, error))?,
            ))
        }
        _ => {
            let input = io::stdin();
            if input.is_terminal() {
                eprintln!("esker: reading from the terminal; end with Ctrl-D");
            }
            Ok(Box::new(input))
        }
    }
}
