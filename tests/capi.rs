//! The C ABI from outside: `src/capi/install.sh`, then a C program that uses every function
//! of `esker.h`, compiled against what was installed and run under a memory checker.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn tree() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Runs a command to its end; its output is the message when it fails.
fn run(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?} failed\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Names of global symbols that a library defines.
fn symbols(arguments: &[&str], library: &Path) -> BTreeSet<String> {
    let listing = run(Command::new("nm").args(arguments).arg(library));
    let names = listing
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2));
    names.map(str::to_owned).collect()
}

/// Functions that the header declares.
fn declared() -> BTreeSet<String> {
    let header = fs::read_to_string(tree().join("src/capi/esker.h")).unwrap();
    let code: String = header
        .split("/*")
        .map(|part| part.split_once("*/").map_or(part, |(_, code)| code))
        .collect();
    let words = code.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == '('));
    let functions = words.filter_map(|word| word.split_once('(').map(|(name, _)| name));
    functions
        .filter(|name| name.starts_with("esker_"))
        .map(str::to_owned)
        .collect()
}

fn install(prefix: &Path) {
    run(Command::new(tree().join("src/capi/install.sh")).arg(prefix));
}

/// Compiles the program with what pkg-config says, into `to`.
fn compile(prefix: &Path, to: &Path, is_static: bool) {
    let mut flags = Command::new("pkg-config");
    flags.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
    let wanted: &[&str] = if is_static {
        &["--cflags", "--libs-only-other", "--static", "esker"]
    } else {
        &["--cflags", "--libs", "esker"]
    };
    let flags = run(flags.args(wanted));
    let mut gcc = Command::new("gcc");
    gcc.args([
        "-std=c11",
        "-g",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-D_POSIX_C_SOURCE=200809L",
    ]);
    for source in fs::read_dir(tree().join("tests/capi")).unwrap() {
        let source = source.unwrap().path();
        if source.extension().is_some_and(|extension| extension == "c") {
            gcc.arg(source);
        }
    }
    gcc.arg("-o").arg(to).args(flags.split_whitespace());
    if is_static {
        gcc.arg(prefix.join("lib/libesker.a"));
        gcc.args(["-lgcc_s", "-lm", "-ldl"]);
    } else {
        gcc.arg(format!("-Wl,-rpath,{}", prefix.join("lib").display()));
    }
    run(gcc.arg("-lpthread"));
}

fn has(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

fn scratch() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path().join("data");
    fs::create_dir(&folder).unwrap();
    (directory, folder)
}

/// One test: what is installed is the same for all of it, and takes a minute to build.
#[test]
fn a_c_program_uses_every_function() {
    let (directory, folder) = scratch();
    let prefix = directory.path().join("prefix");
    install(&prefix);

    let declared = declared();
    assert!(declared.len() > 90, "{declared:?}");
    let shared = symbols(&["-D", "--defined-only"], &prefix.join("lib/libesker.so"));
    assert_eq!(
        shared, declared,
        "libesker.so exports what esker.h declares"
    );
    let archive = symbols(&["-g", "--defined-only"], &prefix.join("lib/libesker.a"));
    assert_eq!(
        archive, declared,
        "libesker.a exports what esker.h declares"
    );

    let mut text = String::new();
    for source in fs::read_dir(tree().join("tests/capi")).unwrap() {
        text += &fs::read_to_string(source.unwrap().path()).unwrap();
    }
    for name in &declared {
        assert!(
            text.contains(&format!("{name}(")),
            "tests/capi does not use {name}"
        );
    }

    let program = directory.path().join("capi");
    compile(&prefix, &program, true);
    run(Command::new(&program).arg(&folder));
    fs::remove_dir_all(&folder).unwrap();
    fs::create_dir(&folder).unwrap();

    compile(&prefix, &program, false);
    if has("valgrind") {
        let mut valgrind = Command::new("valgrind");
        valgrind.args([
            "--quiet",
            "--error-exitcode=9",
            "--leak-check=full",
            "--errors-for-leak-kinds=definite",
            "--fair-sched=yes",
        ]);
        run(valgrind.arg(&program).arg(&folder));
    } else {
        eprintln!("no valgrind: the program runs without a memory checker");
        run(Command::new(&program).arg(&folder));
    }
}
