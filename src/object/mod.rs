//! Ceph's object semantics on the log: what an object is made of and where it lies.
//!
//! `design/objects.md` describes the layer; only its pure data structures are here yet.

#[cfg_attr(
    not(test),
    expect(
        dead_code,
        unused_imports,
        reason = "the object store that uses it is yet to come"
    )
)]
pub(crate) mod extents;
