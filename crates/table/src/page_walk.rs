//! Page walk: reads the pages of a table or value file in order, in large reads, and verifies each (I8).
//!
//! The one reader under the check, the salvage and the description of tables, the check of value files, the
//! scrub and the verification of merge outputs. It knows read errors, checksums and the digest; each user is
//! a [`PageVisitor`], which decides about every page, or takes the runs of pages that it finds its way to.
//!
//! One thread. Memory: one [`PageBuffer`], charged (I10). Cost: one read of 256 KiB a step, and about 0.2 us
//! of processor time a page.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{Account, Charge, Error, PageSeed, Result, broken_invariant, invariant};
use media::{Buf, File, Purpose};

use crate::page::{fold_digest, verify_page};
use crate::reread;
use crate::sorted::read::{read_at, read_pages};

/// Pages per read; longer runs are read alone.
pub(crate) const CHUNK_PAGES: u32 = 64;

/// Memory of a buffer, bytes: the pages of a read, and one that is read again.
const BUFFER_BYTES: u64 = (CHUNK_PAGES as u64 + 1) * PAGE_BYTES as u64;

/// The user of a walk.
pub trait PageVisitor {
    /// Called with each page that verifies.
    ///
    /// # Errors
    /// An error ends the walk.
    fn page(&mut self, number: u32, bytes: &[u8]) -> Result<()>;

    /// Called with pages that cannot be read or do not verify.
    ///
    /// # Errors
    /// An error ends the walk.
    fn damaged(&mut self, pages: Range<u32>, error: Error) -> Result<()>;

    /// Called before a page is read again.
    fn retried(&mut self) {}
}

/// Which pages a walk reads again, alone, before they count as damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retries {
    /// None: all pages of a failed read are damaged.
    None,
    /// Those of a failed read, once: an unreadable sector costs only its own page.
    Unread,
    /// Also those that do not verify, repeatedly: the device may return good bytes the next time.
    Unverified,
}

/// The buffer of a walk, and its charge. One walk after another may use it.
pub struct PageBuffer {
    buf: Option<Buf>,
    charge: Charge,
}

impl PageBuffer {
    /// A buffer that is charged to `account`.
    ///
    /// # Errors
    /// `Retry` if memory is short.
    pub fn new(account: &Account) -> Result<Self> {
        Ok(Self { buf: None, charge: account.charge(BUFFER_BYTES)? })
    }

    /// Makes the charge cover a read of `count` pages.
    fn reserve(&mut self, count: u32) -> Result<()> {
        let more = u64::from(count.saturating_sub(CHUNK_PAGES)) * PAGE_BYTES as u64;
        if self.charge.bytes() != BUFFER_BYTES + more {
            // The longer buffer is freed before its charge is.
            self.buf = None;
            self.charge.shrink_to(BUFFER_BYTES);
            self.charge.grow(more)?;
        }
        Ok(())
    }
}

/// A walk over the pages of a file, in progress.
pub struct PageWalk {
    file: Arc<dyn File>,
    seed: PageSeed,
    /// Pages of the file, or those of them that are walked.
    pages: u32,
    purpose: Purpose,
    buffer: PageBuffer,
    /// The pages in the buffer.
    held: Range<u32>,
    next: u32,
    digest: u64,
}

impl PageWalk {
    /// A walk over the first `pages` pages of `file`; `seed` is the seed of their checksums.
    #[must_use]
    pub const fn new(
        file: Arc<dyn File>,
        seed: PageSeed,
        pages: u32,
        purpose: Purpose,
        buffer: PageBuffer,
    ) -> Self {
        Self { file, seed, pages, purpose, buffer, held: 0..0, next: 0, digest: 0 }
    }

