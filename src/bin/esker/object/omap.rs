//! `esker object omap-set`, `omap-get`, `omap-ls`.

use std::io::{self, BufWriter, Write};
use std::sync::Arc;

use clap::Args;
use esker::object::OMAP_VALUE_BYTES_MAX;
use esker::{Error, Transaction};

use super::naming::ObjectArgument;
use super::{CollectionArgument, ValueArgument};
use crate::escape::{escape, unescape};
use crate::failure::{Failure, Outcome};
use crate::size::parse_count;

const SET_EXAMPLES: &str = "\
The value is the argument, a file, or standard input, up to 16 MiB; the object must exist. Keys
are escaped: `\\xNN` is a byte, `\\\\` a backslash.

Examples:
  esker object omap-set my.esker 1.0 cat born 2019
  esker object omap-set my.esker 1.0 cat --header --file header.bin";

/// Sets a key of an object's omap, or its header.
#[derive(Args, Debug)]
#[command(after_help = SET_EXAMPLES)]
pub struct SetArguments {
    #[command(flatten)]
    place: CollectionArgument,

    #[command(flatten)]
    object: ObjectArgument,

    /// The key, escaped as `omap-ls` prints it.
    #[arg(value_name = "KEY", required_unless_present = "header", value_parser = unescape_key)]
    key: Option<Key>,

    #[command(flatten)]
    value: ValueArgument,

    /// Sets the header, from --file or standard input, and no key.
    #[arg(long, conflicts_with_all = ["key", "value"])]
    header: bool,
}

const GET_EXAMPLES: &str = "\
Writes the bytes of the value and nothing else.

Examples:
  esker object omap-get my.esker 1.0 cat born
  esker object omap-get my.esker 1.0 cat --header";

/// Writes the value of an omap key, or the omap's header, to standard output.
#[derive(Args, Debug)]
#[command(after_help = GET_EXAMPLES)]
pub struct GetArguments {
    #[command(flatten)]
    place: CollectionArgument,

    #[command(flatten)]
    object: ObjectArgument,

    /// The key, escaped as `omap-ls` prints it.
    #[arg(value_name = "KEY", required_unless_present = "header", value_parser = unescape_key)]
    key: Option<Key>,

    /// Writes the header.
    #[arg(long, conflicts_with = "key")]
    header: bool,
}

const LS_EXAMPLES: &str = "\
Keys come in the order of their bytes, escaped: \\xNN for what is not printable, \\\\ for a
backslash.

Examples:
  esker object omap-ls my.esker 1.0 cat
  esker object omap-ls my.esker 1.0 cat -l --from b --limit 10
  esker object omap-ls my.esker 1.0 cat --json      one key a line, with its escaped value";

/// Lists the keys of an object's omap.
#[derive(Args, Debug)]
#[command(after_help = LS_EXAMPLES)]
pub struct LsArguments {
    #[command(flatten)]
    place: CollectionArgument,

    #[command(flatten)]
    object: ObjectArgument,

    /// Shows the size of each value in bytes before its key.
    #[arg(short, long)]
    long: bool,

    /// Begins at this key or the next greater one.
    #[arg(long, value_name = "KEY", value_parser = unescape_key)]
    from: Option<Key>,

    /// Ends after so many keys.
    #[arg(long, value_name = "N", value_parser = parse_count)]
    limit: Option<u64>,

    /// Prints one JSON object a line, with the value.
    #[arg(long, conflicts_with = "long")]
    json: bool,
}

/// A key of an omap; of its own type so that clap does not take it for a list.
#[derive(Debug, Clone)]
struct Key(Vec<u8>);

fn unescape_key(text: &str) -> Result<Key, String> {
    unescape(text).map(Key)
}

/// Runs `esker object omap-set`.
pub fn set(arguments: &SetArguments) -> Outcome {
    let value = arguments.value.bytes(OMAP_VALUE_BYTES_MAX)?;
    let place = arguments.place.open(true)?;
    let name = Arc::new(place.existing(&arguments.object)?);
    let mut transaction = Transaction::new();
    match &arguments.key {
        Some(Key(key)) => transaction.omap_setkeys(place.id, &name, [(key, value)]),
        None => transaction.omap_setheader(place.id, &name, value),
    };
    place.apply(transaction)?;
    place.close()
}

/// Runs `esker object omap-get`.
pub fn get(arguments: &GetArguments) -> Outcome {
    let place = arguments.place.open(false)?;
    let name = place.existing(&arguments.object)?;
    let explain = |error: Error| place.explain_object(&name, &error);
    let value = match &arguments.key {
        Some(Key(key)) => place
            .store
            .omap_get_values(&place.collection, &name, [key.as_slice()])
            .map_err(explain)?
            .remove(key)
            .ok_or_else(|| {
                Failure::failed(format!(
                    "the object's omap has no key `{}`; `esker object omap-ls` lists those it has",
                    escape(key)
                ))
            })?,
        None => place
            .store
            .omap_get_header(&place.collection, &name)
            .map_err(explain)?,
    };
    let mut output = io::stdout().lock();
    output.write_all(&value)?;
    output.flush()?;
    Ok(())
}

/// Runs `esker object omap-ls`.
pub fn ls(arguments: &LsArguments) -> Outcome {
    let place = arguments.place.open(false)?;
    let name = place.existing(&arguments.object)?;
    let explain = |error: &Error| place.explain_object(&name, error);
    let mut output = BufWriter::new(io::stdout().lock());
    let iterator = place.store.omap_iterator(&place.collection, &name);
    let mut iterator = iterator.map_err(|error| explain(&error))?;
    match &arguments.from {
        Some(Key(from)) => iterator.lower_bound(from),
        None => iterator.seek_to_first(),
    }
    let mut left = arguments.limit.unwrap_or(u64::MAX);
    while iterator.valid() && left > 0 {
        let (key, value) = (escape(iterator.key()), iterator.value());
        if arguments.json {
            let line = serde_json::json!({
                "key": key,
                "value": escape(value),
                "value_bytes": value.len(),
            });
            writeln!(output, "{line}")?;
        } else if arguments.long {
            writeln!(output, "{:>10}  {key}", value.len())?;
        } else {
            writeln!(output, "{key}")?;
        }
        left -= 1;
        iterator.next();
    }
    iterator.status().map_err(explain)?;
    output.flush()?;
    Ok(())
}
