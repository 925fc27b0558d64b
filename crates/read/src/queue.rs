//! Read queue: many gets in flight from one thread.
//!
//! The SCM tier's controllers need the latencies of both devices, and overlapping reads give the latency of
//! the queue, not of the device. So while the caller waits for results anyway, now and then a read that finds
//! its device idle is waited for alone ([`PageReader::read_alone`]).
//!
//! A get is in one of five places: at a device (`slots`), arrived, waiting for a free slot, done, or in the
//! call that advances it.
//!
//! Threads: one per queue.

use std::collections::VecDeque;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{Charge, Error, Result, broken_invariant};
use bytes::Bytes;
use cache::ScmRead;
use media::{Buf, Completion, Medium, Op, Request};
use table::{Pages, Span, Step};

use crate::page_reader::purpose;
use crate::queued_read::QueuedRead;
use crate::read_op::file_of;
use crate::ready::Ready;
use crate::tier_reader::TierPage;
use crate::{Depth, PageFile, PageReader};

/// The result of one queued get.
#[derive(Debug)]
pub struct Completed {
    /// The token that the caller gave when it submitted the get.
    pub token: u64,
    /// The value; `None` if the key has none.
    pub result: Result<Option<Bytes>>,
}

/// Gets in flight for one thread: submit keys, do other work, poll for results.
///
/// Results come in the order in which the reads end. Not `Sync`: one queue, one thread.
pub struct Queue<O: QueuedRead> {
    reader: Arc<PageReader>,
    shared: O::Shared,
    device: Box<dyn media::Queue>,
    /// The queue of the SCM tier; `None` if no tier is read by a queue.
    scm: Option<Box<dyn media::Queue>>,
    /// Gets at a device, by the token of their request.
    slots: Vec<Option<Slot<O>>>,
    /// Indexes of the empty slots.
    free: Vec<usize>,
    /// Results that the caller has not taken.
    done: VecDeque<Completed>,
    /// Completed reads with gets that have not advanced yet, oldest first.
    arrived: VecDeque<(Slot<O>, Completion)>,
    /// Gets that need a read and found no free slot.
    waiting: VecDeque<Slot<O>>,
    completions: Vec<Completion>,
    /// Completions taken from the devices, ever.
    rounds: u64,
    bufs: Vec<Buf>,
    /// Readable while a device has completions, once it was asked for.
    ready: Option<Ready>,
    /// The caller waits until reads are done, so one of them may be waited for alone.
    waits: bool,
    _charge: Charge,
}

/// Charge for each get that may be in flight, bytes: a page that is read, a page that arrived, and a result
/// with the block that holds it.
const QUEUED_BYTES: u64 = 12 << 10;

/// Results up to this size are copied out of their block, bytes: many results may be kept, and a block is
/// many times as large.
const COPY_BYTES_MAX: usize = 1024;

/// A get that waits for a device.
struct Slot<O> {
    token: u64,
    read: O,
    span: Span,
    file: PageFile,
    /// Location of the page in the SCM tier, if it is read from there.
    scm: Option<ScmRead>,
    _charge: Option<Charge>,
}

/// Most gets in flight in one queue.
const DEPTH_MAX: usize = 1024;

/// Arrived gets that advance before the caller may submit more. The device gets new requests only after them,
/// so each costs device time; with one at a time, every get would cost a system call. (With 4, throughput was
/// a tenth lower than with 2.)
const BATCH: usize = 2;

impl<O: QueuedRead> Queue<O> {
    /// Creates a queue for at most `depth` gets in flight, which share `shared`.
    ///
    /// # Errors
    /// `Invalid` if `depth` is 0 or above 1,024; `Retry` without memory or without a device queue.
    pub fn new(
        reader: Arc<PageReader>,
        shared: O::Shared,
        medium: &dyn Medium,
        depth: usize,
    ) -> Result<Self> {
        if depth == 0 || depth > DEPTH_MAX {
            return Err(Error::invalid("read queue depth")
                .expected(format_args!("1..={DEPTH_MAX}"))
                .got(depth));
        }
        let _charge = reader.account().charge(depth as u64 * QUEUED_BYTES)?;
        let scm = reader.scm_queue(depth);
        Ok(Self {
            reader,
            shared,
            device: medium.queue(depth)?,
            scm,
            slots: (0..depth).map(|_| None).collect(),
            free: (0..depth).rev().collect(),
            done: VecDeque::new(),
            arrived: VecDeque::new(),
            waiting: VecDeque::new(),
            completions: Vec::new(),
            rounds: 0,
            bufs: Vec::new(),
            ready: None,
            waits: false,
            _charge,
        })
    }

