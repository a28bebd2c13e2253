//! Segments, frames and records as text, for people debugging.

use std::io::Write;

use crate::device::AlignedBuf;
use crate::format::{Class, Kind, SegmentHeader, SegmentId, Seqno};
use crate::log::{Found, Log};
use crate::object::Objects;
use crate::store::Owners;
use crate::{Error, Result};

use super::check::{last_group, open, read_life};
use super::media::Media;
use super::report::Key;
use super::walk::{Item, Located};

/// Bytes of a key that are shown.
const KEY_SHOWN: usize = 48;

/// What to dump.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct DumpOptions {
    /// Only this segment.
    pub segment: Option<SegmentId>,
    /// Frames and records, not only segments.
    pub records: bool,
}

impl DumpOptions {
    /// Only this segment, or all.
    #[must_use]
    pub fn segment(mut self, segment: Option<SegmentId>) -> Self {
        self.segment = segment;
        self
    }

    /// Frames and records too.
    #[must_use]
    pub fn records(mut self, records: bool) -> Self {
        self.records = records;
        self
    }
}

pub(super) fn run(media: &Media, options: &DumpOptions, out: &mut dyn Write) -> Result<()> {
    if options
        .segment
        .is_some_and(|segment| segment >= media.geometry.segment_count)
    {
        return Err(Error::NotFound {
            what: format!(
                "the segment (they are numbered 0 to {})",
                media.geometry.segment_count - 1
            ),
        });
    }
    // Without an index there is no telling what is live; the rest can be shown.
    let opened = if options.records {
        open(media).ok()
    } else {
        None
    };
    let mut dump = Dump { media, opened, out };
    if options.segment.is_none() {
        dump.superblocks()?;
    }
    let mut buffer = AlignedBuf::new();
    for (segment, found) in (0..).zip(&media.headers) {
        if options.segment.is_none_or(|wanted| wanted == segment) {
            dump.segment(segment, found, options.records, &mut buffer)?;
        }
    }
    Ok(())
}

struct Dump<'a> {
    media: &'a Media,
    opened: Option<(Log, Owners<Objects>)>,
    out: &'a mut dyn Write,
}

