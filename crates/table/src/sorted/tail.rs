//! The tail of a table file: range deletes, top level, properties and footers, which the open reads.
//!
//! From format version 3 on the whole tail is written twice. The open reads the second copy, which
//! precedes the footers, for most tables together with them in one read. A damaged page is read from the
//! first copy. The damage is still reported, although nothing is lost.

use base::limits::{PAGE_BYTES, TABLE_PAGES_MAX};
use base::{Account, Charge, Error, ErrorKind, PageSeed, Result, broken_invariant};
use bytes::Bytes;
use media::{Buf, File, Purpose};

use super::footer::{COMPACT_VERSION, Footer};
use super::layout::Layout;
use super::pinned_range_deletes::PinnedRangeDeletes;
use super::properties::Properties;
use super::read::{read_pages, read_raw, section};
use super::table::Table;
use super::top::Top;
use crate::page::{PageKind, verify_page};
use crate::reread::reread;

/// Pages at the end of a table's file that its opening reads first. They contain all that the open needs for
/// tables of up to about 100,000 pages.
pub const TAIL_PAGES: u32 = 16;

/// Bytes of a table file beside its entries, at least: a metadata page, and top level, properties and footer,
/// each twice.
pub const OVERHEAD_BYTES_MIN: u64 = 7 * PAGE_BYTES as u64;

/// The parts that an open table keeps in memory.
pub(crate) struct Sections {
    pub(crate) top: Vec<u8>,
    pub(crate) properties: Properties,
    pub(crate) range_deletes: PinnedRangeDeletes,
    /// For everything but the range deletes.
    pub(crate) charge: Charge,
}

/// The end of a table file, read once, and verified with the identity that the footer states.
pub(crate) struct Tail {
    pub(crate) footer: Footer,
    /// The last page that was read from its copy, and the error of that page.
    pub(crate) lost: Option<(u32, Error)>,
    /// The file's pages from `first` on.
    buf: Buf,
    first: u32,
    charge: Charge,
}

impl Tail {
    /// Reads the last pages, and the footer among them.
    pub(crate) fn read(
        file: &dyn File,
        expected_bytes: Option<u64>,
        account: &Account,
    ) -> Result<Self> {
        let size = file.size()?;
        if expected_bytes.is_some_and(|expected| expected != size) {
            return Err(Error::corrupt("table length, bytes")
                .expected(expected_bytes.unwrap_or_default())
                .got(size));
        }
        let pages = size / PAGE_BYTES as u64;
        if !size.is_multiple_of(PAGE_BYTES as u64) || pages == 0 || pages > TABLE_PAGES_MAX {
            return Err(Error::corrupt("table length, bytes")
                .expected(format_args!("whole pages of {PAGE_BYTES}, at most {TABLE_PAGES_MAX}"))
                .got(size));
        }
        let pages = pages as u32;
        let first = pages.saturating_sub(TAIL_PAGES);
        let charge = account.charge(Self::memory_for(pages - first))?;
        let buf = read_end(file, first, pages - first)?;
        let (footer, lost) = Footer::find(pages, |number| {
            let page = page_at(&buf, number - first);
            let again = || Footer::parse(&read_raw(file, number, 1, Purpose::Meta)?, number, pages);
            Footer::parse(page, number, pages).or_else(|error| reread(error, again))
        })?;
        let lost = lost.map(|error| (pages - 1, error));
        Ok(Self { footer, lost, buf, first, charge })
    }

    /// Memory for the pages as read, and for their copied content, bytes.
    const fn memory_for(pages: u32) -> u64 {
        2 * pages as u64 * PAGE_BYTES as u64
    }

    /// The first page of the copy that is read.
    fn start(&self) -> u32 {
        self.footer.copy.unwrap_or(self.footer.range_deletes)
    }

