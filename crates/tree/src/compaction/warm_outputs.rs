//! Warm outputs: keeps the caches warm across a merge, the SCM tier here and DRAM in [`CachedOutputs`].
//! Before the merge it surveys the cached pages of the inputs to find the hot key ranges. While the outputs
//! are verified, their pages that cover such ranges are offered to the tier, as stored. After the
//! installation the inputs' pages are removed from the tier.
//!
//! The job contains the hot ranges by value, and the process that runs the merge reports which pages cover
//! them (`compact::hot_ranges`, `table::Writer::set_hot`): it may be another process. The tier decides which
//! pages it admits (`cache::ScmTier::admit_warm_output`). No reader or writer waits for any of this. I6, I8:
//! pages are keyed by the digests of their files and were verified; an output that is never installed costs
//! slots but gives no wrong answer.

use std::ops::Range;
use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{Result, RunId, invariant};
use cache::{LiveFile, PageCache, PageKey, PageKind, ScmTier};
use compact::{HOT_BYTES_MAX, KeyRange, OutputPage, RunHeat, hot_ranges};
use media::{Buf, Purpose};
use read::CACHED_RUN_PAGES_MAX;
use table::{Bounds, Header, Table, verify_page};

use super::cached_outputs::CachedOutputs;
use crate::Piece;

/// The warm outputs of one merge. See the module.
#[derive(Debug)]
pub struct WarmOutputs {
    cache: Arc<PageCache>,
    /// The SCM tier, if there is one that works.
    tier: Option<Arc<ScmTier>>,
    /// The outputs in DRAM; `None` if pages are not written through.
    dram: Option<CachedOutputs>,
    /// Slots of input pages that the merge will free, less the admitted output pages.
    slots: u32,
    /// Pages of inputs that become useless although their files stay.
    stale_pages: Vec<(u64, Range<u32>)>,
    /// The digests of outputs with pages that were offered, and the end of their page numbers. The last field
    /// keeps the cache from treating a file as dead before it is installed.
    offered: Vec<(u64, u32, LiveFile)>,
}

/// Bound of the survey, bytes of keys: it ends with the hot page whose keys reach the bound.
pub const SURVEY_BYTES_MAX: usize = 4 * HOT_BYTES_MAX;

impl WarmOutputs {
    /// The slots that output pages may take in SCM: as many as the inputs free.
    #[must_use]
    pub const fn slots(&self) -> u32 {
        self.slots
    }

    /// Surveys `inputs`, of which the keys of `range` are merged, and returns the hot ranges among them;
    /// `None` without an SCM tier if no page is to be written through to DRAM. Reads at most one page per
    /// partition: its metadata page, if data pages are hot and the metadata page is not cached.
    pub fn survey(
        cache: &Arc<PageCache>,
        inputs: &[(RunId, Arc<Piece>)],
        range: &KeyRange,
        write_through: bool,
    ) -> Option<(Self, Vec<KeyRange>)> {
        let tier = cache.lower_tier().filter(|tier| tier.failure().is_none()).cloned();
        let dram = write_through.then(|| CachedOutputs::new(Arc::clone(cache)));
        if tier.is_none() && dram.is_none() {
            return None;
        }
        let (cache, stale_pages, offered) = (Arc::clone(cache), Vec::new(), Vec::new());
        let mut it = Self { cache, tier, dram, slots: 0, stale_pages, offered };
        let heat = it.heat(inputs, range);
        Some((it, hot_ranges(heat)))
    }

    /// The heat of the inputs' pages, run by run.
    pub fn heat(&mut self, inputs: &[(RunId, Arc<Piece>)], range: &KeyRange) -> Vec<RunHeat> {
        let mut bytes_left = SURVEY_BYTES_MAX;
        let mut runs = Vec::new();
        for pieces in inputs.chunk_by(|(one, _), (other, _)| one == other) {
            let mut heat = RunHeat::default();
            self.dram.iter_mut().for_each(CachedOutputs::begin_run);
            for (_, piece) in pieces {
                // An inconsistent table makes the merge fail, not the survey.
                if let Ok(table) = piece.table() {
                    let is_whole = range.covers(piece.range());
                    let part = piece.range().intersection(range);
                    let _ = self.survey_table(table, &part, is_whole, &mut heat, &mut bytes_left);
                }
            }
            runs.push(heat);
        }
        runs
    }

