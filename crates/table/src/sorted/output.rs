//! The output of a writer: takes payloads, and writes sealed pages to a file.
//!
//! Pages are sealed into a large aligned buffer. A full buffer is submitted while the next one is
//! filled, so that compression and the device work in parallel. Memory is two buffers, whatever the
//! length of the file.
//!
//! Any error is final: the file is then incomplete, and its writer removes it.

use std::sync::Arc;

use arena::prefetch_all;
use base::limits::{PAGE_BYTES, RUN_PAGES_MAX, TABLE_PAGES_MAX};
use base::{
    Codec, DictionaryId, Error, PageSeed, Result, broken_invariant, format_bytes, invariant,
};
use media::{Access, Buf, Completion, File, Medium, Op, Purpose, Queue, Refused, Request};

use super::leave::Leave;
use super::pieces::Pieces;
use super::straddle::Marks;
use crate::page::{Header, PAYLOAD_BYTES, PageKind, fold_digest, run_pages, seal_page};

/// Pages of one buffer of a table: 512 KiB, which every device writes at its full rate.
pub(crate) const BUFFER_PAGES: usize = 128;

/// Longer files, pages, leave space in any case.
const SHORT_PAGES: u32 = 16;

/// One buffer is filled while the other is written.
const BUFFERS: usize = 2;

/// Memory of a table's buffers, bytes.
pub(crate) const OUTPUT_BYTES: u64 = memory(BUFFER_PAGES);

/// Memory of the buffers with `buffer_pages` pages each, bytes.
pub(crate) const fn memory(buffer_pages: usize) -> u64 {
    (BUFFERS * buffer_pages * PAGE_BYTES) as u64
}

/// A payload, and the header fields of its pages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Section<'a> {
    pub(crate) kind: PageKind,
    pub(crate) codec: Codec,
    pub(crate) dictionary: DictionaryId,
    pub(crate) raw_bytes: usize,
    pub(crate) payload: Pieces<'a>,
    /// The pages of a straddled block.
    pub(crate) marks: Option<&'a Marks>,
}

impl<'a> Section<'a> {
    /// An uncompressed payload.
    pub(crate) fn plain(kind: PageKind, payload: &'a [u8]) -> Self {
        Self::pieces(kind, payload.into())
    }

    /// As [`Section::plain`], for a payload in pieces.
    pub(crate) fn pieces(kind: PageKind, payload: Pieces<'a>) -> Self {
        let (codec, dictionary) = (Codec::None, DictionaryId(0));
        Self { kind, codec, dictionary, raw_bytes: payload.len(), payload, marks: None }
    }
}

/// Is shown the pages of a file as they are written.
pub trait PageSink: Send {
    /// `pages`, sealed, are written from page `first` on. The calls ascend and leave no page out.
    fn written(&mut self, first: u32, pages: &[u8]);
}

/// How a file is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writes {
    pub(crate) purpose: Purpose,
    pub(crate) leave: Leave,
}

/// A file that is being written.
pub(crate) struct Output {
    medium: Arc<dyn Medium>,
    file: Arc<dyn File>,
    queue: Box<dyn Queue>,
    writes: Writes,
    seed: PageSeed,
    buffer_pages: usize,
    /// The buffer being filled, and the number of its sealed pages.
    buf: Buf,
    filled: usize,
    /// Buffers that are neither being filled nor in flight.
    spare: Vec<Buf>,
    completions: Vec<Completion>,
    /// Scratch memory to join payloads that are in pieces.
    joined: Vec<u8>,
    /// Number of pages sealed.
    pages: u32,
    /// Number of pages submitted to the device.
    submitted: u32,
    digest: u64,
    /// Is shown every page.
    sink: Option<Box<dyn PageSink>>,
}

impl Output {
    /// Writes to a new file named `name`. Removes the file if no queue can be opened. The caller charged
    /// the [`memory`] of the buffers.
    pub(crate) fn create(
        medium: &Arc<dyn Medium>,
        name: &str,
        seed: PageSeed,
        writes: Writes,
        buffer_pages: usize,
    ) -> Result<Self> {
        let file = medium.create(name, Access::Direct, 0)?;
        let queue = medium.queue(BUFFERS).inspect_err(|_| {
            // The file is an orphan; recovery removes it if this does not.
            let _ = medium.remove(name);
        })?;
        Ok(Self {
            medium: Arc::clone(medium),
            file,
            queue,
            writes,
            seed,
            buffer_pages,
            buf: Buf::pages(buffer_pages),
            filled: 0,
            spare: (1..BUFFERS).map(|_| Buf::pages(buffer_pages)).collect(),
            completions: Vec::new(),
            joined: Vec::new(),
            pages: 0,
            submitted: 0,
            digest: 0,
            sink: None,
        })
    }

    /// Shows every page to `sink`. Must be called before anything is put.
    pub(crate) fn show_to(&mut self, sink: Box<dyn PageSink>) {
        invariant!(self.pages == 0, "a sink is shown all pages of a file");
        self.sink = Some(sink);
    }

    /// Number of pages so far, which is the number of the next page.
    pub(crate) const fn pages(&self) -> u32 {
        self.pages
    }

    /// The digest of the pages so far.
    pub(crate) const fn digest(&self) -> u64 {
        self.digest
    }

