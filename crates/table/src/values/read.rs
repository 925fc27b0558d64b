//! An open value file, and the read of one value: a resumable state machine that asks for pages.
//!
//! Opening reads the footer. A value is one run of pages, so reading it is one device operation.

use std::fmt;
use std::iter;
use std::sync::Arc;

use base::limits::{PAGE_BYTES, TABLE_PAGES_MAX};
use base::{Account, Error, ErrorKind, KeyspaceId, PageSeed, Result, StoreId, TableId, invariant};
use bytes::Bytes;
use media::{Access, Buf, File, Medium, Purpose};

use super::footer::ValuesFooter;
use super::head;
use crate::page::{Header, PageKind, payload};
use crate::sorted::read::{decode_kind, decode_pages, read_pages, read_raw};
use crate::sorted::step::{Pages, Span, Step};
use crate::{NoDictionaries, Pointer, values_file_name};

/// Pages per read when a value is copied.
const CHUNK_PAGES: u32 = 64;

/// An open value file. Takes almost no memory.
pub struct Values {
    file: Arc<dyn File>,
    seed: PageSeed,
    footer: ValuesFooter,
    /// Charged for values while readers hold them.
    account: Account,
}

impl Values {
    /// Opens the value file `id` of `store`.
    ///
    /// # Errors
    /// `Corrupt` if the file is damaged, another's, or not of `expected_bytes` if given; `Invalid` if
    /// there is no file or a newer version wrote it.
    pub fn open(
        medium: &dyn Medium,
        store: StoreId,
        id: TableId,
        expected_bytes: Option<u64>,
        account: &Account,
    ) -> Result<Arc<Self>> {
        let name = values_file_name(id);
        let file = medium.open(&name, Access::Direct)?;
        let footer = read_footer(&*file, expected_bytes)
            .and_then(|footer| footer.expect(store, id))
            .map_err(|error| error.at(&name))?;
        let seed = PageSeed::new(store, id);
        Ok(Arc::new(Self { file, seed, footer, account: account.clone() }))
    }

    /// Opens the value file that `known` describes. If the footer page is damaged, `known` is used
    /// instead: the footer has no other content, and each value verifies by itself.
    ///
    /// # Errors
    /// As [`Values::open`], except for damage of the footer page.
    pub fn open_known(
        medium: &dyn Medium,
        known: ValuesFooter,
        account: &Account,
    ) -> Result<Arc<Self>> {
        let ValuesFooter { store, file: id, pages, .. } = known;
        let bytes = u64::from(pages) * PAGE_BYTES as u64;
        Self::open(medium, store, id, Some(bytes), account).or_else(|error| {
            let name = values_file_name(id);
            if error.kind() != ErrorKind::Corrupt {
                return Err(error);
            }
            let file = medium.open(&name, Access::Direct)?;
            // A file of another length, or another's, is not the known file.
            if file.size()? != bytes {
                return Err(error);
            }
            let footer = match read_footer(&*file, Some(bytes)) {
                // The device failed the first read, and succeeds now.
                Ok(footer) => footer.expect(store, id).map_err(|error| error.at(&name))?,
                Err(_) => known,
            };
            let seed = PageSeed::new(store, id);
            Ok(Arc::new(Self { file, seed, footer, account: account.clone() }))
        })
    }

    /// Opens the value file `id` of `store`, whatever its footer says, to read the remaining values of a
    /// damaged file by the pointers to them.
    ///
    /// # Errors
    /// `Invalid` if there is no file; otherwise the medium's.
    pub fn open_damaged(
        medium: &dyn Medium,
        store: StoreId,
        id: TableId,
        account: &Account,
    ) -> Result<Arc<Self>> {
        let file = medium.open(&values_file_name(id), Access::Direct)?;
        // In a truncated file every remaining page may belong to a value.
        let pages = (file.size()? / PAGE_BYTES as u64 + 1).min(TABLE_PAGES_MAX);
        let footer = ValuesFooter {
            pages: pages as u32,
            store,
            file: id,
            keyspace: KeyspaceId::default(),
            values: 0,
            value_bytes: 0,
            digest: 0,
        };
        let seed = PageSeed::new(store, id);
        Ok(Arc::new(Self { file, seed, footer, account: account.clone() }))
    }

    /// The store in the footer of the value file `id`, for a caller that has lost the manifest.
    ///
    /// # Errors
    /// As [`Values::open`].
    pub fn store_of(medium: &dyn Medium, id: TableId) -> Result<StoreId> {
        let name = values_file_name(id);
        let read = || read_footer(&*medium.open(&name, Access::Direct)?, None);
        read().map(|footer| footer.store).map_err(|error| error.at(&name))
    }

    /// The file's id.
    #[must_use]
    pub const fn id(&self) -> TableId {
        self.footer.file
    }

    /// Length of the file, bytes.
    #[must_use]
    pub fn file_bytes(&self) -> u64 {
        u64::from(self.footer.pages) * PAGE_BYTES as u64
    }

    /// The file.
    #[must_use]
    pub const fn file(&self) -> &Arc<dyn File> {
        &self.file
    }

