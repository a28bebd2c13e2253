//! What was asked of a store, and what an open may make of it.
//!
//! Transactions are made in one order. Those acknowledged must be there; of those after
//! them a prefix may be. [`History::check`] reads everything and says which state the store
//! has; any other is a panic.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

use esker::{CollectionName, Result, Transaction};

use crate::contents::{Contents, assert_same, contents};
use crate::interface::ObjectInterface;
use crate::model::ModelStore;

/// The states a store may be in: the first is certain, each later one has one transaction
/// more.
#[derive(Clone)]
pub struct History {
    states: VecDeque<ModelStore>,
    /// Transactions noted so far, refused ones left out.
    noted: u64,
    /// How many of them are certain.
    certain: u64,
}

impl History {
    pub fn new() -> Self {
        Self {
            states: VecDeque::from([ModelStore::new()]),
            noted: 0,
            certain: 0,
        }
    }

    /// The state after everything noted.
    pub fn latest(&self) -> &ModelStore {
        self.states.back().expect("a state")
    }

    /// What the transaction makes of the latest state; a refusal by the model is an error.
    pub fn expect(
        &self,
        collection: CollectionName,
        transaction: &Transaction<'static>,
    ) -> Result<ModelStore> {
        let mut after = self.latest().clone();
        after.queue_transactions(collection, vec![transaction.clone()])?;
        Ok(after)
    }

    /// Notes a transaction that leads to a state; returns its number, from 1.
    pub fn note(&mut self, after: ModelStore) -> u64 {
        self.states.push_back(after);
        self.noted += 1;
        self.noted
    }

    /// The transactions up to this number were acknowledged.
    pub fn acknowledge(&mut self, number: u64) {
        while self.certain < number {
            self.states.pop_front();
            self.certain += 1;
        }
        assert!(!self.states.is_empty(), "acknowledged before it was noted");
    }

    /// Everything noted is certain.
    pub fn settle(&mut self) {
        self.acknowledge(self.noted);
    }

    pub fn uncertain(&self) -> usize {
        self.states.len() - 1
    }

    /// Checks the store; the state it has is the certain one from now on.
    pub fn check(&mut self, store: &dyn ObjectInterface, context: &str) {
        let found = catch_unwind(AssertUnwindSafe(|| contents(store)));
        let found = found.unwrap_or_else(|_| panic!("{context}: reading"));
        self.check_contents(&found, context);
    }

    pub fn check_contents(&mut self, found: &Contents, context: &str) {
        let expected = self.states.iter().map(|state| contents(state));
        let Some(at) = expected.into_iter().position(|state| state == *found) else {
            for (number, state) in (self.certain..).zip(&self.states) {
                println!("against the state after transaction {number}:");
                let _ = catch_unwind(|| assert_same(found, &contents(state), context));
            }
            panic!("{context}: none of {} states", self.states.len());
        };
        let state = self.states.swap_remove_back(at).expect("it was found");
        self.states = VecDeque::from([state]);
        self.certain += at as u64;
        self.noted = self.certain;
    }
}
