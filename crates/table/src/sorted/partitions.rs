//! The pages of a table in their order: each partition's data pages, then its metadata page. At the end the
//! tail (range deletes, top level, properties), a copy of the tail, and two footers.
//!
//! Memory is charged (I10): only the top level and the range deletes grow with the table.

use base::limits::PAGE_BYTES;
use base::{Account, Charge, HashKey, Result, Seqno, StoreId, TableId, Trailer, invariant};

use super::footer::Footer;
use super::hot::HotPages;
use super::layout::Layout;
use super::meta_builder::{MetaBuilder, NextBlock};
use super::output::{Output, Section};
use super::pack::PackedBlock;
use super::pieces::Pieces;
use super::properties::Properties;
use super::range_section::RangeSection;
use super::raw_block::RawBlock;
use super::separator::{Separator, SeparatorsBuilder, Width};
use super::summary::Summary;
use super::tally::Tally;
use super::top::{Top, encode_top};
use crate::page::{PAYLOAD_BYTES, PageKind, run_pages};

/// Growing memory is charged in steps of this many bytes.
const STEP_BYTES: u64 = 64 << 10;

/// Memory of one value file in the tally, bytes.
const VALUE_FILE_BYTES: usize = 64;

/// Writes a table's blocks, grouped into partitions, and its tail. Counts the properties.
pub(super) struct Partitions {
    store: StoreId,
    table: TableId,
    pub(super) output: Output,
    layout: Layout,
    meta: MetaBuilder,
    /// The separators between partitions, and the metadata page of each partition.
    top: SeparatorsBuilder,
    metas: Vec<u32>,
    /// The last entry of the last block.
    boundary: Option<(Vec<u8>, Trailer)>,
    ranges: RangeSection,
    scratch: Vec<u8>,
    pub(super) tally: Tally,
    pub(super) properties: Properties,
    pub(super) hot: HotPages,
    /// For memory of fixed size.
    _charge: Charge,
    /// For growing memory.
    growth: Charge,
}

impl Partitions {
    /// Writes to `output`. `charge` covers the memory of fixed size; growing memory is charged to
    /// `account`.
    pub(super) fn new(
        (store, table): (StoreId, TableId),
        (filter_bits, layout): (u8, Layout),
        output: Output,
        properties: Properties,
        charge: Charge,
        account: &Account,
    ) -> Self {
        Self {
            store,
            table,
            output,
            layout,
            meta: MetaBuilder::new(filter_bits, layout),
            top: SeparatorsBuilder::new(Width::Top),
            metas: Vec::new(),
            boundary: None,
            ranges: RangeSection::default(),
            scratch: Vec::new(),
            tally: Tally::default(),
            properties,
            hot: HotPages::default(),
            _charge: charge,
            growth: account.empty_charge(),
        }
    }

    /// The hash key of the keyspace, if blocks are compact.
    pub(super) fn compact_key(&self) -> Option<HashKey> {
        self.properties.hash_key.0.filter(|_| self.layout != Layout::Sorted)
    }

    /// Charges memory that grows from now on to `account`. To be called before anything was written.
    pub(super) fn grow_on(&mut self, account: &Account) {
        self.growth = account.empty_charge();
    }

    /// Counts a version whose value [`Tally::add_value`] counted already. `new_key` says whether its key
    /// differs from that of the version before.
    pub(super) fn count(&mut self, key: &[u8], trailer: Trailer, value: &[u8], new_key: bool) {
        if self.tally.entries == 0 {
            self.properties.first_key = key.to_vec();
        }
        self.tally.add(key, trailer, value, new_key);
    }

    /// Counts and writes a block that is copied unchanged. `shares_key` says whether its first key is that of
    /// the version before.
    pub(super) fn put_raw(&mut self, block: &RawBlock, shares_key: bool) -> Result<()> {
        if self.tally.entries == 0 {
            self.properties.first_key = block.first().0.to_vec();
        }
        self.tally.add_all(block.tally(), shares_key)?;
        self.properties.passed_blocks += 1;
        self.put(PackedBlock {
            payload: block.payload().into(),
            codec: block.codec(),
            dictionary: block.dictionary(),
            raw_bytes: block.raw_bytes(),
            first_key: block.first().0,
            last: block.last(),
            hashes: block.hashes(),
            marks: None,
        })
    }

