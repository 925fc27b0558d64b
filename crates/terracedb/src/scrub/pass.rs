//! One pass of the scrubber over the tables, a chunk of pages at a time.

use std::sync::Arc;
use std::time::Duration;

use base::limits::PAGE_BYTES;
use base::{Charge, Error, Result, TableId};
use media::{Buf, File, Purpose};
use table::{Table, file_name, verify_page};

use super::{ScrubReport, Scrubber};
use crate::Problem;
use crate::ordered::{TableFile, Tree};

/// Pages read at once.
const CHUNK_PAGES: u32 = 64;

/// How often a page that fails is read again before it is called damaged.
const RETRIES: usize = 2;

/// Damages listed in a report.
const LISTED_MAX: usize = 1000;

/// A pass under way.
pub(super) struct Pass {
    next: TableId,
    end: TableId,
    /// The table being read, and its next page.
    open: Option<(Arc<Tree>, Arc<TableFile>, u32)>,
    began: Duration,
    report: ScrubReport,
    buf: Option<Buf>,
    _charge: Charge,
}

impl Pass {
    /// A pass over the tables from `next` on and before `end`.
    pub(super) fn begin(scrubber: &Scrubber, next: TableId, end: TableId) -> Result<Self> {
        // The chunk, and one page by itself.
        let charge = scrubber.account.charge(u64::from(CHUNK_PAGES + 1) * PAGE_BYTES as u64)?;
        let began = scrubber.resources.clock().monotonic();
        let (open, report, buf) = Default::default();
        Ok(Self { next, end, open, began, report, buf, _charge: charge })
    }

    /// Every table below this one was read.
    pub(super) const fn next(&self) -> TableId {
        self.next
    }

    pub(super) fn into_report(mut self, now: Duration) -> ScrubReport {
        self.report.took = now.saturating_sub(self.began);
        self.report
    }

    /// Reads the next pages; how many bytes, or `None` at the end.
    pub(super) fn step(&mut self, scrubber: &Scrubber) -> Option<u64> {
        let (tree, file, first) = match self.open.take() {
            Some(open) => open,
            None => {
                let (tree, file) = scrubber.table_from(self.next, self.end)?;
                self.next = TableId(file.entry().id.0 + 1);
                (tree, file, 0)
            }
        };
        // One that could not be opened was told of then; one that nobody needs is not kept.
        let Some(table) = file.table().ok().filter(|_| !file.is_obsolete()) else { return Some(0) };
        self.report.tables += u64::from(first == 0);
        let pages = table.footer().pages;
        let count = CHUNK_PAGES.min(pages - first);
        let damages = self.verify(scrubber, table, first, count);
        for (pages, error) in damages {
            self.damaged(scrubber, &tree, &file, table, pages, error);
        }
        let bytes = u64::from(count) * PAGE_BYTES as u64;
        self.report.pages += u64::from(count);
        self.report.bytes += bytes;
        scrubber.statistics.lock().pages += u64::from(count);
        let left = first + count;
        self.open = (left < pages).then_some((tree, file, left));
        Some(bytes)
    }

    /// The pages from `first` on that do not verify, adjacent ones together.
    fn verify(
        &mut self,
        scrubber: &Scrubber,
        table: &Table,
        first: u32,
        count: u32,
    ) -> Vec<((u32, u32), Error)> {
        let fits = |buf: &Buf| buf.len() == count as usize * PAGE_BYTES;
        let buf = self.buf.take().filter(fits).unwrap_or_else(|| Buf::pages(count as usize));
        let at = u64::from(first) * PAGE_BYTES as u64;
        let (buf, read) = table.file().read(at, buf, Purpose::Scrub);
        let mut damages: Vec<((u32, u32), Error)> = Vec::new();
        for (page, bytes) in (first..).zip(buf.chunks_exact(PAGE_BYTES)) {
            let whole = read.clone().and_then(|()| verify_page(table.seed(), page, bytes));
            let Err(error) = whole else { continue };
            scrubber.statistics.lock().retries += 1;
            let Err(error) = read_again(&**table.file(), table, page, error) else { continue };
            match damages.last_mut() {
                Some(((from, pages), _)) if *from + *pages == page => *pages += 1,
                _ => damages.push(((page, 1), error)),
            }
        }
        self.buf = Some(buf);
        damages
    }

    fn damaged(
        &mut self,
        scrubber: &Scrubber,
        tree: &Tree,
        file: &TableFile,
        table: &Table,
        (first, pages): (u32, u32),
        error: Error,
    ) {
        let keys = |page| table.keys_on(page).ok().flatten();
        let keys = keys(first).map(|(from, to)| match keys(first + (pages - 1)) {
            Some((_, last)) => (from, last),
            None => (from, to),
        });
        let problem = Problem {
            pages: Some((first, pages)),
            keyspace: Some(tree.name().to_owned()),
            keys,
            ..Problem::of(&file_name(file.entry().id), error)
        };
        self.report.damages += 1;
        if self.report.problems.len() < LISTED_MAX {
            self.report.problems.push(problem.clone());
        }
        scrubber.env.quarantine.add(tree, file, problem);
    }
}

/// Reads a page that failed by itself; its last error.
fn read_again(file: &dyn File, table: &Table, page: u32, first: Error) -> Result<()> {
    let mut last = Err(first);
    for _ in 0..RETRIES {
        let at = u64::from(page) * PAGE_BYTES as u64;
        let (buf, read) = file.read(at, Buf::pages(1), Purpose::Scrub);
        last = read.and_then(|()| verify_page(table.seed(), page, &buf));
        if last.is_ok() {
            break;
        }
    }
    last
}