    /// Appends the pages of `section`. Returns the number of the first.
    pub(crate) fn put(&mut self, section: Section<'_>) -> Result<u32> {
        let pages = run_pages(section.payload.len());
        if pages > RUN_PAGES_MAX || u64::from(self.pages) + pages as u64 > TABLE_PAGES_MAX {
            return Err(Error::invalid("pages of a table")
                .expected(format_args!("at most {RUN_PAGES_MAX} a run, {TABLE_PAGES_MAX} in all"))
                .got(format_args!("{} and a run of {pages}", self.pages)));
        }
        let first = self.pages;
        for number in 0..pages {
            let header = Header {
                kind: section.kind,
                codec: section.codec,
                number: number as u16,
                dictionary: section.dictionary,
                payload_bytes: section.payload.len() as u32,
                raw_bytes: section.raw_bytes as u32,
                straddle: section.marks.map(|marks| marks.straddle(number)).transpose()?,
            };
            let at = number * PAYLOAD_BYTES;
            let mut joined = std::mem::take(&mut self.joined);
            let content = section.payload.range(at, header.payload_here(), &mut joined);
            let sealed = self.seal(&header, content);
            self.joined = joined;
            sealed?;
        }
        invariant!(self.pages - first == pages as u32, "a section takes the pages of its payload");
        Ok(first)
    }

    /// Appends one page of a run; the caller appends all pages of the run in order.
    pub(crate) fn put_page(&mut self, header: &Header, content: &[u8]) -> Result<()> {
        if u64::from(self.pages) == TABLE_PAGES_MAX {
            return Err(Error::invalid("pages of a file").expected(TABLE_PAGES_MAX));
        }
        self.seal(header, content)
    }

    fn seal(&mut self, header: &Header, content: &[u8]) -> Result<()> {
        let (pages, _) = self.buf.as_chunks_mut::<PAGE_BYTES>();
        let Some(page) = pages.get_mut(self.filled) else {
            return Err(broken_invariant!("a buffer has room for the next page"));
        };
        invariant!(
            self.pages as usize == self.submitted as usize + self.filled,
            "a page is sealed with the number at which it is written (I8)"
        );
        seal_page(page, self.seed, self.pages, header, content);
        self.digest = fold_digest(self.digest, page);
        if let Some(next) = pages.get(self.filled + 1) {
            // The page was last touched a buffer ago; the prefetch is done by the time its content is
            // ready.
            prefetch_all(next);
        }
        self.filled += 1;
        self.pages += 1;
        if self.filled == self.buffer_pages {
            let next = self.spare_buffer()?;
            let full = std::mem::replace(&mut self.buf, next);
            self.filled = 0;
            self.submit(full, self.buffer_pages)?;
        }
        Ok(())
    }

    fn spare_buffer(&mut self) -> Result<Buf> {
        self.reap(usize::from(self.spare.is_empty()))?;
        // A queue without a buffer in flight and without a completion has lost a buffer.
        self.spare.pop().ok_or_else(|| Error::retry("a write buffer").never_heals())
    }

    fn submit(&mut self, buf: Buf, pages: usize) -> Result<()> {
        invariant!(buf.len() == pages * PAGE_BYTES, "a buffer is submitted with all of its pages");
        self.check_space(buf.len() as u64)?;
        if let Some(sink) = &mut self.sink {
            sink.written(self.submitted, &buf);
        }
        let at = u64::from(self.submitted) * PAGE_BYTES as u64;
        let request = Request {
            file: Arc::clone(&self.file),
            op: Op::Write { at, buf },
            purpose: self.writes.purpose,
            token: at,
        };
        self.submitted += pages as u32;
        if let Err(Refused(request)) = self.queue.submit(request) {
            self.reap(1)?;
            let refused = |_| Error::retry("a slot in the write queue").never_heals();
            self.queue.submit(request).map_err(refused)?;
        }
        // Starts the write without waiting for it.
        self.reap(0)
    }

    /// Lets a short file use all space of the device.
    pub(crate) const fn may_fill_device(&mut self) {
        if self.pages <= SHORT_PAGES {
            self.writes.leave = Leave::Nothing;
        }
    }

    /// Refuses to write `bytes` if that would leave too little space. A buffer in flight may count as free.
    fn check_space(&self, bytes: u64) -> Result<()> {
        if self.writes.leave == Leave::Nothing {
            return Ok(());
        }
        let name = self.file.name();
        let Some(space) = self.medium.space_for(name)? else { return Ok(()) };
        let least = bytes.saturating_add(self.writes.leave.bytes(space));
        if space.free >= least {
            return Ok(());
        }
        Err(Error::no_space("table")
            .at(name)
            .expected(format_args!("{} free", format_bytes(least)))
            .got(format_bytes(space.free)))
    }

    /// Takes back at least `least` written buffers.
    fn reap(&mut self, least: usize) -> Result<()> {
        self.queue.complete(least, &mut self.completions)?;
        let mut first_error = Ok(());
        for completion in self.completions.drain(..) {
            self.spare.push(completion.buf);
            invariant!(self.spare.len() <= BUFFERS, "a completion returns a buffer that was lent");
            first_error = first_error.and(completion.result);
        }
        first_error
    }

    /// Writes the rest, and makes the file durable.
    pub(crate) fn finish(&mut self) -> Result<()> {
        if self.filled > 0 {
            // An operation takes a whole buffer, so the rest needs a buffer of its own length, which
            // reuses the memory of the finished ones.
            self.reap(self.queue.in_flight())?;
            self.spare.clear();
            let mut rest = Buf::pages(self.filled);
            for (to, from) in rest.chunks_mut(PAGE_BYTES).zip(self.buf.chunks(PAGE_BYTES)) {
                to.copy_from_slice(from);
            }
            let pages = std::mem::take(&mut self.filled);
            self.submit(rest, pages)?;
        }
        self.reap(self.queue.in_flight())?;
        invariant!(
            self.submitted == self.pages && self.queue.in_flight() == 0,
            "every page is written before its file is synced"
        );
        self.file.sync(self.writes.purpose)
    }
}
