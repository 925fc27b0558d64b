//! Reads the pages of one table in order with large reads; the next chunk is in flight while the current one
//! is used.
//!
//! A merge reads every page once, so the page cache is bypassed. Pages are verified when they are handed out
//! (I8). Memory: two buffers, charged by the run.

use std::sync::Arc;

use arena::Frame;
use base::limits::PAGE_BYTES;
use base::{Account, Error, PageSeed, Result, invariant};
use bytes::Bytes;
use media::Buf;
use table::{Pages, Span, Table, reread, verify_page};

use super::read_queue::{PURPOSE, ReadQueue, Ticket};
use crate::KeyRange;

/// Consecutive pages in memory.
#[derive(Debug)]
struct Chunk {
    /// Shared with the pages handed out.
    buf: Arc<Buf>,
    first: u32,
}

impl Chunk {
    fn end(&self) -> u32 {
        self.first + (self.buf.len() / PAGE_BYTES) as u32
    }

    /// The bytes from page `first` on.
    fn from(&self, first: u32) -> Option<&[u8]> {
        self.buf.get(first.checked_sub(self.first)? as usize * PAGE_BYTES..)
    }

    fn pages(&self, span: Span) -> Option<&[u8]> {
        self.from(span.first)?.get(..span.pages as usize * PAGE_BYTES)
    }
}

/// The pages of a table, for one forward scan.
pub(super) struct ReadAhead {
    table: Arc<Table>,
    seed: PageSeed,
    /// The scan ends before this key.
    end_key: Option<Bytes>,
    /// The scan needs no page from this one on, as far as is known.
    end: u32,
    chunk_pages: u32,
    chunk: Option<Chunk>,
    /// The buffer of the previous chunk, for reuse.
    spare: Option<Buf>,
    /// First page and ticket of the chunk in flight.
    ahead: Option<(u32, Ticket)>,
    /// The metadata page of the next partition, in flight: it lies behind that partition's data pages.
    meta_ahead: Option<(u32, Ticket)>,
    account: Account,
    bytes_read: u64,
}

impl ReadAhead {
    /// Reads the keys of `table` in `bounds`, in chunks of `chunk_pages`.
    ///
    /// # Errors
    /// `Corrupt` if the table's top-level index is damaged.
    pub(super) fn new(
        table: &Arc<Table>,
        bounds: &KeyRange,
        chunk_pages: u32,
        account: &Account,
    ) -> Result<Self> {
        let end = match &bounds.end {
            Some(end) => table.pages_before(end)?,
            None => table.footer().top,
        };
        Ok(Self {
            table: Arc::clone(table),
            seed: table.seed(),
            end_key: bounds.end.clone(),
            end,
            chunk_pages,
            chunk: None,
            spare: None,
            ahead: None,
            meta_ahead: None,
            account: account.clone(),
            bytes_read: 0,
        })
    }

    /// Bytes read so far.
    pub(super) const fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    /// Waits for reads in flight, whose pages are no longer needed.
    pub(super) fn finish(&mut self, reads: &mut ReadQueue) -> Result<()> {
        let left = [self.ahead.take(), self.meta_ahead.take()];
        left.into_iter().flatten().try_for_each(|(_, ticket)| reads.wait(ticket).map(drop))
    }

    /// The verified pages of `span`. A failed read is repeated a few times: a transient device error is no
    /// damage, and must not exclude the table from merges.
    ///
    /// # Errors
    /// `Corrupt` if a page is damaged or the device cannot read it.
    pub(super) fn pages(&mut self, span: Span, reads: &mut ReadQueue) -> Result<Pages> {
        let read = self.read_pages(span, reads);
        read.or_else(|first| reread(first, || self.read_apart(span)))
    }

    fn read_pages(&mut self, span: Span, reads: &mut ReadQueue) -> Result<Pages> {
        if span.meta {
            return self.meta(span, reads);
        }
        // A block longer than a chunk is read on its own; the chunked scan continues unchanged.
        if span.pages > self.chunk_pages {
            return self.read_apart(span);
        }
        // A span may begin in one chunk and end in the next.
        let mut joined = None;
        if !self.holds(span) {
            let head = self.chunk.as_ref().and_then(|chunk| chunk.from(span.first));
            if let Some(head) = head.filter(|head| !head.is_empty()) {
                let mut buf = Buf::pages(span.pages as usize);
                buf.iter_mut().zip(head).for_each(|(to, from)| *to = *from);
                joined = Some((buf, head.len()));
            }
            let from = joined.as_ref().map_or(0, |(_, length)| (length / PAGE_BYTES) as u32);
            let rest = Span { first: span.first + from, pages: span.pages - from, ..span };
            self.next_chunk(rest, reads)?;
        }
        if let Some((mut buf, length)) = joined {
            let rest = self.chunk.as_ref().map(|chunk| &**chunk.buf).unwrap_or_default();
            if buf.len() - length > rest.len() {
                return Err(self.short(span));
            }
            buf.iter_mut().skip(length).zip(rest).for_each(|(to, from)| *to = *from);
            self.verify(span.first, &buf)?;
            return Ok(Pages::Run(buf));
        }
        let chunk = self.chunk.as_ref().and_then(|chunk| Some((chunk, chunk.pages(span)?)));
        let (chunk, pages) = chunk.ok_or_else(|| self.short(span))?;
        self.verify(span.first, pages)?;
        let (buf, at) = (Arc::clone(&chunk.buf), (span.first - chunk.first) as usize);
        Ok(Pages::Part { buf, at: at * PAGE_BYTES, pages: span.pages })
    }