    /// Adds the hot pages of `table` within `part` to `heat`.
    fn survey_table(
        &mut self,
        table: &Arc<Table>,
        part: &KeyRange,
        is_whole: bool,
        heat: &mut RunHeat,
        bytes_left: &mut usize,
    ) -> Result<()> {
        let file = table.footer().digest;
        let partitions = table.partitions_in(&Bounds::from(part))?;
        for number in partitions.clone() {
            let partition = table.partition(number)?;
            heat.pages += u64::from(partition.data_pages());
            let mut meta = None;
            for page in partition.first_page..partition.meta_page {
                let page_heat = self.page_heat(PageKey { file, page });
                if page_heat == 0 || *bytes_left == 0 {
                    continue;
                }
                // A damaged metadata page makes the merge fail, not the survey.
                let found = meta.get_or_insert_with(|| self.meta_page(table, partition.meta_page));
                let Some(meta) = found else { continue };
                let Some((first, last)) = table.keys_within(number, meta, page)? else { continue };
                // A key with versions on several pages is the last of one and the first of the next.
                let is_last = last == table.properties().last_key || first == last;
                let keys = match is_last {
                    true => KeyRange::through(&first, &last),
                    false => KeyRange::new(&first, Some(&last)),
                };
                let keys = keys.intersection(part);
                // The page is of a partition that the part cuts.
                if keys.is_empty() {
                    continue;
                }
                *bytes_left = bytes_left.saturating_sub(keys.key_bytes());
                heat.hot.push((keys, page_heat));
            }
            self.slots += u32::from(self.is_in_scm(PageKey { file, page: partition.meta_page }));
        }
        // The first and last partition may have keys that stay. A file of which nothing stays is removed as a
        // whole.
        let inner = match is_whole {
            true => partitions,
            false => partitions.start + 1..partitions.end.saturating_sub(1),
        };
        if inner.is_empty() {
            return Ok(());
        }
        let pages =
            table.partition(inner.start)?.first_page..table.partition(inner.end - 1)?.meta_page + 1;
        self.dram.iter_mut().for_each(|dram| dram.input(file, pages.clone()));
        if !is_whole {
            self.stale_pages.push((file, pages));
        }
        Ok(())
    }

    fn is_in_scm(&self, key: PageKey) -> bool {
        self.tier.as_ref().is_some_and(|tier| tier.heat(key).is_some())
    }

    /// The heat of a page. Counts the SCM slot that it will free.
    fn page_heat(&mut self, key: PageKey) -> u8 {
        let below = self.tier.as_ref().and_then(|tier| tier.heat(key));
        self.slots += u32::from(below.is_some());
        let above = self.cache.peek(key).map(|(_, heat)| heat);
        self.dram.iter_mut().for_each(|dram| dram.count(above.is_some()));
        below.unwrap_or(0).max(above.unwrap_or(0))
    }

    /// A metadata page, from memory or from the table.
    fn meta_page(&self, table: &Arc<Table>, number: u32) -> Option<Box<[u8]>> {
        let key = PageKey { file: table.footer().digest, page: number };
        if let Some((frame, _)) = self.cache.peek(key) {
            return Some(frame.to_vec().into());
        }
        if let Some(page) = self.tier.as_ref().and_then(|tier| tier.peek(key)) {
            return Some(page);
        }
        let at = u64::from(number) * PAGE_BYTES as u64;
        let (page, read) = table.file().read(at, Buf::pages(1), Purpose::Compaction);
        let is_right = read.is_ok() && verify_page(table.seed(), number, &page).is_ok();
        is_right.then(|| page.to_vec().into())
    }

    /// The outputs are about to be verified; they have this many pages.
    pub(super) fn begin(&mut self, output_pages: u64) {
        self.dram.iter_mut().for_each(|dram| dram.begin(output_pages));
    }

    /// Offers a page of an output to DRAM and, if it is hot, to the SCM tier.
    pub fn offer(&mut self, page: OutputPage<'_>) {
        self.dram.iter_mut().for_each(|dram| dram.offer(page));
        if page.is_hot {
            self.offer_to_tier(page);
        }
    }

    fn offer_to_tier(&mut self, page: OutputPage<'_>) {
        let Some(tier) = &self.tier else { return };
        let OutputPage { file, number, bytes, .. } = page;
        let (Ok(header), Some(content)) = (Header::parse(bytes), bytes.first_chunk::<PAGE_BYTES>())
        else {
            return;
        };
        if header.run_pages() > CACHED_RUN_PAGES_MAX as usize {
            return;
        }
        let kind = match header.kind {
            table::PageKind::Data => PageKind::Data,
            _ => PageKind::Meta,
        };
        let key = PageKey { file, page: number };
        if self.offered.last().is_none_or(|(last, ..)| *last != file) {
            self.offered.push((file, 0, self.cache.keep_file(file)));
        }
        // The tier's background writer may be slower than the merge. The merge can wait, but a refused page
        // would be missing for the next reader: so this thread helps to write.
        if tier.has_backlog() {
            tier.step(&self.cache);
        }
        if tier.admit_warm_output(&self.cache, (key, kind), content, self.slots) {
            invariant!(self.slots > 0, "an admitted warm output takes a freed slot");
            self.slots = self.slots.saturating_sub(1);
            if let Some((_, end, _)) = self.offered.last_mut() {
                *end = number + 1;
            }
        }
    }

    /// The outputs are installed: removes the inputs' useless pages from the tier.
    pub fn installed(&self) {
        for (file, pages) in &self.stale_pages {
            self.tier.iter().for_each(|tier| tier.remove_pages(*file, pages.clone()));
        }
    }

    /// The outputs are discarded: removes their pages from the caches.
    pub fn discarded(&self) {
        self.dram.iter().for_each(CachedOutputs::discarded);
        for (file, pages, _) in &self.offered {
            self.tier.iter().for_each(|tier| tier.remove_pages(*file, 0..*pages));
        }
    }
}
