//! The medium under the slots: memory, used in place, or a device, read and written by requests.
//!
//! Invariant of both: a page that a reader pinned does not change, and the one writer writes a page only
//! while nobody has it pinned. Map pages are written the same way; only [`Backing::read`] reads them, before
//! the tier is open. A device costs one byte of DRAM per page for pins.

use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{Account, Charge, Error, Result, invariant};
use media::emulated::Emulation;
use media::scm::{Blocks, Facts, Pinned, Scm, SlotWords, Slots};
use media::{Buf, Completion, File, Op, Purpose, Queue, Request};

use super::pins::{Pins, ReadPin, WritePin};

/// The medium of a tier, in pages.
pub(crate) enum Backing {
    /// Memory: pages are used in place.
    Memory(Slots),
    /// A device: pages are read and written whole.
    Device(Device),
}

/// A device, and the pins on its pages.
pub(crate) struct Device {
    blocks: Blocks,
    pins: Arc<Pins>,
    _charge: Charge,
}

/// A pinned page: its content does not change while this exists.
pub(crate) enum PinnedPage {
    /// In memory.
    InPlace(Pinned),
    /// On the device, at this location.
    AtDevice(ScmLocation),
}

/// Location of a pinned page on a device.
#[derive(Debug)]
pub(crate) struct ScmLocation {
    pub(crate) file: Arc<dyn File>,
    /// Offset, bytes.
    pub(crate) at: u64,
    _pin: ReadPin,
}

/// Most writes in flight at a device, each with a buffer.
pub(crate) const DEPTH: usize = 32;

/// Writes pages; owned by the one background writer.
pub(crate) struct Writer {
    queue: Option<Box<dyn Queue>>,
    bufs: Vec<Buf>,
    /// Pins of the writes in flight, by token.
    writing: Vec<Option<WritePin>>,
    completions: Vec<Completion>,
    _charge: Charge,
}

impl Backing {
    pub(crate) fn new(scm: Scm, account: &Account) -> Result<Self> {
        Ok(match scm {
            Scm::Mapped(region) => Self::Memory(Slots::new(region, account)?),
            Scm::Blocks(blocks) => {
                let pages = blocks.len() / PAGE_BYTES as u64;
                let _charge = account.charge(pages)?;
                let pins = Pins::new(usize::try_from(pages).unwrap_or(0));
                Self::Device(Device { blocks, pins, _charge })
            }
        })
    }

    pub(crate) fn facts(&self) -> &Facts {
        match self {
            Self::Memory(slots) => slots.facts(),
            Self::Device(device) => device.blocks.facts(),
        }
    }

    /// Counts of the emulated device; `None` for a real one.
    pub(crate) fn emulation(&self) -> Option<Emulation> {
        match self {
            Self::Memory(slots) => slots.emulation(),
            Self::Device(device) => device.blocks.emulation(),
        }
    }

    /// Pages of the medium.
    pub(crate) fn pages(&self) -> usize {
        match self {
            Self::Memory(slots) => slots.len(),
            Self::Device(device) => {
                usize::try_from(device.blocks.len() / PAGE_BYTES as u64).unwrap_or(0)
            }
        }
    }

    /// Checks that the pages of a tier of memory are still there. A device reports loss by failed reads.
    ///
    /// # Errors
    /// The medium's error, if its memory is gone: content read in place before does not count.
    pub(crate) fn check(&self) -> Result<()> {
        match self {
            Self::Memory(slots) => slots.check(),
            Self::Device(_) => Ok(()),
        }
    }

    /// Pins page `page` for a reader; `None` while it is being written or has too many readers.
    pub(crate) fn pin(&self, page: usize) -> Option<PinnedPage> {
        match self {
            Self::Memory(slots) => slots.pin(page).map(PinnedPage::InPlace),
            Self::Device(device) => {
                let (file, at) = (Arc::clone(device.blocks.file()), (page * PAGE_BYTES) as u64);
                let _pin = device.pins.read(page)?;
                Some(PinnedPage::AtDevice(ScmLocation { file, at, _pin }))
            }
        }
    }

    /// Turns page `page` into words that many threads use at once. False if it is on a device or pinned.
    pub(crate) fn lend(&self, page: usize) -> bool {
        match self {
            Self::Memory(slots) => slots.lend(page),
            Self::Device(_) => false,
        }
    }

