//! Many gets in flight from one thread.
//!
//! Over a tier below DRAM it is to be known what a read costs, and what one takes beside others tells the
//! depth rather than the device. So where the caller waits anyhow, now and then a read that finds its
//! device idle is waited for by itself ([`PageReader::read_alone`]).

use std::collections::VecDeque;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{Charge, Error, Key, Result};
use bytes::Bytes;
use cache::ScmRead;
use media::{Buf, Completion, Medium, Op, Request};
use parking_lot::Mutex;
use table::{Pages, Span, Step};

use super::below::TierPage;
use super::pages::{Depth, PageReader, no_file, purpose};
use super::{Lookup, PageFile, Probe, ReadOp};
use crate::ordered::View;

/// The end of one queued get.
#[derive(Debug)]
pub struct Completed {
    /// The token given at submission.
    pub token: u64,
    /// As [`crate::Keyspace::get`].
    pub result: Result<Option<Bytes>>,
}

/// Gets in flight for one thread: submit keys, go on with other work, poll for results.
///
/// Results come in the order in which they are found. Not `Sync`: one queue, one thread.
pub struct ReadQueue {
    reader: Arc<PageReader>,
    device: Box<dyn media::Queue>,
    /// Of the tier below DRAM, where that is read.
    below: Option<Box<dyn media::Queue>>,
    slots: Vec<Option<Slot>>,
    free: Vec<usize>,
    done: VecDeque<Completed>,
    /// Reads that arrived and are not gone on with yet, oldest first.
    arrived: VecDeque<(Slot, Completion)>,
    /// Gets that need another read and found every place at the device taken.
    waiting: VecDeque<Slot>,
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

/// The view a queued get reads, kept alive by it.
struct PinnedView(Arc<View>);

impl Deref for PinnedView {
    type Target = Arc<View>;

