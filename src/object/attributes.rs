//! The xattrs of one object, packed: what DRAM holds is also what records and images carry.
//!
//! ```text
//! each attribute, in the order of names:
//! 0   name bytes   u16
//! 2   value bytes  u32
//! 6   name, value
//! ```

use crate::format::Invalid;
use crate::format::bytes::{u16_at, u32_at};

const HEADER_BYTES: usize = 6;

/// Xattrs of an object. Empty ones take 16 bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Attributes(Option<Box<[u8]>>);

/// Appends one packed attribute.
pub(crate) fn pack_attribute(name: &[u8], value: &[u8], into: &mut Vec<u8>) {
    into.extend_from_slice(&(name.len() as u16).to_le_bytes());
    into.extend_from_slice(&(value.len() as u32).to_le_bytes());
    into.extend_from_slice(name);
    into.extend_from_slice(value);
}

/// Walks packed attributes; stops where the bytes do not hold another.
pub(crate) struct Packed<'a>(&'a [u8]);

impl<'a> Packed<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Whether everything has been walked: else the rest is damaged.
    pub(crate) fn is_done(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'a> Iterator for Packed<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let name_bytes = usize::from(u16_at(self.0, 0).ok()?);
        let value_bytes = u32_at(self.0, 2).ok()? as usize;
        let value_at = HEADER_BYTES + name_bytes;
        let end = value_at.checked_add(value_bytes)?;
        let name = self.0.get(HEADER_BYTES..value_at)?;
        let value = self.0.get(value_at..end)?;
        self.0 = &self.0[end..];
        Some((name, value))
    }
}

impl Attributes {
    /// Reads packed attributes from media.
    ///
    /// # Errors
    /// Bytes that are not attributes in the order of their names.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Invalid> {
        let mut packed = Packed::new(bytes);
        let mut last: Option<&[u8]> = None;
        for (name, _) in packed.by_ref() {
            if last.is_some_and(|last| last >= name) {
                return Err(Invalid::Field("order of attributes"));
            }
            last = Some(name);
        }
        if !packed.is_done() {
            return Err(Invalid::Truncated);
        }
        Ok(Self((!bytes.is_empty()).then(|| bytes.into())))
    }

    /// The packed form.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }

    pub(crate) fn iter(&self) -> Packed<'_> {
        Packed::new(self.as_bytes())
    }

    pub(crate) fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.iter()
            .find(|(found, _)| *found == name)
            .map(|(_, value)| value)
    }

    /// Sets (`Some`) and removes (`None`) attributes; of two changes of one name the later
    /// counts.
    pub(crate) fn change<'c>(
        &mut self,
        changes: impl IntoIterator<Item = (&'c [u8], Option<&'c [u8]>)>,
    ) {
        let mut all: std::collections::BTreeMap<&[u8], &[u8]> = self.iter().collect();
        let changes: Vec<_> = changes.into_iter().collect();
        for (name, value) in &changes {
            match value {
                Some(value) => all.insert(name, value),
                None => all.remove(name),
            };
        }
        let bytes = all
            .iter()
            .map(|(name, value)| HEADER_BYTES + name.len() + value.len())
            .sum();
        let mut packed = Vec::with_capacity(bytes);
        for (name, value) in all {
            pack_attribute(name, value, &mut packed);
        }
        self.0 = (!packed.is_empty()).then(|| packed.into_boxed_slice());
    }

    /// Appends to the values of packed attributes.
    pub(crate) fn extend(&mut self, packed: &[u8]) {
        for (name, more) in Packed::new(packed) {
            let mut value = self.get(name).unwrap_or_default().to_vec();
            value.extend_from_slice(more);
            self.change([(name, Some(value.as_slice()))]);
        }
    }

    /// Bytes of DRAM outside of the struct: the allocator has a word and deals in 16 bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        match self.as_bytes().len() as u64 {
            0 => 0,
            bytes => (bytes + 8).next_multiple_of(16).max(32),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_kept_in_order_and_survive_packing() {
        let mut attributes = Attributes::default();
        attributes.change([
            (b"b".as_slice(), Some(b"2".as_slice())),
            (b"a", Some(b"")),
            (b"b", Some(b"3")),
        ]);
        attributes.change([(b"c".as_slice(), Some(b"4".as_slice())), (b"zz", None)]);
        let names: Vec<_> = attributes.iter().map(|(name, _)| name.to_vec()).collect();
        assert_eq!(names, [b"a", b"b", b"c"]);
        assert_eq!(attributes.get(b"a"), Some(b"".as_slice()));
        assert_eq!(attributes.get(b"b"), Some(b"3".as_slice()));
        assert_eq!(attributes.get(b"d"), None);
        assert_eq!(
            Attributes::decode(attributes.as_bytes()),
            Ok(attributes.clone())
        );
        for len in 1..attributes.as_bytes().len() {
            // Never a panic; a cut between two attributes is a shorter list.
            let _ = Attributes::decode(&attributes.as_bytes()[..len]);
        }
        attributes.change([(b"a".as_slice(), None), (b"b", None), (b"c", None)]);
        assert_eq!(attributes, Attributes::default());
    }
}
