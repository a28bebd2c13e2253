//! The binary from outside: every command's success and failure, exit codes included.
//!
//! Each test has a directory of its own and starts the binary cargo built. Exit codes: 0
//! done, 1 failed, 2 wrong command line; errors are one line on stderr.

mod archive;
mod object_bench;
mod objects;

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// A directory to run commands in.
struct Place {
    directory: TempDir,
}

impl Place {
    fn empty() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
        }
    }

    fn with_store() -> Self {
        let place = Self::empty();
        place.succeed(&["mkfs", "s.esker", "--capacity", "64M"]);
        place
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn command<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_esker"));
        command
            .current_dir(self.path())
            .args(arguments)
            .stdin(Stdio::null());
        command
    }

    fn run<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs a command that must succeed; its stdout.
    #[track_caller]
    fn succeed<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Vec<u8> {
        let output = self.run(arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{errors}");
        assert_eq!(errors, "", "a success is silent on stderr");
        output.stdout
    }

    /// Runs a command that must fail with `code`; its one line on stderr.
    #[track_caller]
    fn fail<S: AsRef<OsStr>>(&self, code: i32, arguments: &[S]) -> String {
        let output = self.run(arguments);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{errors}");
        assert_eq!(errors.lines().count(), 1, "one line: {errors}");
        assert!(errors.starts_with("esker: "), "{errors}");
        assert!(!errors.contains("panicked"), "{errors}");
        errors
    }

    fn put_from_stdin<S: AsRef<OsStr>>(&self, arguments: &[S], value: &[u8]) {
        let mut child = self
            .command(arguments)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(value).unwrap();
        assert!(child.wait().unwrap().success());
    }

    #[track_caller]
    fn text(&self, arguments: &[&str]) -> String {
        String::from_utf8(self.succeed(arguments)).unwrap()
    }

    #[track_caller]
    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_slice(&self.succeed(arguments)).unwrap()
    }

    fn json_file(&self, name: &str) -> Value {
        serde_json::from_slice(&fs::read(self.path().join(name)).unwrap()).unwrap()
    }

    fn names(&self) -> Vec<PathBuf> {
        fs::read_dir(self.path())
            .unwrap()
            .map(|item| item.unwrap().path())
            .collect()
    }
}

#[test]
fn help_teaches_every_command() {
    let place = Place::empty();
    let commands = [
        "mkfs",
        "info",
        "stats",
        "put",
        "get",
        "rm",
        "ls",
        "import",
        "export",
        "check",
        "dump",
        "bench",
        "compare",
        "collection",
        "object",
    ];
    let overview = place.text(&["--help"]);
    for command in commands {
        assert!(overview.contains(command), "{command}");
        let help = place.text(&[command, "--help"]);
        assert!(help.contains("Example"), "{command}");
        assert!(help.contains(&format!("esker {command}")), "{command}");
    }
    assert!(!overview.contains("compare-child"));
    assert!(place.text(&["--version"]).starts_with("esker "));
}

#[test]
fn wrong_command_lines_are_usage_errors() {
    let place = Place::empty();
    place.fail(2, &[] as &[&str]);
    place.fail(2, &["frobnicate"]);
    place.fail(2, &["get"]);
    place.fail(2, &["put", "s.esker"]);
    place.fail(2, &["mkfs", "s.esker"]);
    place.fail(2, &["mkfs", "s.esker", "--capacity", "lots"]);
    place.fail(
        2,
        &[
            "mkfs",
            "s.esker",
            "--capacity",
            "64M",
            "--segment-bytes",
            "300000",
        ],
    );
    place.fail(2, &["ls", "s.esker", "--json", "--raw"]);
    place.fail(2, &["get", "s.esker", "-e", "\\q"]);
    assert!(place.names().is_empty(), "nothing was made");
}

#[test]
fn commands_without_a_store_say_what_to_do() {
    let place = Place::empty();
    for arguments in [
        &["stats", "none"][..],
        &["put", "none", "k", "v"],
        &["get", "none", "k"],
        &["rm", "none", "k"],
        &["ls", "none"],
        &["import", "none", "."],
        &["export", "none", "out"],
        &["collection", "create", "none", "1.0"],
        &["collection", "ls", "none"],
        &["object", "ls", "none", "1.0"],
        &["object", "get", "none", "1.0", "o"],
        &["export", "none", "out", "--collection", "1.0"],
    ] {
        assert!(
            place.fail(1, arguments).contains("esker mkfs"),
            "{arguments:?}"
        );
    }
    for command in ["info", "check", "dump"] {
        assert!(place.fail(1, &[command, "none"]).contains("no store"));
    }
    assert!(place.names().is_empty(), "nothing was made");
}

