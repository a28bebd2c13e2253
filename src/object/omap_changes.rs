//! What a transaction does to an omap.

use std::borrow::Cow;
use std::collections::BTreeMap;

/// Keys and values in the order of keys.
pub(crate) type OmapValues<'t> = BTreeMap<Cow<'t, [u8]>, Cow<'t, [u8]>>;

/// One change of an omap.
#[derive(Debug, Clone)]
pub(crate) enum OmapChange<'t> {
    /// No keys and no header are left.
    Clear,
    Set(OmapValues<'t>),
    Remove(Vec<Cow<'t, [u8]>>),
    /// From the first key to before the last.
    RemoveRange(Cow<'t, [u8]>, Cow<'t, [u8]>),
    Header(Cow<'t, [u8]>),
}

impl<'t> OmapChange<'t> {
    /// Sets entries, of which the last of one key wins.
    pub(crate) fn set<'e: 't>(
        entries: impl Iterator<Item = &'t (Cow<'e, [u8]>, Cow<'e, [u8]>)>,
    ) -> Self {
        let borrow = |(key, value): &'t (Cow<'e, [u8]>, Cow<'e, [u8]>)| {
            (Cow::Borrowed(&**key), Cow::Borrowed(&**value))
        };
        Self::Set(entries.map(borrow).collect())
    }

    /// Bytes that a caller gave.
    pub(crate) fn user_bytes(&self) -> u64 {
        match self {
            Self::Set(entries) => entries
                .iter()
                .map(|(key, value)| (key.len() + value.len()) as u64)
                .sum(),
            Self::Header(header) => header.len() as u64,
            Self::Clear | Self::Remove(_) | Self::RemoveRange(..) => 0,
        }
    }

    /// Changes a copy of an omap's keys and values; headers are the node's.
    pub(crate) fn apply_to(&self, values: &mut OmapValues<'t>) {
        match self {
            Self::Clear => values.clear(),
            Self::Set(entries) => {
                let entries = entries.iter();
                values.extend(entries.map(|(key, value)| (key.clone(), value.clone())));
            }
            Self::Remove(keys) => {
                for key in keys {
                    values.remove(key);
                }
            }
            Self::RemoveRange(first, last) => {
                values.retain(|key, _| key < first || key >= last);
            }
            Self::Header(_) => {}
        }
    }
}
