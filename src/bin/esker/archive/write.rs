//! Writing an archive of collections.

use std::io::{self, Write};

use esker::{Collection, CollectionName, Error, Extent, ObjectName, ObjectStore};

use super::frame::{FrameWriter, Kind, PAYLOAD_BYTES_MAX, put_pair};
use super::read::Summary;

/// Bytes of data in a frame.
const DATA_BYTES: u64 = 1 << 20;
/// Pairs are gathered in one frame up to so many bytes.
const PAIRS_BYTES: usize = 256 << 10;
/// Names asked for at a time.
const PAGE: usize = 1024;

/// Why an export ended early.
#[derive(Debug)]
pub enum ExportError {
    /// The store cannot be read.
    Store(Error),
    /// The archive cannot be written.
    Io(io::Error),
}

impl From<Error> for ExportError {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

impl From<io::Error> for ExportError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Writes the collections to `to`; calls `progress` with each step of a number of objects.
pub fn export<W: Write>(
    store: &ObjectStore,
    collections: &[CollectionName],
    to: W,
    progress: &mut dyn FnMut(u64),
) -> Result<(Summary, W), ExportError> {
    let mut writer = FrameWriter::new(to)?;
    let mut summary = Summary::default();
    for name in collections {
        let collection = store
            .open_collection(name)
            .ok_or(Error::NoEntry("collection"))?;
        let bits = store.collection_bits(&collection)?;
        let text = name.to_string();
        writer.write(Kind::Collection, &[&bits.to_le_bytes(), text.as_bytes()])?;
        summary.collections += 1;
        let mut start = ObjectName::min();
        while !start.is_max() {
            let page = store.collection_list(&collection, &start, &ObjectName::max(), PAGE)?;
            for object in &page.objects {
                summary.data_bytes += write_object(store, &collection, object, &mut writer)?;
                summary.objects += 1;
                progress(1);
            }
            start = page.next;
        }
    }
    writer.write(
        Kind::End,
        &[
            &summary.objects.to_le_bytes(),
            &summary.data_bytes.to_le_bytes(),
        ],
    )?;
    Ok((summary, writer.into_inner()))
}

/// Writes the parts of an object; how many bytes of data it has.
fn write_object<W: Write>(
    store: &ObjectStore,
    collection: &Collection,
    object: &ObjectName,
    writer: &mut FrameWriter<W>,
) -> Result<u64, ExportError> {
    let size = store.stat(collection, object)?.size;
    writer.write(Kind::Object, &[&size.to_le_bytes(), &object.sort_key()])?;
    let mut data_bytes = 0;
    for Extent { offset, len } in store.fiemap(collection, object, 0, size)? {
        let mut at = offset;
        while at < offset + len {
            let wanted = (offset + len - at).min(DATA_BYTES);
            let data = store.read(collection, object, at, wanted)?;
            writer.write(Kind::Data, &[&at.to_le_bytes(), &data])?;
            data_bytes += data.len() as u64;
            at += wanted;
        }
    }
    let mut gathered = Pairs::new(Kind::Attributes);
    for (name, value) in store.getattrs(collection, object)? {
        gathered.add(&name, &value, writer)?;
    }
    gathered.flush(writer)?;
    let header = store.omap_get_header(collection, object)?;
    if !header.is_empty() {
        writer.write(Kind::OmapHeader, &[&header])?;
    }
    let mut gathered = Pairs::new(Kind::OmapEntries);
    let mut entries = store.omap_iterator(collection, object)?;
    entries.seek_to_first();
    while entries.valid() {
        gathered.add(entries.key(), entries.value(), writer)?;
        entries.next();
    }
    if entries.status().is_err() {
        // The iterator keeps its error; the call that reads all of it gives it away.
        store.omap_get(collection, object)?;
        return Err(io::Error::other("an omap could not be read").into());
    }
    gathered.flush(writer)?;
    Ok(data_bytes)
}

/// Pairs on their way into frames.
struct Pairs {
    kind: Kind,
    payload: Vec<u8>,
}

impl Pairs {
    fn new(kind: Kind) -> Self {
        Self {
            kind,
            payload: Vec::new(),
        }
    }

    fn add<W: Write>(
        &mut self,
        key: &[u8],
        value: &[u8],
        writer: &mut FrameWriter<W>,
    ) -> io::Result<()> {
        let len = key.len() + value.len() + 8;
        debug_assert!(len <= PAYLOAD_BYTES_MAX, "the store's own limits");
        if self.payload.len() + len > PAIRS_BYTES {
            self.flush(writer)?;
        }
        put_pair(&mut self.payload, key, value);
        Ok(())
    }

    fn flush<W: Write>(&mut self, writer: &mut FrameWriter<W>) -> io::Result<()> {
        if !self.payload.is_empty() {
            writer.write(self.kind, &[&self.payload])?;
            self.payload.clear();
        }
        Ok(())
    }
}
