//! One scrub pass over tables and value files, one chunk of pages per step.

use std::sync::Arc;
use std::time::Duration;

use base::limits::PAGE_BYTES;
use base::{Charge, Error, Problem, Result, TableId};
use cache::PageKey;
use media::{Buf, Purpose};
use read::PageFile;
use table::{reread, verify_page};
use tree::Tree;

use super::target::Target;
use super::{ScrubReport, Scrubber};

/// Pages read by one step.
const CHUNK_PAGES: u32 = 64;

/// Most damages that a report lists.
const LISTED_MAX: usize = 1000;

/// A pass in progress.
pub(super) struct Pass {
    /// The pass continues with the first file that has this id or a higher one.
    next: TableId,
    /// Files with this id or a higher one are not part of the pass.
    end: TableId,
    /// The current file and its next page.
    open: Option<(Arc<Tree>, Target, u32)>,
    began: Duration,
    report: ScrubReport,
    buf: Option<Buf>,
    _charge: Charge,
}

impl Pass {
    /// Begins a pass over the files with ids in `next..end`.
    ///
    /// # Errors
    /// `Retry` without memory.
    pub(super) fn begin(scrubber: &Scrubber, next: TableId, end: TableId) -> Result<Self> {
        // A chunk, and a single page to read again.
        let charge = scrubber.account.charge(u64::from(CHUNK_PAGES + 1) * PAGE_BYTES as u64)?;
        let began = scrubber.resources.clock().monotonic();
        let report = ScrubReport::default();
        Ok(Self { next, end, open: None, began, report, buf: None, _charge: charge })
    }

    /// Every file with an id below this one is read, or is the current one.
    pub(super) const fn next(&self) -> TableId {
        self.next
    }

    pub(super) fn into_report(mut self, now: Duration) -> ScrubReport {
        self.report.took = now.saturating_sub(self.began);
        self.report
    }

    /// Reads and verifies the next pages. Returns the bytes read, or `None` at the end of the pass.
    pub(super) fn step(&mut self, scrubber: &Scrubber) -> Option<u64> {
        let (tree, target, first) = match self.open.take() {
            Some(open) => open,
            None => {
                let (tree, target) = scrubber.target_from(self.next, self.end)?;
                self.next = TableId(target.id().0 + 1);
                (tree, target, 0)
            }
        };
        // An obsolete file is not read to its end.
        if target.is_obsolete(&scrubber.env.manifest) {
            return Some(0);
        }
        let file = match target.pages() {
            Ok(file) => file,
            Err(error) => {
                self.damaged(scrubber, &tree, &target, None, error);
                return Some(0);
            }
        };
        if first == 0 {
            match target {
                Target::Table(_) => self.report.tables += 1,
                Target::Values(_) => self.report.value_files += 1,
            }
        }
        base::invariant!(first < file.pages, "a pass reads the pages that its file has");
        let count = CHUNK_PAGES.min(file.pages.saturating_sub(first));
        for (pages, error) in self.verify(scrubber, &file, first, count) {
            self.damaged(scrubber, &tree, &target, Some(pages), error);
        }
        let in_scm = target
            .digest()
            .map_or(0, |digest| self.verify_in_scm(scrubber, &file, digest, first, count));
        let bytes = (u64::from(count) + in_scm) * PAGE_BYTES as u64;
        self.report.pages += u64::from(count);
        self.report.bytes += bytes;
        scrubber.statistics.lock().pages += u64::from(count);
        let next_page = first + count;
        self.open = (next_page < file.pages).then_some((tree, target, next_page));
        Some(bytes)
    }

    /// Reads `count` pages from `first` on. Returns the damaged ones, adjacent ones together: first page,
    /// number of pages, and error.
    fn verify(
        &mut self,
        scrubber: &Scrubber,
        file: &PageFile,
        first: u32,
        count: u32,
    ) -> Vec<((u32, u32), Error)> {
        let fits = |buf: &Buf| buf.len() == count as usize * PAGE_BYTES;
        let buf = self.buf.take().filter(fits).unwrap_or_else(|| Buf::pages(count as usize));
        let at = u64::from(first) * PAGE_BYTES as u64;
        let (buf, read) = file.file.read(at, buf, Purpose::Scrub);
        let mut damages: Vec<((u32, u32), Error)> = Vec::new();
        for (page, bytes) in (first..).zip(buf.chunks_exact(PAGE_BYTES)) {
            let whole = read.clone().and_then(|()| verify_page(file.seed, page, bytes));
            let Err(error) = whole else { continue };
            scrubber.statistics.lock().retries += 1;
            let again = || verify_one(file, page);
            let Err(error) = reread(error, again) else { continue };
            match damages.last_mut() {
                Some(((from, pages), _)) if *from + *pages == page => *pages += 1,
                _ => damages.push(((page, 1), error)),
            }
        }
        self.buf = Some(buf);
        damages
    }

    /// Verifies those of the pages that the SCM tier holds. Returns their number.
    fn verify_in_scm(
        &mut self,
        scrubber: &Scrubber,
        file: &PageFile,
        digest: u64,
        first: u32,
        count: u32,
    ) -> u64 {
        let Some(tier) = scrubber.env.cache.lower_tier() else { return 0 };
        let (mut pages, mut damaged) = (0, 0);
        for page in first..first + count {
            let is_intact = |bytes: &[u8]| verify_page(file.seed, page, bytes).is_ok();
            let found = tier.scrub(PageKey { file: digest, page }, is_intact);
            pages += u64::from(found.is_some());
            damaged += u64::from(found == Some(false));
        }
        self.report.pages_below += pages;
        self.report.damaged_below += damaged;
        let mut statistics = scrubber.statistics.lock();
        statistics.pages_below += pages;
        statistics.damaged_below += damaged;
        pages
    }

    /// Reports damage of a file, and quarantines it.
    fn damaged(
        &mut self,
        scrubber: &Scrubber,
        tree: &Tree,
        target: &Target,
        pages: Option<(u32, u32)>,
        error: Error,
    ) {
        let keys = pages.and_then(|(first, count)| target.keys_on(first, count));
        let problem = Problem::of(&target.name(), error);
        let problem = problem.in_keyspace(tree.name()).on_pages(pages).of_keys(keys);
        self.report.damages += 1;
        if self.report.problems.len() < LISTED_MAX {
            self.report.problems.push(problem.clone());
        }
        target.quarantine(&scrubber.env.quarantine, tree, problem);
    }
}

/// Reads and verifies one page.
fn verify_one(file: &PageFile, page: u32) -> Result<()> {
    let at = u64::from(page) * PAGE_BYTES as u64;
    let (buf, read) = file.file.read(at, Buf::pages(1), Purpose::Scrub);
    read.and_then(|()| verify_page(file.seed, page, &buf))
}