#[test]
fn a_file_that_is_no_store_is_refused_and_left_alone() {
    let place = Place::empty();
    let contents = vec![b'x'; 1 << 20];
    fs::write(place.path().join("file"), &contents).unwrap();
    for command in ["info", "stats", "ls", "check", "dump"] {
        place.fail(1, &[command, "file"]);
    }
    place.fail(1, &["put", "file", "k", "v"]);
    place.fail(1, &["mkfs", "file", "--capacity", "64M"]);
    assert!(fs::read(place.path().join("file")).unwrap() == contents);
}

#[test]
fn mkfs_overwrites_only_when_told() {
    let place = Place::with_store();
    place.succeed(&["put", "s.esker", "k", "v"]);
    let error = place.fail(1, &["mkfs", "s.esker", "--capacity", "64M"]);
    assert!(error.contains("--force"), "{error}");
    assert_eq!(place.text(&["get", "s.esker", "k"]), "v");
    place.succeed(&["mkfs", "s.esker", "--capacity", "64M", "--force"]);
    place.fail(1, &["get", "s.esker", "k"]);
    place.fail(1, &["mkfs", ".", "--capacity", "64M"]);
    assert_eq!(place.names().len(), 1);
}

#[test]
fn put_get_and_rm() {
    let place = Place::with_store();
    assert_eq!(place.text(&["put", "s.esker", "k", "v"]), "");
    assert_eq!(place.text(&["get", "s.esker", "k"]), "v");
    place.succeed(&["put", "s.esker", "k", "another"]);
    assert_eq!(place.text(&["get", "s.esker", "k"]), "another");

    place.succeed(&["put", "s.esker", "empty", ""]);
    assert_eq!(place.text(&["get", "s.esker", "empty"]), "");
    place.succeed(&["put", "s.esker", "--", "-key", "-value"]);
    assert_eq!(place.text(&["get", "s.esker", "--", "-key"]), "-value");
    place.succeed(&["put", "s.esker", "", "under the empty key"]);
    assert_eq!(place.text(&["get", "s.esker", ""]), "under the empty key");

    let bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    place.put_from_stdin(&["put", "s.esker", "stdin"], &bytes);
    assert!(place.succeed(&["get", "s.esker", "stdin"]) == bytes);
    fs::write(place.path().join("f"), &bytes).unwrap();
    place.succeed(&["put", "s.esker", "file", "--file", "f"]);
    assert!(place.succeed(&["get", "s.esker", "file"]) == bytes);
    place.fail(1, &["put", "s.esker", "file", "--file", "no-such-file"]);
    place.fail(2, &["put", "s.esker", "file", "value", "--file", "f"]);

    let odd = OsStr::from_bytes(b"\xff\n\\");
    place.succeed(&[
        OsStr::new("put"),
        OsStr::new("s.esker"),
        odd,
        OsStr::new("odd"),
    ]);
    assert_eq!(
        place.text(&["get", "s.esker", "-e", "\\xff\\x0a\\\\"]),
        "odd"
    );

    let error = place.fail(1, &["get", "s.esker", "missing"]);
    assert!(error.contains("no key `missing`"), "{error}");
    place.succeed(&["rm", "s.esker", "k"]);
    place.fail(1, &["get", "s.esker", "k"]);
    place.fail(1, &["rm", "s.esker", "k"]);
    place.succeed(&["rm", "s.esker", "k", "--force"]);
}

#[test]
fn too_large_is_refused() {
    let place = Place::empty();
    place.succeed(&["mkfs", "s.esker", "--capacity", "512M"]);
    let file = fs::File::create(place.path().join("large")).unwrap();
    file.set_len((64 << 20) + 1).unwrap();
    let error = place.fail(1, &["put", "s.esker", "k", "--file", "large"]);
    assert!(error.contains("limit"), "{error}");
    place.fail(1, &["get", "s.esker", "k"]);
    // Linux takes arguments of up to 128 KiB each.
    let key = "k".repeat((64 << 10) + 1);
    place.fail(1, &["put", "s.esker", &key, "v"]);
}

