//! Log.

mod policy;
#[cfg(test)]
mod policy_tests;
