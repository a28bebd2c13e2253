//! Models of group commit: who leads, who follows, and what is acknowledged when.

use super::*;
use crate::Error;
use crate::format::{Address, COMMIT_STREAM};
use crate::sync::thread;

/// Appends a record and commits it, as a put does.
fn write(log: &Log, key: u8) -> (Address, crate::Result<()>) {
    let key = [key];
    let appended = {
        let mut appender = log.appender();
        let appended = appender.append(&new_put(&key, &[0; 8], COMMIT_STREAM));
        log.join_group(&mut appender);
        appended
    };
    match appended {
        Ok(appended) => (appended.address, log.commit_through(appended.seqno)),
        Err(_) => panic!("there are free segments"),
    }
}

/// Writes, and checks that what was acknowledged is durable.
fn write_and_check(tiny: &Tiny, key: u8) -> crate::Result<()> {
    let (address, result) = write(&tiny.log, key);
    if result.is_ok() {
        let durable = tiny.device.durable();
        assert_eq!(tiny.key_at(&durable, address), Some(vec![key]));
    }
    result
}

/// Two writers commit: each is acknowledged, and only when a flush followed the write of
/// its frame. They share a group, or the follower leads the next.
#[test]
fn loom_commit_of_two_writers() {
    model(
        "commit of two writers",
        &["one group", "two groups"],
        || {
            let tiny = tiny(2, 3, 0);
            let other = {
                let tiny = tiny.clone();
                thread::spawn(move || write_and_check(&tiny, 1))
            };
            assert!(write_and_check(&tiny, 2).is_ok());
            assert!(other.join().is_ok_and(|result| result.is_ok()));
            match tiny.device.flushes() {
                1 => witness("one group"),
                2 => witness("two groups"),
                more => panic!("{more} flushes"),
            }
            assert_eq!(tiny.log.durable(), 2);
            assert_eq!(tiny.records().len(), 2);
        },
    );
}

/// Three writers: those that wait for the next group are woken one after another, or lead
/// it before.
#[test]
fn loom_commit_of_three_writers() {
    let places = ["1 groups", "2 groups", "3 groups"];
    model("commit of three writers", &places, || {
        let tiny = tiny(2, 3, 0);
        let others = [1, 2].map(|key| {
            let tiny = tiny.clone();
            thread::spawn(move || write_and_check(&tiny, key).is_ok())
        });
        assert!(write_and_check(&tiny, 3).is_ok());
        for other in others {
            assert!(other.join().is_ok_and(|acknowledged| acknowledged));
        }
        match tiny.device.flushes() {
            1 => witness("1 groups"),
            2 => witness("2 groups"),
            3 => witness("3 groups"),
            more => panic!("{more} flushes"),
        }
        assert_eq!(tiny.log.durable(), 3);
    });
}

/// Two writers and one who commits whatever there is, as the flusher does.
#[test]
fn loom_commit_of_two_writers_and_a_flusher() {
    let places = ["1 groups", "2 groups"];
    model("commit with a flusher", &places, || {
        let tiny = tiny(2, 3, 0);
        let others = [1, 2].map(|key| {
            let tiny = tiny.clone();
            thread::spawn(move || write_and_check(&tiny, key).is_ok())
        });
        assert!(tiny.log.commit_now().is_ok());
        for other in others {
            assert!(other.join().is_ok_and(|acknowledged| acknowledged));
        }
        match tiny.device.flushes() {
            1 => witness("1 groups"),
            2 => witness("2 groups"),
            more => panic!("{more} flushes"),
        }
        assert_eq!(tiny.log.durable(), 2);
    });
}

