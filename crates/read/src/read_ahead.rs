//! Read-ahead of one cursor.
//!
//! While a cursor asks for the data pages of a table in file order, forward or backward, one device read
//! fetches a growing window of them, and the following requests are served from the window. A long scan's
//! pages are not cached, so that the scan evicts nothing; a short scan's pages are cached if the ghost list
//! has them. A cursor walks all runs of its keyspace in turn, so each table that it reads is a stream of its
//! own.
//!
//! Threads: one per cursor. Cost: 16 to 128 KiB per stream, charged (I10); without memory for it, pages are
//! read one by one.

use arena::Frame;
use base::limits::PAGE_BYTES;
use base::{Charge, Result, TableId};
use media::{Buf, Purpose};
use table::Span;

use crate::{PageFile, PageReader};

/// The read-ahead streams of one cursor.
#[derive(Debug, Default)]
pub struct ReadAhead {
    streams: Vec<Stream>,
    /// Number of requests so far, to find the stream that was unused for longest.
    requests: u64,
}

/// The sequential read of one table's data pages.
#[derive(Debug)]
struct Stream {
    table: TableId,
    /// The data page that was requested last.
    last: u32,
    /// Requests in file order up to that one.
    streak: u32,
    /// The number of the last request to this stream.
    asked: u64,
    /// The pages of the last window read.
    window: Option<Window>,
}

/// Consecutive pages read at once, not verified yet.
#[derive(Debug)]
struct Window {
    first: u32,
    buf: Buf,
    _charge: Charge,
}

/// Sequential requests before read-ahead starts.
const STREAK_MIN: u32 = 1;
/// Pages in the first window: 16 KiB.
const WINDOW_PAGES_MIN: u32 = 4;
/// Most pages in one window: 128 KiB.
const WINDOW_PAGES_MAX: u32 = 32;
/// A scan is short until this many pages of a table were requested in sequence.
const SHORT_STREAK_MAX: u32 = 16;
/// Most streams of one cursor: as many as a merge has input runs. The stream that was unused for longest is
/// replaced.
const STREAMS_MAX: usize = 64;

impl ReadAhead {
    /// Whether a window has the page of `span`.
    pub(crate) fn has(&self, span: Span) -> bool {
        let stream = self.streams.iter().find(|stream| stream.table == span.table);
        stream.is_some_and(|stream| stream.page(span).is_some())
    }

    /// Returns the page of `span` if a window has it, after reading a window if the requests are sequential.
    /// `None` if the caller must read the page.
    pub(crate) fn page(
        &mut self,
        reader: &PageReader,
        file: &PageFile,
        span: Span,
    ) -> Result<Option<Frame>> {
        if span.pages != 1 {
            return Ok(None);
        }
        // A partition's metadata page lies between data pages and does not end a sequence.
        if span.meta {
            let stream = self.streams.iter().find(|stream| stream.table == span.table);
            return stream.map_or(Ok(None), |stream| stream.frame(reader, file, span));
        }
        self.requests += 1;
        let Some(stream) = self.stream(span) else { return Ok(None) };
        if let Some(frame) = stream.frame(reader, file, span)? {
            stream.note(span);
            return Ok(Some(frame));
        }
        let is_backward = span.first < stream.last;
        stream.note(span);
        if stream.streak < STREAK_MIN {
            return Ok(None);
        }
        stream.read(reader, file, span, is_backward);
        stream.frame(reader, file, span)
    }

    /// Notes a request for `span`, whose page the caller reads itself.
    pub(crate) fn note(&mut self, span: Span) {
        if span.pages != 1 || span.meta {
            return;
        }
        self.requests += 1;
        if let Some(stream) = self.stream(span) {
            stream.note(span);
        }
    }

    /// Returns the stream of the table of `span`, created if there was none; always `Some`.
    fn stream(&mut self, span: Span) -> Option<&mut Stream> {
        let known = self.streams.iter().position(|stream| stream.table == span.table);
        let at = known.unwrap_or_else(|| {
            if self.streams.len() >= STREAMS_MAX {
                let streams = self.streams.iter().enumerate();
                let idle = streams.min_by_key(|(_, stream)| stream.asked).map_or(0, |(at, _)| at);
                self.streams.swap_remove(idle);
            }
            let (last, streak, asked) = (span.first, 0, 0);
            self.streams.push(Stream { table: span.table, last, streak, asked, window: None });
            self.streams.len() - 1
        });
        let stream = self.streams.get_mut(at)?;
        base::invariant!(stream.table == span.table, "a stream serves the pages of one table");
        stream.asked = self.requests;
        Some(stream)
    }
}

impl Stream {
    /// Updates the streak with a request for `span`. A distance of two is in sequence: a metadata page lies
    /// between.
    fn note(&mut self, span: Span) {
        let apart = span.first.abs_diff(self.last);
        self.streak = if (1..=2).contains(&apart) { self.streak.saturating_add(1) } else { 0 };
        self.last = span.first;
    }

    /// Reads a window that begins (or, backward, ends) with the page of `span`. There is no window if there
    /// is no memory for one or a page further on cannot be read; the read of this page does not fail for
    /// that.
    fn read(&mut self, reader: &PageReader, file: &PageFile, span: Span, is_backward: bool) {
        let pages = (WINDOW_PAGES_MIN << (self.streak / 4).min(3)).min(WINDOW_PAGES_MAX);
        let first = if is_backward { (span.first + 1).saturating_sub(pages) } else { span.first };
        let end = (first + pages).min(file.pages).max(span.first + 1);
        debug_assert!((first..end).contains(&span.first), "a window has the requested page");
        let bytes = (end - first) as usize * PAGE_BYTES;
        // The buffer of the last window is reused if it has the right length, and freed first if not.
        let old = self.window.take().filter(|window| window.buf.len() == bytes);
        let (buf, charge) = match old {
            Some(Window { buf, _charge, .. }) => (buf, _charge),
            None => match reader.account().try_charge(bytes as u64) {
                Some(charge) => (Buf::pages((end - first) as usize), charge),
                None => return,
            },
        };
        let at = u64::from(first) * PAGE_BYTES as u64;
        let (buf, result) = file.file.read(at, buf, Purpose::ReadAhead);
        if result.is_ok() {
            self.window = Some(Window { first, buf, _charge: charge });
        }
    }

    /// The bytes of the page of `span`, if the window has it.
    fn page(&self, span: Span) -> Option<&[u8; PAGE_BYTES]> {
        let window = self.window.as_ref().filter(|_| span.pages == 1)?;
        let offset = span.first.checked_sub(window.first)? as usize;
        window.buf.chunks_exact(PAGE_BYTES).nth(offset)?.first_chunk()
    }

    /// The page of `span`, verified, if the window has it.
    fn frame(&self, reader: &PageReader, file: &PageFile, span: Span) -> Result<Option<Frame>> {
        let Some(page) = self.page(span) else { return Ok(None) };
        match reader.verify(file, span, page) {
            Ok(()) if self.streak <= SHORT_STREAK_MAX => Ok(Some(reader.frame_of_scan(span, page))),
            Ok(()) => Ok(Some(reader.uncached(page))),
            // The caller reads the metadata page again alone, and rebuilds it if it is damaged on the device.
            Err(_) if span.meta => Ok(None),
            Err(error) => Err(error),
        }
    }
}