    /// The identity of the file's pages.
    #[must_use]
    pub const fn seed(&self) -> PageSeed {
        self.seed
    }

    /// The account of the values that readers hold.
    pub(super) const fn account(&self) -> &Account {
        &self.account
    }

    /// The footer of the file.
    #[must_use]
    pub const fn footer(&self) -> &ValuesFooter {
        &self.footer
    }

    /// The key of the value that page `page` belongs to, if the page is not the value's first and
    /// earlier pages of the value are readable. Takes two reads.
    ///
    /// # Errors
    /// `Corrupt` if those pages are damaged too.
    pub fn key_on(&self, page: u32) -> Result<Option<Vec<u8>>> {
        let read = |page| read_pages(&*self.file, self.seed, page, 1, Purpose::Scrub);
        let Some(before) = page.checked_sub(1) else { return Ok(None) };
        let header = Header::parse(&read(before)?)?;
        let index = u32::from(header.number) + 1;
        let first = page.checked_sub(index).filter(|_| (index as usize) < header.run_pages());
        let Some(first) = first.filter(|_| header.kind == PageKind::Values) else {
            return Ok(None);
        };
        let bytes = read(first)?;
        Ok(head::key_on(&bytes, &Header::parse(&bytes)?))
    }

    /// Passes the stored pages of the value at `pointer` to `see` in order: the header and the content
    /// of each. All pages are verified before the first is passed on (I8). Bypasses every cache; takes
    /// 256 KiB, whatever the value's length.
    ///
    /// # Errors
    /// `Corrupt` if pages are damaged or do not hold the value of `key`, and nothing was passed on;
    /// `Retry` if memory is short; otherwise those of `see`.
    pub(super) fn pages(
        &self,
        key: &[u8],
        pointer: Pointer,
        purpose: Purpose,
        see: &mut dyn FnMut(&Header, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let locate = |error: Error| error.at(values_file_name(self.id()));
        self.check(pointer).map_err(locate)?;
        let count = pointer.pages.min(CHUNK_PAGES);
        let _charge = self.account.charge(u64::from(count) * PAGE_BYTES as u64)?;
        // A value that fits one read is read once.
        if pointer.pages <= CHUNK_PAGES {
            let buf = self.chunk(pointer, 0, purpose).map_err(locate)?;
            self.check_pages(key, pointer, 0, &buf).map_err(locate)?;
            return each_page(&buf, see);
        }
        for from in (0..pointer.pages).step_by(CHUNK_PAGES as usize) {
            let buf = self.chunk(pointer, from, purpose).map_err(locate)?;
            self.check_pages(key, pointer, from, &buf).map_err(locate)?;
        }
        for from in (0..pointer.pages).step_by(CHUNK_PAGES as usize) {
            each_page(&self.chunk(pointer, from, purpose).map_err(locate)?, see)?;
        }
        Ok(())
    }

    /// Verified pages of a value, from its page `from` on.
    fn chunk(&self, pointer: Pointer, from: u32, purpose: Purpose) -> Result<Buf> {
        invariant!(from < pointer.pages, "a chunk is a part of its value");
        let count = (pointer.pages - from).min(CHUNK_PAGES);
        read_pages(&*self.file, self.seed, pointer.page + from, count, purpose)
    }

    /// Checks that `buf` holds the pages of the value of `key` from its page `from` on.
    fn check_pages(&self, key: &[u8], pointer: Pointer, from: u32, buf: &[u8]) -> Result<()> {
        for (number, page) in (from..).zip(buf.chunks_exact(PAGE_BYTES)) {
            let header = Header::parse(page)?;
            let is_next = header.kind == PageKind::Values
                && u32::from(header.number) == number
                && header.run_pages() == pointer.pages as usize;
            if !is_next {
                return Err(Error::corrupt("page of a value")
                    .expected(format_args!("page {number} of {}", pointer.pages))
                    .got(format_args!("{header:?}")));
            }
            // The key of a compressed value cannot be checked without decompression.
            if number == 0 && header.codec == base::Codec::None {
                let head = head::encode(key);
                let content = payload(page, &header)?;
                let there = content.get(..head.len().min(content.len())).unwrap_or_default();
                let bytes = head.len() as u64 + pointer.bytes;
                if !head.starts_with(there) || u64::from(header.raw_bytes) != bytes {
                    return Err(Error::corrupt("value and its key")
                        .expected(format_args!("{bytes} bytes of `{}`", key.escape_ascii()))
                        .got(format_args!("{header:?}")));
                }
            }
        }
        Ok(())
    }

    /// The value of `key` at `pointer`. One read that bypasses every cache, verified (I8).
    ///
    /// # Errors
    /// `Corrupt` if a page is damaged or holds another value, `Retry` if memory is short; otherwise the
    /// medium's.
    pub fn value(&self, key: &[u8], pointer: Pointer, purpose: Purpose) -> Result<Bytes> {
        let read = || {
            self.check(pointer)?;
            let charge = self.account.charge(u64::from(pointer.pages) * PAGE_BYTES as u64)?;
            let (first, pages) = (pointer.page, pointer.pages);
            let buf = read_pages(&*self.file, self.seed, first, pages, purpose)?;
            // The decoder charges the buffer that it decodes in place.
            drop(charge);
            self.decode(key, pointer, Pages::Run(buf))
        };
        read().map_err(|error: Error| error.at(values_file_name(self.id())))
    }

    /// Checks that `pointer` lies within the file's values.
    fn check(&self, pointer: Pointer) -> Result<()> {
        let end = pointer.page.checked_add(pointer.pages);
        if pointer.file == self.id() && end.is_some_and(|end| end < self.footer.pages) {
            return Ok(());
        }
        Err(Error::corrupt("pointer to a value")
            .expected(format_args!("pages of {} before {}", self.id(), self.footer.pages - 1))
            .got(format_args!("{pointer:?}")))
    }

    fn decode(&self, key: &[u8], pointer: Pointer, pages: Pages) -> Result<Bytes> {
        let content =
            decode_pages(PageKind::Values, pages, pointer.pages, &NoDictionaries, &self.account)?;
        let at = self.check_content(key, pointer, &content)?;
        Ok(content.slice(at..))
    }

    /// As `decode`, for a value of a single page; the value does not keep the page.
    fn decode_page(&self, key: &[u8], pointer: Pointer, page: &[u8]) -> Result<Bytes> {
        let pages = iter::once(page);
        let content =
            decode_kind(PageKind::Values, pages, pointer.pages, &NoDictionaries, &self.account)?;
        let at = self.check_content(key, pointer, &content)?;
        Ok(content.slice(at..))
    }

    /// Checks that `content` holds the value of `key`, and returns its offset.
    fn check_content(&self, key: &[u8], pointer: Pointer, content: &[u8]) -> Result<usize> {
        let (found, at) = head::split(content)?;
        let bytes = (content.len() - at) as u64;
        if found == key && bytes == pointer.bytes {
            return Ok(at);
        }
        Err(Error::corrupt("value and its key")
            .expected(format_args!("{} bytes of `{}`", pointer.bytes, key.escape_ascii()))
            .got(format_args!("{bytes} bytes of `{}`", found.escape_ascii())))
    }
}

/// The last page of `file`, verified with the identity that it states.
pub(super) fn read_footer(file: &dyn File, expected_bytes: Option<u64>) -> Result<ValuesFooter> {
    let size = file.size()?;
    let pages = size / PAGE_BYTES as u64;
    let is_whole = size.is_multiple_of(PAGE_BYTES as u64) && (2..=TABLE_PAGES_MAX).contains(&pages);
    if !is_whole || expected_bytes.is_some_and(|expected| expected != size) {
        return Err(Error::corrupt("length of a value file, bytes")
            .expected(match expected_bytes {
                Some(expected) => format!("{expected}"),
                None => format!("whole pages of {PAGE_BYTES}, two at least"),
            })
            .got(size));
    }
    let pages = pages as u32;
    ValuesFooter::parse(&read_raw(file, pages - 1, 1, Purpose::Meta)?, pages)
}

impl fmt::Debug for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Values({}, {} pages)", self.id(), self.footer.pages)
    }
}

