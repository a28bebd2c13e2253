//! `esker object setattr` and `getattr`.

use std::io::{self, Write};
use std::sync::Arc;

use clap::Args;
use esker::object::ATTR_VALUE_BYTES_MAX;
use esker::{Error, Transaction};

use super::naming::ObjectArgument;
use super::{CollectionArgument, ValueArgument};
use crate::escape::escape;
use crate::failure::{Failure, Outcome};
use crate::output::print_line;

const SET_EXAMPLES: &str = "\
The value is the argument, a file, or standard input, up to 1 MiB; the object must exist.

Examples:
  esker object setattr my.esker 1.0 cat owner tom
  esker object setattr my.esker 1.0 cat _ --file object-info.bin";

/// Sets an attribute of an object.
#[derive(Args, Debug)]
#[command(after_help = SET_EXAMPLES)]
pub struct SetArguments {
    #[command(flatten)]
    place: CollectionArgument,

    #[command(flatten)]
    object: ObjectArgument,

    /// Name of the attribute.
    #[arg(value_name = "ATTRIBUTE")]
    attribute: String,

    #[command(flatten)]
    value: ValueArgument,
}

const GET_EXAMPLES: &str = "\
With a name the bytes of the value and nothing else; without, the names of all attributes with
the sizes of their values in bytes.

Examples:
  esker object getattr my.esker 1.0 cat
  esker object getattr my.esker 1.0 cat owner
  esker object getattr my.esker 1.0 cat --json     escaped names and values";

/// Writes the value of an attribute to standard output, or lists the attributes.
#[derive(Args, Debug)]
#[command(after_help = GET_EXAMPLES)]
pub struct GetArguments {
    #[command(flatten)]
    place: CollectionArgument,

    #[command(flatten)]
    object: ObjectArgument,

    /// Name of the attribute; all of them when not given.
    #[arg(value_name = "ATTRIBUTE")]
    attribute: Option<String>,

    /// Prints all attributes as one JSON object of escaped texts.
    #[arg(long, conflicts_with = "attribute")]
    json: bool,
}

/// Runs `esker object setattr`.
pub fn set(arguments: &SetArguments) -> Outcome {
    let value = arguments.value.bytes(ATTR_VALUE_BYTES_MAX)?;
    let place = arguments.place.open(true)?;
    let name = Arc::new(place.existing(&arguments.object)?);
    let mut transaction = Transaction::new();
    transaction.setattr(place.id, &name, arguments.attribute.as_bytes(), value);
    place.apply(transaction)?;
    place.close()
}

/// Runs `esker object getattr`.
pub fn get(arguments: &GetArguments) -> Outcome {
    let place = arguments.place.open(false)?;
    let name = place.existing(&arguments.object)?;
    let explain = |error: &Error| place.explain_object(&name, error);
    if let Some(attribute) = &arguments.attribute {
        let value = place
            .store
            .getattr(&place.collection, &name, attribute.as_bytes())
            .map_err(|error| match error {
                Error::NoAttribute => Failure::failed(format!(
                    "the object has no attribute `{attribute}`; `esker object getattr` without a \
                     name lists those it has"
                )),
                error => explain(&error),
            })?;
        let mut output = io::stdout().lock();
        output.write_all(&value)?;
        output.flush()?;
        return Ok(());
    }
    let all = place.store.getattrs(&place.collection, &name);
    let all = all.map_err(|error| explain(&error))?;
    if arguments.json {
        let escaped = all
            .iter()
            .map(|(name, value)| (escape(name), escape(value).into()));
        let object: serde_json::Map<String, serde_json::Value> = escaped.collect();
        return print_line(&serde_json::Value::Object(object).to_string());
    }
    for (name, value) in &all {
        print_line(&format!("{:>8}  {}", value.len(), escape(name)))?;
    }
    Ok(())
}
