//! A log of calls and what an open may make of it.
//!
//! One client makes transactions in order. `certain` of them must be there; those after may
//! be there as a prefix. [`History::check`] reads the whole store, through a scan and
//! through gets, and says which prefix it holds; any other content is a panic.

use std::collections::BTreeMap;
use std::sync::Arc;

use esker::{Batch, Durability, Error, Result, Store};

use crate::common::Random;

pub type State = BTreeMap<Vec<u8>, Arc<[u8]>>;

/// Puts and deletes of one call.
/// A key and its new value, or none.
pub type Change = (Vec<u8>, Option<Arc<[u8]>>);

#[derive(Clone, Debug)]
pub struct Transaction {
    pub ops: Vec<Change>,
}

/// What was asked of a store.
#[derive(Clone)]
pub struct History {
    durability: Durability,
    /// The state before `transactions`, known exactly.
    base: State,
    transactions: Vec<Transaction>,
    certain: usize,
    /// Every key ever used: each must be as the state says, absent ones too.
    keys: std::collections::BTreeSet<Vec<u8>>,
    checks: u64,
}

impl History {
    pub fn new(durability: Durability) -> Self {
        Self {
            durability,
            base: State::new(),
            transactions: Vec::new(),
            certain: 0,
            keys: Default::default(),
            checks: 0,
        }
    }

    /// Makes a transaction and notes what is certain now. `Err` when the store failed;
    /// `Ok(false)` when it refused for lack of room.
    pub fn run(&mut self, store: &Store, transaction: Transaction) -> Result<bool> {
        let outcome = apply(store, &transaction);
        if matches!(outcome, Err(Error::NoSpace { .. })) {
            return Ok(false);
        }
        self.note(transaction, outcome.is_ok());
        outcome.map(|()| true)
    }

    /// Notes a transaction made elsewhere.
    pub fn note(&mut self, transaction: Transaction, succeeded: bool) {
        self.keys
            .extend(transaction.ops.iter().map(|(key, _)| key.clone()));
        self.transactions.push(transaction);
        if succeeded && self.durability == Durability::Committed {
            self.certain = self.transactions.len();
        }
    }

    pub fn sync(&mut self, store: &Store) -> Result<()> {
        store.sync()?;
        self.note_sync();
        Ok(())
    }

    pub fn note_sync(&mut self) {
        self.certain = self.transactions.len();
    }

    /// Checks the store; from now on the state it has is the certain one.
    pub fn check(&mut self, store: &Store, context: &str) {
        let outcome = self.try_check(store, context);
        outcome.unwrap_or_else(|error| panic!("{context}: reading: {error:?}"));
    }

    /// As [`History::check`], of a device that may fail meanwhile.
    pub fn try_check(&mut self, store: &Store, context: &str) -> Result<()> {
        let found = self.read(store, context)?;
        let mut state = self.base.clone();
        for transaction in &self.transactions[..self.certain] {
            change(&mut state, transaction);
        }
        let mut matching = None;
        let mut at = self.certain;
        let mut reports = Vec::new();
        loop {
            // Cheap when lengths differ; the few candidates are compared in full.
            if state == found {
                matching = Some(state.clone());
            } else if reports.len() < 3 {
                reports.push(format!("prefix {at}: {}", difference(&state, &found)));
            }
            let Some(transaction) = self.transactions.get(at) else {
                break;
            };
            change(&mut state, transaction);
            at += 1;
        }
        let Some(state) = matching else {
            panic!(
                "{context}: no prefix of {}..={} matches; {}",
                self.certain,
                self.transactions.len(),
                reports.join("; ")
            );
        };
        self.base = state;
        self.transactions.clear();
        self.certain = 0;
        Ok(())
    }

    /// What the store has under every key ever used. A scan, which takes long when the index
    /// is nearly empty, is made of every eighth check and must agree.
    fn read(&mut self, store: &Store, context: &str) -> Result<State> {
        let mut found = State::new();
        for key in &self.keys {
            if let Some(value) = store.get(key)? {
                found.insert(key.clone(), value);
            }
        }
        self.checks += 1;
        if self.checks % 8 != 1 {
            return Ok(found);
        }
        let mut scanned = State::new();
        for entry in store.scan() {
            let (key, value) = entry?;
            let again = scanned.insert(key.clone(), value);
            assert!(again.is_none(), "{context}: scan gave {key:?} twice");
        }
        if scanned != found {
            panic!("{context}: scan and gets: {}", difference(&found, &scanned));
        }
        Ok(found)
    }
}

fn change(state: &mut State, transaction: &Transaction) {
    for (key, value) in &transaction.ops {
        match value {
            Some(value) => state.insert(key.clone(), value.clone()),
            None => state.remove(key),
        };
    }
}

fn difference(wanted: &State, found: &State) -> String {
    let name = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
    let mut parts = Vec::new();
    for (key, value) in wanted {
        match found.get(key) {
            None => parts.push(format!("{} missing", name(key))),
            Some(other) if other != value => parts.push(format!(
                "{} has {} bytes, not the {} expected",
                name(key),
                other.len(),
                value.len()
            )),
            Some(_) => {}
        }
    }
    for key in found.keys().filter(|key| !wanted.contains_key(*key)) {
        parts.push(format!("{} should be gone", name(key)));
    }
    let count = parts.len();
    parts.truncate(6);
    format!("{count} differences: {}", parts.join(", "))
}

/// Makes a transaction on a store.
pub fn apply(store: &Store, transaction: &Transaction) -> Result<()> {
    match transaction.ops.as_slice() {
        [(key, Some(value))] => store.put(key, value),
        [(key, None)] => store.delete(key).map(drop),
        ops => {
            let mut batch = Batch::new();
            for (key, value) in ops {
                match value {
                    Some(value) => batch.put(key, value),
                    None => batch.delete(key),
                };
            }
            store.write(batch)
        }
    }
}

/// Makes up transactions: puts, overwrites, deletes and batches of values of 0 bytes to
/// some hundred KiB, so that some are chunked.
#[derive(Clone)]
pub struct Workload {
    pub random: Random,
    pub keys: u64,
}

impl Workload {
    pub fn new(seed: u64, keys: u64) -> Self {
        Self {
            random: Random::new(seed),
            keys,
        }
    }

    pub fn value(&mut self) -> Arc<[u8]> {
        let random = &mut self.random;
        let len = match random.below(100) {
            0..=5 => 0,
            6..=59 => random.below(300),
            60..=91 => random.below(6000),
            92..=97 => 10_000 + random.below(21_000),
            _ => 33_000 + random.below(260_000),
        };
        random.bytes(len as usize).into()
    }

    pub fn key(&mut self) -> Vec<u8> {
        format!("key {}", self.random.below(self.keys)).into_bytes()
    }

    fn op(&mut self) -> (Vec<u8>, Option<Arc<[u8]>>) {
        let key = self.key();
        let value = (self.random.below(4) > 0).then(|| self.value());
        (key, value)
    }
}

impl Iterator for Workload {
    type Item = Transaction;

    fn next(&mut self) -> Option<Transaction> {
        let count = match self.random.below(8) {
            0 => 2 + self.random.below(6),
            _ => 1,
        };
        let ops = (0..count).map(|_| self.op()).collect();
        Some(Transaction { ops })
    }
}