fn each_page(buf: &[u8], see: &mut dyn FnMut(&Header, &[u8]) -> Result<()>) -> Result<()> {
    for page in buf.chunks_exact(PAGE_BYTES) {
        let header = Header::parse(page)?;
        see(&header, payload(page, &header)?)?;
    }
    Ok(())
}

/// The read of one value.
#[derive(Debug)]
pub struct ValueRead {
    values: Arc<Values>,
    pointer: Pointer,
}

impl ValueRead {
    /// A read of the value at `pointer` in `values`.
    ///
    /// # Errors
    /// `Corrupt` if the pointer is not into this file.
    pub fn new(values: Arc<Values>, pointer: Pointer) -> Result<Self> {
        values.check(pointer).map_err(|error| error.at(values_file_name(values.id())))?;
        Ok(Self { values, pointer })
    }

    /// The file being read.
    #[must_use]
    pub const fn values(&self) -> &Arc<Values> {
        &self.values
    }

    /// Continues the read: first without pages, then with the pages that the last step needed. `key` is
    /// the key of the value.
    ///
    /// # Errors
    /// `Corrupt` if the pages are damaged or hold another value, `Retry` if memory for the value is
    /// short.
    pub fn step(&mut self, key: &[u8], supplied: Option<Pages>) -> Result<Step<Bytes>> {
        let Some(supplied) = supplied else { return Ok(Step::Need(self.span())) };
        let value = match supplied {
            Pages::InPlace(page) => {
                let value = self.values.decode_page(key, self.pointer, &*page);
                if page.is_lost() {
                    return Ok(Step::Need(self.span()));
                }
                value
            }
            pages => self.values.decode(key, self.pointer, pages),
        };
        value.map(Step::Ready).map_err(|error| {
            let page = self.pointer.page;
            error.at(format_args!("page {page}")).at(values_file_name(self.values.id()))
        })
    }

    fn span(&self) -> Span {
        let Pointer { file, page, pages, .. } = self.pointer;
        let (table, file) = (file, self.values.footer().digest);
        Span { table, file, first: page, pages, meta: false }
    }
}
