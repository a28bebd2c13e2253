//! A child process writes to a store in a file and is killed with `SIGKILL`.
//!
//! The page cache survives, so this tests process death only: threads stop anywhere, no
//! destructor runs, the lock on the file goes. The child says over its output which calls
//! were acknowledged; the parent knows the calls from the seed.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use esker::{Durability, Options, Store};

use crate::common::{Random, options, seed};
use crate::history::{History, Workload, apply};

const CHILD: &str = "ESKER_CRASH_CHILD";
const KEYS: u64 = 150;
const SYNC_EVERY: u64 = 20;

fn store_options(durability: Durability) -> Options {
    options(durability)
        .capacity(12 << 20)
        .segment_bytes(128 << 10)
        .checkpoint_interval_bytes(1 << 20)
}

/// Not a test by itself: what the killed process runs.
#[test]
fn child() {
    let Ok(task) = std::env::var(CHILD) else {
        return;
    };
    let mut fields = task.splitn(3, ' ');
    let buffered = fields.next() == Some("buffered");
    let seed = fields.next().and_then(|text| text.parse().ok()).unwrap();
    let path = fields.next().unwrap();
    let durability = if buffered {
        Durability::Buffered
    } else {
        Durability::Committed
    };
    let store = Store::open(path, &store_options(durability)).unwrap();
    let mut out = std::io::stdout();
    let mut say = |line: String| {
        out.write_all(line.as_bytes()).unwrap();
        out.flush().unwrap();
    };
    say("\nopened\n".to_string());
    for (at, transaction) in (1..).zip(Workload::new(seed, KEYS)) {
        apply(&store, &transaction).unwrap();
        say(format!("ack {at}\n"));
        if buffered && at % SYNC_EVERY == 0 {
            store.sync().unwrap();
            say(format!("sync {at}\n"));
        }
    }
}

fn spawn(path: &Path, durability: Durability, seed: u64) -> Child {
    let name = if durability == Durability::Buffered {
        "buffered"
    } else {
        "committed"
    };
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kill::child", "--nocapture", "--test-threads=1"])
        .env(CHILD, format!("{name} {seed} {}", path.display()))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Kills the child after `after` from its open, or from its start if it is not to get far,
/// and returns what it said.
fn kill(mut child: Child, in_open: bool, after: Duration) -> Vec<String> {
    let out = BufReader::new(child.stdout.take().unwrap());
    let (send, receive) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        for line in out.lines().map_while(Result::ok) {
            let _ = send.send(line);
        }
    });
    let mut lines = Vec::new();
    let mut deadline = in_open.then(|| Instant::now() + after);
    loop {
        let wait = deadline.map_or(Duration::from_secs(60), |deadline| {
            deadline.saturating_duration_since(Instant::now())
        });
        match receive.recv_timeout(wait) {
            Ok(line) => {
                if line == "opened" && deadline.is_none() {
                    deadline = Some(Instant::now() + after);
                }
                lines.push(line);
            }
            Err(_) => break,
        }
        if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            break;
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap();
    lines.extend(receive.try_iter());
    lines
}

fn last(lines: &[String], word: &str) -> u64 {
    let numbers = lines
        .iter()
        .filter_map(|line| line.strip_prefix(word)?.trim().parse().ok());
    numbers.max().unwrap_or(0)
}

fn rounds(durability: Durability) {
    let seed = seed();
    let mut random = Random::new(seed);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("store");
    let options = store_options(durability);
    Store::create(&path, &options).unwrap().close().unwrap();
    let mut history = History::new(durability);
    let mut acknowledged = 0;
    for round in 0..20 {
        // Kills during open first, several in a row.
        for _ in 0..random.below(3) {
            let child = spawn(&path, durability, 0);
            let lines = kill(child, true, Duration::from_micros(random.below(12_000)));
            if last(&lines, "ack ") > 0 || lines.iter().any(|line| line == "opened") {
                // It got further: what it left is settled before the next one writes.
                note(&mut history, &lines, 0, durability);
                let store = Store::open(&path, &options).unwrap();
                history.check(&store, &format!("seed {seed}, round {round}, in open"));
            }
        }
        let task = random.next();
        let child = spawn(&path, durability, task);
        let lines = kill(child, false, Duration::from_micros(random.below(150_000)));
        assert!(lines.iter().any(|line| line == "opened"), "{lines:?}");
        acknowledged += note(&mut history, &lines, task, durability);
        let what = format!("seed {seed}, round {round}");
        let store = Store::open(&path, &options).unwrap_or_else(|e| panic!("{what}: {e:?}"));
        history.check(&store, &what);
        store.close().unwrap();
    }
    assert!(acknowledged > 20, "the children were killed too early");
    println!("{acknowledged} transactions acknowledged");
}

/// Notes what a child did; the call after the last one acknowledged may have happened.
fn note(history: &mut History, lines: &[String], task: u64, durability: Durability) -> u64 {
    let (done, synced) = (last(lines, "ack "), last(lines, "sync "));
    for (at, transaction) in (1..=done + 1).zip(Workload::new(task, KEYS)) {
        history.note(
            transaction,
            at <= done && durability == Durability::Committed,
        );
        if at == synced {
            history.note_sync();
        }
    }
    done
}

#[test]
fn a_killed_process_loses_no_committed_write() {
    rounds(Durability::Committed);
}

#[test]
fn a_killed_process_loses_no_synced_write() {
    rounds(Durability::Buffered);
}
