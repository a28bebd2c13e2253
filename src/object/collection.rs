//! Names of collections, and their text: Ceph's `coll_t`.

use std::fmt;
use std::str::FromStr;

use super::name::{NO_SHARD, ObjectName, low_bits};
use crate::Error;

/// The name of a collection: Ceph's `coll_t`.
///
/// Its text is `meta`, or `1.2f_head`, `1.2fs3_head`, `1.2f_TEMP`: the pool in decimal, the
/// seed in hexadecimal, the shard if there is one. [`FromStr`] accepts exactly what
/// [`Display`](fmt::Display) prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CollectionName {
    /// The one collection of the daemon's own objects.
    Meta,
    /// A placement group.
    Pg {
        /// The pool; not negative.
        pool: i64,
        /// The number of the placement group: the low bits of its objects' hashes.
        seed: u32,
        /// The shard of an erasure-coded pool, or [`NO_SHARD`].
        shard: i8,
        /// Whether it is the collection of temporary objects that old versions used.
        temp: bool,
    },
}

impl CollectionName {
    /// The placement group of a replicated pool.
    #[must_use]
    pub fn pg(pool: i64, seed: u32) -> Self {
        Self::Pg {
            pool,
            seed,
            shard: NO_SHARD,
            temp: false,
        }
    }

    /// Whether an object belongs here if the collection has this many bits: `meta` takes
    /// everything, a placement group the objects of its shard and pool (or the pool of its
    /// temporary objects, -2 - pool) with its seed as the low bits of their hash.
    #[must_use]
    pub fn takes(&self, bits: u32, object: &ObjectName) -> bool {
        match *self {
            Self::Meta => !object.is_max(),
            Self::Pg {
                pool, seed, shard, ..
            } => {
                let mask = low_bits(bits);
                !object.is_max()
                    && object.shard() == shard
                    && (object.pool() == pool || Some(object.pool()) == (-2_i64).checked_sub(pool))
                    && object.hash() & mask == seed & mask
            }
        }
    }
}

impl fmt::Display for CollectionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Meta => f.write_str("meta"),
            Self::Pg {
                pool,
                seed,
                shard,
                temp,
            } => {
                write!(f, "{pool}.{seed:x}")?;
                if shard != NO_SHARD {
                    write!(f, "s{shard}")?;
                }
                f.write_str(if temp { "_TEMP" } else { "_head" })
            }
        }
    }
}

impl FromStr for CollectionName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let name = parse(text).ok_or(Error::InvalidArgument("not the name of a collection"))?;
        // One collection has one text: no signs, leading zeros or capitals.
        if name.to_string() == text {
            Ok(name)
        } else {
            Err(Error::InvalidArgument(
                "not the text of a collection's name",
            ))
        }
    }
}

fn parse(text: &str) -> Option<CollectionName> {
    if text == "meta" {
        return Some(CollectionName::Meta);
    }
    let (group, temp) = match text.strip_suffix("_TEMP") {
        Some(group) => (group, true),
        None => (text.strip_suffix("_head")?, false),
    };
    let (pool, rest) = group.split_once('.')?;
    let (seed, shard) = match rest.split_once('s') {
        Some((seed, shard)) => (seed, shard.parse().ok().filter(|&shard| shard >= 0)?),
        None => (rest, NO_SHARD),
    };
    Some(CollectionName::Pg {
        pool: pool.parse().ok().filter(|&pool: &i64| pool >= 0)?,
        seed: u32::from_str_radix(seed, 16).ok()?,
        shard,
        temp,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn texts_of_ceph_are_read_and_printed() {
        let pg = |pool, seed, shard, temp| CollectionName::Pg {
            pool,
            seed,
            shard,
            temp,
        };
        for (text, name) in [
            ("meta", CollectionName::Meta),
            ("0.0_head", pg(0, 0, -1, false)),
            ("1.2f_head", pg(1, 0x2f, -1, false)),
            ("1.2fs3_head", pg(1, 0x2f, 3, false)),
            ("1.2f_TEMP", pg(1, 0x2f, -1, true)),
            ("9223372036854775807.ffffffffs127_TEMP", {
                pg(i64::MAX, u32::MAX, 127, true)
            }),
        ] {
            assert_eq!(text.parse::<CollectionName>().unwrap(), name);
            assert_eq!(name.to_string(), text);
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "Meta",
            "meta ",
            "1.2f",
            "1.2f_HEAD",
            "1_head",
            ".2f_head",
            "1._head",
            "01.2_head",
            "1.02_head",
            "1.2F_head",
            "+1.2_head",
            "-1.2_head",
            "1.+2_head",
            "1.-2_head",
            "1.2s_head",
            "1.2s-1_head",
            "1.2s03_head",
            "1.2s128_head",
            "1.2s1s2_head",
            "1.100000000_head",
            "9223372036854775808.0_head",
            "1.2_head_head",
            "1.2_head_TEMP",
            "1.2_tmp",
            "_head",
            "1.2\0_head",
        ] {
            assert!(text.parse::<CollectionName>().is_err(), "{text}");
        }
    }

    #[test]
    fn placement_groups_take_their_objects() {
        let group = CollectionName::pg(5, 0b101);
        assert!(group.takes(3, &ObjectName::new(5, 0b1101, "a")));
        assert!(group.takes(3, &ObjectName::new(-7, 0b0101, "a")), "temp");
        assert!(!group.takes(3, &ObjectName::new(5, 0b1001, "a")), "hash");
        assert!(!group.takes(3, &ObjectName::new(4, 0b1101, "a")), "pool");
        assert!(!group.takes(3, &ObjectName::new(5, 5, "a").with_shard(0)));
        assert!(group.takes(0, &ObjectName::new(5, u32::MAX, "a")));
        assert!(!group.takes(32, &ObjectName::new(5, 0b1101, "a")));
        assert!(group.takes(32, &ObjectName::new(5, 0b101, "a")));
        assert!(!group.takes(0, &ObjectName::max()));
        assert!(CollectionName::Meta.takes(0, &ObjectName::min()));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[0-9a-f.s_+-]{0,6}(_head|_TEMP|meta)?|\\PC*") {
            if let Ok(name) = text.parse::<CollectionName>() {
                prop_assert_eq!(name.to_string(), text);
            }
        }

        #[test]
        fn names_survive_their_text(
            pool in 0..=i64::MAX,
            seed: u32,
            shard in -1..=i8::MAX,
            temp: bool,
        ) {
            let name = CollectionName::Pg { pool, seed, shard, temp };
            prop_assert_eq!(name.to_string().parse::<CollectionName>().unwrap(), name);
        }
    }
}
