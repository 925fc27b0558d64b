//! One scrub pass over tables and value files, one chunk of pages per step.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use base::limits::PAGE_BYTES;
use base::{Account, Error, Problem, Result, TableId, broken_invariant};
use cache::PageKey;
use media::Purpose;
use read::PageFile;
use table::{PageBuffer, PageVisitor, PageWalk, Retries, verify_page};
use tree::Tree;

use super::target::Target;
use super::{ScrubReport, Scrubber};

/// Most damages that a report lists.
const LISTED_MAX: usize = 1000;

/// A pass in progress.
pub(super) struct Pass {
    /// The pass continues with the first file that has this id or a higher one.
    next: TableId,
    /// Files with this id or a higher one are not part of the pass.
    end: TableId,
    /// The current file.
    open: Option<OpenTarget>,
    began: Duration,
    report: ScrubReport,
    /// The buffer for the next file; `None` while a file is read.
    buffer: Option<PageBuffer>,
}

/// A file that is being read.
struct OpenTarget {
    tree: Arc<Tree>,
    target: Target,
    file: PageFile,
    walk: PageWalk,
}

impl Pass {
    /// Begins a pass over the files with ids in `next..end`. Its buffer is charged to `account`.
    ///
    /// # Errors
    /// `Retry` without memory.
    pub(super) fn begin(
        account: &Account,
        now: Duration,
        next: TableId,
        end: TableId,
    ) -> Result<Self> {
        let (began, buffer) = (now, Some(PageBuffer::new(account)?));
        Ok(Self { next, end, open: None, began, report: ScrubReport::default(), buffer })
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
    ///
    /// # Errors
    /// `Retry` if memory or the device's resources are short: the same step may be repeated.
    pub(super) fn step(&mut self, scrubber: &Scrubber) -> Result<Option<u64>> {
        let mut open = match self.open.take() {
            Some(open) => open,
            None => {
                let Some((tree, target)) = scrubber.target_from(self.next, self.end) else {
                    return Ok(None);
                };
                let file = match target.pages() {
                    Err(error) if error.is_retryable() => return Err(error),
                    file => file,
                };
                self.next = TableId(target.id().0 + 1);
                let manifest = &scrubber.env.manifest;
                if target.is_obsolete(manifest) || target.is_cold(manifest) {
                    return Ok(Some(0));
                }
                match file {
                    Ok(file) => self.open(tree, target, file)?,
                    Err(error) => {
                        self.damaged(scrubber, &tree, &target, None, error);
                        return Ok(Some(0));
                    }
                }
            }
        };
        // An obsolete file is not read to its end.
        if open.target.is_obsolete(&scrubber.env.manifest) {
            self.buffer = Some(open.walk.into_buffer());
            return Ok(Some(0));
        }
        let first = open.walk.next_page();
        let mut found = FoundDamage::default();
        let stepped = open.walk.step(Retries::Unverified, &mut found);
        scrubber.statistics.lock().retries += found.retries;
        let count = match stepped {
            Ok(count) => count,
            Err(error) => {
                self.open = Some(open);
                return Err(error);
            }
        };
        for (pages, error) in found.damages {
            self.damaged(scrubber, &open.tree, &open.target, Some(pages), error);
        }
        let digest = open.target.digest();
        let in_scm = digest
            .map_or(0, |digest| self.verify_in_scm(scrubber, &open.file, digest, first, count));
        let bytes = (u64::from(count) + in_scm) * PAGE_BYTES as u64;
        self.report.pages += u64::from(count);
        self.report.bytes += bytes;
        scrubber.statistics.lock().pages += u64::from(count);
        if open.walk.is_done() {
            self.buffer = Some(open.walk.into_buffer());
        } else {
            self.open = Some(open);
        }
        Ok(Some(bytes))
    }

    /// Begins to read `file`, which is that of `target`.
    fn open(&mut self, tree: Arc<Tree>, target: Target, file: PageFile) -> Result<OpenTarget> {
        match target {
            Target::Table(_) => self.report.tables += 1,
            Target::Values(_) => self.report.value_files += 1,
        }
        let buffer = self.buffer.take();
        let buffer = buffer.ok_or_else(|| broken_invariant!("a pass reads one file at a time"))?;
        let (pages, purpose) = (file.pages, Purpose::Scrub);
        let walk = PageWalk::new(Arc::clone(&file.file), file.seed, pages, purpose, buffer);
        Ok(OpenTarget { tree, target, file, walk })
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

/// Damage that one step found.
#[derive(Default)]
struct FoundDamage {
    /// Damaged pages, adjacent ones together: first page, number of pages, and the first error.
    damages: Vec<((u32, u32), Error)>,
    /// Pages that were read again.
    retries: u64,
}

impl PageVisitor for FoundDamage {
    fn page(&mut self, _: u32, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn damaged(&mut self, pages: Range<u32>, error: Error) -> Result<()> {
        let count = pages.end - pages.start;
        match self.damages.last_mut() {
            Some(((first, before), _)) if *first + *before == pages.start => *before += count,
            _ => self.damages.push(((pages.start, count), error)),
        }
        Ok(())
    }

    fn retried(&mut self) {
        self.retries += 1;
    }
}
