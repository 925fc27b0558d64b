//! Parts of one read that are run together: a seek positions a cursor in every run of a keyspace, and no
//! run waits for another. If the device must be waited for, the pages that the runs need are in flight at
//! once, so that a seek in many cold runs takes about as long as in one.
//!
//! A part whose read finds no room in the queue, or no memory, is read alone while the others are in flight.
//! A read that fails ends the whole read with its error, once the others are back.
//!
//! Threads: one. Cost: a queue of the device and an allocation for each page read, only if a page is in no
//! cache; 4 KiB of memory for each read in flight, charged (I10).

use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{Charge, Error, Result};
use cache::ScmRead;
use media::{Buf, Completion, Op, Request};
use table::{Pages, Span, Step};

use crate::page_reader::purpose;
use crate::tier_reader::TierPage;
use crate::{PageFile, PageReader, ReadAhead, ReadOp};

/// Most reads in flight for one operation. One number, because the device keeps queues of equal depth for
/// reuse.
const IN_FLIGHT_MAX: usize = 32;

/// The parts of one operation while they run.
struct Parts<'a> {
    reader: &'a PageReader,
    ahead: &'a mut ReadAhead,
    parts: Vec<Part<'a>>,
    /// `None` if the device has none to give: every part reads alone.
    queue: Option<Box<dyn media::Queue>>,
    completions: Vec<Completion>,
    /// Parts that read their next page alone.
    alone: Vec<Alone>,
    device_reads: u64,
    /// The error of the first part, in order, that failed. No read is started after it.
    failed: Option<(usize, Error)>,
}

struct Part<'a> {
    op: &'a mut dyn ReadOp<Output = ()>,
    /// The read in flight.
    read: Option<Read>,
}

/// A read in flight.
struct Read {
    span: Span,
    file: PageFile,
    _charge: Charge,
}

/// A page that is read alone.
struct Alone {
    /// The part that needs it.
    number: usize,
    span: Span,
    /// Location of the page in the SCM tier, if it is read from there.
    scm: Option<ScmRead>,
}

impl PageReader {
    /// Runs the parts of `op`, whose last step asked for `span`, to their ends. Returns the number of device
    /// reads; `None` if there are no parts to run at once, and nothing was done then.
    ///
    /// # Errors
    /// That of the first part, in order, that failed.
    pub(crate) fn run_parts<O: ReadOp>(
        &self,
        op: &mut O,
        span: Span,
        ahead: &mut ReadAhead,
    ) -> Result<Option<u64>> {
        let Some(device) = self.overlapping() else { return Ok(None) };
        let parts = op.parts()?;
        if parts.is_empty() {
            return Ok(None);
        }
        base::invariant!(parts.len() > 1, "one part alone is no reason to wait for others");
        let parts = parts.into_iter().map(|op| Part { op, read: None }).collect();
        let queue = device.queue(IN_FLIGHT_MAX).ok();
        let (completions, alone, device_reads, failed) = Default::default();
        Parts { reader: self, ahead, parts, queue, completions, alone, device_reads, failed }
            .run(span)
            .map(Some)
    }
}