    /// Whether every page was visited.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        self.next >= self.pages
    }

    /// The number of the next page.
    #[must_use]
    pub const fn next_page(&self) -> u32 {
        self.next
    }

    /// The pages that the next step visits.
    #[must_use]
    pub fn next_pages(&self) -> Range<u32> {
        self.next..self.pages.min(self.next.saturating_add(CHUNK_PAGES))
    }

    /// Leaves out the pages of the next step; the digest lacks them.
    pub fn skip(&mut self) {
        self.next = self.next_pages().end;
    }

    /// The digest of the visited pages that verified.
    #[must_use]
    pub const fn digest(&self) -> u64 {
        self.digest
    }

    /// The buffer, for the next walk.
    #[must_use]
    pub fn into_buffer(self) -> PageBuffer {
        self.buffer
    }

    /// Reads the next pages, and passes each to `visitor`. Returns their number.
    ///
    /// # Errors
    /// `Retry` if the device is short of resources: the step may be repeated, and visits its pages again.
    /// Otherwise the errors of `visitor`.
    pub fn step(&mut self, retries: Retries, visitor: &mut dyn PageVisitor) -> Result<u32> {
        let first = self.next;
        invariant!(first < self.pages, "a walk that is continued has pages left");
        let count = CHUNK_PAGES.min(self.pages.saturating_sub(first));
        let failed = match self.fill(first, count) {
            Err(error) if error.is_retryable() => return Err(error),
            read => read.err(),
        };
        match failed {
            Some(error) if retries == Retries::None => {
                visitor.damaged(first..first + count, error)?;
            }
            failed => {
                let (buf, held) = (self.buffer.buf.take(), std::mem::take(&mut self.held));
                let chunk = buf.as_deref().unwrap_or_default().chunks_exact(PAGE_BYTES);
                invariant!(
                    chunk.len() == count as usize,
                    "a read returns the pages it was asked for"
                );
                let digest = self.digest;
                for (number, bytes) in (first..).zip(chunk) {
                    let visited = self.visit(number, bytes, failed.as_ref(), retries, visitor);
                    visited.inspect_err(|_| self.digest = digest)?;
                }
                (self.buffer.buf, self.held) = (buf, held);
            }
        }
        self.next = first + count;
        Ok(count)
    }

    /// Visits page `number`. Its read gave `bytes`, or the error `failed`.
    fn visit(
        &mut self,
        number: u32,
        bytes: &[u8],
        failed: Option<&Error>,
        retries: Retries,
        visitor: &mut dyn PageVisitor,
    ) -> Result<()> {
        let verified = match failed {
            Some(error) => Err(error.clone()),
            None => verify_page(self.seed, number, bytes),
        };
        let Err(error) = verified else {
            self.digest = fold_digest(self.digest, bytes);
            return visitor.page(number, bytes);
        };
        let again = || read_pages(&*self.file, self.seed, number, 1, self.purpose);
        let read = match retries {
            Retries::Unread if failed.is_some() => {
                visitor.retried();
                again()
            }
            Retries::Unverified => {
                visitor.retried();
                reread(error, again)
            }
            Retries::None | Retries::Unread => Err(error),
        };
        match read {
            Ok(page) => {
                self.digest = fold_digest(self.digest, &page);
                visitor.page(number, &page)
            }
            Err(error) if error.is_retryable() => Err(error),
            Err(error) => visitor.damaged(number..number + 1, error),
        }
    }

    /// The `count` pages from `first` on, verified. Reads ahead up to page `end`.
    ///
    /// # Errors
    /// `Corrupt` if they are not in the file, cannot be read or do not verify, `Retry` if memory is short.
    pub(crate) fn run(&mut self, first: u32, count: u32, end: u32) -> Result<&[u8]> {
        let last = first.checked_add(count).filter(|last| *last <= self.pages);
        let last =
            last.ok_or_else(|| Error::corrupt("pages of a block").expected("in the file"))?;
        if first < self.held.start || last > self.held.end {
            let ahead = CHUNK_PAGES.min(end.min(self.pages).saturating_sub(first)).max(count);
            // An unreadable sector fails the whole read; then only the needed pages are read.
            if self.fill(first, ahead).is_err() {
                self.fill(first, count)?;
            }
        }
        let at = first.saturating_sub(self.held.start) as usize * PAGE_BYTES;
        let buf = self.buffer.buf.as_deref().unwrap_or_default();
        let bytes = buf.get(at..at + count as usize * PAGE_BYTES);
        let bytes =
            bytes.ok_or_else(|| broken_invariant!("pages are read before they are used"))?;
        for (number, page) in (first..).zip(bytes.chunks_exact(PAGE_BYTES)) {
            verify_page(self.seed, number, page)?;
        }
        Ok(bytes)
    }

    /// Makes the buffer hold `count` pages from `first` on, not verified.
    fn fill(&mut self, first: u32, count: u32) -> Result<()> {
        self.held = 0..0;
        self.buffer.reserve(count)?;
        let fits = |buf: &Buf| buf.len() == count as usize * PAGE_BYTES;
        // A buffer of another length is freed first.
        let spare = self.buffer.buf.take().filter(fits);
        let buf = spare.unwrap_or_else(|| Buf::pages(count as usize));
        let (buf, read) = read_at(&*self.file, first, buf, self.purpose);
        self.buffer.buf = Some(buf);
        read?;
        self.held = first..first + count;
        Ok(())
    }
}

impl fmt::Debug for PageWalk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PageWalk({}, page {} of {})", self.seed.table(), self.next, self.pages)
    }
}

impl fmt::Debug for PageBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PageBuffer({} bytes)", self.charge.bytes())
    }
}

#[cfg(test)]
mod tests;
