//! Copier: copies a store's files and verifies them on the way.
//!
//! Content is verified as it is read (I8): every page of a table or value file under its own identity, and
//! the whole file against the digest in its footer. Every copy is identified by a digest: a table's is the
//! one that its footer records, that of any other file is a hash over its pages. So two tables that have the
//! same id but differ (a restored store has gone its own way) are told apart without reading them.
//!
//! A copy is synced when it is complete; the caller syncs its name. Threads: one per copier. Memory: one
//! buffer of 1 MiB, and one more at the end of a file, charged (I10).

use base::limits::{PAGE_BYTES, TABLE_PAGES_MAX};
use base::{Account, Cancel, Charge, Error, PageSeed, Result, StoreId, TableId, hash64};
use media::{Access, Buf, File, Medium, Purpose};
use table::{Footer, ValuesFooter, fold_digest, verify_page};

use crate::store_file::StoreFile;

/// Pages read and written at once: 1 MiB, which reaches the full bandwidth of any device.
const CHUNK_PAGES: usize = 256;
const PAGE: u64 = PAGE_BYTES as u64;

/// How the content of a file is verified and digested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// Sealed pages of a table; the last is a footer.
    Table(StoreId, TableId),
    /// Sealed pages of a value file; the last is a footer.
    Values(StoreId, TableId),
    /// Bytes without checksums of their own that the copier could verify.
    Plain,
}

impl Content {
    /// The content of the file `name` of `store`.
    pub(crate) fn of(name: &str, store: StoreId) -> Self {
        match StoreFile::of(name) {
            Some(StoreFile::Table(id)) => Self::Table(store, id),
            Some(StoreFile::Values(id)) => Self::Values(store, id),
            _ => Self::Plain,
        }
    }

    /// The store, and the file with the id that seeds the page checksums.
    fn identity(self) -> Option<(StoreId, TableId)> {
        match self {
            Self::Table(store, id) | Self::Values(store, id) => Some((store, id)),
            Self::Plain => None,
        }
    }

    /// The digest in the footer `page`, the last page of a file of `pages` pages.
    fn named_digest(self, page: &[u8], pages: u32) -> Result<Option<u64>> {
        let last = pages.saturating_sub(1);
        Ok(match self {
            Self::Table(store, id) => {
                Some(Footer::parse(page, last, pages)?.expect(store, id)?.digest)
            }
            Self::Values(store, id) => {
                Some(ValuesFooter::parse(page, pages)?.expect(store, id)?.digest)
            }
            Self::Plain => None,
        })
    }

    /// The digest that `file`, of `pages` pages, records in its footer; in either one if it has two.
    fn recorded_digest(self, file: &dyn File, pages: u32) -> Result<Option<u64>> {
        if let Self::Table(store, id) = self {
            let (footer, _) = Footer::read(file, pages)?;
            return Ok(Some(footer.expect(store, id)?.digest));
        }
        let at = u64::from(pages.saturating_sub(1)) * PAGE;
        let (page, result) = file.read(at, Buf::pages(1), Purpose::Scrub);
        result?;
        self.named_digest(&page, pages)
    }
}

/// The part of a file to copy: its first `bytes` bytes, and zeros behind them up to `len`, a multiple of the
/// page size. The digest covers the pages that hold the bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// Content, bytes.
    pub bytes: u64,
    /// Length of the file, bytes.
    pub len: u64,
}

/// Copies files, one at a time.
#[derive(Debug)]
pub(crate) struct Copier {
    cancel: Cancel,
    _charge: Charge,
}

impl Copier {
    /// Creates a copier. Its buffers are charged to `account`. `cancel` ends it between two chunks.
    ///
    /// # Errors
    /// `Retry` without memory.
    pub(crate) fn new(account: &Account, cancel: &Cancel) -> Result<Self> {
        let cancel = cancel.clone();
        // The last chunk of a file may need a buffer of its own length while the full one still exists.
        Ok(Self { cancel, _charge: account.charge((2 * CHUNK_PAGES * PAGE_BYTES) as u64)? })
    }

    /// Copies `part` of the file `name` on `from` to the new file `copy` on `to`, and syncs it. Returns its
    /// digest.
    ///
    /// # Errors
    /// `Corrupt` if the content is damaged, and the devices'. The caller then removes the incomplete copy.
    pub(crate) fn copy(
        &mut self,
        (from, name): (&dyn Medium, &str),
        part: Part,
        content: Content,
        (to, copy): (&dyn Medium, &str),
        progress: &mut dyn FnMut(u64),
    ) -> Result<u64> {
        let target = to.create(copy, Access::Direct, part.bytes.next_multiple_of(PAGE))?;
        let digest = self.stream(from, name, part, content, &mut |at, buf| {
            let bytes = buf.len() as u64;
            let (buf, written) = target.write(at, buf, Purpose::Scrub);
            written?;
            progress(bytes);
            Ok(buf)
        })?;
        if target.size()? != part.len {
            target.set_len(part.len)?;
        }
        target.sync(Purpose::Scrub)?;
        Ok(digest)
    }

