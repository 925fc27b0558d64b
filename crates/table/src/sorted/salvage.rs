//! Salvage: reads the readable blocks of a table that cannot be opened or trusted.
//!
//! Only the identity of the table is needed: every page states its kind and has a checksum seeded with
//! its position. So the file is scanned front to back, and every block that verifies (I8) is passed on
//! in order. A gap between two such blocks is reported as the range of keys between them. Footer, top
//! level, properties and metadata pages only help to distinguish lost data pages from other pages. Parts
//! that a table stores twice are read from either copy.
//!
//! Memory: one buffer, one block, and the lost ranges of one partition, charged (I10).

mod hash_key;
mod part;

use std::ops::Range;
use std::sync::Arc;

use base::limits::{PAGE_BYTES, TABLE_PAGES_MAX};
use base::{
    Account, Error, ErrorKind, HashKey, PageSeed, Result, StoreId, TableId, Trailer, invariant,
};
use bytes::Bytes;
use media::{Access, Buf, File, Medium, Purpose};

use super::block::{Block, BlockPosition};
use super::footer::Footer;
use super::meta::MetaPage;
use super::properties::Properties;
use super::range_section;
use super::read::{decode_run, read_pages, section};
use super::version_order::VersionOrder;
use crate::dictionary::Dictionaries;
use crate::name::file_name;
use crate::page::{Header, PageKind};
use crate::range_deletes::Fragment;
use crate::{PageBuffer, PageWalk};

/// Lost ranges that are held back until the next metadata page.
const PENDING_MAX: usize = 256;

/// An item that a salvage found or lost.
#[derive(Debug)]
pub enum Salvaged<'a> {
    /// A version. Versions come in the order of the table.
    Version {
        /// Its key.
        key: &'a [u8],
        /// Its stored seqno, and its kind.
        trailer: Trailer,
        /// Its value, in the form of its kind.
        value: &'a [u8],
    },
    /// A fragment of range deletes. Fragments come after the versions, ascending.
    RangeDelete(Fragment<'a>),
    /// A range of keys with versions that may be lost.
    Lost(LostKeys),
}

/// A range of keys of which versions may be lost: all versions of the keys between the two given keys,
/// and some of these two.
#[derive(Clone, Debug)]
pub struct LostKeys {
    /// The pages that do not verify.
    pub pages: Range<u32>,
    /// The last key read before them; `None` at the beginning of the table.
    pub after: Option<Vec<u8>>,
    /// The first key read after them; `None` if no block after them was read.
    pub before: Option<Vec<u8>>,
    /// The error of the first of the pages.
    pub error: Error,
}

/// Result for the range deletes of a salvaged table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeDeletesFound {
    /// All were read; there may be none.
    All,
    /// There were some, and they are lost: versions that they deleted in older tables would become
    /// visible again.
    Lost,
    /// None were read, and no remaining page says whether there were any.
    Unknown,
}

/// Summary of a salvage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SalvageReport {
    /// Number of versions read.
    pub versions: u64,
    /// Number of blocks read.
    pub blocks: u64,
    /// Number of lost pages: data and metadata pages that do not verify, and pages of lost range
    /// deletes.
    pub lost_pages: u64,
    /// Number of key ranges that may be lost.
    pub lost_ranges: u64,
    /// Result for the range deletes.
    pub range_deletes: RangeDeletesFound,
}

