//! Choosing what to repair, and checking again.

use std::collections::BTreeSet;

use crate::store::{Options, Store};
use crate::{Durability, Result};

use super::check;
use super::media::Media;
use super::rebuild;
use super::report::{CheckOptions, CheckReport, Progress, Structure};

/// Repairs what the report of a check found; returns the report with what remains.
pub(super) fn run(
    media: Media,
    mut report: CheckReport,
    options: &CheckOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<CheckReport> {
    let device = media.device.clone();
    if !report.opens {
        rebuild::run(media, &mut report, progress)?;
    } else {
        if report.hurt.contains(&Structure::Superblock) {
            rewrite_superblocks(&media)?;
            report
                .repairs
                .push("all superblock copies are written anew".into());
        }
        let by_images = [
            Structure::Root,
            Structure::Image,
            Structure::Frame,
            Structure::Record,
        ];
        if by_images
            .iter()
            .any(|structure| report.hurt.contains(structure))
        {
            let options = Options::default()
                .durability(Durability::Committed)
                .discard_bytes_per_second(0_u64)
                .cache_bytes(0_u64);
            let store = Store::open_on(device.clone(), &options)?;
            store.checkpoint()?;
            store.checkpoint()?;
            store.close()?;
            report
                .repairs
                .push("both generations of images are written anew".into());
        }
    }
    let after = check::run(&Media::open(device)?, options, progress)?;
    let lost: BTreeSet<_> = report.lost.iter().cloned().collect();
    let more: Vec<_> = after
        .lost
        .iter()
        .filter(|key| !lost.contains(key))
        .cloned()
        .collect();
    report.lost_count += more.len() as u64;
    report.lost.extend(more);
    Ok(CheckReport {
        errors_before_repair: report.errors,
        findings: report.findings,
        repairs: report.repairs,
        lost: report.lost,
        lost_count: report.lost_count,
        unconfirmed: report.unconfirmed,
        unconfirmed_count: report.unconfirmed_count,
        lost_objects: report.lost_objects,
        lost_objects_count: report.lost_objects_count,
        unconfirmed_objects: report.unconfirmed_objects,
        unconfirmed_objects_count: report.unconfirmed_objects_count,
        ..after
    })
}

/// Writes all four slots anew, of which one pair is valid at any moment.
fn rewrite_superblocks(media: &Media) -> Result<()> {
    let Some(mut current) = media.superblock.clone() else {
        return Ok(());
    };
    current.sequence = highest_sequence(media);
    let mut superblocks = media.superblocks(current);
    superblocks.update(&*media.device, |_| {})?;
    superblocks.update(&*media.device, |_| {})?;
    Ok(())
}

/// The highest sequence of any slot, of whatever store: what is written next must win.
pub(super) fn highest_sequence(media: &Media) -> u64 {
    media.sequences.iter().copied().max().unwrap_or(0)
}
