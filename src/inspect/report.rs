//! What a check is asked and what it answers: plain values.

use serde::Serialize;

/// How to check.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct CheckOptions {
    /// Repairs what can be repaired.
    pub repair: bool,
    /// Reads and verifies the data of objects too, and large values a second time, as a caller
    /// would get them.
    pub deep: bool,
    /// Most findings, lost keys and unconfirmed keys that are listed, each; the counts are
    /// of all.
    pub list_max: usize,
}

impl Default for CheckOptions {
    fn default() -> Self {
        Self {
            repair: false,
            deep: false,
            list_max: 1 << 20,
        }
    }
}

impl CheckOptions {
    /// Repairs, or does not.
    #[must_use]
    pub fn repair(mut self, repair: bool) -> Self {
        self.repair = repair;
        self
    }

    /// Verifies all data, or records alone.
    #[must_use]
    pub fn deep(mut self, deep: bool) -> Self {
        self.deep = deep;
        self
    }
}

/// How far a check is.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// Bytes read of the pass under way.
    pub done_bytes: u64,
    /// Bytes the pass will read.
    pub total_bytes: u64,
}

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Data or redundancy is lost.
    Error,
    /// Nothing that is needed: a torn superblock slot after a crash, damage to records that
    /// were dead.
    Warning,
}

/// What is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Structure {
    /// A superblock slot.
    Superblock,
    /// A segment's header.
    SegmentHeader,
    /// A copy of a root.
    Root,
    /// A piece of an image.
    Image,
    /// A frame header, or everything between two frames.
    Frame,
    /// A record.
    Record,
    /// An entry of the index that no record bears out.
    Entry,
    /// A large value: a chunk is missing, of another write, or without a head.
    Chunk,
    /// Payload of an extent record.
    Payload,
    /// Blocks of an object that no record bears out, or bears out otherwise.
    Extent,
    /// The value of an omap key: the record is missing or is of another key.
    OmapValue,
    /// The name of an object leads elsewhere, or one leads nowhere.
    Name,
    /// References to payload that clones share.
    References,
    /// A counter of a pool.
    Statistics,
    /// A record that the object it is of should know of and does not.
    Stray,
    /// An object: a place that is outside the store, or data behind its end.
    Object,
    /// A segment's count of live bytes.
    LiveBytes,
    /// The whole: an ordinary open refuses the store.
    Store,
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Byte offset on the device.
    pub offset: u64,
    /// How bad it is.
    pub severity: Severity,
    /// What is damaged.
    pub structure: Structure,
    /// What is wrong with it, for people.
    pub detail: String,
}

/// A key; shown, and serialised, as printable ASCII with `\xNN` and `\\`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub Vec<u8>);

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        use std::fmt::Write as _;
        for byte in &self.0 {
            match byte {
                b'\\' => f.write_str("\\\\")?,
                b' '..=b'~' => f.write_char(char::from(*byte))?,
                _ => write!(f, "\\x{byte:02x}")?,
            }
        }
        Ok(())
    }
}