/// Salvages `table` of `store`, and passes each item to `visit`. Compact blocks are read with `hash_key`,
/// the hash key of the table's keyspace, if it is known, otherwise with that of the table's properties.
///
/// # Errors
/// `Invalid` if there is no such file or a newer version wrote it, `Retry` if memory is short, and the
/// errors of `visit`. Damage is no error.
pub fn salvage(
    medium: &dyn Medium,
    store: StoreId,
    table: TableId,
    dictionaries: &dyn Dictionaries,
    hash_key: Option<HashKey>,
    account: &Account,
    visit: &mut dyn FnMut(Salvaged<'_>) -> Result<()>,
) -> Result<SalvageReport> {
    let buffer = PageBuffer::new(account)?;
    let file = medium.open(&file_name(table), Access::Direct)?;
    // A partial page at the end is ignored.
    let pages = (file.size()? / PAGE_BYTES as u64).min(TABLE_PAGES_MAX) as u32;
    let seed = PageSeed::new(store, table);
    let mut salvage = Salvage {
        walk: PageWalk::new(Arc::clone(&file), seed, pages, Purpose::Scrub, buffer),
        file,
        seed,
        pages,
        dictionaries,
        hash_key,
        account,
        visit,
        position: BlockPosition::new(),
        order: VersionOrder::default(),
        gap: None,
        pending: Vec::new(),
        report: SalvageReport {
            versions: 0,
            blocks: 0,
            lost_pages: 0,
            lost_ranges: 0,
            range_deletes: RangeDeletesFound::Unknown,
        },
    };
    let footer = salvage.footer(store, table)?;
    if salvage.hash_key.is_none() {
        salvage.hash_key = salvage.stored_hash_key(footer)?;
    }
    let end = salvage.versions(footer.map(|footer| footer.range_deletes))?;
    salvage.finish_versions(end)?;
    salvage.range_deletes(footer, end)?;
    Ok(salvage.report)
}

struct Salvage<'a> {
    walk: PageWalk,
    file: Arc<dyn File>,
    seed: PageSeed,
    pages: u32,
    dictionaries: &'a dyn Dictionaries,
    hash_key: Option<HashKey>,
    account: &'a Account,
    visit: &'a mut dyn FnMut(Salvaged<'_>) -> Result<()>,
    position: BlockPosition,
    /// The versions read.
    order: VersionOrder,
    /// The pages lost since the last version.
    gap: Option<LostKeys>,
    /// Lost ranges that may turn out to be only a metadata page.
    pending: Vec<LostKeys>,
    report: SalvageReport,
}

/// Separates damage, which a salvage skips, from a memory shortage, which ends it.
fn readable<T>(read: Result<T>) -> Result<Result<T, Error>> {
    match read {
        Err(error) if error.is_retryable() => Err(error),
        read => Ok(read),
    }
}

