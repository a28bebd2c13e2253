//! Records of the object layer in a check.

use crate::format::{Kind, SegmentHeader};

use super::check::Check;
use super::report::{Severity, Structure};
use super::walk::Located;

/// Bytes of a record of the object layer, or of its payload, that are live: the hook where the
/// object layer is to be asked. Until it is, a store with such records does not open.
fn live_bytes(_header: &SegmentHeader, _located: &Located<'_>) -> u64 {
    0
}

impl Check<'_> {
    /// Counts a record and checks its payload.
    pub(super) fn object_record(&mut self, header: &SegmentHeader, located: &Located<'_>) {
        let live = live_bytes(header, located);
        if live == 0 {
            self.report.dead_records += 1;
        } else {
            self.report.live_records += 1;
            self.report.live_bytes += live;
            if let Some(sum) = self.found_live.get_mut(header.segment as usize) {
                *sum += live as i64;
            }
        }
        let is_sound = located.payload.is_some_and(|payload| payload.is_sound);
        if located.record.kind != Kind::Extent || is_sound {
            return;
        }
        self.report.damaged_places += 1;
        let at = located.payload.map_or(located.offset, |found| found.offset);
        let offset = header.geometry.segment_offset(header.segment) + at;
        // Damage of what is dead hurts nobody.
        let severity = if live > 0 || self.opened.is_none() {
            Severity::Error
        } else {
            Severity::Warning
        };
        let detail = format!("payload in segment {} does not verify", header.segment);
        self.report
            .find(severity, Structure::Payload, offset, detail);
    }
}
