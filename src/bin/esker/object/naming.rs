//! How collections and objects are named on the command line.
//!
//! The short form of an object is its name alone: pool and shard are the collection's, the
//! hash is what Ceph computes from the name. Every other name has a full form, which is
//! Ceph's: `shard#pool:reversed hash:namespace:key:name:snap#generation`, each text escaped
//! so that it has no `:` or `#`. What parses as a full form is one, so that what `object ls`
//! prints always leads to the object it stands for.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use clap::Args;
use esker::object::{NO_GENERATION, NO_SHARD, NO_SNAP, SNAPDIR};
use esker::{CollectionName, ObjectName};

use crate::escape::{escape, unescape};
use crate::failure::{Failure, Outcome};

/// How an object is given on the command line.
#[derive(Args, Debug)]
pub struct ObjectArgument {
    /// The object: its name as given, or its full form
    /// `shard#pool:reversed hash:namespace:key:name:snap#generation`, as `esker object ls`
    /// prints.
    #[arg(value_name = "OBJECT", allow_hyphen_values = true)]
    object: OsString,

    /// OBJECT is escaped as `esker object ls` prints names: `\xNN` for a byte, `\\` for a
    /// backslash.
    #[arg(short = 'e', long)]
    escaped: bool,

    /// The placement hash, 8 hexadecimal digits or fewer; derived from the name as Ceph does
    /// when not given.
    #[arg(long, value_name = "HEX", value_parser = parse_hash)]
    hash: Option<u32>,

    /// The namespace.
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    nspace: String,

    /// The locator key, which takes the name's place in the order and in the hash.
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true
    )]
    locator: String,

    /// The snap: a hexadecimal number, `head` or `snapdir`.
    #[arg(long, value_name = "SNAP", default_value = "head", value_parser = parse_snap)]
    snap: u64,

    /// The generation, a hexadecimal number; none when not given.
    #[arg(long, value_name = "HEX", value_parser = parse_number)]
    generation: Option<u64>,
}

impl ObjectArgument {
    /// The object's name in a collection that has `bits`, in which it must belong.
    pub fn name(&self, collection: &CollectionName, bits: u32) -> Outcome<ObjectName> {
        let bytes = self.object.clone().into_vec();
        let full = std::str::from_utf8(&bytes).ok().and_then(parse_full);
        let name = match full {
            Some(_) if self.has_parts() => {
                return Err(Failure::usage(
                    "a full form says everything; leave out --hash, --nspace, --locator, --snap \
                     and --generation",
                ));
            }
            Some(name) => name,
            None if self.escaped => {
                let text = self
                    .object
                    .to_str()
                    .ok_or("an escaped name must be text".to_owned());
                let bytes = text.and_then(unescape);
                self.in_collection(
                    collection,
                    bytes.map_err(|why| Failure::usage(format!("wrong name: {why}")))?,
                )
            }
            None => self.in_collection(collection, bytes),
        };
        if collection.takes(bits, &name) {
            return Ok(name);
        }
        let advice = match collection {
            CollectionName::Pg { seed, .. } if self.hash.is_none() => format!(
                "its hash {:08x} has other low {bits} bits than {seed:x}; name its own \
                 collection, or give --hash",
                name.hash()
            ),
            _ => "pool, shard or hash are another's".to_owned(),
        };
        Err(Failure::failed(format!(
            "the object {} does not belong in {collection}: {advice}",
            full_form(&name)
        )))
    }

    fn has_parts(&self) -> bool {
        self.hash.is_some()
            || !self.nspace.is_empty()
            || !self.locator.is_empty()
            || self.snap != NO_SNAP
            || self.generation.is_some()
    }

    fn in_collection(&self, collection: &CollectionName, name: Vec<u8>) -> ObjectName {
        let (pool, shard) = home(collection);
        let key = if self.locator.is_empty() {
            &name
        } else {
            self.locator.as_bytes()
        };
        let hash = self
            .hash
            .unwrap_or_else(|| default_hash(collection, self.nspace.as_bytes(), key));
        ObjectName::new(pool, hash, name)
            .with_shard(shard)
            .with_nspace(self.nspace.as_bytes())
            .with_key(self.locator.as_bytes())
            .with_snap(self.snap)
            .with_generation(self.generation.unwrap_or(NO_GENERATION))
    }
}

