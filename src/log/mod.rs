//! Log.

mod policy;