    /// Checks that there is room for another read.
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
        debug_assert!(
            self.done.len() <= 2 * self.depth(),
            "results that are not taken are bounded"
        );
        self.done.push_back(Completed { token, result: Ok(Some(value)) });
    }

    /// Starts `read`; its result will carry `token`. There must be room ([`Queue::check_room`]).
    pub fn start(&mut self, token: u64, read: O) {
        base::invariant!(self.room() > 0, "a read is started only if the queue has room");
        self.advance(token, read, None, Depth::default());
    }

    /// Sets that the caller waits until reads are done, so that one of them may be waited for alone. If the
    /// SCM tier had no queue to give when this one was created, asks for one again.
    pub fn set_waiting(&mut self) {
        self.waits = true;
        if self.scm.is_none() {
            self.scm = self.reader.scm_queue(self.depth());
        }
    }

    /// What the reads of the queue share.
    pub const fn shared(&self) -> &O::Shared {
        &self.shared
    }

    /// Number of submitted gets with results that were not taken.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        let at_device = self.slots.len() - self.free.len();
        at_device + self.waiting.len() + self.arrived.len() + self.done.len()
    }

    /// Number of gets that may be submitted now. A completed read frees its room at once, before its get
    /// advances, so that the device is kept busy meanwhile.
    #[must_use]
    pub fn room(&self) -> usize {
        if self.arrived.len() >= self.depth() || self.done.len() >= self.depth() {
            return 0;
        }
        self.free.len().saturating_sub(self.waiting.len())
    }

    /// Most reads at the devices at once.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.slots.len()
    }

    /// Appends the finished results to `out` without waiting; returns their number.
    ///
    /// # Errors
    /// Only if the device's queue is broken; a failed get is a result.
    pub fn poll(&mut self, out: &mut Vec<Completed>) -> Result<usize> {
        self.drive(0)?;
        Ok(self.take_done(out))
    }

    /// Appends at least `least` results to `out`, waiting for them (fewer only if fewer are in flight);
    /// returns their number.
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

    /// A descriptor that becomes readable when a get may end: a device has a completion. It is valid as long
    /// as the queue. `None`: a device of the queue cannot tell, and results are found by polling.
    ///
    /// # Errors
    /// `Retry` if the operating system has no descriptor left.
    pub fn descriptor(&mut self) -> Result<Option<BorrowedFd<'_>>> {
        if self.ready.is_none() {
            let ready = Ready::new()?;
            let scm = self.scm.as_mut().map(|scm| scm.descriptor());
            for descriptor in [Some(self.device.descriptor()), scm].into_iter().flatten() {
                let Some(descriptor) = descriptor else { return Ok(None) };
                ready.add(descriptor)?;
            }
            self.ready = Some(ready);
        }
        Ok(self.ready.as_ref().map(Ready::descriptor))
    }

    /// As [`Queue::poll`], but takes every completion that the devices have, so that afterwards a readable
    /// descriptor means new ones.
    ///
    /// # Errors
    /// As [`Queue::poll`].
    pub fn poll_all(&mut self, out: &mut Vec<Completed>) -> Result<usize> {
        let mut count = 0;
        // Each round ends a get or reads another page for it; a get reads a bounded number of pages.
        loop {
            let before = self.rounds;
            self.drive(0)?;
            count += self.take_done(out);
            if self.rounds == before && self.arrived.is_empty() {
                return Ok(count);
            }
        }
    }

    fn take_done(&mut self, out: &mut Vec<Completed>) -> usize {
        let count = self.done.len();
        out.extend(self.done.drain(..));
        count
    }

    /// Passes submitted requests to the devices, waits for at least `least` completions, and advances a batch
    /// of completed gets.
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

    /// Moves at least `least` completed reads from the devices to `arrived`, counting those that are there
    /// already. The SCM tier is waited for first, because it is the faster device.
    fn collect(&mut self, least: usize) -> Result<()> {
        let mut completions = std::mem::take(&mut self.completions);
        let (mut driven, mut failed) = (Ok(()), Ok(()));
        let wanted = least.saturating_sub(self.arrived.len());
        if let Some(scm) = self.scm.as_mut().filter(|scm| scm.in_flight() > 0) {
            failed = scm.complete(wanted, &mut completions);
        }
        if self.device.in_flight() > 0 {
            let wanted = wanted.saturating_sub(completions.len());
            // If the tier failed, its reads are submitted to flash after this, so nothing is waited for here.
            let wanted = if failed.is_ok() { wanted } else { 0 };
            driven = self.device.complete(wanted, &mut completions);
        }
        for completion in completions.drain(..) {
            let number = completion.token as usize;
            let slot = self.slots.get_mut(number).and_then(Option::take);
            base::invariant!(slot.is_some(), "a completion belongs to a get in flight");
            let Some(slot) = slot else { continue };
            self.free.push(number);
            self.rounds += 1;
            self.arrived.push_back((slot, completion));
        }
        self.completions = completions;
        if let Err(error) = failed {
            self.abandon_scm(error);
        }
        driven
    }

    /// Continues without the SCM tier, which failed: its reads are submitted to flash.
    fn abandon_scm(&mut self, error: Error) {
        self.reader.scm_failed(error);
        // Its reads are submitted again: another round passes them to the device.
        self.rounds += 1;
        if let (Some(ready), Some(descriptor)) =
            (&self.ready, self.scm.as_mut().and_then(|scm| scm.descriptor()))
        {
            // The tier's ring may serve another queue from now on.
            ready.remove(descriptor);
        }
        self.scm = None;
        for (number, slot) in self.slots.iter_mut().enumerate() {
            if let Some(slot) = slot.take_if(|slot| slot.scm.is_some()) {
                self.free.push(number);
                self.waiting.push_back(slot);
            }
        }
    }

    /// Advances a get after its read completed.
    fn completed(&mut self, slot: Slot<O>, completion: Completion) {
        let Slot { token, read: op, span, file, scm, _charge } = slot;
        if let Some(read) = scm {
            let Completion { buf, result, .. } = completion;
            let pages = self.reader.scm_page_arrived(read, &file, span, &buf, result);
            self.bufs.push(buf);
            return match pages {
                Some(pages) => self.advance(token, op, Some(pages), Depth::ScmRead),
                None => self.submit(Slot { token, read: op, span, file, scm: None, _charge }),
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

    /// Advances a get until it ends or needs a device.
    fn advance(&mut self, token: u64, mut op: O, mut supplied: Option<Pages>, mut depth: Depth) {
        if supplied.is_some() && depth == Depth::Flash {
            op.device_read();
        }
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
            let mut scm = match self.reader.find_in_scm(&op, span) {
                Ok(None) => None,
                Ok(Some(TierPage::Read(read))) => Some(read),
                Ok(Some(TierPage::Pages(pages))) => {
                    depth = depth.max(Depth::Scm);
                    supplied = Some(pages);
                    continue;
                }
                Err(error) => return self.finish(token, op, depth, Err(error)),
            };
            if self.waits && self.is_idle(scm.is_some()) {
                match self.reader.read_alone(&op, span, &mut scm) {
                    Ok(None) => {}
                    Ok(Some((pages, from))) => {
                        if from == Depth::Flash {
                            op.device_read();
                        }
                        depth = depth.max(from);
                        supplied = Some(pages);
                        continue;
                    }
                    Err(error) => return self.finish(token, op, Depth::Flash, Err(error)),
                }
            }
            let file = match file_of(&op) {
                Ok(file) => file,
                Err(error) => return self.finish(token, op, depth, Err(error)),
            };
            return match self.reader.charge_for(span) {
                Ok(_charge) => self.submit(Slot { token, read: op, span, file, scm, _charge }),
                Err(error) => self.finish(token, op, depth, Err(error)),
            };
        }
    }

    /// Whether no read is in flight at the device: the SCM tier's if `is_scm`, else flash.
    fn is_idle(&self, is_scm: bool) -> bool {
        match (&self.scm, is_scm) {
            (Some(scm), true) => scm.in_flight() == 0,
            _ => self.device.in_flight() == 0,
        }
    }

    /// Submits the read of a get to its device, or queues the get if no slot is free.
    fn submit(&mut self, mut slot: Slot<O>) {
        if self.scm.is_none() {
            slot.scm = None;
        }
        let Some(number) = self.free.pop() else { return self.waiting.push_back(slot) };
        let buf = match slot.span.pages {
            1 => self.bufs.pop().unwrap_or_else(|| Buf::pages(1)),
            pages => Buf::pages(pages as usize),
        };
        let (file, at, device) = match (&slot.scm, &mut self.scm) {
            (Some(read), Some(scm)) => (read.file(), read.at(), scm),
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
            // Each device queue is as deep as this one, so it is not full while a slot is free.
            self.free.push(number);
            let error = broken_invariant!("a device queue has room while a slot is free");
            return self.finish(slot.token, slot.read, Depth::Flash, Err(error));
        }
        if let Some(empty) = self.slots.get_mut(number) {
            base::invariant!(empty.is_none(), "a free slot is empty");
            *empty = Some(slot);
        }
    }

    /// Ends a get and keeps its result for the caller.
    fn finish(&mut self, token: u64, op: O, depth: Depth, output: Result<O::Output>) {
        let is_counted = op.is_counted();
        let result = op.end(&self.shared, output, depth);
        if let Ok(value) = &result
            && is_counted
        {
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
