//! One piece of damage of each kind: found, repaired as far as possible, listed.

use std::sync::Arc;

use esker::Durability;
use esker::device::SimulatedDevice;
use esker::format::{PieceHeader, PieceKind, Root, SegmentHeader};
use esker::inspect::{Severity, Structure};

use crate::common::{Random, assert_equals, open, seed};
use crate::history::{aged, check, is_checkpoint, is_data, repair, segments, store_options};

#[test]
fn a_flipped_bit_anywhere_in_data_is_found_and_repaired_honestly() {
    let mut random = Random::new(seed());
    for (durability, clean) in [
        (Durability::Committed, true),
        (Durability::Committed, false),
        (Durability::Buffered, false),
    ] {
        let (device, history) = aged(&mut random, durability, clean);
        let before = check(&device);
        assert_eq!(before.errors, 0, "{before:#?}");
        let data = segments(&device, is_data);
        for round in 0..12 {
            let (start, _) = data[random.below(data.len() as u64) as usize];
            let image = Arc::new(device.snapshot());
            // Header, first frame header, anywhere.
            let offset = match round % 3 {
                0 => start + random.below(128),
                1 => start + 512 + random.below(136),
                _ => start + 512 + random.below((128 << 10) - 512),
            };
            println!("round {round}: bit at {offset}");
            image.flip_bit(offset, random.below(8));
            let found = check(&image);
            if found.errors + found.warnings == 0 {
                // Padding, or a frame of dead records at the end of an older epoch.
                assert!(round % 3 != 0, "not found: {found:#?}");
                let options = store_options(durability).read_only(true);
                let store = open(&image, &options).unwrap();
                assert_equals(&store, &history.model);
            }
            let report = repair(&image);
            history.assert_honest(&image, &report);
            let after = check(&image);
            assert!(after.opens, "{after:#?}");
            let errors = after.findings.iter();
            let mut errors = errors.filter(|finding| finding.severity == Severity::Error);
            let quarantined = errors.all(|finding| {
                matches!(
                    finding.structure,
                    Structure::Record | Structure::Chunk | Structure::Entry
                )
            });
            assert!(quarantined, "{after:#?}");
        }
    }
}

#[test]
fn a_flipped_bit_in_a_checkpoint_or_superblock_costs_nothing() {
    let mut random = Random::new(seed());
    for clean in [true, false] {
        let (device, history) = aged(&mut random, Durability::Committed, clean);
        let pieces = segments(&device, is_checkpoint);
        for round in 0..10 {
            let image = Arc::new(device.snapshot());
            let slots = esker::format::Geometry::superblock_offsets(10_600 << 10);
            let offset = match round % 2 {
                0 => slots[round / 2 % 4] + random.below(200),
                _ => {
                    let (start, _) = pieces[random.below(pieces.len() as u64) as usize];
                    start + random.below(40_000)
                }
            };
            image.flip_bit(offset, random.below(8));
            let found = check(&image);
            if round % 2 == 0 {
                assert!(found.errors + found.warnings > 0, "{found:#?}");
            }
            if clean && round % 2 == 0 {
                assert_eq!(found.errors, 1, "{found:#?}");
            }
            let report = repair(&image);
            assert_eq!(
                (report.unconfirmed_count, report.lost_count),
                (0, 0),
                "{report:#?}"
            );
            history.assert_honest(&image, &report);
            let after = check(&image);
            assert_eq!(
                (after.errors, after.superblocks_valid),
                (0, 4),
                "{after:#?}"
            );
        }
    }
}

fn newest_root(device: &SimulatedDevice) -> Root {
    let mut newest: Option<Root> = None;
    for (start, header) in segments(device, is_checkpoint) {
        let bytes = device.read_raw(start, 128 << 10);
        for at in (512..bytes.len()).step_by(512) {
            let Ok((piece, body)) = PieceHeader::decode(&bytes[at..], header.seed(), at as u64)
            else {
                continue;
            };
            let sequence = newest.as_ref().map_or(0, |root| root.sequence);
            if piece.kind == PieceKind::Root && piece.sequence > sequence {
                newest = Some(Root::decode(body).unwrap());
            }
        }
    }
    newest.unwrap()
}

/// Regression: a store did not open when the header of a checkpoint segment was damaged, though
/// every image was there.
#[test]
fn a_damaged_header_of_a_checkpoint_segment_costs_nothing() {
    let mut random = Random::new(seed());
    let (device, history) = aged(&mut random, Durability::Committed, true);
    let options = store_options(Durability::Committed);
    let root = newest_root(&device);
    assert!(root.segments.len() > 1);
    let pieces = segments(&device, is_checkpoint).into_iter();
    let named = |segment| root.segments.iter().any(|life| life.segment == segment);
    for (start, header) in pieces.filter(|(_, header)| named(header.segment)) {
        for erased in [false, true] {
            let image = Arc::new(device.snapshot());
            if erased {
                image.erase(start, 512);
            } else {
                image.flip_bit(start + random.below(128), random.below(8));
            }
            let found = check(&image);
            assert!(found.opens && found.errors > 0, "{found:#?}");
            let store = open(&image, &options).unwrap();
            assert_equals(&store, &history.model);
            drop(store);
            // The root does not keep what it says of other segments.
            let extents = None;
            let restored = (start, SegmentHeader { extents, ..header });
            assert!(segments(&image, is_checkpoint).contains(&restored));
        }
    }
}