/// The pool and shard of a collection's objects.
fn home(collection: &CollectionName) -> (i64, i8) {
    match *collection {
        CollectionName::Meta => (-1, NO_SHARD),
        CollectionName::Pg { pool, shard, .. } => (pool, shard),
    }
}

/// The hash an object gets when none is given: in `meta` 0, else Ceph's.
fn default_hash(collection: &CollectionName, nspace: &[u8], key: &[u8]) -> u32 {
    if matches!(collection, CollectionName::Meta) {
        0
    } else if nspace.is_empty() {
        string_hash(key)
    } else {
        string_hash(&[nspace, b"\x1f", key].concat())
    }
}

/// The name as `object ls` prints it: short where the short form means this object.
pub fn short_form(collection: &CollectionName, name: &ObjectName) -> String {
    let (pool, shard) = home(collection);
    let hash = default_hash(collection, b"", name.name());
    let plain = ObjectName::new(pool, hash, name.name()).with_shard(shard);
    let text = escape(name.name());
    if plain == *name && !text.is_empty() && parse_full(&text).is_none() {
        text
    } else {
        full_form(name)
    }
}

/// The full form of a name, unambiguous.
pub fn full_form(name: &ObjectName) -> String {
    let text = |bytes: &[u8]| escape(bytes).replace(':', "\\x3a").replace('#', "\\x23");
    let shard = match name.shard() {
        NO_SHARD => String::new(),
        shard => shard.to_string(),
    };
    let snap = match name.snap() {
        NO_SNAP => "head".to_owned(),
        SNAPDIR => "snapdir".to_owned(),
        snap => format!("{snap:x}"),
    };
    let generation = match name.generation() {
        NO_GENERATION => String::new(),
        generation => format!("{generation:x}"),
    };
    format!(
        "{shard}#{}:{:08x}:{}:{}:{}:{snap}#{generation}",
        name.pool(),
        name.reversed_hash(),
        text(name.nspace()),
        text(name.key()),
        text(name.name())
    )
}

/// The name of a full form; `None` when it is none.
fn parse_full(text: &str) -> Option<ObjectName> {
    let (shard, rest) = text.split_once('#')?;
    let (rest, generation) = rest.split_once('#')?;
    let parts: Vec<&str> = rest.split(':').collect();
    let [pool, hash, nspace, key, name, snap] = parts.as_slice() else {
        return None;
    };
    if hash.len() != 8 {
        return None;
    }
    let reversed = u32::from_str_radix(hash, 16).ok()?;
    let shard = if shard.is_empty() {
        NO_SHARD
    } else {
        shard.parse().ok()?
    };
    let generation = if generation.is_empty() {
        NO_GENERATION
    } else {
        parse_number(generation).ok()?
    };
    let parsed = ObjectName::new(
        pool.parse().ok()?,
        reversed.reverse_bits(),
        unescape(name).ok()?,
    )
    .with_shard(shard)
    .with_nspace(unescape(nspace).ok()?)
    .with_key(unescape(key).ok()?)
    .with_snap(parse_snap(snap).ok()?)
    .with_generation(generation);
    Some(parsed)
}

/// The name of a collection, with or without its `_head`.
pub fn parse_collection(text: &str) -> Result<CollectionName, String> {
    let parsed = text
        .parse()
        .or_else(|_| format!("{text}_head").parse::<CollectionName>());
    parsed.map_err(|_| {
        format!(
            "`{text}` is no collection; use POOL.SEED as in 1.0 or 1.2f (the seed in \
             hexadecimal), 1.2fs3 for a shard, or meta"
        )
    })
}

fn parse_hash(text: &str) -> Result<u32, String> {
    u32::from_str_radix(text, 16).map_err(|_| format!("`{text}` is no hash of 32 bits in hex"))
}

fn parse_number(text: &str) -> Result<u64, String> {
    u64::from_str_radix(text, 16).map_err(|_| format!("`{text}` is no hexadecimal number"))
}