impl Salvage<'_> {
    /// The footer, if it verifies.
    fn footer(&mut self, store: StoreId, table: TableId) -> Result<Option<Footer>> {
        if self.pages == 0 {
            return Ok(None);
        }
        let read = Footer::find(self.pages, |number| {
            let page = read_pages(&*self.file, self.seed, number, 1, Purpose::Scrub)?;
            Footer::parse(&page, number, self.pages)?.expect(store, table)
        });
        match read {
            // A newer version's file: this build might misread it.
            Err(error)
                if matches!(error.kind(), ErrorKind::Invalid | ErrorKind::PermissionDenied) =>
            {
                Err(error)
            }
            read => Ok(readable(read)?.ok().map(|(footer, _)| footer)),
        }
    }

    /// Reads all blocks up to page `end`, if it is known; otherwise up to the first page that no block
    /// can follow. Returns the end, if it is known by then.
    fn versions(&mut self, end: Option<u32>) -> Result<Option<u32>> {
        // The last page is the footer, readable or not.
        let scanned = end.unwrap_or(self.pages.saturating_sub(1));
        let mut page = 0;
        while page < scanned {
            let header = match readable(self.header(page))? {
                Ok(header) => header,
                Err(error) => {
                    self.note_lost(page, error);
                    page += 1;
                    continue;
                }
            };
            page += match (header.kind, header.number) {
                (PageKind::Data | PageKind::Straddled, 0) => self.block(page, header)?,
                (PageKind::Straddled, _) => self.part(page, header)?,
                (PageKind::Data, number) => {
                    let error =
                        Error::corrupt("page of a run").got(format_args!("number {number}"));
                    self.note_lost(page, error);
                    1
                }
                (PageKind::Meta, _) => {
                    self.partition_ended(page)?;
                    1
                }
                _ => return Ok(Some(page)),
            };
        }
        Ok(end)
    }

    fn header(&mut self, page: u32) -> Result<Header> {
        Header::parse(self.walk.run(page, 1, self.pages)?)
    }

    /// Reads the block at `page`, which has the header `header`, and passes on all of its versions or, of a
    /// straddled one, those on sound pages. Returns the number of pages to move forward.
    fn block(&mut self, page: u32, header: Header) -> Result<u32> {
        let count = header.run_pages() as u32;
        let (bytes, order) = match readable(self.decode(page, count))? {
            Ok(decoded) => decoded,
            Err(_) if header.straddle.is_some() => return self.part(page, header),
            Err(error) => {
                // The pages after the first may be sound, or begin another block.
                self.note_lost(page, error);
                return Ok(1);
            }
        };
        let block = Block::parse(&bytes, self.hash_key)?;
        self.position.first(block)?;
        if let Some(mut lost) = self.gap.take() {
            lost.before = Some(self.position.key().to_vec());
            self.hold(lost)?;
        }
        self.report.blocks += 1;
        while let Some(entry) = self.position.entry() {
            let (key, trailer) = (self.position.key(), entry.trailer);
            (self.visit)(Salvaged::Version { key, trailer, value: block.value(entry) })?;
            self.report.versions += 1;
            self.position.next(block)?;
        }
        self.order = order;
        Ok(count)
    }

    /// The block at `page`, decompressed. All of its entries can be read, and are in order after the versions
    /// before; the order includes them.
    fn decode(&mut self, page: u32, count: u32) -> Result<(Bytes, VersionOrder)> {
        let pages = self.walk.run(page, count, self.pages)?.chunks_exact(PAGE_BYTES);
        let bytes = decode_run(pages, count, self.dictionaries, self.account)?;
        let block = Block::parse(&bytes, self.hash_key)?;
        let mut order = self.order.clone();
        self.position.first(block)?;
        while let Some(entry) = self.position.entry() {
            order.pass(self.position.key(), entry.trailer)?;
            self.position.next(block)?;
        }
        Ok((bytes, order))
    }

    /// Notes a page that does not verify.
    fn note_lost(&mut self, page: u32, error: Error) {
        self.report.lost_pages += 1;
        let after = || self.order.key().map(<[u8]>::to_vec);
        let gap = self.gap.get_or_insert_with(|| LostKeys {
            pages: page..page,
            after: after(),
            before: None,
            error,
        });
        invariant!(gap.pages.end <= page, "pages are scanned in order");
        gap.pages.end = page + 1;
    }

    /// Holds a lost range back until the next metadata page.
    fn hold(&mut self, lost: LostKeys) -> Result<()> {
        self.pending.push(lost);
        if self.pending.len() < PENDING_MAX { Ok(()) } else { self.report_lost() }
    }

    fn report_lost(&mut self) -> Result<()> {
        for lost in self.pending.drain(..) {
            self.report.lost_ranges += 1;
            (self.visit)(Salvaged::Lost(lost))?;
        }
        Ok(())
    }

    /// Processes the metadata page `page`. The page before its partition's first page is the metadata
    /// page of the previous partition, whether or not it verifies.
    fn partition_ended(&mut self, page: u32) -> Result<()> {
        let meta = MetaPage::parse(self.walk.run(page, 1, self.pages)?);
        let meta = meta.map(|meta| meta.data_pages());
        let first = meta.map_or(page, |(first, _)| first);
        self.metadata_before(first);
        self.report_lost()
    }

    /// Notes that the page before `page` held no keys.
    fn metadata_before(&mut self, page: u32) {
        for lost in &mut self.pending {
            if lost.pages.end == page {
                lost.pages.end -= 1;
            }
        }
        self.pending.retain(|lost| !lost.pages.is_empty());
    }

    /// Reports the ranges lost at the end of the versions, at page `end` if it is known.
    fn finish_versions(&mut self, end: Option<u32>) -> Result<()> {
        let mut gap = self.gap.take();
        if end.is_none() {
            // More versions may have followed, and been cut off.
            let after = self.order.key().map(<[u8]>::to_vec);
            let at = self.pages.saturating_sub(1);
            let error = Error::corrupt("end of a table").got("no page that belongs there");
            gap = gap.or(Some(LostKeys { pages: at..self.pages, after, before: None, error }));
        }
        self.pending.extend(gap);
        if let Some(end) = end {
            self.metadata_before(end);
        }
        self.report_lost()
    }

    /// Reads the range deletes. If the footer is lost, they follow the versions, from page `end` on.
    fn range_deletes(&mut self, footer: Option<Footer>, end: Option<u32>) -> Result<()> {
        self.report.range_deletes = match (footer, end) {
            (Some(footer), _) => {
                let (first, count) = (footer.range_deletes, footer.top - footer.range_deletes);
                if count == 0 || self.ranges(first, count, Some(footer))? {
                    RangeDeletesFound::All
                } else {
                    self.report.lost_pages += u64::from(count);
                    RangeDeletesFound::Lost
                }
            }
            (None, Some(end)) => self.ranges_behind(end)?,
            (None, None) => return Ok(()),
        };
        Ok(())
    }

    /// Reads from page `end` on either copy of the range deletes, or a page that says whether there were
    /// any.
    fn ranges_behind(&mut self, end: u32) -> Result<RangeDeletesFound> {
        let before = end.checked_sub(1).map(|before| self.header(before));
        let follows_meta = matches!(before, Some(Ok(Header { kind: PageKind::Meta, .. })));
        let mut found = RangeDeletesFound::Unknown;
        for page in end..self.pages {
            let Ok(header) = readable(self.header(page))? else { continue };
            let count = header.run_pages() as u32;
            match (header.kind, header.number) {
                // No page lies between the versions and the top level, so there were no range deletes.
                (PageKind::Top, 0) if page == end && follows_meta => {
                    return Ok(RangeDeletesFound::All);
                }
                (PageKind::RangeDeletes, 0) if self.ranges(page, count, None)? => {
                    return Ok(RangeDeletesFound::All);
                }
                (PageKind::RangeDeletes, _) => found = RangeDeletesFound::Lost,
                (PageKind::Properties, 0) => {
                    let read = self.section(PageKind::Properties, page, count, None);
                    match readable(read.and_then(|bytes| Properties::decode(&bytes)))? {
                        Ok(Properties { range_deletes: 0, .. }) => {
                            return Ok(RangeDeletesFound::All);
                        }
                        Ok(_) => found = RangeDeletesFound::Lost,
                        Err(_) => {}
                    }
                }
                _ => {}
            }
        }
        Ok(found)
    }

    /// Passes on the range deletes on `count` pages from `first` on. False if they cannot be read.
    fn ranges(&mut self, first: u32, count: u32, footer: Option<Footer>) -> Result<bool> {
        let mut charge = self.account.charge(u64::from(count) * PAGE_BYTES as u64)?;
        let read = self.section(PageKind::RangeDeletes, first, count, footer);
        let deletes = read.and_then(|bytes| range_section::decode(&bytes.into(), &mut charge));
        let Ok(deletes) = readable(deletes)? else { return Ok(false) };
        deletes.iter().try_for_each(|fragment| (self.visit)(Salvaged::RangeDelete(fragment)))?;
        Ok(true)
    }

    /// The content of a section. A lost page is read from its twin if `footer` knows one.
    fn section(
        &self,
        kind: PageKind,
        first: u32,
        count: u32,
        footer: Option<Footer>,
    ) -> Result<Vec<u8>> {
        if first.checked_add(count).is_none_or(|end| end > self.pages) {
            return Err(Error::corrupt("section of a table").expected("its pages in the file"));
        }
        let mut pages = Buf::pages(count as usize);
        for (number, page) in (first..).zip(pages.chunks_exact_mut(PAGE_BYTES)) {
            let read = |number| read_pages(&*self.file, self.seed, number, 1, Purpose::Scrub);
            let twin = footer.and_then(|footer| footer.twin(number));
            let sound = read(number).or_else(|error| twin.map_or(Err(error), read))?;
            page.copy_from_slice(&sound);
        }
        section(kind, &pages)
    }
}
