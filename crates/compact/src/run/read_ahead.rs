//! Reading the pages of one table in order, in large reads, the next while the last is used.
//!
//! A merge reads every page once, so nothing goes through the page cache. Pages are verified when
//! they are handed out (I8). Memory is two buffers, charged by the run that owns this.

use std::sync::Arc;

use arena::Frame;
use base::limits::PAGE_BYTES;
use base::{Account, Error, PageSeed, Result};
use media::{Buf, Completion, File, Medium, Op, Purpose, Queue, Request};
use table::{Pages, Span, Table, verify_page};

const PURPOSE: Purpose = Purpose::Compaction;

/// Consecutive pages in memory.
#[derive(Debug)]
struct Chunk {
    buf: Buf,
    first: u32,
}

impl Chunk {
    fn end(&self) -> u32 {
        self.first + (self.buf.len() / PAGE_BYTES) as u32
    }

    /// The pages from `first` on.
    fn from(&self, first: u32) -> Option<&[u8]> {
        self.buf.get(first.checked_sub(self.first)? as usize * PAGE_BYTES..)
    }

    fn pages(&self, span: Span) -> Option<&[u8]> {
        self.from(span.first)?.get(..span.pages as usize * PAGE_BYTES)
    }
}

/// The pages of a table, for a walk forward.
pub(super) struct ReadAhead {
    file: Arc<dyn File>,
    seed: PageSeed,
    /// The first page that no walk needs.
    end: u32,
    chunk_pages: u32,
    chunk: Option<Chunk>,
    /// The buffer of the chunk before.
    spare: Option<Buf>,
    /// The first page of the chunk in flight.
    ahead: Option<u32>,
    /// Where the device has no queue to give, each read is waited for.
    queue: Option<Box<dyn Queue>>,
    completions: Vec<Completion>,
    account: Account,
    bytes_read: u64,
}

impl ReadAhead {
    /// Reads `table` in chunks of `chunk_pages`.
    pub(super) fn new(
        table: &Table,
        medium: &dyn Medium,
        chunk_pages: u32,
        account: &Account,
    ) -> Self {
        Self {
            file: Arc::clone(table.file()),
            seed: table.seed(),
            end: table.footer().top,
            chunk_pages,
            chunk: None,
            spare: None,
            ahead: None,
            queue: medium.queue(1).ok(),
            completions: Vec::new(),
            account: account.clone(),
            bytes_read: 0,
        }
    }

    /// Bytes read so far.
    pub(super) const fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    /// The pages of `span`, verified.
    ///
    /// # Errors
    /// `Corrupt` where one is damaged or the device cannot read it.
    pub(super) fn pages(&mut self, span: Span) -> Result<Pages> {
        // A partition's metadata lies behind its data, and a long block is longer than a chunk:
        // these are read for themselves, and the walk over the chunks goes on where it was.
        let apart = span.pages > self.chunk_pages || (span.meta && !self.holds(span));
        if apart {
            return self.read_apart(span);
        }
        // A span may start on the last pages of a chunk and go on in the next.
        let mut joined = None;
        if !self.holds(span) {
            let head = self.chunk.as_ref().and_then(|chunk| chunk.from(span.first));
            if let Some(head) = head.filter(|head| !head.is_empty()) {
                let mut buf = Buf::pages(span.pages as usize);
                buf.iter_mut().zip(head).for_each(|(to, from)| *to = *from);
                joined = Some((buf, head.len()));
            }
            let from = joined.as_ref().map_or(0, |(_, length)| (length / PAGE_BYTES) as u32);
            self.next_chunk(Span { first: span.first + from, pages: span.pages - from, ..span })?;
        }
        if let Some((mut buf, length)) = joined {
            let rest = self.chunk.as_ref().map(|chunk| &*chunk.buf).unwrap_or_default();
            if buf.len() - length > rest.len() {
                return Err(self.short(span));
            }
            buf.iter_mut().skip(length).zip(rest).for_each(|(to, from)| *to = *from);
            self.verify(span.first, &buf)?;
            return Ok(Pages::Run(buf));
        }
        let pages = self.chunk.as_ref().and_then(|chunk| chunk.pages(span));
        let pages = pages.ok_or_else(|| self.short(span))?;
        self.verify(span.first, pages)?;
        match pages.as_array::<PAGE_BYTES>() {
            Some(page) => Ok(Pages::Frame(Frame::heap(&self.account, page))),
            None => {
                let mut buf = Buf::pages(span.pages as usize);
                buf.copy_from_slice(pages);
                Ok(Pages::Run(buf))
            }
        }
    }

