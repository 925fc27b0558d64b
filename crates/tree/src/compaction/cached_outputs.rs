//! Cached outputs: keeps DRAM warm across a merge. While the page cache is not full, every verified output
//! page is cached. In a full cache the outputs take the place of the inputs: an output page is cached if it
//! covers a hot range, or if nearly all of the inputs were cached, and a cached page of the inputs is given
//! up for it.
//!
//! The inputs are given up in the order of their keys, at the pace of the outputs, so that no more pages of
//! other files are evicted than input pages are freed. Readers of the inputs may have to read such a page
//! once more until the outputs are installed. I6, I8: pages are keyed by the digests of their files and were
//! verified.

use std::ops::Range;
use std::sync::Arc;

use base::limits::PAGE_BYTES;
use cache::{PageCache, PageKey};
use compact::OutputPage;

use crate::write_through::cached_kind;

/// All outputs are cached if at least this many of 16 input pages were.
const MOSTLY: u64 = 15;

/// The DRAM cache's part in one merge. See the module.
#[derive(Debug)]
pub(super) struct CachedOutputs {
    cache: Arc<PageCache>,
    /// The pages of each input run that the merge makes useless.
    runs: Vec<InputPages>,
    /// Pages of the inputs in the merge's range, and those of them that were cached.
    pages: u64,
    cached: u64,
    /// Input pages given up, for which no output page was cached yet.
    freed: u64,
    /// Pages of all outputs, and those that were seen.
    output_pages: u64,
    seen: u64,
    /// The output file to which the cache had no more room to grow.
    full_at: Option<u64>,
    /// The digests of outputs with cached pages, and the end of their page numbers.
    written: Vec<(u64, u32)>,
}

/// Pages of one input run, in the order of their keys.
#[derive(Debug, Default)]
struct InputPages {
    files: Vec<(u64, Range<u32>)>,
    pages: u64,
    /// The first pages, which were given up.
    given: u64,
    /// The file that the next page to give up is in, and the pages of all files before it.
    at: usize,
    before: u64,
}

impl CachedOutputs {
    /// Without inputs yet.
    pub(super) fn new(cache: Arc<PageCache>) -> Self {
        let (runs, written) = (Vec::new(), Vec::new());
        let (pages, cached, freed, output_pages, seen) = (0, 0, 0, 0, 0);
        Self { cache, runs, pages, cached, freed, output_pages, seen, full_at: None, written }
    }

    /// Begins the next input run.
    pub(super) fn begin_run(&mut self) {
        self.runs.push(InputPages::default());
    }

    /// Notes that `pages` of the file with this digest will be useless.
    pub(super) fn input(&mut self, file: u64, pages: Range<u32>) {
        if let Some(run) = self.runs.last_mut() {
            run.pages += u64::from(pages.end.saturating_sub(pages.start));
            run.files.push((file, pages));
        }
    }

    /// Counts a page of the inputs.
    pub(super) const fn count(&mut self, is_cached: bool) {
        self.pages += 1;
        self.cached += is_cached as u64;
    }

    /// The outputs are about to be verified; they have this many pages.
    pub(super) const fn begin(&mut self, output_pages: u64) {
        (self.output_pages, self.seen, self.full_at) = (output_pages, 0, None);
    }

    /// Caches `page`, if there is room for it or it is to take the place of an input page.
    pub(super) fn offer(&mut self, page: OutputPage<'_>) {
        let OutputPage { file, number, bytes, is_hot } = page;
        self.seen += 1;
        let Some(kind) = cached_kind(bytes) else { return };
        let Some(content) = bytes.first_chunk::<PAGE_BYTES>() else { return };
        let key = PageKey { file, page: number };
        let mut is_in = false;
        if self.full_at != Some(file) {
            is_in = self.cache.insert_written(key, kind, content);
            self.full_at = (!is_in).then_some(file);
        }
        if !is_in && (is_hot || self.are_mostly_cached()) {
            self.give_up_inputs();
            if self.freed > 0 {
                is_in = self.cache.insert_free(key, kind, content)
                    || self.cache.insert_warm(key, kind, content).is_some();
                self.freed -= u64::from(is_in);
            }
        }
        if is_in {
            match self.written.last_mut() {
                Some((last, end)) if *last == file => *end = number + 1,
                _ => self.written.push((file, number + 1)),
            }
        }
    }

    const fn are_mostly_cached(&self) -> bool {
        self.cached > 0 && self.cached * 16 >= self.pages * MOSTLY
    }

    /// Gives up the input pages before the keys of the present output, as far as the outputs' progress tells.
    fn give_up_inputs(&mut self) {
        let (seen, all) = (self.seen, self.output_pages.max(self.seen));
        for run in &mut self.runs {
            let target = u128::from(run.pages) * u128::from(seen) / u128::from(all.max(1));
            while u128::from(run.given) < target {
                let Some((file, pages)) = run.files.get(run.at) else { break };
                let within = run.given - run.before;
                let number = u64::from(pages.start) + within;
                if number >= u64::from(pages.end) {
                    run.before = run.given;
                    run.at += 1;
                    continue;
                }
                let key = PageKey { file: *file, page: number as u32 };
                self.freed += u64::from(self.cache.remove_page(key));
                run.given += 1;
            }
        }
    }

