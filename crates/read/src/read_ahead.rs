//! Reading ahead for one cursor.
//!
//! While data pages of a table are asked for in file order, forward or backward, one read fetches a growing
//! number of them. They are handed out from here. A long scan's are not cached, so that it pushes nothing out
//! of the cache; those that a short one came to are where others came to them lately. A cursor walks all runs
//! of its column in turn: each table it reads is a stream of its own.

use arena::Frame;
use base::limits::PAGE_BYTES;
use base::{Charge, Result, TableId};
use media::{Buf, Purpose};
use table::Span;

use crate::{PageFile, PageReader};

/// The streams of one cursor.
#[derive(Debug, Default)]
pub struct ReadAhead {
    streams: Vec<Stream>,
    /// Counts requests, to tell which stream was asked least lately.
    requests: u64,
}

/// The data pages that are read of one table.
#[derive(Debug)]
struct Stream {
    table: TableId,
    /// The page asked for last, and how many were asked for in sequence.
    last: u32,
    streak: u32,
    /// The request it was asked by last.
    asked: u64,
    /// What the last large read got.
    window: Option<Window>,
}

#[derive(Debug)]
struct Window {
    first: u32,
    buf: Buf,
    _charge: Charge,
}

/// Sequential requests before reading ahead starts, and pages in one read at first and at most: 16 and
/// 128 KiB.
const STREAK_MIN: u32 = 1;
const WINDOW_PAGES_MIN: u32 = 4;
const WINDOW_PAGES_MAX: u32 = 32;
/// A scan is short until so many pages of a table were asked for in sequence.
const SHORT_STREAK_MAX: u32 = 16;
/// Streams of one cursor, at most: as many runs as a merge takes in. The one asked least lately makes room.
const STREAMS_MAX: usize = 64;

impl ReadAhead {
    /// Whether the last large read of its table got the page of `span`.
    pub(crate) fn has(&self, span: Span) -> bool {
        let stream = self.streams.iter().find(|stream| stream.table == span.table);
        stream.is_some_and(|stream| stream.page(span).is_some())
    }

    /// The page of `span`, if it is one that reading ahead has or gets.
    pub(crate) fn page(
        &mut self,
        reader: &PageReader,
        file: &PageFile,
        span: Span,
    ) -> Result<Option<Frame>> {
        if span.pages != 1 {
            return Ok(None);
        }
        // A partition's metadata page lies between data pages and breaks no sequence.
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

    /// The stream of the table of `span`, made where there is none: there always is one then.
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
        stream.asked = self.requests;
        Some(stream)
    }
}

impl Stream {
    /// Counts how long pages have been asked for in file order.
    fn note(&mut self, span: Span) {
        let apart = span.first.abs_diff(self.last);
        self.streak = if (1..=2).contains(&apart) { self.streak.saturating_add(1) } else { 0 };
        self.last = span.first;
    }

    /// Reads a window that begins, or ends, with the page of `span`. Where there is no memory for it, or a
    /// page farther on is bad, there is none: that costs the read of this page nothing.
    fn read(&mut self, reader: &PageReader, file: &PageFile, span: Span, is_backward: bool) {
        let pages = (WINDOW_PAGES_MIN << (self.streak / 4).min(3)).min(WINDOW_PAGES_MAX);
        let first = if is_backward { (span.first + 1).saturating_sub(pages) } else { span.first };
        let end = (first + pages).min(file.pages).max(span.first + 1);
        let bytes = (end - first) as usize * PAGE_BYTES;
        // The last window is used again where it is as long, and goes first where it is not.
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

    /// The bytes of the page of `span`, where the window has them.
    fn page(&self, span: Span) -> Option<&[u8; PAGE_BYTES]> {
        let window = self.window.as_ref().filter(|_| span.pages == 1)?;
        let offset = span.first.checked_sub(window.first)? as usize;
        window.buf.chunks_exact(PAGE_BYTES).nth(offset)?.first_chunk()
    }

    /// The page of `span`, verified, where the window has it.
    fn frame(&self, reader: &PageReader, file: &PageFile, span: Span) -> Result<Option<Frame>> {
        let Some(page) = self.page(span) else { return Ok(None) };
        match reader.verify(file, span, page) {
            Ok(()) if self.streak <= SHORT_STREAK_MAX => Ok(Some(reader.passed(span, page))),
            Ok(()) => Ok(Some(reader.uncached(page))),
            // It is read by itself, and made anew.
            Err(_) if span.meta => Ok(None),
            Err(error) => Err(error),
        }
    }
}