    fn holds(&self, span: Span) -> bool {
        self.chunk.as_ref().is_some_and(|chunk| chunk.pages(span).is_some())
    }

    /// Goes to a chunk that holds `span`: the one read ahead, or else one that starts there.
    fn next_chunk(&mut self, span: Span) -> Result<()> {
        let ahead = self.take_ahead()?;
        self.spare = self.chunk.take().map(|chunk| chunk.buf);
        let chunk = match ahead.filter(|chunk| chunk.pages(span).is_some()) {
            Some(chunk) => chunk,
            None => {
                let pages = self.chunk_pages.min(self.end.saturating_sub(span.first));
                let buf = self.buffer(pages.max(span.pages));
                Chunk { buf: self.read(span.first, buf)?, first: span.first }
            }
        };
        self.chunk = Some(chunk);
        self.read_on()
    }

    /// A buffer of so many pages: the spare one, where it fits.
    fn buffer(&mut self, pages: u32) -> Buf {
        let pages = pages as usize;
        let spare = self.spare.take_if(|spare| spare.len() == pages * PAGE_BYTES);
        spare.unwrap_or_else(|| Buf::pages(pages))
    }

    /// Waits for the chunk in flight.
    fn take_ahead(&mut self) -> Result<Option<Chunk>> {
        let (Some(first), Some(queue)) = (self.ahead.take(), &mut self.queue) else {
            return Ok(None);
        };
        queue.complete(1, &mut self.completions)?;
        let Some(Completion { buf, result, .. }) = self.completions.pop() else { return Ok(None) };
        result.map_err(|error| self.place(error, first))?;
        self.bytes_read += buf.len() as u64;
        Ok(Some(Chunk { buf, first }))
    }

    /// Puts the chunk after the present one in flight.
    fn read_on(&mut self) -> Result<()> {
        let first = self.chunk.as_ref().map_or(self.end, Chunk::end);
        let pages = self.chunk_pages.min(self.end.saturating_sub(first));
        if pages == 0 {
            return Ok(());
        }
        let buf = self.buffer(pages);
        let Some(queue) = &mut self.queue else { return Ok(()) };
        let at = u64::from(first) * PAGE_BYTES as u64;
        let op = Op::Read { at, buf };
        let request = Request { file: Arc::clone(&self.file), op, purpose: PURPOSE, token: at };
        if queue.submit(request).is_ok() {
            self.ahead = Some(first);
            // Hands it to the device without waiting.
            queue.complete(0, &mut self.completions)?;
        }
        Ok(())
    }

    fn read_apart(&mut self, span: Span) -> Result<Pages> {
        let buf = self.read(span.first, Buf::pages(span.pages as usize))?;
        self.verify(span.first, &buf)?;
        Ok(Pages::Run(buf))
    }

    fn read(&mut self, first: u32, buf: Buf) -> Result<Buf> {
        let at = u64::from(first) * PAGE_BYTES as u64;
        let (buf, result) = self.file.read(at, buf, PURPOSE);
        result.map_err(|error| self.place(error, first))?;
        self.bytes_read += buf.len() as u64;
        Ok(buf)
    }

    fn verify(&self, first: u32, pages: &[u8]) -> Result<()> {
        for (number, page) in (first..).zip(pages.chunks_exact(PAGE_BYTES)) {
            verify_page(self.seed, number, page).map_err(|error| self.place(error, number))?;
        }
        Ok(())
    }

    fn place(&self, error: Error, page: u32) -> Error {
        error.at(format_args!("page {page} of {}", self.file.name()))
    }

    fn short(&self, span: Span) -> Error {
        let error = Error::corrupt("pages of a table").expected("more of them");
        self.place(error.got(format_args!("{} from there", self.end)), span.first)
    }
}
