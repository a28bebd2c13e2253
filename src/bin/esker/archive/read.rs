//! Reading an archive: all of it is checked, and objects are made from it.

use std::io::Read;
use std::sync::Arc;

use esker::{Collection, CollectionName, Error, ObjectName, ObjectStore, Transaction};

use super::frame::{Fault, FrameReader, Kind, pairs};
use crate::size::{format_count, format_size};

/// Changes are queued once so many bytes have been gathered.
const QUEUED_BYTES: usize = 1 << 20;
/// Operations likewise.
const QUEUED_OPS: usize = 512;

/// What an archive holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    pub collections: u64,
    pub objects: u64,
    pub data_bytes: u64,
}

impl Summary {
    /// For people.
    pub fn describe(&self) -> String {
        format!(
            "{} objects of {} collections, {}",
            format_count(self.objects),
            format_count(self.collections),
            format_size(self.data_bytes)
        )
    }
}

/// Why an import ended early.
#[derive(Debug)]
pub enum ImportError {
    /// The archive is bad, or cannot be read.
    Archive(Fault),
    /// The store refused.
    Store(Error),
    /// A collection of the archive has objects already.
    Occupied(CollectionName),
}

impl From<Fault> for ImportError {
    fn from(fault: Fault) -> Self {
        Self::Archive(fault)
    }
}

impl From<Error> for ImportError {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

/// Takes what an archive says, in order.
trait Target {
    fn collection(&mut self, name: CollectionName, bits: u32) -> Result<(), ImportError>;
    fn object(&mut self, name: ObjectName, size: u64) -> Result<(), ImportError>;
    fn part(&mut self, kind: Kind, payload: &Part<'_>) -> Result<(), ImportError>;
}

/// A part of an object.
enum Part<'a> {
    Data(u64, &'a [u8]),
    Pairs(Vec<(&'a [u8], &'a [u8])>),
    Header(&'a [u8]),
}

/// Reads all of an archive and checks it; calls `progress` with the bytes read so far.
pub fn verify(from: impl Read, progress: &mut dyn FnMut(u64)) -> Result<Summary, Fault> {
    struct Nowhere;
    impl Target for Nowhere {
        fn collection(&mut self, _: CollectionName, _: u32) -> Result<(), ImportError> {
            Ok(())
        }
        fn object(&mut self, _: ObjectName, _: u64) -> Result<(), ImportError> {
            Ok(())
        }
        fn part(&mut self, _: Kind, _: &Part<'_>) -> Result<(), ImportError> {
            Ok(())
        }
    }
    walk(from, &mut Nowhere, progress).map_err(|error| match error {
        ImportError::Archive(fault) => fault,
        _ => unreachable!("nowhere refuses nothing"),
    })
}

/// Makes the archive's objects; with `overwrite` in place of those of the same names. The
/// caller syncs. Calls `progress` with the bytes read so far.
pub fn import(
    store: &ObjectStore,
    from: impl Read,
    overwrite: bool,
    progress: &mut dyn FnMut(u64),
) -> Result<Summary, ImportError> {
    let mut maker = Maker {
        store,
        overwrite,
        place: None,
        object: None,
        transaction: Transaction::new(),
        gathered: 0,
    };
    let summary = walk(from, &mut maker, progress)?;
    maker.queue()?;
    Ok(summary)
}

/// Reads all frames in their order.
fn walk(
    from: impl Read,
    target: &mut dyn Target,
    progress: &mut dyn FnMut(u64),
) -> Result<Summary, ImportError> {
    let mut reader = FrameReader::new(from)?;
    let mut payload = Vec::new();
    let mut summary = Summary::default();
    let mut place: Option<(CollectionName, u32)> = None;
    let mut last: Option<(ObjectName, u64)> = None;
    loop {
        let offset = reader.offset();
        let bad = |why: &str| ImportError::Archive(Fault::Bad(offset, why.into()));
        let kind = reader.read(&mut payload)?;
        progress(reader.offset());
        match kind {
            Kind::Collection => {
                let (name, bits) =
                    collection(&payload).ok_or_else(|| bad("a collection is wrong"))?;
                summary.collections += 1;
                (place, last) = (Some((name, bits)), None);
                target.collection(name, bits)?;
            }
            Kind::Object => {
                let (name, bits) = place.ok_or_else(|| bad("an object has no collection"))?;
                let (object, size) = object(&payload).ok_or_else(|| bad("an object is wrong"))?;
                if !name.takes(bits, &object) {
                    return Err(bad("an object does not belong in its collection"));
                }
                if last.as_ref().is_some_and(|(last, _)| *last >= object) {
                    return Err(bad("the objects are not in order"));
                }
                summary.objects += 1;
                last = Some((object.clone(), size));
                target.object(object, size)?;
            }
            Kind::End => {
                let counts = [
                    summary.objects.to_le_bytes(),
                    summary.data_bytes.to_le_bytes(),
                ];
                if payload != counts.concat() {
                    return Err(bad("its counts are wrong"));
                }
                reader.end()?;
                return Ok(summary);
            }
            kind => {
                let (_, size) = last.as_ref().ok_or_else(|| bad("a part has no object"))?;
                let part = part(kind, &payload, *size).ok_or_else(|| bad("a part is wrong"))?;
                if let Part::Data(_, data) = part {
                    summary.data_bytes += data.len() as u64;
                }
                target.part(kind, &part)?;
            }
        }
    }
}

fn collection(payload: &[u8]) -> Option<(CollectionName, u32)> {
    let (bits, name) = payload.split_first_chunk()?;
    let bits = u32::from_le_bytes(*bits);
    let name = std::str::from_utf8(name).ok()?.parse().ok()?;
    (bits <= 32).then_some((name, bits))
}

fn object(payload: &[u8]) -> Option<(ObjectName, u64)> {
    let (size, key) = payload.split_first_chunk()?;
    let name = ObjectName::from_sort_key(key).ok()?;
    (!name.is_max()).then_some((name, u64::from_le_bytes(*size)))
}

fn part(kind: Kind, payload: &[u8], size: u64) -> Option<Part<'_>> {
    match kind {
        Kind::Data => {
            let (offset, data) = payload.split_first_chunk()?;
            let offset = u64::from_le_bytes(*offset);
            let end = offset.checked_add(data.len() as u64)?;
            (end <= size).then_some(Part::Data(offset, data))
        }
        Kind::OmapHeader => Some(Part::Header(payload)),
        _ => pairs(payload).map(Part::Pairs),
    }
}

/// Makes objects.
struct Maker<'a> {
    store: &'a ObjectStore,
    overwrite: bool,
    place: Option<(CollectionName, Collection)>,
    object: Option<Arc<ObjectName>>,
    transaction: Transaction<'static>,
    gathered: usize,
}

impl Maker<'_> {
    /// Queues what has been gathered.
    fn queue(&mut self) -> Result<(), ImportError> {
        let transaction = std::mem::take(&mut self.transaction);
        self.gathered = 0;
        match &self.place {
            Some((_, collection)) if !transaction.is_empty() => {
                Ok(self
                    .store
                    .queue_transactions(collection, &[transaction], None, None)?)
            }
            _ => Ok(()),
        }
    }

