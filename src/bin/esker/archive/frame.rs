//! Frames of an archive, to and from bytes.
//!
//! ```text
//! archive: magic, 8 bytes | version, u32 | 0, u32 | frames, the last an end frame
//!
//! frame:
//! 0    kind       u32
//! 4    len        u32   bytes of the payload
//! 8    payload
//! ...  checksum   u64   XXH3 of kind, len and payload, seeded with the checksum before
//! ```
//!
//! All numbers are little-endian. The seed of the first frame is the XXH3 of the sixteen bytes
//! at the start, so a frame that is damaged, missing, doubled or out of place shows.

use std::io::{self, ErrorKind, Read, Write};

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// What an archive begins with.
pub const MAGIC: [u8; 8] = *b"eskerarc";
/// The version this build writes and reads.
pub const VERSION: u32 = 1;
/// The largest payload: an omap value, a key, and their lengths.
pub const PAYLOAD_BYTES_MAX: usize = (16 << 20) + (64 << 10);

/// What a frame holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// `bits u32`, then the name of the collection whose objects follow.
    Collection = 1,
    /// `size u64`, then the sort key of the object whose parts follow.
    Object = 2,
    /// `offset u64`, then data. What no frame covers is a hole.
    Data = 3,
    /// Attributes, each `name bytes u32 | value bytes u32 | name | value`.
    Attributes = 4,
    /// The omap header.
    OmapHeader = 5,
    /// Omap entries, as attributes.
    OmapEntries = 6,
    /// `objects u64 | data bytes u64`; nothing follows.
    End = 7,
}

impl Kind {
    fn from_number(number: u32) -> Option<Self> {
        [
            Self::Collection,
            Self::Object,
            Self::Data,
            Self::Attributes,
            Self::OmapHeader,
            Self::OmapEntries,
            Self::End,
        ]
        .into_iter()
        .find(|kind| *kind as u32 == number)
    }
}

/// Why an archive cannot be read.
#[derive(Debug)]
pub enum Fault {
    /// It is no archive, or not one this build reads, or damaged: where and how.
    Bad(u64, String),
    /// Reading failed.
    Io(io::Error),
}

/// Appends frames to a stream.
pub struct FrameWriter<W> {
    to: W,
    chain: u64,
}

impl<W: Write> FrameWriter<W> {
    /// Begins an archive.
    pub fn new(mut to: W) -> io::Result<Self> {
        let mut head = [0; 16];
        head[..8].copy_from_slice(&MAGIC);
        head[8..12].copy_from_slice(&VERSION.to_le_bytes());
        to.write_all(&head)?;
        Ok(Self {
            to,
            chain: xxh3_64(&head),
        })
    }

    /// Appends a frame whose payload is the parts one behind the other.
    pub fn write(&mut self, kind: Kind, parts: &[&[u8]]) -> io::Result<()> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        assert!(len <= PAYLOAD_BYTES_MAX, "a frame of {len} bytes");
        let mut head = [0; 8];
        head[..4].copy_from_slice(&(kind as u32).to_le_bytes());
        head[4..].copy_from_slice(&(len as u32).to_le_bytes());
        let mut hash = Xxh3::with_seed(self.chain);
        for part in [&[head.as_slice()], parts].concat() {
            hash.update(part);
            self.to.write_all(part)?;
        }
        self.chain = hash.digest();
        self.to.write_all(&self.chain.to_le_bytes())
    }

    /// The stream.
    pub fn into_inner(self) -> W {
        self.to
    }
}

/// Takes frames off a stream.
pub struct FrameReader<R> {
    from: R,
    chain: u64,
    offset: u64,
}

impl<R: Read> FrameReader<R> {
    /// Checks the start of an archive.
    pub fn new(from: R) -> Result<Self, Fault> {
        let mut reader = Self {
            from,
            chain: 0,
            offset: 0,
        };
        let mut head = [0; 16];
        reader.take(&mut head)?;
        if head[..8] != MAGIC {
            return Err(Fault::Bad(0, "it is no archive of `esker export`".into()));
        }
        let version = u32::from_le_bytes([head[8], head[9], head[10], head[11]]);
        if version != VERSION {
            return Err(Fault::Bad(
                8,
                format!("its version is {version}, this build reads version {VERSION}"),
            ));
        }
        if head[12..] != [0; 4] {
            return Err(Fault::Bad(12, "its head is damaged".into()));
        }
        reader.chain = xxh3_64(&head);
        Ok(reader)
    }