impl Serialize for Key {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Segments by what their headers say.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SegmentCensus {
    /// All.
    pub total: u64,
    /// Ready for use.
    pub free: u64,
    /// Given back to the device.
    pub discarded: u64,
    /// Records, by head: eight rewrite-interval classes, then the commit stream.
    pub data: Vec<u64>,
    /// Checkpoint images and roots.
    pub checkpoint: u64,
    /// Never used.
    pub blank: u64,
    /// The header does not verify.
    pub damaged: u64,
}

/// What a check found.
#[derive(Debug, Clone, Default, Serialize)]
#[non_exhaustive]
pub struct CheckReport {
    /// Errors that remain; 0 is a clean store.
    pub errors: u64,
    /// Warnings that remain.
    pub warnings: u64,
    /// Errors before the repair; equal to `errors` without one.
    pub errors_before_repair: u64,
    /// Superblock slots that verify, of 4.
    pub superblocks_valid: u32,
    /// Whether an ordinary open accepts the store.
    pub opens: bool,
    /// Segments by class.
    pub segments: SegmentCensus,
    /// Entries of the index, each chunk of a large value being one.
    pub entries: u64,
    /// Records that the index points to.
    pub live_records: u64,
    /// Records that it does not point to, tombstones included.
    pub dead_records: u64,
    /// Bytes of live records, by the records found.
    pub live_bytes: u64,
    /// Large values found whole.
    pub large_values: u64,
    /// Objects.
    pub objects: u64,
    /// Places in segments where records do not verify.
    pub damaged_places: u64,
    /// What is wrong, in the order found; of the state before the repair if there was one.
    pub findings: Vec<Finding>,
    /// What the repair did, one sentence each.
    pub repairs: Vec<String>,
    /// Keys whose only or newest record is lost, where they could be told.
    pub lost: Vec<Key>,
    /// How many records were found lost whose key is known; those of unknown keys are
    /// findings.
    pub lost_count: u64,
    /// Keys that the repair brought back and that may have been deleted, or may have an
    /// older value than the last one written: what would prove it is lost.
    pub unconfirmed: Vec<Key>,
    /// How many there are.
    pub unconfirmed_count: u64,
    /// Objects that the repair could not bring back whole, or at all, and what of them is
    /// lost.
    pub lost_objects: Vec<String>,
    /// How many lines there are.
    pub lost_objects_count: u64,
    /// Objects that the repair made anew and that may have been removed or changed since:
    /// what would prove that they were not is lost.
    pub unconfirmed_objects: Vec<String>,
    /// How many there are.
    pub unconfirmed_objects_count: u64,
    #[serde(skip)]
    pub(super) list_max: usize,
    /// Structures with an error or a warning.
    #[serde(skip)]
    pub(super) hurt: std::collections::BTreeSet<Structure>,
}

impl CheckReport {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.errors == 0
    }

    /// What was found and done, a line each, for people.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for finding in &self.findings {
            let severity = match finding.severity {
                Severity::Error => "error",
                Severity::Warning => "warning",
            };
            let (offset, detail) = (finding.offset, &finding.detail);
            lines.push(format!("{severity} at byte {offset}: {detail}"));
        }
        let mut add = |what: &str, all: &mut dyn Iterator<Item = String>| {
            lines.extend(all.map(|one| format!("{what}: {one}")));
        };
        add("repaired", &mut self.repairs.iter().cloned());
        add("lost", &mut self.lost.iter().map(Key::to_string));
        add("lost", &mut self.lost_objects.iter().cloned());
        add(
            "unconfirmed",
            &mut self.unconfirmed.iter().map(Key::to_string),
        );
        add("unconfirmed", &mut self.unconfirmed_objects.iter().cloned());
        lines
    }

    pub(super) fn find(
        &mut self,
        severity: Severity,
        structure: Structure,
        offset: u64,
        detail: String,
    ) {
        self.hurt.insert(structure);
        match severity {
            Severity::Error => self.errors += 1,
            Severity::Warning => self.warnings += 1,
        }
        if self.findings.len() < self.list_max {
            self.findings.push(Finding {
                offset,
                severity,
                structure,
                detail,
            });
        }
    }

    pub(super) fn error(&mut self, structure: Structure, offset: u64, detail: String) {
        self.find(Severity::Error, structure, offset, detail);
    }

    pub(super) fn doubt(&mut self, key: &[u8]) {
        self.unconfirmed_count += 1;
        if self.unconfirmed.len() < self.list_max {
            self.unconfirmed.push(Key(key.to_vec()));
        }
    }

    pub(super) fn doubt_object(&mut self, object: String) {
        self.unconfirmed_objects_count += 1;
        if self.unconfirmed_objects.len() < self.list_max {
            self.unconfirmed_objects.push(object);
        }
    }

    pub(super) fn lose_object(&mut self, line: String) {
        self.lost_objects_count += 1;
        if self.lost_objects.len() < self.list_max {
            self.lost_objects.push(line);
        }
    }

    pub(super) fn lose(&mut self, key: &[u8]) {
        self.lost_count += 1;
        if self.lost.len() < self.list_max {
            self.lost.push(Key(key.to_vec()));
        }
    }
}