    /// The words of page `page`; `None` if it is not shared as words.
    pub(crate) fn words(&self, page: usize) -> Option<SlotWords<'_>> {
        match self {
            Self::Memory(slots) => slots.words(page),
            Self::Device(_) => None,
        }
    }

    /// Turns page `page`, shared as words, into a page again. False while anybody uses its words.
    pub(crate) fn take_back(&self, page: usize) -> bool {
        match self {
            Self::Memory(slots) => slots.take_back(page),
            Self::Device(_) => false,
        }
    }

    /// Passes the content of page `page` to `to`.
    ///
    /// # Errors
    /// `Retry` while the page is being written, and the device's errors.
    pub(crate) fn read<T>(&self, page: usize, to: impl FnOnce(&[u8]) -> T) -> Result<T> {
        match self.pin(page) {
            None => Err(Error::retry("page of an SCM tier").at(page).got("in use")),
            Some(PinnedPage::InPlace(pinned)) => {
                let read = to(&*pinned);
                self.check().map(|()| read)
            }
            Some(PinnedPage::AtDevice(place)) => {
                let (buf, read) = place.file.read(place.at, Buf::pages(1), Purpose::Data);
                read.map(|()| to(&buf))
            }
        }
    }

    /// Makes page `page`, whose write has finished, as durable as the medium can.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn persist(&self, page: usize) -> Result<()> {
        match self {
            Self::Memory(slots) => slots.persist(page..page + 1),
            Self::Device(device) => device.blocks.file().sync(Purpose::Data),
        }
    }

    /// A queue for one thread to read pages of a device with; `None` for memory.
    ///
    /// # Errors
    /// `Retry` if the device has no queue left.
    pub(crate) fn queue(&self, depth: usize) -> Result<Option<Box<dyn Queue>>> {
        match self {
            Self::Memory(_) => Ok(None),
            Self::Device(device) => device.blocks.queue(depth).map(Some),
        }
    }

    /// The writer. On a device it has up to `depth` writes in flight, at least 1 and at most [`DEPTH`].
    ///
    /// # Errors
    /// `Retry` if there is no queue or no memory for buffers.
    pub(crate) fn writer(&self, account: &Account, depth: usize) -> Result<Writer> {
        let depth = depth.clamp(1, DEPTH);
        let (queue, depth) = match self {
            Self::Memory(_) => (None, 0),
            Self::Device(device) => (Some(device.blocks.queue(depth)?), depth),
        };
        let _charge = account.charge((depth * PAGE_BYTES) as u64)?;
        let (bufs, completions) = ((0..depth).map(|_| Buf::pages(1)).collect(), Vec::new());
        let writing = (0..depth).map(|_| None).collect();
        Ok(Writer { queue, bufs, writing, completions, _charge })
    }
}

/// Outcome of [`Writer::write`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// The page is being written. It may be published once [`Writer::finish`] returned.
    Yes,
    /// A reader has the page pinned: nothing was written.
    InUse,
}

impl Writer {
    /// Writes `content` into page `page`. Calls `claim` once no reader can pin the page any more, and before
    /// a byte of it changes.
    ///
    /// # Errors
    /// The device's.
    pub(crate) fn write(
        &mut self,
        backing: &Backing,
        page: usize,
        content: &[u8],
        claim: impl FnOnce(),
    ) -> Result<Written> {
        invariant!(content.len() == PAGE_BYTES, "pages are written whole");
        match backing {
            Backing::Memory(slots) => {
                let Some(mut filling) = slots.fill(page) else { return Ok(Written::InUse) };
                claim();
                for (to, from) in filling.chunks_mut(PAGE_BYTES).zip(content.chunks(PAGE_BYTES)) {
                    to.get_mut(..from.len()).unwrap_or_default().copy_from_slice(from);
                }
                Ok(Written::Yes)
            }
            Backing::Device(device) => {
                let Some(writing) = device.pins.write(page) else { return Ok(Written::InUse) };
                claim();
                self.submit(device, page, content, writing)
            }
        }
    }

    fn submit(
        &mut self,
        device: &Device,
        page: usize,
        content: &[u8],
        writing: WritePin,
    ) -> Result<Written> {
        if self.bufs.is_empty() {
            self.complete(1)?;
        }
        let in_flight = self.writing.iter().flatten().count();
        invariant!(
            in_flight + self.bufs.len() == self.writing.len(),
            "each buffer is free or in flight"
        );
        let free = self.writing.iter().position(Option::is_none);
        let (Some(mut buf), Some(token), Some(queue)) = (self.bufs.pop(), free, &mut self.queue)
        else {
            return Err(Error::retry("writes to an SCM tier").expected("a buffer"));
        };
        buf.iter_mut().zip(content).for_each(|(to, from)| *to = *from);
        let op = Op::Write { at: (page * PAGE_BYTES) as u64, buf };
        let (file, token) = (Arc::clone(device.blocks.file()), token as u64);
        if let Err(refused) = queue.submit(Request { file, op, purpose: Purpose::Data, token }) {
            self.bufs.push(refused.0.op.into_buf());
            return Err(Error::retry("writes to an SCM tier").expected("room in its queue"));
        }
        if let Some(place) = self.writing.get_mut(token as usize) {
            *place = Some(writing);
        }
        Ok(Written::Yes)
    }

    /// Waits for at least `least` writes to complete.
    fn complete(&mut self, least: usize) -> Result<()> {
        let Some(queue) = &mut self.queue else { return Ok(()) };
        let driven = queue.complete(least, &mut self.completions);
        let mut outcome = driven;
        for completion in self.completions.drain(..) {
            self.bufs.push(completion.buf);
            let pin = self.writing.get_mut(completion.token as usize).and_then(Option::take);
            invariant!(pin.is_some(), "a completion belongs to a write in flight");
            outcome = outcome.and(completion.result);
        }
        outcome
    }

    /// Waits for all writes.
    ///
    /// # Errors
    /// The device's: any page written since the last call may be lost.
    pub(crate) fn finish(&mut self) -> Result<()> {
        let mut outcome = Ok(());
        // Bounded: each turn completes a write or fails. All writes are waited for at once: while readers
        // keep all processors busy, each wait takes until this thread is scheduled again.
        while outcome.is_ok() {
            let in_flight = self.writing.iter().flatten().count();
            if in_flight == 0 {
                break;
            }
            outcome = self.complete(in_flight);
        }
        outcome
    }
}
