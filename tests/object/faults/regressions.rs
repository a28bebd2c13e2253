//! Errors that were found, each small.
