//! Transactions as flat tables: decoded here, with the payload still where it was.

use std::borrow::Cow;
use std::ffi::{c_int, c_void};

use super::collections::{CollectionHandle, Done, both, queue};
use super::store::StoreHandle;
use super::values::{Bytes, Cid, Oid, array, strings};
use super::{Failure, Outcome, guard_unit};
use crate::object::ObjectName;
use crate::sync::SharedArc;
use crate::{CollectionName, Op, Transaction};

/// `esker_op`.
#[repr(C)]
pub struct OpRow {
    op: u32,
    flags: u32,
    cid: u32,
    oid: u32,
    dest_cid: u32,
    dest_oid: u32,
    offset: u64,
    len: u64,
    dest_offset: u64,
    bytes: *const Bytes,
    bytes_count: usize,
}

/// `esker_table`.
#[repr(C)]
pub struct Table {
    cids: *const Cid,
    cid_count: usize,
    oids: *const Oid,
    oid_count: usize,
    ops: *const OpRow,
    op_count: usize,
}

/// The names of a table, in Rust.
struct Names {
    collections: Vec<CollectionName>,
    objects: Vec<SharedArc<ObjectName>>,
}

impl Names {
    fn collection(&self, at: u32) -> Outcome<CollectionName> {
        let found = self.collections.get(at as usize);
        found
            .copied()
            .ok_or(Failure::invalid("a collection out of the table"))
    }

    fn object(&self, at: u32) -> Outcome<SharedArc<ObjectName>> {
        let found = self.objects.get(at as usize);
        found
            .cloned()
            .ok_or(Failure::invalid("an object out of the table"))
    }
}

type Text<'a> = Cow<'a, [u8]>;

/// Pieces as one: borrowed if it is one, which is the ordinary case.
fn joined<'a>(pieces: &[&'a [u8]]) -> Text<'a> {
    match pieces {
        [] => Cow::Borrowed(&[]),
        [one] => Cow::Borrowed(one),
        several => Cow::Owned(several.concat()),
    }
}

/// Reads what Ceph encoded: counts and lengths of 32 bits, and bytes, from pieces. What lies
/// in one piece is borrowed.
struct Decoder<'p, 'a> {
    pieces: &'p [&'a [u8]],
    current: &'a [u8],
}

const SHORT: Failure = Failure::Plain(rustix::io::Errno::INVAL, "an encoding that ends early");

impl<'p, 'a> Decoder<'p, 'a> {
    fn new(pieces: &'p [&'a [u8]]) -> Self {
        Self {
            pieces,
            current: &[],
        }
    }

    /// Goes on to the next piece when one is used up; false at the end.
    fn fill(&mut self) -> bool {
        while self.current.is_empty() {
            let Some((first, rest)) = self.pieces.split_first() else {
                return false;
            };
            self.current = first;
            self.pieces = rest;
        }
        true
    }

    fn bytes(&mut self, len: usize) -> Outcome<Text<'a>> {
        self.fill();
        if let Some((taken, rest)) = self.current.split_at_checked(len) {
            self.current = rest;
            return Ok(Cow::Borrowed(taken));
        }
        // The length is a claim of the caller's: no memory for it before there are bytes.
        let mut taken = Vec::new();
        while taken.len() < len {
            if !self.fill() {
                return Err(SHORT);
            }
            let part = self.current.len().min(len - taken.len());
            let (part, rest) = self.current.split_at(part);
            taken.extend_from_slice(part);
            self.current = rest;
        }
        Ok(Cow::Owned(taken))
    }

    fn number(&mut self) -> Outcome<u32> {
        let bytes = self.bytes(4)?;
        let bytes = <[u8; 4]>::try_from(&*bytes).map_err(|_| SHORT)?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn text(&mut self) -> Outcome<Text<'a>> {
        let len = self.number()?;
        self.bytes(len as usize)
    }

    fn end<T>(mut self, found: T) -> Outcome<T> {
        if self.fill() {
            return Err(Failure::invalid("bytes behind an encoding"));
        }
        Ok(found)
    }

    fn set(mut self) -> Outcome<Vec<Text<'a>>> {
        let mut members = Vec::new();
        for _ in 0..self.number()? {
            members.push(self.text()?);
        }
        self.end(members)
    }

    fn map(mut self) -> Outcome<Vec<(Text<'a>, Text<'a>)>> {
        let mut entries = Vec::new();
        for _ in 0..self.number()? {
            entries.push((self.text()?, self.text()?));
        }
        self.end(entries)
    }
}