    /// Where the next frame begins.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    fn take(&mut self, into: &mut [u8]) -> Result<(), Fault> {
        match self.from.read_exact(into) {
            Ok(()) => {
                self.offset += into.len() as u64;
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                Err(Fault::Bad(self.offset, "it ends too early".into()))
            }
            Err(error) => Err(Fault::Io(error)),
        }
    }

    /// The next frame, its payload in `payload`.
    pub fn read(&mut self, payload: &mut Vec<u8>) -> Result<Kind, Fault> {
        let start = self.offset;
        let mut head = [0; 8];
        self.take(&mut head)?;
        let [kind, len] = [0, 4].map(|at| {
            let bytes = [head[at], head[at + 1], head[at + 2], head[at + 3]];
            u32::from_le_bytes(bytes)
        });
        // A damaged length must not make us allocate or read gigabytes.
        if len as usize > PAYLOAD_BYTES_MAX {
            return Err(Fault::Bad(start, "the length of a frame is damaged".into()));
        }
        payload.resize(len as usize, 0);
        self.take(payload)?;
        let mut checksum = [0; 8];
        self.take(&mut checksum)?;
        let mut hash = Xxh3::with_seed(self.chain);
        hash.update(&head);
        hash.update(payload);
        self.chain = hash.digest();
        if self.chain != u64::from_le_bytes(checksum) {
            return Err(Fault::Bad(start, "the checksum of a frame is wrong".into()));
        }
        Kind::from_number(kind)
            .ok_or_else(|| Fault::Bad(start, format!("frames of kind {kind} are unknown")))
    }

    /// Checks that nothing follows.
    pub fn end(&mut self) -> Result<(), Fault> {
        let mut byte = [0];
        loop {
            match self.from.read(&mut byte) {
                Ok(0) => return Ok(()),
                Ok(_) => return Err(Fault::Bad(self.offset, "bytes follow its end".into())),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Fault::Io(error)),
            }
        }
    }
}

/// Appends a pair to the payload of attributes or omap entries.
pub fn put_pair(to: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    to.extend_from_slice(&(key.len() as u32).to_le_bytes());
    to.extend_from_slice(&(value.len() as u32).to_le_bytes());
    to.extend_from_slice(key);
    to.extend_from_slice(value);
}

/// The pairs of a payload; `None` when it does not hold whole pairs.
pub fn pairs(mut payload: &[u8]) -> Option<Vec<(&[u8], &[u8])>> {
    let mut pairs = Vec::new();
    while !payload.is_empty() {
        let (key_bytes, rest) = payload.split_first_chunk::<4>()?;
        let (value_bytes, rest) = rest.split_first_chunk::<4>()?;
        let (key, rest) = rest.split_at_checked(u32::from_le_bytes(*key_bytes) as usize)?;
        let (value, rest) = rest.split_at_checked(u32::from_le_bytes(*value_bytes) as usize)?;
        pairs.push((key, value));
        payload = rest;
    }
    Some(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive() -> Vec<u8> {
        let mut writer = FrameWriter::new(Vec::new()).unwrap();
        writer
            .write(Kind::Collection, &[&[0; 4], b"1.0_head"])
            .unwrap();
        writer.write(Kind::Data, &[&[7; 8], b"data"]).unwrap();
        writer.write(Kind::End, &[&[0; 16]]).unwrap();
        writer.into_inner()
    }

    fn read_all(bytes: &[u8]) -> Result<Vec<Kind>, Fault> {
        let mut reader = FrameReader::new(bytes)?;
        let (mut kinds, mut payload) = (Vec::new(), Vec::new());
        loop {
            let kind = reader.read(&mut payload)?;
            kinds.push(kind);
            if kind == Kind::End {
                reader.end()?;
                return Ok(kinds);
            }
        }
    }

    #[test]
    fn golden_bytes() {
        let bytes = archive();
        assert_eq!(bytes.len(), 16 + 28 + 28 + 32);
        assert_eq!(bytes[..16], *b"eskerarc\x01\0\0\0\0\0\0\0");
        assert_eq!(bytes[16..36], *b"\x01\0\0\0\x0c\0\0\0\0\0\0\x001.0_head");
        let checksum = u64::from_le_bytes(bytes[96..104].try_into().unwrap());
        assert_eq!(checksum, 0x0c1a_3cd4_1c34_abdd);
    }

    #[test]
    fn every_flip_and_every_cut_is_refused() {
        let bytes = archive();
        assert_eq!(
            read_all(&bytes).unwrap(),
            [Kind::Collection, Kind::Data, Kind::End]
        );
        for at in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[at / 8] ^= 1 << (at % 8);
            assert!(read_all(&flipped).is_err(), "bit {at}");
        }
        for len in 0..bytes.len() {
            assert!(read_all(&bytes[..len]).is_err(), "{len} bytes");
        }
        assert!(read_all(&[bytes.as_slice(), &[0]].concat()).is_err());
        // A frame left out.
        assert!(read_all(&[&bytes[..44], &bytes[72..]].concat()).is_err());
    }

    #[test]
    fn pairs_survive_and_damage_is_refused() {
        let mut payload = Vec::new();
        put_pair(&mut payload, b"key", b"");
        put_pair(&mut payload, b"", b"value");
        let expected: Vec<(&[u8], &[u8])> = vec![(b"key", b""), (b"", b"value")];
        assert_eq!(pairs(&payload), Some(expected));
        for len in [1, 7, 10, 12, payload.len() - 1] {
            assert_eq!(pairs(&payload[..len]), None, "{len}");
        }
        assert_eq!(pairs(&[0xff; 16]), None);
    }
}