    /// Whether there is nothing to write.
    pub(super) fn is_empty(&self) -> bool {
        self.tally.entries == 0 && self.ranges.is_empty()
    }

    /// Adds a fragment of range deletes, which must be after the last one.
    pub(super) fn add_range_delete(
        &mut self,
        start: &[u8],
        end: &[u8],
        seqnos: &[Seqno],
    ) -> Result<()> {
        // Twice the length: a full vector doubles.
        self.charge_growth(2 * (start.len() + end.len() + 10 * (seqnos.len() + 3)))?;
        self.ranges.add(start, end, seqnos)?;
        for seqno in seqnos {
            self.tally.add_seqnos(*seqno, *seqno);
        }
        Ok(())
    }

    /// Writes a block. If it does not fit the current partition, writes that partition's metadata page
    /// first.
    pub(super) fn put(&mut self, packed: PackedBlock<'_>) -> Result<()> {
        let pages = run_pages(packed.payload.len());
        invariant!(
            self.boundary.as_ref().is_none_or(|(last, _)| **last <= *packed.first_key),
            "blocks are written in key order"
        );
        invariant!(
            self.boundary
                .as_ref()
                .is_none_or(|(last, trailer)| **last != *packed.first_key || trailer.word() > 0),
            "a version that an older one follows has a trailer above zero"
        );
        invariant!(
            self.boundary
                .as_ref()
                .is_none_or(|(last, _)| self.meta.may_follow(last, packed.first_key)),
            "a block ends between bins, or is a part of one"
        );
        invariant!(
            packed.first_key <= packed.last.0,
            "the last key of a block is not before its first"
        );
        let separator = self.boundary.as_ref().map(|(last_key, last_trailer)| {
            Separator::between((last_key, *last_trailer), packed.first_key)
        });
        let PackedBlock { first_key, hashes, marks, .. } = packed;
        let next = NextBlock { first_key, pages, hashes, marks };
        let fits = match &separator {
            Some(separator) => self.meta.fits(separator, next),
            None => true,
        };
        if fits && !self.meta.is_empty() {
            self.meta.add(separator, next);
        } else {
            if let Some(separator) = separator {
                self.end_partition()?;
                self.top.push(separator);
                self.charge_growth(0)?;
            }
            self.meta.start(self.output.pages());
            self.meta.add(None, next);
        }
        let first_page = self.output.put(Section {
            kind: if marks.is_some() { PageKind::Straddled } else { PageKind::Data },
            codec: packed.codec,
            dictionary: packed.dictionary,
            raw_bytes: packed.raw_bytes,
            payload: packed.payload,
            marks,
        })?;
        invariant!(
            self.meta.end_page() == self.output.pages(),
            "a partition's metadata covers its data pages"
        );
        self.properties.blocks += 1;
        self.properties.runs += u64::from(pages > 1);
        self.properties.straddled_blocks += u64::from(marks.is_some());
        self.properties.block_bytes += packed.raw_bytes as u64;
        self.properties.data_pages += pages as u64;
        let (last_key, last_trailer) = packed.last;
        self.hot.block(packed.first_key, last_key, first_page..first_page + pages as u32);
        let (key, trailer) = self.boundary.get_or_insert_with(|| (Vec::new(), last_trailer));
        key.clear();
        key.extend_from_slice(last_key);
        *trailer = last_trailer;
        Ok(())
    }

    fn end_partition(&mut self) -> Result<()> {
        let size = self.meta.encode(&mut self.scratch)?;
        invariant!(size.payload_bytes <= PAYLOAD_BYTES, "a partition's metadata fits its page");
        let page = self.output.put(Section::plain(PageKind::Meta, &self.scratch))?;
        invariant!(
            self.metas.last().is_none_or(|last| *last < page),
            "metadata pages of partitions ascend"
        );
        self.metas.push(page);
        self.hot.end_partition(page);
        self.properties.meta_pages += 1;
        self.properties.meta_bytes += size.payload_bytes as u64;
        self.properties.filter_bytes += size.filter_bytes as u64;
        Ok(())
    }