    fn gathered(&mut self, bytes: usize) -> Result<(), ImportError> {
        self.gathered += bytes;
        if self.gathered >= QUEUED_BYTES || self.transaction.ops().len() >= QUEUED_OPS {
            self.queue()?;
        }
        Ok(())
    }
}

impl Target for Maker<'_> {
    fn collection(&mut self, name: CollectionName, bits: u32) -> Result<(), ImportError> {
        self.queue()?;
        if let Some(collection) = self.store.open_collection(&name) {
            if !self.overwrite && !self.store.collection_empty(&collection)? {
                return Err(ImportError::Occupied(name));
            }
            self.place = Some((name, collection));
            return Ok(());
        }
        self.place = Some((name, self.store.create_new_collection(name)));
        self.transaction.create_collection(name, bits);
        self.queue()
    }

    fn object(&mut self, name: ObjectName, size: u64) -> Result<(), ImportError> {
        let Some((collection, _)) = &self.place else {
            unreachable!("the walk has seen a collection");
        };
        let name = Arc::new(name);
        if self.overwrite {
            self.transaction.remove(*collection, &name);
        }
        self.transaction.touch(*collection, &name);
        self.transaction.truncate(*collection, &name, size);
        self.object = Some(name);
        self.gathered(0)
    }

    fn part(&mut self, kind: Kind, part: &Part<'_>) -> Result<(), ImportError> {
        let (Some((collection, _)), Some(object)) = (&self.place, &self.object) else {
            unreachable!("the walk has seen an object");
        };
        let bytes = match part {
            Part::Data(offset, data) => {
                let data = data.to_vec();
                let bytes = data.len();
                self.transaction.write(*collection, object, *offset, [data]);
                bytes
            }
            Part::Header(header) => {
                self.transaction
                    .omap_setheader(*collection, object, header.to_vec());
                header.len()
            }
            Part::Pairs(pairs) => {
                let bytes = pairs.iter().map(|(key, value)| key.len() + value.len());
                let bytes = bytes.sum();
                let pairs = pairs
                    .iter()
                    .map(|(key, value)| (key.to_vec(), value.to_vec()));
                if kind == Kind::Attributes {
                    self.transaction.setattrs(*collection, object, pairs);
                } else {
                    self.transaction.omap_setkeys(*collection, object, pairs);
                }
                bytes
            }
        };
        self.gathered(bytes)
    }
}
