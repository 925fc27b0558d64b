//! Copying a store's files with an eye on what is copied.
//!
//! Content is verified as it streams by (I8): every page of a table or value file under its own
//! identity, and the whole against the digest in its footer. Every copy is named by a digest: a
//! table's is the one its footer records, any other file's a hash over its pages. So two tables
//! with one id that have come to differ, as in a restored store that went its own way, are told
//! apart without reading them.
//!
//! A copy is synced when it is done; its name is the caller's to sync. Memory: one buffer, charged.

use base::limits::{PAGE_BYTES, TABLE_PAGES_MAX};
use base::{Account, Charge, Error, PageSeed, Result, StoreId, TableId, hash64};
use media::{Access, Buf, File, Medium, Purpose};
use table::{Footer, ValuesFooter, fold_digest, verify_page};

use crate::store_file::StoreFile;

/// Pages read and written at once: 1 MiB, which every device does at its full rate.
const CHUNK_PAGES: usize = 256;
const PAGE: u64 = PAGE_BYTES as u64;

/// How a file's content is verified and digested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// Sealed pages of a table, a footer last.
    Table(StoreId, TableId),
    /// Sealed pages of a value file, a footer last.
    Values(StoreId, TableId),
    /// Bytes that say nothing of themselves.
    Plain,
}

impl Content {
    /// Of the file `name` of `store`.
    pub(crate) fn of(name: &str, store: StoreId) -> Self {
        match StoreFile::of(name) {
            Some(StoreFile::Table(id)) => Self::Table(store, id),
            Some(StoreFile::Values(id)) => Self::Values(store, id),
            _ => Self::Plain,
        }
    }

    /// Whose sealed pages it has.
    fn identity(self) -> Option<(StoreId, TableId)> {
        match self {
            Self::Table(store, id) | Self::Values(store, id) => Some((store, id)),
            Self::Plain => None,
        }
    }

    /// The digest in the footer `page`, the last of a file of `pages` pages.
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

    /// The digest that `file`, of `pages` pages, records, in either of its footers where it has two.
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

/// A part of a file: its first `bytes`, and zeros behind them up to `len`, which is whole pages. The
/// digest covers the pages that hold the bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub bytes: u64,
    pub len: u64,
}

/// Copies files, one at a time.
#[derive(Debug)]
pub(crate) struct Copier {
    _charge: Charge,
}

impl Copier {
    pub(crate) fn new(account: &Account) -> Result<Self> {
        // The last chunk of a file may need a buffer of its length beside the whole one.
        Ok(Self { _charge: account.charge((2 * CHUNK_PAGES * PAGE_BYTES) as u64)? })
    }

    /// Copies `part` of the file `name` on `from` to the new file `copy` on `to`; its digest.
    ///
    /// # Errors
    /// `Corrupt` where the content is damaged, and the devices'; the caller removes what was made.
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

    /// Reads the whole file `name`, verifying it; its digest.
    ///
    /// # Errors
    /// `Corrupt` where the content is damaged, and the device's.
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

    fn stream(
        &mut self,
        from: &dyn Medium,
        name: &str,
        part: Part,
        content: Content,
        see: &mut dyn FnMut(u64, Buf) -> Result<Buf>,
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
            // The log and the manifest are written through the system's cache.
            Content::Plain => Access::Bytes,
        };
        let file = from.open(name, access)?;
        let end = bytes.next_multiple_of(PAGE);
        let mut digest = Digest::new(content, end)?;
        let mut buf = Buf::pages(CHUNK_PAGES);
        let mut at = 0;
        while at < end {
            if content == Content::Plain {
                // A log segment may be cut, zeros lost, before it is read or meanwhile.
                bytes = bytes.min(file.size()?);
            }
            let held = bytes.saturating_sub(at);
            let chunk = if held > 0 { held } else { end - at };
            let pages = chunk.div_ceil(PAGE).min(CHUNK_PAGES as u64) as usize;
            if buf.len() != pages * PAGE_BYTES {
                buf = Buf::pages(pages);
            }
            if held > 0 {
                let (back, result) = file.read(at, buf, Purpose::Scrub);
                buf = back;
                if result.is_err() && content == Content::Plain && file.size()? < bytes {
                    continue;
                }
                result?;
            }
            let content_here = usize::try_from(held).unwrap_or(usize::MAX);
            buf.iter_mut().skip(content_here).for_each(|byte| *byte = 0);
            digest.take(&buf).map_err(|error| error.at(name))?;
            buf = see(at, buf)?;
            at += buf.len() as u64;
        }
        digest.finish().map_err(|error| error.at(name))
    }
}

/// The digest of what streams by, page by page.
struct Digest {
    content: Content,
    digest: u64,
    page: u32,
    pages: u32,
    /// The digest that the footer names.
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

    fn take(&mut self, bytes: &[u8]) -> Result<()> {
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

    fn finish(self) -> Result<u64> {
        if self.content == Content::Plain || self.named == Some(self.digest) {
            return Ok(self.digest);
        }
        Err(Error::corrupt("digest of a file")
            .expected(format_args!("{:016x}", self.named.unwrap_or_default()))
            .got(format_args!("{:016x}", self.digest)))
    }
}

/// The length and digest of a table or value file as its footer records them, where `content` says
/// that it is one: one page read, verified under its identity, or two.
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
