//! Printing structures: JSON for scripts, aligned names and values for people.

use std::io::{self, Write};

use clap::Args;
use serde::Serialize;
use serde_json::Value;

use crate::failure::{Failure, Outcome};
use crate::size::{format_count, format_size};

/// How a structure is printed.
#[derive(Args, Debug)]
pub struct OutputArgument {
    /// Prints JSON.
    #[arg(long)]
    pub json: bool,
}

impl OutputArgument {
    /// Prints `item` as JSON, or as `show` does for people.
    pub fn print<T: Serialize>(&self, item: &T, show: impl FnOnce(&T) -> Outcome) -> Outcome {
        if self.json {
            print_json(item)
        } else {
            show(item)
        }
    }
}

/// Prints `item` as indented JSON on stdout.
pub fn print_json(item: &impl Serialize) -> Outcome {
    let text = serde_json::to_string_pretty(item)
        .map_err(|error| Failure::failed(format!("cannot write JSON: {error}")))?;
    writeln!(io::stdout().lock(), "{text}")?;
    Ok(())
}

/// Prints `item` on stdout, one field a line, nested structures indented; a field whose name
/// ends in `_bytes` is shown with its unit as well.
pub fn print_fields(item: &impl Serialize) -> Outcome {
    let value = serde_json::to_value(item)
        .map_err(|error| Failure::failed(format!("cannot show it: {error}")))?;
    let mut text = String::new();
    describe(&value, 0, &mut text);
    io::stdout().lock().write_all(text.as_bytes())?;
    Ok(())
}

fn describe(value: &Value, depth: usize, text: &mut String) {
    let Value::Object(fields) = value else {
        text.push_str(&format!("{:1$}{2}\n", "", depth * 2, scalar("", value)));
        return;
    };
    let width = fields.keys().map(String::len).max().unwrap_or(0);
    for (name, value) in fields {
        let label = name.replace('_', " ");
        match value {
            Value::Object(_) => {
                text.push_str(&format!("{:1$}{label}:\n", "", depth * 2));
                describe(value, depth + 1, text);
            }
            Value::Array(items) if items.iter().any(Value::is_object) => {
                text.push_str(&format!("{:1$}{label}:\n", "", depth * 2));
                for item in items {
                    let line: Vec<String> = match item {
                        Value::Object(fields) => fields
                            .iter()
                            .map(|(n, v)| format!("{n} {}", scalar(n, v)))
                            .collect(),
                        other => vec![scalar(name, other)],
                    };
                    text.push_str(&format!("{:1$}- {2}\n", "", depth * 2 + 2, line.join(", ")));
                }
            }
            _ => text.push_str(&format!(
                "{:1$}{label:width$}  {2}\n",
                "",
                depth * 2,
                scalar(name, value)
            )),
        }
    }
}

fn scalar(name: &str, value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".into(),
        Value::Bool(yes) => if *yes { "yes" } else { "no" }.into(),
        Value::Number(number) => match number.as_u64() {
            Some(bytes) if name.ends_with("_bytes") && bytes >= 1024 => {
                format!("{} ({} bytes)", format_size(bytes), format_count(bytes))
            }
            Some(count) => format_count(count),
            None => number.to_string(),
        },
        Value::Array(items) => items
            .iter()
            .map(|item| scalar(name, item))
            .collect::<Vec<_>>()
            .join(", "),
        Value::Object(_) => value.to_string(),
    }
}

/// Prints text and a line end on stdout.
pub fn print_line(text: &str) -> Outcome {
    writeln!(io::stdout().lock(), "{text}")?;
    Ok(())
}
