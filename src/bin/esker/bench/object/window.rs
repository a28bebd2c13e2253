//! How many transactions may be in flight, and what became of those that are done.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

#[derive(Debug)]
struct State {
    /// In flight now.
    count: u64,
    failure: Option<String>,
}

/// Bounds the transactions in flight of one thread.
#[derive(Debug)]
pub struct Window {
    depth: u64,
    state: Mutex<State>,
    changed: Condvar,
}

impl Window {
    /// A window for so many.
    pub fn new(depth: u64) -> Self {
        Self {
            depth,
            state: Mutex::new(State {
                count: 0,
                failure: None,
            }),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a place and takes it.
    pub fn enter(&self) {
        let mut state = self.lock();
        while state.count >= self.depth {
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.count += 1;
    }

    /// Gives a place back; says why if what had it failed.
    pub fn leave(&self, failure: Option<String>) {
        let mut state = self.lock();
        state.count -= 1;
        if failure.is_some() {
            state.failure = state.failure.take().or(failure);
        }
        // The one thread waits when all places are taken, or for all to be free.
        if state.count + 1 == self.depth || state.count == 0 {
            self.changed.notify_one();
        }
    }

    /// Waits until nothing is in flight; the first failure, if there was one.
    pub fn drain(&self) -> Result<(), String> {
        let mut state = self.lock();
        while state.count > 0 {
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state.failure.take().map_or(Ok(()), Err)
    }
}