impl Parts<'_> {
    /// Runs the parts to their ends; the first one has asked for `span`.
    fn run(mut self, span: Span) -> Result<u64> {
        self.read(0, span);
        for number in 1..self.parts.len() {
            self.advance(number, None);
        }
        loop {
            // The device gets the reads of the others before one is waited for alone.
            self.collect(usize::from(self.alone.is_empty()))?;
            match self.alone.pop() {
                Some(alone) => self.read_alone(alone),
                None if self.in_flight() == 0 => break,
                None => {}
            }
        }
        let is_over = self.parts.iter().all(|part| part.read.is_none());
        base::invariant!(is_over, "a read in flight belongs to a part, and none is left");
        self.failed.map_or(Ok(self.device_reads), |(_, error)| Err(error))
    }

    fn in_flight(&self) -> usize {
        self.queue.as_ref().map_or(0, |queue| queue.in_flight())
    }

    /// Advances a part until it ends or needs a device.
    fn advance(&mut self, number: usize, mut supplied: Option<Pages>) {
        loop {
            if self.failed.is_some() {
                return;
            }
            let Some(part) = self.parts.get_mut(number) else { return };
            self.reader.counters.steps.add(1);
            let step = part.op.step(supplied.take()).and_then(|step| match step {
                Step::Ready(()) => Ok(None),
                Step::Need(span) => {
                    let found = self.reader.in_dram(&*part.op, span, Some(&mut *self.ahead))?;
                    let pages = found.map(|(pages, _)| pages);
                    let found = match pages {
                        Some(pages) => Some(TierPage::Pages(pages)),
                        None => self.reader.find_in_scm(&*part.op, span)?,
                    };
                    Ok(Some((span, found)))
                }
            });
            match step {
                Ok(None) => return,
                Ok(Some((_, Some(TierPage::Pages(pages))))) => supplied = Some(pages),
                Ok(Some((span, Some(TierPage::Read(scm))))) => {
                    return self.alone.push(Alone { number, span, scm: Some(scm) });
                }
                Ok(Some((span, None))) => return self.read(number, span),
                Err(error) => return self.fail(number, error),
            }
        }
    }

    /// Puts the read of `span`, which a part needs from flash, in flight, or among those that are read alone.
    fn read(&mut self, number: usize, span: Span) {
        if self.submit(number, span).is_none() {
            self.alone.push(Alone { number, span, scm: None });
        }
    }

    /// `None` if there is no memory for another read, or no room in the queue.
    fn submit(&mut self, number: usize, span: Span) -> Option<()> {
        let part = self.parts.get_mut(number)?;
        base::invariant!(part.read.is_none(), "a part needs one page at a time");
        let queue = self.queue.as_mut().filter(|queue| queue.in_flight() < IN_FLIGHT_MAX)?;
        let bytes = u64::from(span.pages) * PAGE_BYTES as u64;
        let charge = self.reader.account().try_charge(bytes)?;
        let file = part.op.file()?;
        let at = u64::from(span.first) * PAGE_BYTES as u64;
        let request = Request {
            file: Arc::clone(&file.file),
            op: Op::Read { at, buf: Buf::pages(span.pages as usize) },
            purpose: purpose(span),
            token: number as u64,
        };
        queue.submit(request).ok()?;
        part.read = Some(Read { span, file, _charge: charge });
        self.reader.scanned();
        self.ahead.note(span);
        Some(())
    }

    /// Passes the submitted reads to the device, waits for at least `least` of them if so many are in flight,
    /// and advances the parts of those that arrived.
    fn collect(&mut self, least: usize) -> Result<()> {
        let Some(queue) = &mut self.queue else { return Ok(()) };
        let mut completions = std::mem::take(&mut self.completions);
        queue.complete(least, &mut completions)?;
        for Completion { token, buf, result } in completions.drain(..) {
            let number = token as usize;
            let read = self.parts.get_mut(number).and_then(|part| part.read.take());
            base::invariant!(read.is_some(), "a completion belongs to a part's read");
            let Some(Read { span, file, .. }) = read else { continue };
            let pages = match result {
                Ok(()) if span.pages == 1 => self.reader.admit_page(&file, span, &buf),
                Ok(()) => self.reader.admit(&file, span, buf),
                Err(error) => self.reader.unreadable(&file, span, error),
            };
            self.arrived(number, pages);
        }
        self.completions = completions;
        Ok(())
    }

    /// Reads one page and waits for it, and then advances its part.
    fn read_alone(&mut self, Alone { number, span, scm }: Alone) {
        if self.failed.is_some() {
            return;
        }
        let Some(Part { op, .. }) = self.parts.get(number) else { return };
        let from_tier = match scm {
            Some(scm) => self.reader.scm_pages(&**op, span, TierPage::Read(scm)),
            None => Ok(None),
        };
        match from_tier {
            Ok(Some(pages)) => self.advance(number, Some(pages)),
            Ok(None) => {
                let pages = self.reader.read_flash(&**op, span, Some(&mut *self.ahead));
                self.arrived(number, pages);
            }
            Err(error) => self.fail(number, error),
        }
    }

    /// Advances a part with the pages that flash returned.
    fn arrived(&mut self, number: usize, pages: Result<Pages>) {
        match pages {
            Ok(pages) => {
                self.device_reads += 1;
                self.advance(number, Some(pages));
            }
            Err(error) => self.fail(number, error),
        }
    }

    /// Keeps the error of the first part, in order, that failed.
    fn fail(&mut self, number: usize, error: Error) {
        if self.failed.as_ref().is_none_or(|(first, _)| number < *first) {
            self.failed = Some((number, error));
        }
    }
}