fn parse_snap(text: &str) -> Result<u64, String> {
    match text {
        "head" => Ok(NO_SNAP),
        "snapdir" => Ok(SNAPDIR),
        number => parse_number(number),
    }
}

/// Ceph's hash of object names: Robert Jenkins' of 1996 (`ceph_str_hash_rjenkins`).
pub fn string_hash(text: &[u8]) -> u32 {
    let (mut a, mut b, mut c) = (0x9e37_79b9_u32, 0x9e37_79b9_u32, 0_u32);
    let mut chunks = text.chunks_exact(12);
    let word = |bytes: &[u8]| {
        let shifted = bytes.iter().zip([0, 8, 16, 24]);
        shifted.fold(0_u32, |sum, (byte, shift)| sum | u32::from(*byte) << shift)
    };
    for chunk in &mut chunks {
        a = a.wrapping_add(word(&chunk[..4]));
        b = b.wrapping_add(word(&chunk[4..8]));
        c = c.wrapping_add(word(&chunk[8..]));
        mix(&mut a, &mut b, &mut c);
    }
    let rest = chunks.remainder();
    let part = |from: usize, to: usize| &rest[from.min(rest.len())..to.min(rest.len())];
    a = a.wrapping_add(word(part(0, 4)));
    b = b.wrapping_add(word(part(4, 8)));
    // The lowest byte of the last word is for the length.
    c = c.wrapping_add(text.len() as u32);
    c = c.wrapping_add(word(part(8, 11)) << 8);
    mix(&mut a, &mut b, &mut c);
    c
}

fn mix(a: &mut u32, b: &mut u32, c: &mut u32) {
    for (first, second, third) in [(13, 8, 13), (12, 16, 5), (3, 10, 15)] {
        *a = a.wrapping_sub(*b).wrapping_sub(*c) ^ (*c >> first);
        *b = b.wrapping_sub(*c).wrapping_sub(*a) ^ (*a << second);
        *c = c.wrapping_sub(*a).wrapping_sub(*b) ^ (*b >> third);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_cephs() {
        // `ceph osd map rbd foo` has printed this for fifteen years.
        assert_eq!(string_hash(b"foo"), 0x7fc1_f406);
        assert_eq!(string_hash(b""), 0xbd49_d10d);
    }

    #[test]
    fn full_forms_survive_the_round_trip() {
        let weird = ObjectName::new(-3, 0x1234_5678, (0..=255).collect::<Vec<u8>>())
            .with_shard(3)
            .with_nspace("a:b#c\\d")
            .with_key(b"\0\xff".as_slice())
            .with_snap(0x1f)
            .with_generation(7);
        for name in [
            weird,
            ObjectName::new(1, 0, ""),
            ObjectName::new(1, u32::MAX, "plain"),
            ObjectName::new(1, 5, "s").with_snap(SNAPDIR),
        ] {
            assert_eq!(parse_full(&full_form(&name)), Some(name.clone()), "{name}");
        }
    }

    #[test]
    fn short_forms_lead_back() {
        let collection = CollectionName::pg(1, 0);
        let short = |name: &ObjectName| short_form(&collection, name);
        let plain = ObjectName::new(1, string_hash(b"foo"), "foo");
        assert_eq!(short(&plain), "foo");
        assert_eq!(
            short(&ObjectName::new(1, 1, "foo")),
            "#1:80000000:::foo:head#"
        );
        // A name that looks like a full form is shown in its own.
        let trap = full_form(&plain);
        let name = ObjectName::new(1, string_hash(trap.as_bytes()), trap.as_str());
        assert_ne!(short(&name), trap);
        assert_eq!(parse_full(&short(&name)), Some(name));
    }

    #[test]
    fn collections_have_short_forms() {
        assert_eq!(parse_collection("1.2f"), Ok(CollectionName::pg(1, 0x2f)));
        assert_eq!(
            parse_collection("1.2f_head"),
            Ok(CollectionName::pg(1, 0x2f))
        );
        assert_eq!(parse_collection("meta"), Ok(CollectionName::Meta));
        assert!(parse_collection("1").is_err());
        assert!(parse_collection("pool").is_err());
    }
}