/// The first flush fails: nobody is acknowledged, then or later, and it is not repeated.
#[test]
fn loom_failed_flush() {
    model("failed flush", &["poisoned", "failed"], || {
        let tiny = tiny(2, 3, 1);
        let other = {
            let tiny = tiny.clone();
            thread::spawn(move || write(&tiny.log, 1).1)
        };
        let mine = write(&tiny.log, 2).1;
        let Ok(theirs) = other.join() else {
            panic!("the other writer panicked")
        };
        let mut failed = 0;
        for result in [mine, theirs, tiny.log.commit_now()] {
            match result {
                Err(Error::Io { .. }) => {
                    witness("failed");
                    failed += 1;
                }
                Err(Error::Poisoned) => witness("poisoned"),
                other => panic!("acknowledged: {other:?}"),
            }
        }
        assert_eq!((failed, tiny.device.flushes()), (1, 1));
        assert_eq!(tiny.log.durable(), 0);
    });
}

/// The second flush fails, if there is one: the first group stays acknowledged, the second
/// never is.
#[test]
fn loom_failed_second_flush() {
    model("failed second flush", &["both", "one"], || {
        let tiny = tiny(2, 3, 2);
        let other = {
            let tiny = tiny.clone();
            thread::spawn(move || write_and_check(&tiny, 1))
        };
        let mine = write_and_check(&tiny, 2);
        let Ok(theirs) = other.join() else {
            panic!("the other writer panicked")
        };
        let acknowledged = [&mine, &theirs]
            .iter()
            .filter(|result| result.is_ok())
            .count();
        match tiny.device.flushes() {
            1 => {
                witness("both");
                assert_eq!(acknowledged, 2);
            }
            _ => {
                witness("one");
                assert_eq!(acknowledged, 1);
                assert!(tiny.log.commit_now().is_err());
                assert_eq!(tiny.log.durable(), 1);
            }
        }
    });
}

/// A writer that waits for room, while a flush fails: it is woken and told.
#[test]
fn loom_failed_flush_wakes_who_waits_for_room() {
    model("failed flush wakes", &["told"], || {
        let tiny = tiny(2, 1, 1);
        let other = {
            let tiny = tiny.clone();
            thread::spawn(move || write(&tiny.log, 1).1.is_err())
        };
        let waited = tiny
            .log
            .wait_for_space(&mut |_| super::super::Wait::Excused);
        assert!(matches!(waited, Err(Error::Poisoned)));
        witness("told");
        assert!(other.join().is_ok_and(|failed| failed));
    });
}

/// The space thread has the flusher commit for it: it never waits for a commit that is done
/// already or that nobody makes, whether there is something to write or not. (In models a
/// wait has no timeout, so a wake-up that is lost is a deadlock.)
#[test]
fn loom_awaited_commit() {
    model("awaited commit", &["ended"], || {
        let tiny = tiny(2, 3, 0);
        let flusher = {
            let tiny = tiny.clone();
            thread::spawn(move || tiny.log.flusher())
        };
        let appended = {
            let mut appender = tiny.log.appender();
            appender.append(&new_put(&[1], &[0; 8], COMMIT_STREAM))
        };
        assert!(appended.is_ok());
        assert!(tiny.log.await_commit().is_ok());
        // The first may have been under way before the record came; the second was not.
        assert!(tiny.log.await_commit().is_ok());
        assert_eq!(tiny.log.durable(), 1);
        tiny.log.stop();
        assert!(flusher.join().is_ok());
        witness("ended");
    });
}

/// The same, when the log stops meanwhile: nobody waits for ever.
#[test]
fn loom_awaited_commit_of_a_log_that_stops() {
    model("awaited commit and stop", &["ended"], || {
        let tiny = tiny(2, 3, 0);
        let flusher = {
            let tiny = tiny.clone();
            thread::spawn(move || tiny.log.flusher())
        };
        let waiting = {
            let tiny = tiny.clone();
            thread::spawn(move || tiny.log.await_commit().is_ok())
        };
        tiny.log.stop();
        assert!(waiting.join().is_ok_and(|ok| ok));
        assert!(flusher.join().is_ok());
        witness("ended");
    });
}