    /// The outputs are discarded: removes their pages.
    pub(super) fn discarded(&self) {
        for (file, pages) in &self.written {
            self.cache.remove_file(*file, *pages);
        }
    }
}

#[cfg(test)]
mod tests {
    use base::{Account, Codec, EntryKind, KeyspaceId, Seqno, StoreId, TableId, Trailer};
    use cache::PageKind;
    use media::{Medium, MemoryMedium, Purpose};
    use parking_lot::Mutex;
    use table::{Layout, PageSink, Spec, Writer};

    use super::*;

    struct Collected(Arc<Mutex<Vec<u8>>>);

    impl PageSink for Collected {
        fn written(&mut self, _: u32, pages: &[u8]) {
            self.0.lock().extend_from_slice(pages);
        }
    }

    /// The first page of a table: a data page.
    fn data_page() -> Vec<u8> {
        let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
        let spec = Spec {
            store: StoreId(1),
            table: TableId(1),
            keyspace: KeyspaceId(1),
            codec: Codec::None,
            level: 0,
            dictionary: None,
            filter_bits: 10,
            layout: Layout::Sorted,
            purpose: Purpose::Flush,
            leave: table::Leave::Nothing,
        };
        let mut writer = Writer::create(&medium, spec, &Account::unlimited("test")).unwrap();
        let pages = Arc::new(Mutex::new(Vec::new()));
        writer.show_to(Box::new(Collected(Arc::clone(&pages))));
        writer.add(b"key", Trailer::new(Seqno::new(1), EntryKind::Put), b"value").unwrap();
        let summary = writer.finish().unwrap();
        let pages = pages.lock();
        assert_eq!(pages.len() as u64, summary.file_bytes, "a sink is shown every page");
        pages[..PAGE_BYTES].to_vec()
    }

    const INPUT: u64 = 1;
    const OTHER: u64 = 2;
    const OUTPUT: u64 = 3;

    /// A full cache, half of it pages of an input, and a merge of that input, of whose pages `cached` of 16
    /// are cached.
    fn merge(cached: u64) -> (Arc<PageCache>, CachedOutputs, u32) {
        let cache = Arc::new(PageCache::new(&Account::unlimited("test"), 4 << 20).unwrap());
        let half = cache.statistics().capacity_pages as u32 / 2;
        for (file, pages) in [(INPUT, half), (OTHER, half + 1)] {
            for page in 0..pages {
                let key = PageKey { file, page };
                drop(cache.insert(key, PageKind::Data, &[0; PAGE_BYTES]));
                drop(cache.get(key, PageKind::Data));
            }
        }
        let mut outputs = CachedOutputs::new(Arc::clone(&cache));
        outputs.begin_run();
        outputs.input(INPUT, 0..half / 2);
        outputs.input(INPUT, half / 2..half);
        (0..u64::from(half)).for_each(|page| outputs.count(page % 16 < cached));
        outputs.begin(u64::from(half));
        (cache, outputs, half)
    }

    fn resident(cache: &PageCache, file: u64, pages: u32) -> u32 {
        (0..pages).filter(|page| cache.peek(PageKey { file, page: *page }).is_some()).count() as u32
    }

    #[test]
    fn outputs_take_the_place_of_inputs_that_were_cached() {
        let bytes = data_page();
        let (cache, mut outputs, pages) = merge(16);
        let others = resident(&cache, OTHER, pages + 1);
        let inputs = resident(&cache, INPUT, pages);
        for number in 0..pages {
            let (file, is_hot) = (OUTPUT, false);
            outputs.offer(OutputPage { file, number, bytes: &bytes, is_hot });
            // No more input pages are given up than the outputs' progress tells.
            assert!(resident(&cache, INPUT, pages) + number + 1 >= inputs);
        }
        assert_eq!(resident(&cache, INPUT, pages), 0);
        let cached = resident(&cache, OUTPUT, pages);
        assert!(cached >= inputs - 1 && cached <= pages, "{cached} of {inputs}");
        assert_eq!(resident(&cache, OTHER, pages + 1), others, "other pages stay");
        outputs.discarded();
        assert_eq!(resident(&cache, OUTPUT, pages), 0);
    }

    #[test]
    fn only_hot_outputs_are_cached_if_many_inputs_were_not() {
        let bytes = data_page();
        let (cache, mut outputs, pages) = merge(8);
        let others = resident(&cache, OTHER, pages + 1);
        for number in 0..pages {
            let (file, is_hot) = (OUTPUT, number % 8 == 7);
            outputs.offer(OutputPage { file, number, bytes: &bytes, is_hot });
        }
        let hot = (0..pages).filter(|number| number % 8 == 7);
        let cached = |page: u32| cache.peek(PageKey { file: OUTPUT, page }).is_some();
        assert!(hot.clone().all(cached));
        assert_eq!(resident(&cache, OUTPUT, pages), hot.count() as u32);
        assert_eq!(resident(&cache, OTHER, pages + 1), others);
    }
}
