//! Callbacks of transactions: in the order of their seqnos, on a thread of their own, under
//! no lock.

use std::collections::VecDeque;

use crate::format::Seqno;
use crate::log::Log;
use crate::sync::{Condvar, Mutex};
use crate::{Error, Result};

/// Called once, with what became of the transaction.
pub type Callback = Box<dyn FnOnce(Result<()>) + Send>;

#[derive(Default)]
struct Waiting {
    /// Effects are readable.
    applied: Vec<Callback>,
    /// Called when everything up to the seqno is durable.
    committed: VecDeque<(Seqno, Callback)>,
    is_busy: bool,
    is_stopping: bool,
}

/// Callbacks that wait.
pub(crate) struct Completions {
    waiting: Mutex<Waiting>,
    changed: Condvar,
    idle: Condvar,
}

impl Completions {
    pub(crate) fn new() -> Self {
        Self {
            waiting: Mutex::new(Waiting::default()),
            changed: Condvar::new(),
            idle: Condvar::new(),
        }
    }

    /// Adds the callbacks of a transaction that has been applied. Called under the locks of
    /// its collections, so that the order of one collection's callbacks is theirs.
    pub(crate) fn add(&self, seqno: Seqno, applied: Option<Callback>, committed: Option<Callback>) {
        if applied.is_none() && committed.is_none() {
            return;
        }
        let mut waiting = self.waiting.lock();
        waiting.applied.extend(applied);
        waiting
            .committed
            .extend(committed.map(|callback| (seqno, callback)));
        if !waiting.is_busy {
            self.changed.notify_one();
        }
    }

    /// The thread that commits and calls.
    pub(crate) fn run(&self, log: &Log) {
        let mut waiting = self.waiting.lock();
        loop {
            if waiting.applied.is_empty() && waiting.committed.is_empty() {
                if waiting.is_stopping {
                    return;
                }
                waiting.is_busy = false;
                self.idle.notify_all();
                waiting = self.changed.wait(waiting);
                continue;
            }
            waiting.is_busy = true;
            let applied = std::mem::take(&mut waiting.applied);
            let first = waiting.committed.front().map(|(seqno, _)| *seqno);
            drop(waiting);
            for callback in applied {
                callback(Ok(()));
            }
            let committed = first.map_or(Ok(()), |seqno| log.commit_through(seqno));
            let durable = log.durable();
            waiting = self.waiting.lock();
            // Of what was added meanwhile, too, the effects are told before the commit.
            let applied = std::mem::take(&mut waiting.applied);
            let mut done = Vec::new();
            let is_failed = committed.is_err();
            while waiting
                .committed
                .front()
                .is_some_and(|(seqno, _)| *seqno <= durable || is_failed)
            {
                done.extend(waiting.committed.pop_front());
            }
            drop(waiting);
            for callback in applied {
                callback(Ok(()));
            }
            for (seqno, callback) in done {
                callback(if seqno <= durable {
                    Ok(())
                } else {
                    Err(Error::Poisoned)
                });
            }
            waiting = self.waiting.lock();
        }
    }

    /// Whether every callback added so far has been called.
    pub(crate) fn is_idle(&self) -> bool {
        let waiting = self.waiting.lock();
        !waiting.is_busy && waiting.applied.is_empty() && waiting.committed.is_empty()
    }

    /// Returns when every callback added so far has been called.
    pub(crate) fn drain(&self) {
        let mut waiting = self.waiting.lock();
        while waiting.is_busy || !waiting.applied.is_empty() || !waiting.committed.is_empty() {
            waiting = self.idle.wait(waiting);
        }
    }

    /// Lets the thread end when nothing waits any more.
    pub(crate) fn stop(&self) {
        self.waiting.lock().is_stopping = true;
        self.changed.notify_all();
    }
}
