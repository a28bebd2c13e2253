//! Checking a store that is open.

use crate::Result;
use crate::store::ObjectStore;

use super::check;
use super::media::Media;
use super::report::{CheckOptions, CheckReport, Structure};

/// How often a check is repeated because somebody wrote meanwhile.
const ATTEMPTS: u32 = 3;

impl ObjectStore {
    /// Checks the open store, Ceph's fsck: every record on media against objects and
    /// entries, and both against what is derived from them. `deep` reads and verifies all
    /// data. The report says how many errors there are ([`CheckReport::errors`]) and what
    /// ([`CheckReport::lines`]); one that could not run has an error that says so.
    ///
    /// Transactions, the cleaner and checkpoints wait until it is done. Key-value writes and
    /// transactions that create collections do not: they make it begin again, three times at
    /// most, and then may show as errors.
    #[must_use]
    pub fn check(&self, deep: bool) -> CheckReport {
        self.try_check(deep).unwrap_or_else(|error| {
            let mut report = CheckReport::default();
            let detail = format!("the check could not run: {error}");
            report.list_max = 1;
            report.error(Structure::Store, 0, detail);
            report
        })
    }

    fn try_check(&self, deep: bool) -> Result<CheckReport> {
        let (log, owners) = self.store().parts();
        let slots = owners.objects.registry.all();
        // In the order of names, as transactions lock them.
        let _order: Vec<_> = slots.iter().map(|slot| slot.order.lock()).collect();
        let _quiet = log.quiet();
        let options = CheckOptions::default().deep(deep);
        let mut attempt = 1;
        loop {
            let next = log.appender().next_seqno();
            if !log.options().read_only {
                log.commit_through(next - 1)?;
            }
            let media = Media::open(log.device().clone())?;
            let report = check::run_open(&media, log, owners, &options)?;
            let is_quiet = log.appender().next_seqno() == next;
            if report.errors == 0 || is_quiet || attempt == ATTEMPTS {
                return Ok(report);
            }
            attempt += 1;
        }
    }
}
