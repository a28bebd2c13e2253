//! Architecture and style, checked as tests: layering, homes of unsafe code, who may name
//! loom and the standard library's locks, file and line lengths, heads of files, banned words.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn rust_files(below: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![Path::new(ROOT).join(below)];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder).unwrap();
        for entry in entries {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    assert!(!found.is_empty(), "no Rust files below {below}");
    found
}

fn all_files() -> Vec<PathBuf> {
    ["src", "tests", "benches"]
        .into_iter()
        .flat_map(rust_files)
        .collect()
}

fn name(path: &Path) -> String {
    path.strip_prefix(ROOT).unwrap().display().to_string()
}

fn check(complaints: &[String]) {
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

/// The modules a layer may import, by the first part of its path below `src`.
fn layers() -> BTreeMap<&'static str, &'static [&'static str]> {
    BTreeMap::from([
        ("format", ["format"].as_slice()),
        ("sync", &["sync"]),
        ("error", &["format"]),
        ("device", &["device", "error", "sync"]),
        ("index", &["index", "format", "error", "sync"]),
        ("log", &["log", "device", "format", "error", "sync"]),
        (
            "kv",
            &[
                "kv", "log", "index", "device", "format", "error", "sync", "options",
            ],
        ),
        (
            "object",
            &[
                "object", "log", "index", "device", "format", "error", "sync", "options",
            ],
        ),
        (
            "store",
            &[
                "store", "object", "kv", "log", "index", "device", "format", "error", "sync",
                "options",
            ],
        ),
        (
            "inspect",
            &[
                "inspect", "store", "object", "kv", "log", "device", "format", "error", "sync",
                "options",
            ],
        ),
    ])
}

/// What a name of the crate's root belongs to.
fn home_of(name: &str) -> &str {
    match name {
        "Error" | "Result" => "error",
        "Options" | "Durability" => "options",
        "CollectionName" | "ObjectName" | "Op" | "Page" | "Transaction" => "object",
        other => other,
    }
}

#[test]
fn imports_point_down_only() {
    let mut complaints = Vec::new();
    for path in rust_files("src") {
        let file = name(&path);
        let layer = file
            .trim_start_matches("src/")
            .split(['/', '.'])
            .next()
            .unwrap_or_default()
            .to_owned();
        let layers = layers();
        let Some(allowed) = layers.get(layer.as_str()) else {
            continue;
        };
        let text = std::fs::read_to_string(&path).unwrap();
        let code: Vec<&str> = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"))
            .collect();
        let code = code.join("\n");
        for (at, _) in code.match_indices("crate::") {
            let rest = &code[at + "crate::".len()..];
            let names: Vec<&str> = if let Some(list) = rest.strip_prefix('{') {
                list.split('}')
                    .next()
                    .unwrap_or_default()
                    .split(',')
                    .map(str::trim)
                    .collect()
            } else {
                vec![rest]
            };
            for import in names {
                let end = import
                    .find(|c: char| !(c.is_alphanumeric() || c == '_'))
                    .unwrap_or(import.len());
                let target = home_of(&import[..end]);
                if !target.is_empty() && !allowed.contains(&target) {
                    complaints.push(format!("{file}: {layer} must not import {target}"));
                }
            }
        }
    }
    check(&complaints);
}

#[test]
fn the_binary_uses_the_public_api_alone() {
    let mut complaints = Vec::new();
    for path in rust_files("src/bin") {
        let text = std::fs::read_to_string(&path).unwrap();
        if text.contains("#[path") {
            complaints.push(format!("{}: includes a file of the library", name(&path)));
        }
    }
    check(&complaints);
}

#[test]
fn unsafe_code_stays_at_home() {
    let homes = [
        "src/device/aligned.rs",
        "src/device/ring.rs",
        "src/device/file.rs",
        "src/index/ordered/tests/allocator.rs",
        "src/index/unit.rs",
        "src/sync.rs",
        "src/bin/esker/compare/rocksdb.rs",
    ];
    let mut complaints = Vec::new();
    for path in rust_files("src") {
        let file = name(&path);
        let text = std::fs::read_to_string(&path).unwrap();
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            let has_unsafe = code
                .split(|c: char| !c.is_alphanumeric() && c != '_')
                .any(|word| word == "unsafe");
            // The C ABI takes pointers everywhere.
            let is_home = homes.contains(&file.as_str()) || file.starts_with("src/capi/");
            if has_unsafe && !is_home {
                complaints.push(format!("{file}:{}: unsafe outside its homes", number + 1));
            }
        }
    }
    check(&complaints);
}

#[test]
fn only_sync_names_locks_atomics_and_loom() {
    let banned = [
        "std::sync::",
        "core::sync::",
        "loom::",
        "crossbeam_epoch",
        "arc_swap",
        "parking_lot",
    ];
    let mut complaints = Vec::new();
    for path in rust_files("src") {
        let file = name(&path);
        let is_model = file.contains("/tests/");
        if file == "src/sync.rs" || file.starts_with("src/bin/") || is_model {
            continue;
        }
        for (number, line) in std::fs::read_to_string(&path).unwrap().lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            for name in banned.iter().filter(|name| code.contains(**name)) {
                complaints.push(format!(
                    "{file}:{}: {name} belongs to src/sync.rs",
                    number + 1
                ));
            }
        }
    }
    check(&complaints);
}

#[test]
fn files_and_lines_are_short_plain_and_explained() {
    let mut complaints = Vec::new();
    let words = [["FIX", "ME"], ["XX", "X"], ["TO", "DO"]].map(|parts| parts.concat());
    for path in all_files() {
        let file = name(&path);
        let text = std::fs::read_to_string(&path).unwrap();
        if !text.starts_with("//!") {
            complaints.push(format!("{file}: does not open with //!"));
        }
        if text.lines().count() > 900 {
            complaints.push(format!("{file}: over 900 lines"));
        }
        for (number, line) in text.lines().enumerate() {
            if line.chars().count() > 100 {
                complaints.push(format!("{file}:{}: over 100 columns", number + 1));
            }
            if !line.is_ascii() {
                complaints.push(format!("{file}:{}: not ASCII", number + 1));
            }
            for word in words.iter().filter(|word| line.contains(word.as_str())) {
                complaints.push(format!("{file}:{}: {word}", number + 1));
            }
        }
    }
    check(&complaints);
}

#[test]
fn media_bytes_are_never_unwrapped() {
    let mut complaints = Vec::new();
    for path in ["src/format", "src/log", "src/kv", "src/store"]
        .into_iter()
        .flat_map(rust_files)
    {
        if name(&path).contains("/tests/") || name(&path).ends_with("/tests.rs") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for (number, line) in code.lines().enumerate() {
            if line.trim_start().starts_with("//") {
                continue;
            }
            if line.contains(".unwrap()") || line.contains(".expect(") {
                complaints.push(format!("{}:{}: unwrap or expect", name(&path), number + 1));
            }
        }
    }
    check(&complaints);
}

#[test]
fn design_documents_are_short() {
    let mut complaints = Vec::new();
    for entry in std::fs::read_dir(Path::new(ROOT).join("design")).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        if text.lines().count() >= 500 {
            complaints.push(format!("{}: 500 lines or more", name(&path)));
        }
        if text.lines().filter(|line| line.starts_with("# ")).count() != 1 {
            complaints.push(format!("{}: not exactly one title", name(&path)));
        }
    }
    check(&complaints);
}