    /// Reads the missing pages, and verifies all of them.
    pub(crate) fn complete(&mut self, file: &dyn File, account: &Account) -> Result<()> {
        let (footer, start) = (self.footer, self.start());
        if start < self.first {
            let pages = footer.pages - start;
            let charge = account.charge(Self::memory_for(pages))?;
            self.buf = read_end(file, start, pages)?;
            (self.first, self.charge) = (start, charge);
        }
        let seed = PageSeed::new(footer.store, footer.table);
        let alone = |number| {
            let read = || read_pages(file, seed, number, 1, Purpose::Meta);
            read().or_else(|error| reread(error, read))
        };
        for number in start..footer.first_footer() {
            let at = (number - self.first) as usize * PAGE_BYTES;
            let page = self.buf.get_mut(at..at + PAGE_BYTES);
            let page = page.ok_or_else(|| broken_invariant!("the tail's pages were read"))?;
            if verify_page(seed, number, page).is_ok() {
                continue;
            }
            let sound = alone(number).or_else(|error| match footer.twin(number) {
                Some(twin) if error.kind() == ErrorKind::Corrupt => {
                    let sound = alone(twin).map_err(|_| error.clone())?;
                    self.lost = Some((number, error));
                    Ok(sound)
                }
                _ => Err(error),
            })?;
            page.copy_from_slice(&sound);
        }
        Ok(())
    }

    /// Range deletes, charged to `account`; top level and properties, with their charge.
    pub(crate) fn sections(mut self, account: &Account) -> Result<Sections> {
        let (Footer { range_deletes, top, properties, .. }, start) = (self.footer, self.start());
        let cut = |from: u32, to: u32| {
            let offset =
                |page: u32| (start - self.first + (page - range_deletes)) as usize * PAGE_BYTES;
            let pages = self.buf.get(offset(from)..offset(to));
            pages.ok_or_else(|| broken_invariant!("the tail's pages were read"))
        };
        let mut top_level = section(PageKind::Top, cut(top, properties)?)?;
        let end = self.footer.tail_end();
        let stored = section(PageKind::Properties, cut(properties, end)?)?;
        let properties = Properties::decode(&stored)?;
        let layout = properties.layout()?;
        let is_compact = self.footer.version >= COMPACT_VERSION;
        let has_bins = layout != Layout::Sorted;
        let least = Footer::version_of(layout, is_compact, properties.straddled_blocks > 0);
        let is_known = !has_bins || self.footer.version >= least;
        if !is_known || (is_compact && (!has_bins || properties.hash_key.0.is_none())) {
            return Err(Error::corrupt("format version of a table with bins")
                .expected(format_args!("{least}, and a hash key from {COMPACT_VERSION} on"))
                .got(self.footer.version));
        }
        let partitions = Top::parse(&top_level)?;
        partitions.check(range_deletes)?;
        if (partitions.partitions() == 0) != (properties.entries == 0) {
            return Err(Error::corrupt("entries of a table")
                .expected(format_args!("those of {} partitions", partitions.partitions()))
                .got(properties.entries));
        }
        top_level.shrink_to_fit();
        let ranges = match range_deletes < top {
            true => section(PageKind::RangeDeletes, cut(range_deletes, top)?)?.into(),
            false => Bytes::new(),
        };
        let kept = (size_of::<Table>() + top_level.len() + properties.memory_bytes()) as u64;
        let deletes = PinnedRangeDeletes::decode(&ranges, account.empty_charge())?;
        // A long list of value files takes more memory than its encoded form.
        if kept > self.charge.bytes() {
            self.charge.grow(kept - self.charge.bytes())?;
        }
        self.charge.shrink_to(kept);
        Ok(Sections { top: top_level, properties, range_deletes: deletes, charge: self.charge })
    }
}

/// Reads the `pages` pages from `first` on, unverified. If the read fails the pages are zeros, which
/// verify as no page: an unreadable sector fails the whole read, and each page is then read alone.
fn read_end(file: &dyn File, first: u32, pages: u32) -> Result<Buf> {
    match read_raw(file, first, pages, Purpose::Meta) {
        Err(error) if error.kind() == ErrorKind::Corrupt => Ok(Buf::pages(pages as usize)),
        read => read,
    }
}

/// Page `number` of `buf`, counted from 0.
fn page_at(buf: &[u8], number: u32) -> &[u8] {
    buf.chunks_exact(PAGE_BYTES).nth(number as usize).unwrap_or_default()
}