    /// Reads and verifies the whole file `name`. Returns its digest.
    ///
    /// # Errors
    /// `Corrupt` if the content is damaged, and the device's.
    pub(crate) fn digest(
        &mut self,
        (from, name): (&dyn Medium, &str),
        len: u64,
        content: Content,
        progress: &mut dyn FnMut(u64),
    ) -> Result<u64> {
        self.stream(from, name, Part { bytes: len, len }, content, &mut |_, buf| {
            progress(buf.len() as u64);
            Ok(buf)
        })
    }

    /// Reads `part` of a file in chunks, verifies each and passes it to `sink`, which returns the buffer.
    /// Returns the digest.
    fn stream(
        &mut self,
        from: &dyn Medium,
        name: &str,
        part: Part,
        content: Content,
        sink: &mut dyn FnMut(u64, Buf) -> Result<Buf>,
    ) -> Result<u64> {
        let Part { mut bytes, len } = part;
        if !len.is_multiple_of(PAGE) || bytes > len {
            return Err(Error::corrupt("file length, bytes")
                .at(name)
                .expected("whole pages")
                .got(format_args!("{len}, {bytes} of them content")));
        }
        let access = match content {
            Content::Table(..) | Content::Values(..) => Access::Direct,
            // The log and the manifest are written through the operating system's page cache.
            Content::Plain => Access::Bytes,
        };
        let file = from.open(name, access)?;
        let end = bytes.next_multiple_of(PAGE);
        let mut digest = Digest::new(content, end)?;
        let mut buf = Buf::pages(CHUNK_PAGES);
        let mut at = 0;
        while at < end {
            self.cancel.check("copy")?;
            if content == Content::Plain {
                // A log segment may be truncated, which loses only zeros, before or while it is read.
                bytes = bytes.min(file.size()?);
            }
            let content_left = bytes.saturating_sub(at);
            let chunk = if content_left > 0 { content_left } else { end - at };
            let pages = chunk.div_ceil(PAGE).min(CHUNK_PAGES as u64) as usize;
            if buf.len() != pages * PAGE_BYTES {
                buf = Buf::pages(pages);
            }
            if content_left > 0 {
                let (back, result) = file.read(at, buf, Purpose::Scrub);
                buf = back;
                if result.is_err() && content == Content::Plain && file.size()? < bytes {
                    continue;
                }
                result?;
            }
            let content_here = usize::try_from(content_left).unwrap_or(usize::MAX);
            buf.iter_mut().skip(content_here).for_each(|byte| *byte = 0);
            digest.add(&buf).map_err(|error| error.at(name))?;
            buf = sink(at, buf)?;
            at += buf.len() as u64;
        }
        digest.finish().map_err(|error| error.at(name))
    }
}

/// The digest of a file, computed page by page while it is read.
struct Digest {
    content: Content,
    digest: u64,
    /// The number of the next page.
    page: u32,
    /// Number of pages in the file.
    pages: u32,
    /// The digest that the footer records.
    named: Option<u64>,
}

impl Digest {
    fn new(content: Content, len: u64) -> Result<Self> {
        let pages = len / PAGE;
        if pages > TABLE_PAGES_MAX {
            return Err(Error::corrupt("pages of a file").expected(TABLE_PAGES_MAX).got(pages));
        }
        Ok(Self { content, digest: 0, page: 0, pages: pages as u32, named: None })
    }

    /// Verifies the next pages and adds them to the digest.
    fn add(&mut self, bytes: &[u8]) -> Result<()> {
        for page in bytes.chunks(PAGE_BYTES) {
            let number = self.page;
            self.page += 1;
            let Some((store, id)) = self.content.identity() else {
                self.digest = hash64(self.digest, page);
                continue;
            };
            verify_page(PageSeed::new(store, id), number, page)?;
            if number + 1 == self.pages {
                self.named = self.content.named_digest(page, self.pages)?;
            } else {
                self.digest = fold_digest(self.digest, page);
            }
        }
        Ok(())
    }

    /// Returns the digest, after comparing it with the one in the footer.
    fn finish(self) -> Result<u64> {
        base::invariant!(self.page == self.pages, "a digest covers every page of its file");
        if self.content == Content::Plain || self.named == Some(self.digest) {
            return Ok(self.digest);
        }
        Err(Error::corrupt("digest of a file")
            .expected(format_args!("{:016x}", self.named.unwrap_or_default()))
            .got(format_args!("{:016x}", self.digest)))
    }
}

/// Returns the length and digest of a table or value file, as its footer records them. Reads and verifies one
/// page, or two.
///
/// # Errors
/// `Invalid` if `content` is plain; `Corrupt` if the footer is damaged; the device's.
pub(crate) fn recorded_digest(
    medium: &dyn Medium,
    name: &str,
    content: Content,
) -> Result<(u64, u64)> {
    let read = || {
        let file = medium.open(name, Access::Direct)?;
        let len = file.size()?;
        if len == 0 || !len.is_multiple_of(PAGE) || len / PAGE > TABLE_PAGES_MAX {
            return Err(Error::corrupt("table length, bytes").expected("whole pages").got(len));
        }
        let digest = content.recorded_digest(&*file, (len / PAGE) as u32)?;
        let digest = digest.ok_or_else(|| Error::invalid("digest").expected("a sealed file"))?;
        Ok((len, digest))
    };
    read().map_err(|error| error.at(name))
}