    fn deref(&self) -> &Arc<View> {
        &self.0
    }
}

/// A get waiting for the device.
struct Slot {
    token: u64,
    lookup: Lookup<Bytes, PinnedView>,
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

impl ReadQueue {
    pub(crate) fn new(reader: Arc<PageReader>, medium: &dyn Medium, depth: usize) -> Result<Self> {
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

    pub(crate) fn start(
        &mut self,
        view: &Arc<View>,
        key: Key<'_>,
        probe: Probe,
        at: base::Seqno,
        now: Option<u64>,
        token: u64,
    ) -> Result<()> {
        if self.room() == 0 {
            return Err(Error::retry("read queue").expected(format_args!(
                "at most {} gets at the device and as many results not taken",
                self.depth()
            )));
        }
        if let Some(value) = self.reader.row(view, key.bytes(), probe, at, now) {
            self.done.push_back(Completed { token, result: Ok(Some(value.bytes)) });
            return Ok(());
        }
        self.search(view, key, probe, at, now, token);
        Ok(())
    }

    /// Looks `key` up, which has no row.
    fn search(
        &mut self,
        view: &Arc<View>,
        key: Key<'_>,
        probe: Probe,
        at: base::Seqno,
        now: Option<u64>,
        token: u64,
    ) {
        let key = Bytes::copy_from_slice(key.bytes());
        let lookup = Lookup::new(key, probe, PinnedView(Arc::clone(view)), at, now);
        self.advance(token, lookup, None, Depth::default());
    }

    /// Whether it reads the store whose pages `reader` gets.
    pub(crate) fn reads(&self, reader: &Arc<PageReader>) -> bool {
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
    /// As [`ReadQueue::poll`].
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

    fn completed(&mut self, slot: Slot, completion: Completion) {
        let Slot { token, lookup, span, file, place, _charge } = slot;
        if let Some(read) = place {
            let Completion { buf, result, .. } = completion;
            let pages = self.reader.arrived_below(read, &file, span, &buf, result);
            self.bufs.push(buf);
            return match pages {
                Some(pages) => self.advance(token, lookup, Some(pages), Depth::BelowRead),
                None => self.submit(Slot { token, lookup, span, file, place: None, _charge }),
            };
        }
        match completion.result {
            Ok(()) if span.pages == 1 => {
                match self.reader.admit_page(&file, span, &completion.buf) {
                    Ok(pages) => self.advance(token, lookup, Some(pages), Depth::Flash),
                    Err(error) => self.finish(token, Depth::Flash, Err(error)),
                }
                self.bufs.push(completion.buf);
            }
            Ok(()) => match self.reader.admit(&file, span, completion.buf) {
                Ok(pages) => self.advance(token, lookup, Some(pages), Depth::Flash),
                Err(error) => self.finish(token, Depth::Flash, Err(error)),
            },
            Err(error) => match self.reader.unreadable(&file, span, error) {
                Ok(pages) => self.advance(token, lookup, Some(pages), Depth::Flash),
                Err(error) => self.finish(token, Depth::Flash, Err(error)),
            },
        }
    }

    /// Goes on with a get until it ends or needs the device.
    fn advance(
        &mut self,
        token: u64,
        mut lookup: Lookup<Bytes, PinnedView>,
        mut supplied: Option<Pages>,
        mut depth: Depth,
    ) {
        loop {
            self.reader.counters.steps.add(1);
            let span = match lookup.step(supplied.take()) {
                Ok(Step::Ready(value)) => {
                    if let Some(value) = &value {
                        self.reader.rows.keep(&lookup, value, depth);
                    }
                    return self.finish(token, depth, Ok(value.map(|value| value.bytes)));
                }
                Ok(Step::Need(span)) => span,
                Err(error) => return self.finish(token, depth, Err(error)),
            };
            match self.reader.cached(&lookup, span) {
                Ok(None) => {}
                Ok(pages) => {
                    depth = depth.max(Depth::Page);
                    supplied = pages;
                    continue;
                }
                Err(error) => return self.finish(token, depth, Err(error)),
            }
            let mut place = match self.reader.below(&lookup, span) {
                Ok(None) => None,
                Ok(Some(TierPage::Read(read))) => Some(read),
                Ok(Some(TierPage::Pages(pages))) => {
                    depth = depth.max(Depth::Below);
                    supplied = Some(pages);
                    continue;
                }
                Err(error) => return self.finish(token, depth, Err(error)),
            };
            if self.waits && self.is_idle(place.is_some()) {
                match self.reader.read_alone(&lookup, span, &mut place) {
                    Ok(None) => {}
                    Ok(Some((pages, from))) => {
                        depth = depth.max(from);
                        supplied = Some(pages);
                        continue;
                    }
                    Err(error) => return self.finish(token, Depth::Flash, Err(error)),
                }
            }
            let Some(file) = lookup.file() else {
                return self.finish(token, depth, Err(no_file()));
            };
            return match self.reader.charge_for(span) {
                Ok(_charge) => self.submit(Slot { token, lookup, span, file, place, _charge }),
                Err(error) => self.finish(token, depth, Err(error)),
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

    fn submit(&mut self, mut slot: Slot) {
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
            return self.finish(slot.token, Depth::Flash, Err(error));
        }
        if let Some(place) = self.slots.get_mut(number) {
            *place = Some(slot);
        }
    }

    fn finish(&mut self, token: u64, depth: Depth, result: Result<Option<Bytes>>) {
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

impl fmt::Debug for ReadQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReadQueue({} of {} in flight)", self.in_flight(), self.depth())
    }
}

/// Queues kept for the next `multi_get`: a device queue costs far more to make than to use.
#[derive(Debug)]
pub(crate) struct QueuePool {
    idle: Mutex<Vec<ReadQueue>>,
}

/// Idle queues kept: each keeps its charge.
const IDLE_MAX: usize = 4;

/// The depths of a new queue: the next where there is no memory for one.
const POOLED_DEPTHS: [usize; 3] = [64, 16, 4];

impl QueuePool {
    pub(crate) fn new() -> Self {
        Self { idle: Mutex::new(Vec::new()) }
    }

    fn make(reader: &Arc<PageReader>, medium: &dyn Medium) -> Result<ReadQueue> {
        let mut made = Err(Error::retry("read queue"));
        for depth in POOLED_DEPTHS {
            made = ReadQueue::new(Arc::clone(reader), medium, depth);
            if !matches!(&made, Err(error) if error.is_retryable()) {
                break;
            }
        }
        made
    }

    /// Runs `work` with an idle queue, or with a new one.
    pub(crate) fn with<T>(
        &self,
        reader: &Arc<PageReader>,
        medium: &dyn Medium,
        work: impl FnOnce(&mut ReadQueue) -> Result<T>,
    ) -> Result<T> {
        let idle = self.idle.lock().pop();
        let mut queue = match idle {
            Some(queue) => queue,
            None => Self::make(reader, medium)?,
        };
        queue.waits = true;
        if queue.below.is_none() {
            // The tier below had none to give when it was made.
            queue.below = reader.queue_below(queue.depth());
        }
        let result = work(&mut queue)?;
        let mut idle = self.idle.lock();
        // One that failed, or still has gets in flight, is dropped with what it holds.
        if idle.len() < IDLE_MAX && queue.in_flight() == 0 {
            idle.push(queue);
        }
        Ok(result)
    }
}