/// The first byte string of an operation, and the others.
fn first<'p, 'a>(pieces: &'p [&'a [u8]]) -> Outcome<(Text<'a>, &'p [&'a [u8]])> {
    let (first, others) = pieces
        .split_first()
        .ok_or(Failure::invalid("an operation without its bytes"))?;
    Ok((Cow::Borrowed(*first), others))
}

/// # Safety
/// What the row points to is there for `'a`.
unsafe fn operation<'a>(row: &OpRow, names: &Names) -> Outcome<Op<'a>> {
    // SAFETY: the caller's promise.
    let pieces: Vec<&'a [u8]> = unsafe { strings(row.bytes, row.bytes_count) }?;
    let pieces = pieces.as_slice();
    if row.op == 0 {
        return Ok(Op::Nop);
    }
    let collection = names.collection(row.cid)?;
    let object = || names.object(row.oid);
    let target = || names.object(row.dest_oid);
    let target_collection = || names.collection(row.dest_cid);
    Ok(match row.op {
        7 => Op::Create {
            collection,
            object: object()?,
        },
        9 => Op::Touch {
            collection,
            object: object()?,
        },
        10 => Op::Write {
            collection,
            object: object()?,
            offset: row.offset,
            data: pieces.iter().map(|piece| Cow::Borrowed(*piece)).collect(),
        },
        11 => Op::Zero {
            collection,
            object: object()?,
            offset: row.offset,
            len: row.len,
        },
        12 => Op::Truncate {
            collection,
            object: object()?,
            size: row.offset,
        },
        13 => Op::Remove {
            collection,
            object: object()?,
        },
        14 => {
            let (attr, value) = first(pieces)?;
            Op::SetAttrs {
                collection,
                object: object()?,
                attrs: vec![(attr, joined(value))],
            }
        }
        15 => Op::SetAttrs {
            collection,
            object: object()?,
            attrs: Decoder::new(pieces).map()?,
        },
        16 => Op::RmAttr {
            collection,
            object: object()?,
            attr: first(pieces)?.0,
        },
        17 => Op::Clone {
            collection,
            source: object()?,
            target: target()?,
        },
        20 => Op::CreateCollection {
            collection,
            bits: row.flags,
        },
        21 => Op::RemoveCollection { collection },
        28 => Op::RmAttrs {
            collection,
            object: object()?,
        },
        30 => Op::CloneRange {
            collection,
            source: object()?,
            target: target()?,
            source_offset: row.offset,
            len: row.len,
            target_offset: row.dest_offset,
        },
        31 => Op::OmapClear {
            collection,
            object: object()?,
        },
        32 => Op::OmapSetKeys {
            collection,
            object: object()?,
            entries: Decoder::new(pieces).map()?,
        },
        33 => Op::OmapRmKeys {
            collection,
            object: object()?,
            keys: Decoder::new(pieces).set()?,
        },
        34 => Op::OmapSetHeader {
            collection,
            object: object()?,
            header: joined(pieces),
        },
        36 => Op::SplitCollection {
            collection,
            bits: row.flags,
            rem: u32::try_from(row.len).map_err(|_| Failure::invalid("rem has 32 bits"))?,
            target: target_collection()?,
        },
        37 => {
            let (from, rest) = first(pieces)?;
            Op::OmapRmKeyRange {
                collection,
                object: object()?,
                first: from,
                last: first(rest)?.0,
            }
        }
        38 => Op::CollectionMoveRename {
            source_collection: collection,
            source: object()?,
            collection: target_collection()?,
            target: target()?,
        },
        39 => Op::SetAllocHint {
            collection,
            object: object()?,
            object_bytes: row.offset,
            write_bytes: row.len,
            flags: row.flags,
        },
        40 => Op::CollectionHint {
            collection,
            kind: row.flags,
            hint: joined(pieces),
        },
        41 => Op::TryRename {
            collection,
            source: object()?,
            target: target()?,
        },
        42 => Op::CollectionSetBits {
            collection,
            bits: row.flags,
        },
        43 => Op::MergeCollection {
            collection,
            target: target_collection()?,
            bits: row.flags,
        },
        _ => {
            return Err(Failure::Plain(
                rustix::io::Errno::OPNOTSUPP,
                "an operation of another release",
            ));
        }
    })
}

/// # Safety
/// What the table points to is there for `'a`.
unsafe fn decode<'a>(table: &Table) -> Outcome<Transaction<'a>> {
    // SAFETY: the caller's promise, here and below.
    let cids = unsafe { array(table.cids, table.cid_count) }?;
    // SAFETY: as the caller promises of the table.
    let oids: &[Oid] = unsafe { array(table.oids, table.oid_count) }?;
    // SAFETY: as the caller promises of the table.
    let rows = unsafe { array(table.ops, table.op_count) }?;
    // SAFETY: as the caller promises of the names in the table.
    let object = |oid: &Oid| unsafe { oid.name() }.map(SharedArc::new);
    let names = Names {
        collections: cids.iter().map(|cid| cid.name()).collect::<Outcome<_>>()?,
        objects: oids.iter().map(object).collect::<Outcome<_>>()?,
    };
    let mut transaction = Transaction::new();
    for row in rows {
        // SAFETY: as above.
        transaction.push(unsafe { operation(row, &names) }?);
    }
    Ok(transaction)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn esker_submit(
    store: *const StoreHandle,
    coll: *const CollectionHandle,
    tables: *const Table,
    count: usize,
    on_applied: Done,
    on_commit: Done,
    context: *mut c_void,
) -> c_int {
    guard_unit(|| {
        // SAFETY: esker.h, conventions 2, 3 and 5.
        let (coll, tables) = unsafe { (both(store, coll)?, array(tables, count)?) };
        let mut transactions = Vec::with_capacity(tables.len());
        for table in tables {
            // SAFETY: as above.
            transactions.push(unsafe { decode(table) }?);
        }
        queue(coll, &transactions, on_applied, on_commit, context)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every way to cut an encoding into two pieces reads the same; a shorter one is refused.
    #[test]
    fn encodings_may_be_cut_anywhere() {
        let encoded = b"\x02\0\0\0\x01\0\0\0a\x03\0\0\0xyz\0\0\0\0\x01\0\0\0b";
        let expected = [("a", "xyz"), ("", "b")];
        for cut in 0..=encoded.len() {
            let (left, right) = encoded.split_at(cut);
            let Ok(map) = Decoder::new(&[left, right]).map() else {
                panic!("cut at {cut}");
            };
            let expected = expected.map(|(key, value)| (key.as_bytes(), value.as_bytes()));
            let found: Vec<_> = map.iter().map(|(key, value)| (&**key, &**value)).collect();
            assert_eq!(found, expected);
            if cut < encoded.len() {
                assert!(Decoder::new(&[left]).map().is_err());
            }
        }
        assert!(Decoder::new(&[encoded, b"x"]).map().is_err());
    }

    #[test]
    fn a_claimed_length_takes_no_memory() {
        assert!(
            Decoder::new(&[b"\x01\0\0\0\xff\xff\xff\xff"])
                .set()
                .is_err()
        );
        assert!(Decoder::new(&[b"\xff\xff\xff\xff"]).set().is_err());
    }
}
