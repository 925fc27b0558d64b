//! Many gets in flight from one thread.
//!
//! Over a tier below DRAM it is to be known what a read costs, and what one takes beside others tells the
//! depth rather than the device. So where the caller waits anyhow, now and then a read that finds its
//! device idle is waited for by itself ([`PageReader::read_alone`]).

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{Charge, Error, Result};
use bytes::Bytes;
use cache::ScmRead;
use media::{Buf, Completion, Medium, Op, Request};
use table::{Pages, Span, Step};

use crate::page_reader::{no_file, purpose};
use crate::tier_reader::TierPage;
use crate::{Depth, PageFile, PageReader, ReadOp};

/// The end of one queued get.
#[derive(Debug)]
pub struct Completed {
    /// The token given at submission.
    pub token: u64,
    /// The value, if the key has one.
    pub result: Result<Option<Bytes>>,
}

/// A read that a [`Queue`] runs.
pub trait QueuedRead: ReadOp {
    /// Ends the read that went as far as `depth`: the value found, if any.
    ///
    /// # Errors
    /// The read's.
    fn end(self, output: Result<Self::Output>, depth: Depth) -> Result<Option<Bytes>>;
}

/// Gets in flight for one thread: submit keys, go on with other work, poll for results.
///
/// Results come in the order in which they are found. Not `Sync`: one queue, one thread.
pub struct Queue<O> {
    reader: Arc<PageReader>,
    device: Box<dyn media::Queue>,
    /// Of the tier below DRAM, where that is read.
    below: Option<Box<dyn media::Queue>>,
    slots: Vec<Option<Slot<O>>>,
    free: Vec<usize>,
    done: VecDeque<Completed>,
    /// Reads that arrived and are not gone on with yet, oldest first.
    arrived: VecDeque<(Slot<O>, Completion)>,
    /// Gets that need another read and found every place at the device taken.
    waiting: VecDeque<Slot<O>>,
    completions: Vec<Completion>,
    bufs: Vec<Buf>,
    /// Whether the caller waits until reads are done, so that one of them may be waited for by itself.
    waits: bool,
    _charge: Charge,
}

/// What a queue charges for each get it may have in flight, bytes: a page being read, one that
/// arrived, and a result with the block it lies in.
const QUEUED_BYTES: u64 = 12 << 10;

/// Results up to this size are copied out of their block, bytes: many wait at once, and a block is
/// many times as large.
const COPY_BYTES_MAX: usize = 1024;

/// A get waiting for the device.
struct Slot<O> {
    token: u64,
    read: O,
    span: Span,
    file: PageFile,
    /// Where the page lies below, where it is read from there.
    place: Option<ScmRead>,
    _charge: Option<Charge>,
}

/// The most gets in flight in one queue.
const DEPTH_MAX: usize = 1024;

/// Arrived gets gone on with before the caller may submit more. What arrives meanwhile is replaced
/// at the device only after them, so each costs the device's time; one at a time would cost a system
/// call a get. (4 gave a tenth less than 2.)
const BATCH: usize = 2;

impl<O: QueuedRead> Queue<O> {
    pub fn new(reader: Arc<PageReader>, medium: &dyn Medium, depth: usize) -> Result<Self> {
        if depth == 0 || depth > DEPTH_MAX {
            return Err(Error::invalid("read queue depth")
                .expected(format_args!("1..={DEPTH_MAX}"))
                .got(depth));
        }
        let _charge = reader.account().charge(depth as u64 * QUEUED_BYTES)?;
        let below = reader.queue_below(depth);
        Ok(Self {
            reader,
            device: medium.queue(depth)?,
            below,
            slots: (0..depth).map(|_| None).collect(),
            free: (0..depth).rev().collect(),
            done: VecDeque::new(),
            arrived: VecDeque::new(),
            waiting: VecDeque::new(),
            completions: Vec::new(),
            bufs: Vec::new(),
            waits: false,
            _charge,
        })
    }

    /// Refuses where there is no room for another read.
    ///
    /// # Errors
    /// `Retry` if as many gets are in flight, or as many results not taken, as the queue is deep.
    pub fn check_room(&self) -> Result<()> {
        if self.room() == 0 {
            return Err(Error::retry("read queue").expected(format_args!(
                "at most {} gets at the device and as many results not taken",
                self.depth()
            )));
        }
        Ok(())
    }

    /// Adds a result that needed no read.
    pub fn complete(&mut self, token: u64, value: Bytes) {
        self.done.push_back(Completed { token, result: Ok(Some(value)) });
    }

    /// Starts `read`. Its result is told with `token`. There must be room: [`Queue::check_room`].
    pub fn start(&mut self, token: u64, read: O) {
        self.advance(token, read, None, Depth::default());
    }