    /// A partition's metadata page. It is copied because it is used for longer than a chunk, and the next
    /// partition's metadata page is put in flight.
    fn meta(&mut self, span: Span, reads: &mut ReadQueue) -> Result<Pages> {
        let ahead = match self.meta_ahead.take() {
            Some((page, ticket)) => Some((page, self.arrive(page, ticket, reads)?)),
            None => None,
        };
        if let Some(next) = self.table.partition_after(span.first)
            && next.first_page < self.end
        {
            let ticket = reads.submit(self.table.file(), next.meta_page, Buf::pages(1));
            self.meta_ahead = ticket.map(|ticket| (next.meta_page, ticket));
        }
        let ahead = ahead.filter(|(page, _)| *page == span.first).map(|(_, buf)| buf);
        let in_chunk = self.chunk.as_ref().and_then(|chunk| chunk.pages(span));
        let page = match (&ahead, in_chunk) {
            (Some(buf), _) => buf,
            (None, Some(pages)) => pages,
            (None, None) => return self.read_apart(span),
        };
        self.verify(span.first, page)?;
        let page = page.as_array::<PAGE_BYTES>().ok_or_else(|| self.short(span))?;
        // The metadata of the last partition tells the exact end of the scan.
        if let Some(end) = self.end_key.as_ref().filter(|_| span.first + 1 == self.end) {
            let known = self.table.pages_before_within(page, end);
            self.end = known.map_err(|error| self.place(error, span.first))?;
        }
        Ok(Pages::Frame(Frame::heap(&self.account, page)))
    }

    fn holds(&self, span: Span) -> bool {
        self.chunk.as_ref().is_some_and(|chunk| chunk.pages(span).is_some())
    }

    /// Moves to a chunk that holds `span`: the chunk in flight, or one read now from `span` on.
    fn next_chunk(&mut self, span: Span, reads: &mut ReadQueue) -> Result<()> {
        let ahead = match self.ahead.take() {
            Some((first, ticket)) => {
                let buf = Arc::new(self.arrive(first, ticket, reads)?);
                Some(Chunk { buf, first })
            }
            None => None,
        };
        // The blocks of the old chunk were decompressed or copied, so its buffer is free unless a page still
        // shares it.
        self.spare = self.chunk.take().and_then(|chunk| Arc::into_inner(chunk.buf));
        let chunk = match ahead.filter(|chunk| chunk.pages(span).is_some()) {
            Some(chunk) => chunk,
            None => {
                let pages = self.chunk_pages.min(self.end.saturating_sub(span.first));
                let buf = self.buffer(pages.max(span.pages));
                Chunk { buf: Arc::new(self.read(span.first, buf)?), first: span.first }
            }
        };
        self.chunk = Some(chunk);
        self.read_on(reads);
        Ok(())
    }

    /// A buffer of `pages` pages; the spare one if its length fits.
    fn buffer(&mut self, pages: u32) -> Buf {
        invariant!(pages > 0, "a read has pages");
        let pages = pages as usize;
        let spare = self.spare.take_if(|spare| spare.len() == pages * PAGE_BYTES);
        spare.unwrap_or_else(|| Buf::pages(pages))
    }

    /// Waits for the read of the pages from `first` on.
    fn arrive(&mut self, first: u32, ticket: Ticket, reads: &mut ReadQueue) -> Result<Buf> {
        let (buf, result) = reads.wait(ticket)?;
        result.map_err(|error| self.place(error, first))?;
        self.bytes_read += buf.len() as u64;
        Ok(buf)
    }

    /// Puts the chunk after the current one in flight.
    fn read_on(&mut self, reads: &mut ReadQueue) {
        let first = self.chunk.as_ref().map_or(self.end, Chunk::end);
        let pages = self.chunk_pages.min(self.end.saturating_sub(first));
        if pages > 0 {
            let buf = self.buffer(pages);
            let ticket = reads.submit(self.table.file(), first, buf);
            self.ahead = ticket.map(|ticket| (first, ticket));
        }
    }

    fn read_apart(&mut self, span: Span) -> Result<Pages> {
        let buf = self.read(span.first, Buf::pages(span.pages as usize))?;
        self.verify(span.first, &buf)?;
        Ok(Pages::Run(buf))
    }

    fn read(&mut self, first: u32, buf: Buf) -> Result<Buf> {
        let at = u64::from(first) * PAGE_BYTES as u64;
        let (buf, result) = self.table.file().read(at, buf, PURPOSE);
        result.map_err(|error| self.place(error, first))?;
        self.bytes_read += buf.len() as u64;
        Ok(buf)
    }

    fn verify(&self, first: u32, pages: &[u8]) -> Result<()> {
        invariant!(
            !pages.is_empty() && pages.len().is_multiple_of(PAGE_BYTES),
            "whole pages are verified"
        );
        for (number, page) in (first..).zip(pages.chunks_exact(PAGE_BYTES)) {
            verify_page(self.seed, number, page).map_err(|error| self.place(error, number))?;
        }
        Ok(())
    }

    fn place(&self, error: Error, page: u32) -> Error {
        error.at(format_args!("page {page} of {}", self.table.file().name()))
    }

    fn short(&self, span: Span) -> Error {
        let error = Error::corrupt("pages of a table").expected("all pages of a block");
        self.place(error.got(format_args!("the end of the scan, page {}", self.end)), span.first)
    }
}
