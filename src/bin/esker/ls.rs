//! `esker ls`: lists keys.

use std::io::{self, BufWriter, Write};

use clap::Args;

use crate::escape::escape;
use crate::failure::Outcome;
use crate::opening::{StoreArgument, explain, open_read_only};
use crate::size::parse_count;

const EXAMPLES: &str = "\
The order is the store's own, not that of the keys; pipe to `sort` for that. Bytes that are not
printable ASCII are shown as \\xNN and a backslash as \\\\, which `get -e` and the others take.

Examples:
  esker ls my.esker
  esker ls my.esker -l --limit 10       value sizes in bytes, then keys
  esker ls my.esker --raw -0 | xargs -0 -n1 echo
  esker ls my.esker --json              one object a line: key (escaped), key and value bytes";

/// Lists the keys of a store.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    store: StoreArgument,

    /// Shows the size of each value in bytes before its key.
    #[arg(short, long)]
    long: bool,

    /// Ends after so many keys.
    #[arg(long, value_name = "N", value_parser = parse_count)]
    limit: Option<u64>,

    /// Prints keys byte for byte.
    #[arg(long)]
    raw: bool,

    /// Ends each key with a NUL instead of a line end.
    #[arg(short = '0', long)]
    null: bool,

    /// Prints one JSON object a line.
    #[arg(long, conflicts_with_all = ["raw", "null", "long"])]
    json: bool,
}

/// Runs `esker ls`.
pub fn run(arguments: &Arguments) -> Outcome {
    let path = &arguments.store.path;
    let store = open_read_only(path)?;
    let mut output = BufWriter::new(io::stdout().lock());
    let end: &[u8] = if arguments.null { b"\0" } else { b"\n" };
    let limit = arguments.limit.unwrap_or(u64::MAX);
    for (_, item) in (0..limit).zip(store.scan()) {
        let (key, value) = item.map_err(|error| explain(path, &error))?;
        if arguments.json {
            let object = serde_json::json!({
                "key": escape(&key),
                "key_bytes": key.len(),
                "value_bytes": value.len(),
            });
            write!(output, "{object}")?;
        } else {
            if arguments.long {
                write!(output, "{:>10}  ", value.len())?;
            }
            if arguments.raw {
                output.write_all(&key)?;
            } else {
                output.write_all(escape(&key).as_bytes())?;
            }
        }
        output.write_all(end)?;
    }
    output.flush()?;
    Ok(())
}