impl Dump<'_> {
    fn line(&mut self, text: std::fmt::Arguments<'_>) -> Result<()> {
        writeln!(self.out, "{text}").map_err(|source| Error::Io {
            op: "write",
            offset: 0,
            source,
        })
    }

    fn superblocks(&mut self) -> Result<()> {
        let media = self.media;
        for slot in &media.slots {
            let offset = slot.offset;
            match &slot.content {
                Ok(found) => {
                    let state = if found.clean.is_some() {
                        "clean"
                    } else {
                        "open"
                    };
                    let roots: Vec<_> = found.roots.iter().map(|root| root.sequence).collect();
                    self.line(format_args!(
                        "superblock at {offset}: sequence {}, epoch {}, {state}, {} cuts, \
                         roots {roots:?}",
                        found.sequence,
                        found.epoch,
                        found.cuts.len()
                    ))?;
                }
                Err(why) => self.line(format_args!("superblock at {offset}: {why}"))?,
            }
        }
        Ok(())
    }

    fn segment(
        &mut self,
        segment: SegmentId,
        found: &Found,
        records: bool,
        buffer: &mut AlignedBuf,
    ) -> Result<()> {
        let offset = self.media.geometry.segment_offset(segment);
        let header = match found {
            Found::Header(header) => header,
            Found::Blank => return self.line(format_args!("segment {segment} at {offset}: blank")),
            Found::Damaged(why) => {
                return self.line(format_args!(
                    "segment {segment} at {offset}: damaged, {why}"
                ));
            }
        };
        let class = match header.class {
            Class::Free => "free".to_owned(),
            Class::Discarded => "discarded".to_owned(),
            Class::Checkpoint => "checkpoint".to_owned(),
            Class::Data(crate::format::COMMIT_STREAM) => "data of the commit stream".to_owned(),
            Class::Data(head) => format!("data of class {head}"),
        };
        let live = self
            .opened
            .as_ref()
            .map(|(log, _)| format!(", {} live bytes", log.table().segment(segment).live_bytes()));
        self.line(format_args!(
            "segment {segment} at {offset}: {class}, generation {}, epoch {}, from seqno {}, \
             group {}{}",
            header.generation,
            header.epoch,
            header.opened_seqno,
            header.group,
            live.unwrap_or_default()
        ))?;
        if records && matches!(header.class, Class::Data(_)) {
            self.records(header, buffer)?;
        }
        Ok(())
    }

    fn records(&mut self, header: &SegmentHeader, buffer: &mut AlignedBuf) -> Result<()> {
        let cuts = match (&self.opened, &self.media.superblock) {
            (Some((log, _)), _) => log.cuts(),
            (None, Some(superblock)) => superblock.cuts.clone(),
            (None, None) => Vec::new(),
        };
        let last_group = last_group(&cuts, header.epoch);
        let life = read_life(self.media, *header, last_group, buffer);
        let end = life.walk(&mut |item| match item {
            Item::Frame(frame) => {
                let (at, header) = (frame.offset, &frame.header);
                let (first, last): (Seqno, Seqno) = (header.base_seqno, header.last_seqno);
                let seals = if header.seals { ", seals" } else { "" };
                let payload = if header.payload { ", payload" } else { "" };
                let whole = if frame.is_whole { "" } else { ", damaged" };
                self.line(format_args!(
                    "  frame at +{at}: group {} ({} of {}), {} bytes, {} records, seqnos {first} \
                     to {last}{payload}{seals}{whole}",
                    header.group,
                    header.frame_index + 1,
                    header.frame_count,
                    header.frame_bytes,
                    header.record_count
                ))
            }
            Item::Record(located) => self.record(header, &located),
            Item::Gap(gap) => self.line(format_args!(
                "    damaged from +{} to +{}: {}",
                gap.from, gap.to, gap.why
            )),
        })?;
        let sealed = if end.sealed { "sealed" } else { "not sealed" };
        self.line(format_args!("  end at +{}: {sealed}", end.offset))
    }

    fn record(&mut self, header: &SegmentHeader, located: &Located<'_>) -> Result<()> {
        let record = &located.record;
        let address = header.geometry.address(header.segment, located.offset);
        let life = match &self.opened {
            None => "",
            Some((log, owners)) if record.kind.is_of_objects() => {
                let payload = located
                    .payload
                    .map(|payload| header.geometry.address(header.segment, payload.offset));
                let objects = &owners.objects;
                match objects.standing(log, record, address, payload, 0) {
                    Ok(standing) if standing.live_bytes > 0 => ", live",
                    Ok(_) => ", dead",
                    Err(_) => ", senseless",
                }
            }
            Some((_, owners)) => match owners.kv.entry_of(record) {
                Some(entry) if entry.address == address => ", live",
                _ => ", dead",
            },
        };
        let shown = record.key.get(..KEY_SHOWN);
        let (key, more) = match shown {
            Some(start) if record.key.len() > KEY_SHOWN => (start, "..."),
            _ => (record.key, ""),
        };
        let about = if located.exact { "" } else { "about " };
        let moved = if record.relocated { ", relocated" } else { "" };
        let payload = match located.payload {
            Some(at) => {
                let sound = if at.is_sound { "" } else { ", damaged" };
                format!(", payload {} B at +{}{sound}", at.bytes, at.offset)
            }
            None if record.kind == Kind::Extent => ", payload unknown".to_owned(),
            None => String::new(),
        };
        self.line(format_args!(
            "    record at +{}: {:?}, seqno {about}{}, key {} B, value {} B{payload}{moved}{life}: \
             {}{more}",
            located.offset,
            record.kind,
            located.seqno,
            record.key.len(),
            record.value.len(),
            Key(key.to_vec())
        ))
    }
}