#[test]
fn ls_lists_escapes_and_limits() {
    let place = Place::with_store();
    assert_eq!(place.text(&["ls", "s.esker"]), "");
    for key in ["a", "b\nc", "d\\e"] {
        place.succeed(&["put", "s.esker", key, "12345"]);
    }
    let lines = |arguments: &[&str]| {
        let text = place.text(arguments);
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(lines(&["ls", "s.esker"]), ["a", "b\\x0ac", "d\\\\e"]);
    let raw = place.text(&["ls", "s.esker", "--raw", "-0"]);
    let mut keys: Vec<_> = raw.split_terminator('\0').collect();
    keys.sort_unstable();
    assert_eq!(keys, ["a", "b\nc", "d\\e"]);
    let long = lines(&["ls", "s.esker", "-l"]);
    assert!(
        long.iter().all(|line| line.trim_start().starts_with("5 ")),
        "{long:?}"
    );
    assert_eq!(lines(&["ls", "s.esker", "--limit", "2"]).len(), 2);
    assert_eq!(lines(&["ls", "s.esker", "--limit", "0"]).len(), 0);
    for line in lines(&["ls", "s.esker", "--json"]) {
        let object: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(object["value_bytes"], 5);
        assert!(object["key"].is_string() && object["key_bytes"].is_u64());
    }
}

#[test]
fn info_stats_check_and_dump() {
    let place = Place::with_store();
    place.succeed(&["put", "s.esker", "k", "v"]);
    let info = place.json(&["info", "s.esker", "--json"]);
    assert_eq!(info["uuid"].as_str().map(str::len), Some(32), "{info}");
    assert!(!place.text(&["info", "s.esker"]).is_empty());

    let stats = place.json(&["stats", "s.esker", "--json"]);
    assert_eq!(stats["entries"], 1);
    assert_eq!(stats["uuid"], info["uuid"]);
    for key in [
        "live_bytes",
        "utilization",
        "segments",
        "written",
        "index_bytes",
        "cache_bytes",
    ] {
        assert!(!stats[key].is_null(), "{key}");
    }
    let text = place.text(&["stats", "s.esker"]);
    for word in [
        "utilization",
        "segments",
        "cleaning",
        "checkpoint",
        "padding",
        "index",
    ] {
        assert!(text.contains(word), "{word}");
    }

    place.succeed(&["check", "s.esker"]);
    assert!(place.json(&["check", "s.esker", "--json"]).is_object());
    let segments = place.text(&["dump", "s.esker"]);
    assert!(!segments.is_empty());
    assert!(place.text(&["dump", "s.esker", "--records"]).len() > segments.len());
}

/// All files below a directory, by relative path.
fn tree(root: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut queue = vec![root.to_owned()];
    while let Some(directory) = queue.pop() {
        for item in fs::read_dir(directory).unwrap() {
            let item = item.unwrap();
            let kind = item.file_type().unwrap();
            if kind.is_dir() {
                queue.push(item.path());
            } else if kind.is_file() {
                let relative = item.path().strip_prefix(root).unwrap().to_owned();
                found.push((relative, fs::read(item.path()).unwrap()));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn import_and_export_are_byte_for_byte() {
    let place = Place::with_store();
    let source = place.path().join("source");
    fs::create_dir_all(source.join("a/b/c")).unwrap();
    fs::create_dir(source.join("empty directory")).unwrap();
    let names: [&[u8]; 7] = [
        b"plain",
        b"with space and \"quotes\"",
        b"new\nline",
        b"not-utf8-\xff\xfe",
        b"..hidden..",
        b"-dash",
        b"a/b/c/deep \\ file",
    ];
    for (number, name) in names.iter().enumerate() {
        let value: Vec<u8> = (0..number * 3333).map(|i| (i * 7 + number) as u8).collect();
        fs::write(source.join(OsStr::from_bytes(name)), value).unwrap();
    }
    fs::write(source.join("large"), vec![0xa5; 3 << 20]).unwrap();
    symlink("plain", source.join("link")).unwrap();

    let said = place.text(&["import", "s.esker", "source"]);
    assert!(
        said.contains("8 files") && said.contains("1 symbolic link"),
        "{said}"
    );
    assert_eq!(place.text(&["get", "s.esker", "plain"]), "");
    place.succeed(&["export", "s.esker", "target/new"]);
    assert!(tree(&source) == tree(&place.path().join("target/new")));
    // Again over what is there, longer contents included.
    fs::write(place.path().join("target/new/plain"), "longer").unwrap();
    place.succeed(&["export", "s.esker", "target/new"]);
    assert!(tree(&source) == tree(&place.path().join("target/new")));

    place.fail(1, &["import", "s.esker", "no-such-directory"]);
    place.fail(1, &["import", "s.esker", "source/plain"]);
}

#[test]
fn export_never_leaves_its_directory() {
    let place = Place::with_store();
    let refused = [
        "../escaped",
        "/escaped",
        "a/../../escaped",
        "",
        "x//y",
        "./z",
        "w/",
        "link/in",
        "escape",
        "nul\\x00",
    ];
    for key in refused {
        place.succeed(&["put", "s.esker", "-e", key, "bad"]);
    }
    place.succeed(&["put", "s.esker", "good/file", "good"]);
    fs::create_dir_all(place.path().join("out/inner")).unwrap();
    fs::create_dir(place.path().join("outside")).unwrap();
    symlink("../../outside", place.path().join("out/inner/link")).unwrap();
    symlink(
        "../../outside/target",
        place.path().join("out/inner/escape"),
    )
    .unwrap();

    let output = place.run(&["export", "s.esker", "out/inner"]);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert_eq!(
        errors.matches("refused key").count(),
        refused.len(),
        "{errors}"
    );
    assert!(
        errors.contains(&format!("{} keys", refused.len())),
        "{errors}"
    );
    assert_eq!(
        fs::read(place.path().join("out/inner/good/file")).unwrap(),
        b"good"
    );
    assert!(tree(&place.path().join("outside")).is_empty());
    assert_eq!(tree(&place.path().join("out")).len(), 1);
    assert!(!place.path().join("escaped").exists() && !Path::new("/escaped").exists());
}

#[test]
fn bench_reports_sane_numbers() {
    let place = Place::empty();
    let arguments = [
        "bench",
        "--keys",
        "2000",
        "--value-bytes",
        "4K",
        "--ops",
        "4000",
        "--threads",
        "2",
        "--distribution",
        "zipf:0.99",
        "--workload",
        "mixed:0.5",
        "--warmup",
        "1",
        "--json",
        "r.json",
        "--plot",
        "r.svg",
    ];
    let summary = place.text(&arguments);
    for word in [
        "ops/s",
        "MiB/s",
        "p50",
        "p99.9",
        "max",
        "amplification",
        "space",
        "CPU",
        "DRAM",
    ] {
        assert!(summary.contains(word), "{word}: {summary}");
    }
    let report = place.json_file("r.json");
    let number = |key: &str| {
        report[key]
            .as_f64()
            .unwrap_or_else(|| panic!("{key}: {report}"))
    };
    assert!(number("ops_per_second") > 0.0);
    let amplification = number("write_amplification");
    assert!((1.0..100.0).contains(&amplification), "{amplification}");
    let latency = |key: &str| report["latency_us"][key].as_f64().unwrap();
    assert!(latency("p50") > 0.0 && latency("p50") <= latency("p99"));
    assert!(latency("p99") <= latency("p999") && latency("p999") <= latency("max"));
    assert!(number("space_bytes") >= 2000.0 * 4112.0);
    let puts = number("user_bytes") / 4112.0;
    assert!(
        puts.fract() == 0.0 && (1500.0..2500.0).contains(&puts),
        "{puts}"
    );
    assert!((number("device_bytes") / number("user_bytes") - amplification).abs() < 1e-9);
    assert!(number("cpu_us_per_op") > 0.0 && number("dram_bytes_per_key") > 0.0);
    assert_eq!(report["ops"], 4000);
    assert_eq!(report["arguments"]["distribution"], "zipf:0.99");
    assert_eq!(report["arguments"]["json"], "r.json");
    assert!(report["verified"].as_u64().unwrap() > 1000);
    assert!(!report["intervals"].as_array().unwrap().is_empty());
    let plot = fs::read_to_string(place.path().join("r.svg")).unwrap();
    assert!(plot.starts_with("<svg") && plot.contains("p99") && plot.contains("utilization"));
    assert_eq!(place.names().len(), 2, "the temporary store is gone");
}

#[test]
fn bench_runs_every_workload() {
    let place = Place::empty();
    let tiny = [
        "bench",
        "--keys",
        "500",
        "--value-bytes",
        "4K",
        "--utilization",
        "0.2",
    ];
    for extra in [
        &["--workload", "fill"][..],
        &["--workload", "randread", "--ops", "1000"],
        &[
            "--warmup",
            "0",
            "--ops",
            "1000",
            "--distribution",
            "hot:0.1:0.9",
        ],
        &[
            "--warmup",
            "0",
            "--ops",
            "200",
            "--durability",
            "committed",
            "--threads",
            "4",
        ],
        &[
            "--warmup",
            "0",
            "--ops",
            "500",
            "--rate",
            "5000",
            "--no-verify",
        ],
        &[
            "--warmup",
            "0.5",
            "--seconds",
            "0.3",
            "--seed",
            "7",
            "--cache-bytes",
            "1M",
        ],
    ] {
        place.succeed(&[&tiny[..], extra].concat());
    }
    assert!(place.names().is_empty());
}

#[test]
fn bench_keeps_the_store_at_a_path() {
    let place = Place::empty();
    let arguments = [
        "bench",
        "--path",
        "b.esker",
        "--keys",
        "1000",
        "--value-bytes",
        "4K",
        "--ops",
        "1000",
    ];
    place.succeed(&arguments);
    assert_eq!(place.json(&["stats", "b.esker", "--json"])["entries"], 1000);
    place.succeed(&["check", "b.esker"]);
    assert!(place.fail(2, &arguments).contains("--force"));
    place.succeed(&[&arguments[..], &["--force"]].concat());
}

#[test]
fn bench_refuses_wrong_arguments_before_any_effect() {
    let place = Place::empty();
    for wrong in [
        &["--keys", "0"][..],
        &["--keys", "-1"],
        &["--keys", "many"],
        &["--keys", "257", "--key-bytes", "1"],
        &["--key-bytes", "0"],
        &["--key-bytes", "65K"],
        &["--value-bytes", "65M"],
        &["--threads", "0"],
        &["--threads", "100000"],
        &["--ops", "0"],
        &["--ops", "5", "--seconds", "5"],
        &["--seconds", "0"],
        &["--seconds", "nan"],
        &["--utilization", "0"],
        &["--utilization", "1"],
        &["--utilization", "nan"],
        &["--workload", "sing"],
        &["--workload", "mixed:1.5"],
        &["--distribution", "zipf:-1"],
        &["--distribution", "hot:0.1"],
        &["--durability", "perhaps"],
        &["--warmup=-1"],
        &["--workload", "fill", "--warmup", "2"],
        &["--rate", "0"],
        &["--cache-bytes", "1X"],
        &["--json", "no/such/directory/r.json"],
        &["--plot", "."],
        &["--force"],
        &["--device-stat", "/proc/self/status"],
    ] {
        place.fail(2, &[&["bench"][..], wrong].concat());
        assert!(place.names().is_empty(), "{wrong:?} made something");
    }
    place.fail(1, &["bench", "--device-stat", "/no/such/stat"]);
    assert!(place.names().is_empty());
}

#[cfg(not(feature = "compare"))]
#[test]
fn compare_says_how_to_get_it() {
    let error = Place::empty().fail(1, &["compare"]);
    assert!(
        error.contains("librocksdb-dev") && error.contains("--features compare"),
        "{error}"
    );
}

#[cfg(feature = "compare")]
#[test]
fn compare_runs_all_engines() {
    let place = Place::empty();
    let arguments = [
        "compare", "--keys", "2000", "--ops", "2000", "--warmup", "1", "--json", "c.json",
        "--plot", "c.svg",
    ];
    let table = place.text(&arguments);
    let results = place.json_file("c.json");
    let runs = results["runs"].as_array().unwrap();
    let names = [
        "esker",
        "rocksdb leveled",
        "rocksdb universal",
        "rocksdb blobdb",
    ];
    assert_eq!(runs.len(), names.len());
    for (run, name) in runs.iter().zip(names) {
        assert_eq!(run["engine"], name);
        assert!(table.contains(name), "{table}");
        assert_eq!(run["ops"], 2000);
        assert!(run["write_amplification"].as_f64().unwrap() > 0.5, "{name}");
        assert!(
            run["space_bytes_peak"].as_u64().unwrap() > 2000 * 4096,
            "{name}"
        );
    }
    assert_eq!(results["equal_space"].as_array().unwrap().len(), 3);
    assert!(
        runs[1]["version"]
            .as_str()
            .unwrap()
            .starts_with(|c: char| c.is_ascii_digit())
    );
    assert!(
        fs::read_to_string(place.path().join("c.svg"))
            .unwrap()
            .starts_with("<svg")
    );
    assert_eq!(place.names().len(), 2, "what was made is removed");
}