    /// Charges the memory that has grown, and `more` bytes that it is about to grow by (I10).
    fn charge_growth(&mut self, more: usize) -> Result<()> {
        let bytes = self.top.memory_bytes()
            + self.metas.len() * size_of::<u32>()
            + self.ranges.memory_bytes()
            + self.hot.memory_bytes()
            + self.tally.values.len() * VALUE_FILE_BYTES
            + more;
        let missing = (bytes as u64).checked_sub(self.growth.bytes()).filter(|more| *more > 0);
        missing.map_or(Ok(()), |more| self.growth.grow(more.max(STEP_BYTES)))
    }

    /// Writes the tail and the footers, each of them twice, so that every page of them has a copy.
    pub(super) fn finish(&mut self) -> Result<Summary> {
        if !self.meta.is_empty() {
            self.end_partition()?;
        }
        let top = encode_top(&self.metas, &self.top)?;
        let properties = self.finish_properties();
        let stored = properties.encode();
        let [range_deletes, top_at, properties_at] = self.put_tail(&top, &stored)?;
        let [copy, ..] = self.put_tail(&top, &stored)?;
        let footer = Footer {
            version: Footer::version_of(
                self.layout,
                properties.hash_key.0.is_some(),
                properties.straddled_blocks > 0,
            ),
            may_deflate: properties.codec.0 == base::Codec::Deflate,
            pages: self.output.pages() + 2,
            store: self.store,
            table: self.table,
            range_deletes,
            top: top_at,
            properties: properties_at,
            digest: self.output.digest(),
            copy: Some(copy),
        };
        invariant!(
            properties.data_pages + properties.meta_pages == u64::from(range_deletes),
            "data and metadata pages are all the pages before the range deletes"
        );
        invariant!(
            range_deletes <= top_at && top_at < properties_at && properties_at < copy,
            "the sections of a table are in order"
        );
        invariant!(
            copy - range_deletes == self.output.pages() - copy,
            "both copies of the tail have the same pages"
        );
        debug_assert!(
            Properties::decode(&stored).is_ok_and(|read| read == properties),
            "properties that are written read back"
        );
        debug_assert!(
            Top::parse(&top).and_then(|top| top.check(range_deletes)).is_ok(),
            "the top level covers the pages of every partition"
        );
        for _ in 0..2 {
            self.output.put(Section::plain(PageKind::Footer, &footer.encode()))?;
        }
        invariant!(footer.pages == self.output.pages(), "the footer states the file's length");
        self.output.finish()?;
        Ok(Summary {
            table: self.table,
            file_bytes: u64::from(footer.pages) * PAGE_BYTES as u64,
            pages: footer.pages,
            digest: footer.digest,
            properties,
            hot: self.hot.take(),
        })
    }

    /// Writes range deletes, if there are any, top level and properties. Returns the first page of each.
    fn put_tail(&mut self, top: &[u8], properties: &[u8]) -> Result<[u32; 3]> {
        let range_deletes = self.output.pages();
        if !self.ranges.is_empty() {
            let counts = self.ranges.counts();
            let payload = Pieces::new(&counts, self.ranges.entries(), &[]);
            self.output.put(Section::pieces(PageKind::RangeDeletes, payload))?;
        }
        let top = self.output.put(Section::plain(PageKind::Top, top))?;
        let properties = self.output.put(Section::plain(PageKind::Properties, properties))?;
        Ok([range_deletes, top, properties])
    }

    fn finish_properties(&mut self) -> Properties {
        let mut properties = std::mem::take(&mut self.properties);
        if !self.ranges.is_empty() {
            properties.range_deletes = u64::from(self.ranges.seqnos());
            properties.range_end = self.ranges.end().to_vec();
            if self.tally.entries == 0 || self.ranges.first() < properties.first_key.as_slice() {
                properties.first_key = self.ranges.first().to_vec();
            }
        }
        std::mem::take(&mut self.tally).put(&mut properties);
        properties
    }
}
