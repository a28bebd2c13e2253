//! `esker object ls` and `stat`: what objects there are, and what one has.

use std::io::{self, BufWriter, Write};

use clap::Args;
use esker::ObjectName;
use serde::Serialize;

use super::naming::{ObjectArgument, full_form, short_form};
use super::{CollectionArgument, Place};
use crate::escape::escape;
use crate::failure::Outcome;
use crate::output::{OutputArgument, print_fields};
use crate::size::parse_count;

/// Names asked for at a time.
const PAGE: usize = 1024;

const LS_EXAMPLES: &str = "\
Objects come in Ceph's order: by reversed hash, namespace, key, name, snap, generation. A name
that is all there is to say is printed alone, escaped (\\xNN for what is not printable, \\\\ for
a backslash); every other object in its full form. The other commands take both, with -e where
there is a backslash.

Examples:
  esker object ls my.esker 1.0
  esker object ls my.esker 1.0 -l --limit 10     size, bytes stored, then name
  esker object ls my.esker 1.0 --full            full forms alone
  esker object ls my.esker 1.0 --json            one object a line";

/// Lists the objects of a collection.
#[derive(Args, Debug)]
#[command(after_help = LS_EXAMPLES)]
pub struct LsArguments {
    #[command(flatten)]
    place: CollectionArgument,

    /// Shows size and stored bytes of each object before its name.
    #[arg(short, long)]
    long: bool,

    /// Ends after so many objects.
    #[arg(long, value_name = "N", value_parser = parse_count)]
    limit: Option<u64>,

    /// Prints the full form of every name.
    #[arg(long)]
    full: bool,

    /// Prints one JSON object a line.
    #[arg(long, conflicts_with_all = ["full", "long"])]
    json: bool,
}

const STAT_EXAMPLES: &str = "\
Stored bytes are those of whole blocks that have data; the rest of the size is holes.

Examples:
  esker object stat my.esker 1.0 cat
  esker object stat my.esker 1.0 cat --json | jq .attributes";

/// Shows size, stored bytes, attributes and omap of an object.
#[derive(Args, Debug)]
#[command(after_help = STAT_EXAMPLES)]
pub struct StatArguments {
    #[command(flatten)]
    place: CollectionArgument,

    #[command(flatten)]
    object: ObjectArgument,

    #[command(flatten)]
    output: OutputArgument,
}

/// Calls with each object of a collection, in order, until it says no.
pub fn for_each(place: &Place<'_>, mut call: impl FnMut(ObjectName) -> Outcome<bool>) -> Outcome {
    let (mut start, end) = (ObjectName::min(), ObjectName::max());
    while !start.is_max() {
        let page = place
            .store
            .collection_list(&place.collection, &start, &end, PAGE)
            .map_err(|error| place.explain(&error))?;
        for object in page.objects {
            if !call(object)? {
                return Ok(());
            }
        }
        start = page.next;
    }
    Ok(())
}

/// Runs `esker object ls`.
pub fn ls(arguments: &LsArguments) -> Outcome {
    let place = arguments.place.open(false)?;
    let mut output = BufWriter::new(io::stdout().lock());
    let mut left = arguments.limit.unwrap_or(u64::MAX);
    for_each(&place, |object| {
        if left == 0 {
            return Ok(false);
        }
        left -= 1;
        let name = if arguments.full {
            full_form(&object)
        } else {
            short_form(&place.id, &object)
        };
        if !arguments.long && !arguments.json {
            writeln!(output, "{name}")?;
            return Ok(true);
        }
        let stat = place.store.stat(&place.collection, &object);
        let stat = stat.map_err(|error| place.explain_object(&object, &error))?;
        if arguments.json {
            let line = serde_json::json!({
                "object": name,
                "name": escape(object.name()),
                "pool": object.pool(),
                "hash": format!("{:08x}", object.hash()),
                "full": full_form(&object),
                "size": stat.size,
                "stored_bytes": stat.stored_bytes,
            });
            writeln!(output, "{line}")?;
        } else {
            writeln!(
                output,
                "{:>12} {:>12}  {name}",
                stat.size, stat.stored_bytes
            )?;
        }
        Ok(true)
    })?;
    output.flush()?;
    Ok(())
}

/// What `stat` says.
#[derive(Serialize)]
struct Description {
    object: String,
    pool: i64,
    hash: String,
    size_bytes: u64,
    stored_bytes: u64,
    data_ranges: usize,
    omap_header_bytes: usize,
    omap_keys: usize,
    attributes: Vec<Attribute>,
}

#[derive(Serialize)]
struct Attribute {
    name: String,
    value_bytes: usize,
}

/// Runs `esker object stat`.
pub fn stat(arguments: &StatArguments) -> Outcome {
    let place = arguments.place.open(false)?;
    let name = place.existing(&arguments.object)?;
    let description =
        describe(&place, &name).map_err(|error| place.explain_object(&name, &error))?;
    arguments.output.print(&description, print_fields)
}

fn describe(place: &Place<'_>, name: &ObjectName) -> esker::Result<Description> {
    let (store, collection) = (&place.store, &place.collection);
    let stat = store.stat(collection, name)?;
    let attributes = store.getattrs(collection, name)?.into_iter();
    Ok(Description {
        object: full_form(name),
        pool: name.pool(),
        hash: format!("{:08x}", name.hash()),
        size_bytes: stat.size,
        stored_bytes: stat.stored_bytes,
        data_ranges: store.fiemap(collection, name, 0, stat.size)?.len(),
        omap_header_bytes: store.omap_get_header(collection, name)?.len(),
        omap_keys: store.omap_get_keys(collection, name)?.len(),
        attributes: attributes
            .map(|(name, value)| Attribute {
                name: escape(&name),
                value_bytes: value.len(),
            })
            .collect(),
    })
}