    /// Says that the caller waits until reads are done, so that one of them may be waited for alone.
    /// A queue that was made while the tier of storage-class memory had no queue to give asks again.
    pub fn set_waiting(&mut self) {
        self.waits = true;
        if self.below.is_none() {
            self.below = self.reader.queue_below(self.depth());
        }
    }

    /// Whether it reads the store whose pages `reader` gets.
    pub fn reads(&self, reader: &Arc<PageReader>) -> bool {
        Arc::ptr_eq(&self.reader, reader)
    }

    /// Gets submitted whose results were not taken yet.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        let at_device = self.slots.len() - self.free.len();
        at_device + self.waiting.len() + self.arrived.len() + self.done.len()
    }

    /// Gets that may be submitted now. There is room again as soon as reads arrive: the device is
    /// kept busy while what arrived is gone on with.
    #[must_use]
    pub fn room(&self) -> usize {
        if self.arrived.len() >= self.depth() || self.done.len() >= self.depth() {
            return 0;
        }
        self.free.len().saturating_sub(self.waiting.len())
    }

    /// The most reads at the device at once.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.slots.len()
    }

    /// Appends the results there are to `out`, waiting for nothing; how many.
    ///
    /// # Errors
    /// Only where the device's queue broke; a failed get is a result.
    pub fn poll(&mut self, out: &mut Vec<Completed>) -> Result<usize> {
        self.drive(0)?;
        Ok(self.take_done(out))
    }

    /// Appends at least `least` results to `out` (fewer where fewer are in flight), waiting for
    /// them; how many.
    ///
    /// # Errors
    /// As [`Queue::poll`].
    pub fn wait(&mut self, least: usize, out: &mut Vec<Completed>) -> Result<usize> {
        let mut count = self.take_done(out);
        let (waits, mut driven) = (std::mem::replace(&mut self.waits, true), Ok(()));
        while driven.is_ok() && count < least && self.in_flight() > 0 {
            driven = self.drive(1);
            count += self.take_done(out);
        }
        self.waits = waits;
        driven.map(|()| count)
    }

    fn take_done(&mut self, out: &mut Vec<Completed>) -> usize {
        let count = self.done.len();
        out.extend(self.done.drain(..));
        count
    }

    /// Hands what was submitted to the device, waits for at least `least` completions, and goes on
    /// with their gets.
    fn drive(&mut self, least: usize) -> Result<()> {
        self.collect(least)?;
        for _ in 0..BATCH {
            let Some((slot, completion)) = self.arrived.pop_front() else { break };
            self.completed(slot, completion);
        }
        while !self.free.is_empty()
            && let Some(slot) = self.waiting.pop_front()
        {
            self.submit(slot);
        }
        Ok(())
    }

    /// Takes at least `least` reads that are done from the devices. The tier below is the faster one, so
    /// it is waited for first; what already arrived is gone on with before either is.
    fn collect(&mut self, least: usize) -> Result<()> {
        let mut completions = std::mem::take(&mut self.completions);
        let (mut driven, mut failed) = (Ok(()), Ok(()));
        let wanted = least.saturating_sub(self.arrived.len());
        if let Some(below) = self.below.as_mut().filter(|below| below.in_flight() > 0) {
            failed = below.complete(wanted, &mut completions);
        }
        if self.device.in_flight() > 0 {
            let wanted = wanted.saturating_sub(completions.len());
            // What was asked of a tier that failed is asked of the device instead, once this is done.
            let wanted = if failed.is_ok() { wanted } else { 0 };
            driven = self.device.complete(wanted, &mut completions);
        }
        for completion in completions.drain(..) {
            let number = completion.token as usize;
            if let Some(slot) = self.slots.get_mut(number).and_then(Option::take) {
                self.free.push(number);
                self.arrived.push_back((slot, completion));
            }
        }
        self.completions = completions;
        if let Err(error) = failed {
            self.leave_below(error);
        }
        driven
    }

    /// Goes on without the tier below, which failed: what it was asked for is read from the device.
    fn leave_below(&mut self, error: Error) {
        self.reader.below_failed(error);
        self.below = None;
        for (number, place) in self.slots.iter_mut().enumerate() {
            if let Some(slot) = place.take_if(|slot| slot.place.is_some()) {
                self.free.push(number);
                self.waiting.push_back(slot);
            }
        }
    }

    fn completed(&mut self, slot: Slot<O>, completion: Completion) {
        let Slot { token, read: op, span, file, place, _charge } = slot;
        if let Some(read) = place {
            let Completion { buf, result, .. } = completion;
            let pages = self.reader.arrived_below(read, &file, span, &buf, result);
            self.bufs.push(buf);
            return match pages {
                Some(pages) => self.advance(token, op, Some(pages), Depth::BelowRead),
                None => self.submit(Slot { token, read: op, span, file, place: None, _charge }),
            };
        }
        match completion.result {
            Ok(()) if span.pages == 1 => {
                match self.reader.admit_page(&file, span, &completion.buf) {
                    Ok(pages) => self.advance(token, op, Some(pages), Depth::Flash),
                    Err(error) => self.finish(token, op, Depth::Flash, Err(error)),
                }
                self.bufs.push(completion.buf);
            }
            Ok(()) => match self.reader.admit(&file, span, completion.buf) {
                Ok(pages) => self.advance(token, op, Some(pages), Depth::Flash),
                Err(error) => self.finish(token, op, Depth::Flash, Err(error)),
            },
            Err(error) => match self.reader.unreadable(&file, span, error) {
                Ok(pages) => self.advance(token, op, Some(pages), Depth::Flash),
                Err(error) => self.finish(token, op, Depth::Flash, Err(error)),
            },
        }
    }

    /// Goes on with a get until it ends or needs the device.
    fn advance(&mut self, token: u64, mut op: O, mut supplied: Option<Pages>, mut depth: Depth) {
        loop {
            self.reader.counters.steps.add(1);
            let span = match op.step(supplied.take()) {
                Ok(Step::Ready(output)) => return self.finish(token, op, depth, Ok(output)),
                Ok(Step::Need(span)) => span,
                Err(error) => return self.finish(token, op, depth, Err(error)),
            };
            match self.reader.cached(&op, span) {
                Ok(None) => {}
                Ok(pages) => {
                    depth = depth.max(Depth::Page);
                    supplied = pages;
                    continue;
                }
                Err(error) => return self.finish(token, op, depth, Err(error)),
            }
            let mut place = match self.reader.below(&op, span) {
                Ok(None) => None,
                Ok(Some(TierPage::Read(read))) => Some(read),
                Ok(Some(TierPage::Pages(pages))) => {
                    depth = depth.max(Depth::Below);
                    supplied = Some(pages);
                    continue;
                }
                Err(error) => return self.finish(token, op, depth, Err(error)),
            };
            if self.waits && self.is_idle(place.is_some()) {
                match self.reader.read_alone(&op, span, &mut place) {
                    Ok(None) => {}
                    Ok(Some((pages, from))) => {
                        depth = depth.max(from);
                        supplied = Some(pages);
                        continue;
                    }
                    Err(error) => return self.finish(token, op, Depth::Flash, Err(error)),
                }
            }
            let Some(file) = op.file() else {
                return self.finish(token, op, depth, Err(no_file()));
            };
            return match self.reader.charge_for(span) {
                Ok(_charge) => self.submit(Slot { token, read: op, span, file, place, _charge }),
                Err(error) => self.finish(token, op, depth, Err(error)),
            };
        }
    }

    /// Whether no read is in flight at the tier below, or at the device.
    fn is_idle(&self, is_below: bool) -> bool {
        match (&self.below, is_below) {
            (Some(below), true) => below.in_flight() == 0,
            _ => self.device.in_flight() == 0,
        }
    }

    fn submit(&mut self, mut slot: Slot<O>) {
        if self.below.is_none() {
            slot.place = None;
        }
        let Some(number) = self.free.pop() else { return self.waiting.push_back(slot) };
        let buf = match slot.span.pages {
            1 => self.bufs.pop().unwrap_or_else(|| Buf::pages(1)),
            pages => Buf::pages(pages as usize),
        };
        let (file, at, device) = match (&slot.place, &mut self.below) {
            (Some(read), Some(below)) => (read.file(), read.at(), below),
            _ => {
                let at = u64::from(slot.span.first) * PAGE_BYTES as u64;
                (&slot.file.file, at, &mut self.device)
            }
        };
        let request = Request {
            file: Arc::clone(file),
            op: Op::Read { at, buf },
            purpose: purpose(slot.span),
            token: number as u64,
        };
        if device.submit(request).is_err() {
            // The device's queue is as deep as this one: cannot be full while a slot is free.
            self.free.push(number);
            let error = Error::retry("device queue").expected("room for a read");
            return self.finish(slot.token, slot.read, Depth::Flash, Err(error));
        }
        if let Some(place) = self.slots.get_mut(number) {
            *place = Some(slot);
        }
    }

    fn finish(&mut self, token: u64, op: O, depth: Depth, output: Result<O::Output>) {
        let result = op.end(output, depth);
        if let Ok(value) = &result {
            self.reader.counters.lookup_ended(depth, value.is_some());
        }
        let result = result.map(|value| match value {
            Some(value) if value.len() <= COPY_BYTES_MAX => Some(Bytes::copy_from_slice(&value)),
            other => other,
        });
        self.done.push_back(Completed { token, result });
    }
}

impl<O: QueuedRead> fmt::Debug for Queue<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Queue({} of {} in flight)", self.in_flight(), self.depth())
    }
}
