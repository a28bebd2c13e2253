//! `esker collection`: makes, lists and removes collections of objects.

use std::sync::Arc;

use clap::{Args, Subcommand};
use esker::{CollectionName, Error, ObjectName, ObjectStore, Transaction};

use crate::failure::{Failure, Outcome};
use crate::object::CollectionArgument;
use crate::opening::{StoreArgument, explain, open_read_only, open_writable};
use crate::output::{print_json, print_line};
use crate::progress::Progress;
use crate::size::format_count;

/// Objects removed by one transaction.
const REMOVED_AT_ONCE: usize = 256;
/// Names asked for at a time when objects are counted.
const PAGE: usize = 4096;

const EXAMPLES: &str = "\
A collection is a placement group of Ceph, POOL.SEED, or `meta`. It holds the objects of its
pool whose hash has the seed as its low bits.

Examples:
  esker collection create my.esker 1.0             all objects of pool 1
  esker collection create my.esker 2.3 --bits 2    one in four of pool 2
  esker collection ls my.esker -l
  esker collection rm my.esker 2.3 --recursive";

/// Makes, lists and removes collections of objects.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Create(CreateArguments),
    Ls(LsArguments),
    Rm(RmArguments),
}

const CREATE_EXAMPLES: &str = "\
Examples:
  esker collection create my.esker 1.0             all objects of pool 1
  esker collection create my.esker 2.3 --bits 2    those whose hash ends in the bits 11
  esker collection create my.esker meta";

/// Makes a collection.
#[derive(Args, Debug)]
#[command(after_help = CREATE_EXAMPLES)]
struct CreateArguments {
    #[command(flatten)]
    place: CollectionArgument,

    /// How many low bits of the hash its objects share; the seed's own when not given, so
    /// that 1.0 takes all of pool 1.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=32))]
    bits: Option<u32>,
}

const LS_EXAMPLES: &str = "\
Examples:
  esker collection ls my.esker
  esker collection ls my.esker -l      bits and objects before each name
  esker collection ls my.esker --json | jq '.[].name'";

/// Lists the collections of a store.
#[derive(Args, Debug)]
#[command(after_help = LS_EXAMPLES)]
struct LsArguments {
    #[command(flatten)]
    store: StoreArgument,

    /// Shows bits and number of objects before each name.
    #[arg(short, long)]
    long: bool,

    /// Prints JSON.
    #[arg(long, conflicts_with = "long")]
    json: bool,
}

const RM_EXAMPLES: &str = "\
Examples:
  esker collection rm my.esker 1.0                 refused if there are objects
  esker collection rm my.esker 1.0 --recursive     its objects first";

/// Removes a collection.
#[derive(Args, Debug)]
#[command(after_help = RM_EXAMPLES)]
struct RmArguments {
    #[command(flatten)]
    place: CollectionArgument,

    /// Removes its objects, too.
    #[arg(short, long)]
    recursive: bool,
}

/// Runs `esker collection`.
pub fn run(arguments: &Arguments) -> Outcome {
    match &arguments.command {
        Command::Create(arguments) => create(arguments),
        Command::Ls(arguments) => ls(arguments),
        Command::Rm(arguments) => rm(arguments),
    }
}

fn create(arguments: &CreateArguments) -> Outcome {
    let (path, name) = (&arguments.place.store.path, arguments.place.collection);
    let seed_bits = match name {
        CollectionName::Meta => 0,
        CollectionName::Pg { seed, .. } => u32::BITS - seed.leading_zeros(),
    };
    let bits = arguments.bits.unwrap_or(seed_bits);
    if bits < seed_bits {
        return Err(Failure::usage(format!(
            "the seed of {name} has {seed_bits} bits; give --bits {seed_bits} or more"
        )));
    }
    let store = ObjectStore::on(open_writable(path)?);
    let collection = store.create_new_collection(name);
    let mut transaction = Transaction::new();
    transaction.create_collection(name, bits);
    store
        .apply_transactions(&collection, &[transaction])
        .map_err(|error| match error {
            Error::Exists { .. } => Failure::failed(format!(
                "the collection {name} exists; `esker collection ls` lists those there are"
            )),
            error => explain(path, &error),
        })?;
    store.close().map_err(|error| explain(path, &error))
}

fn ls(arguments: &LsArguments) -> Outcome {
    let path = &arguments.store.path;
    let store = ObjectStore::on(open_read_only(path)?);
    let mut rows = Vec::new();
    for name in store.list_collections() {
        if !arguments.long && !arguments.json {
            print_line(&name.to_string())?;
            continue;
        }
        let Some(collection) = store.open_collection(&name) else {
            continue;
        };
        let bits = store.collection_bits(&collection);
        let bits = bits.map_err(|error| explain(path, &error))?;
        let (mut start, mut objects) = (ObjectName::min(), 0);
        while !start.is_max() {
            let page = store
                .collection_list(&collection, &start, &ObjectName::max(), PAGE)
                .map_err(|error| explain(path, &error))?;
            objects += page.objects.len();
            start = page.next;
        }
        if arguments.long {
            print_line(&format!("{bits:>2} {objects:>10}  {name}"))?;
        }
        let name = name.to_string();
        rows.push(serde_json::json!({"name": name, "bits": bits, "objects": objects}));
    }
    if arguments.json {
        print_json(&rows)?;
    }
    Ok(())
}

fn rm(arguments: &RmArguments) -> Outcome {
    let place = arguments.place.open(true)?;
    let mut removed = 0;
    if arguments.recursive {
        let mut bar = Progress::of_count("removing", 0);
        loop {
            let page = place
                .store
                .collection_list(
                    &place.collection,
                    &ObjectName::min(),
                    &ObjectName::max(),
                    REMOVED_AT_ONCE,
                )
                .map_err(|error| place.explain(&error))?;
            if page.objects.is_empty() {
                break;
            }
            removed += page.objects.len() as u64;
            let mut transaction = Transaction::new();
            for object in page.objects {
                transaction.remove(place.id, &Arc::new(object));
            }
            place.apply(transaction)?;
            bar.add(REMOVED_AT_ONCE as u64);
        }
        bar.finish();
    }
    let mut transaction = Transaction::new();
    transaction.remove_collection(place.id);
    place
        .store
        .apply_transactions(&place.collection, &[transaction])
        .map_err(|error| match error {
            Error::NotEmpty { .. } => Failure::failed(format!(
                "the collection {} has objects; add --recursive to remove them, too",
                place.id
            )),
            error => place.explain(&error),
        })?;
    place.close()?;
    if removed > 0 {
        print_line(&format!("removed {} objects", format_count(removed)))?;
    }
    Ok(())
}
