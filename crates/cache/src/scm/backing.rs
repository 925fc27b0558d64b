//! What slots lie on: memory, whose pages are used where they lie, or a device, whose pages are read.
//!
//! Either way a slot is written by one, while nobody reads it, and what a reader has pinned stays what it
//! is. The pages of the map are written the same way; nobody reads them but [`Backing::read`], before
//! the tier is open.

use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{Account, Charge, Error, Result};
use media::emulated::Emulation;
use media::scm::{Blocks, Facts, Lent, Pinned, Scm, Slots};
use media::{Buf, Completion, File, Op, Purpose, Queue, Request};

use super::pins::{Pins, ReadPin, WritePin};

/// The pages of a tier.
pub(crate) enum Backing {
    /// Loads and stores reach them.
    Memory(Slots),
    /// They are read and written whole.
    Device(Device),
}

/// A device, and who uses its pages.
pub(crate) struct Device {
    blocks: Blocks,
    pins: Arc<Pins>,
    _charge: Charge,
}

/// A page that stays what it is.
pub(crate) enum PinnedPage {
    /// Where it lies.
    InPlace(Pinned),
    /// To be read from here.
    AtDevice(ScmLocation),
}

/// Where on a device a page lies that nobody writes meanwhile.
#[derive(Debug)]
pub(crate) struct ScmLocation {
    pub(crate) file: Arc<dyn File>,
    /// The offset, bytes.
    pub(crate) at: u64,
    _pin: ReadPin,
}

/// Writes in flight at a device, at most, and buffers for them.
pub(crate) const DEPTH: usize = 32;

/// Writes pages; the one who does has this.
pub(crate) struct Writer {
    queue: Option<Box<dyn Queue>>,
    bufs: Vec<Buf>,
    /// What is being written, by place.
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

    /// What its emulation did so far; none of a real one.
    pub(crate) fn emulation(&self) -> Option<Emulation> {
        match self {
            Self::Memory(slots) => slots.emulation(),
            Self::Device(device) => device.blocks.emulation(),
        }
    }

    /// How many pages there are.
    pub(crate) fn pages(&self) -> usize {
        match self {
            Self::Memory(slots) => slots.len(),
            Self::Device(device) => {
                usize::try_from(device.blocks.len() / PAGE_BYTES as u64).unwrap_or(0)
            }
        }
    }

    /// Whether its pages are still there, where they are memory; a device says so itself.
    ///
    /// # Errors
    /// Where the medium took them away: nothing that was read in place counts.
    pub(crate) fn check(&self) -> Result<()> {
        match self {
            Self::Memory(slots) => slots.check(),
            Self::Device(_) => Ok(()),
        }
    }

    /// Has page `page` stay what it is; none where it is just being written or has too many readers.
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

    /// Makes page `page` words that many use at once, where it is memory and nobody uses it.
    pub(crate) fn lend(&self, page: usize) -> bool {
        match self {
            Self::Memory(slots) => slots.lend(page),
            Self::Device(_) => false,
        }
    }

    /// The words of page `page`, which is lent.
    pub(crate) fn words(&self, page: usize) -> Option<Lent<'_>> {
        match self {
            Self::Memory(slots) => slots.words(page),
            Self::Device(_) => None,
        }
    }

    /// Makes page `page`, which is lent, a page again; false while somebody uses its words.
    pub(crate) fn take_back(&self, page: usize) -> bool {
        match self {
            Self::Memory(slots) => slots.take_back(page),
            Self::Device(_) => false,
        }
    }

    /// Gives `to` a copy of page `page`.
    ///
    /// # Errors
    /// As the device's.
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

    /// Has page `page`, written and finished, outlast what its medium outlasts.
    ///
    /// # Errors
    /// As the device's.
    pub(crate) fn persist(&self, page: usize) -> Result<()> {
        match self {
            Self::Memory(slots) => slots.persist(page..page + 1),
            Self::Device(device) => device.blocks.file().sync(Purpose::Data),
        }
    }

    /// A queue for one thread to read pages with, where they are read.
    ///
    /// # Errors
    /// `Retry` where the device has none to give.
    pub(crate) fn queue(&self, depth: usize) -> Result<Option<Box<dyn Queue>>> {
        match self {
            Self::Memory(_) => Ok(None),
            Self::Device(device) => device.blocks.queue(depth).map(Some),
        }
    }

    /// What writes its pages, `depth` at a time where they are written by requests, and at most [`DEPTH`].
    ///
    /// # Errors
    /// `Retry` where there is no queue or no memory for buffers.
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

/// What [`Writer::write`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// The page is being written; others may use it once [`Writer::finish`] returned.
    Yes,
    /// Somebody uses the page.
    InUse,
}

impl Writer {
    /// Writes `content` into page `page`. `empty` is called once nobody can read the page any more, and
    /// before a byte of it changes.
    ///
    /// # Errors
    /// As the device's.
    pub(crate) fn write(
        &mut self,
        backing: &Backing,
        page: usize,
        content: &[u8],
        empty: impl FnOnce(),
    ) -> Result<Written> {
        match backing {
            Backing::Memory(slots) => {
                let Some(mut filling) = slots.fill(page) else { return Ok(Written::InUse) };
                empty();
                for (to, from) in filling.chunks_mut(PAGE_BYTES).zip(content.chunks(PAGE_BYTES)) {
                    to.get_mut(..from.len()).unwrap_or_default().copy_from_slice(from);
                }
                Ok(Written::Yes)
            }
            Backing::Device(device) => {
                let Some(writing) = device.pins.write(page) else { return Ok(Written::InUse) };
                empty();
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

    /// Waits for at least `least` writes.
    fn complete(&mut self, least: usize) -> Result<()> {
        let Some(queue) = &mut self.queue else { return Ok(()) };
        let driven = queue.complete(least, &mut self.completions);
        let mut outcome = driven;
        for completion in self.completions.drain(..) {
            self.bufs.push(completion.buf);
            if let Some(place) = self.writing.get_mut(completion.token as usize) {
                *place = None;
            }
            outcome = outcome.and(completion.result);
        }
        outcome
    }

    /// Waits until all is written.
    ///
    /// # Errors
    /// As the device's: any of what was written since the last time may not be.
    pub(crate) fn finish(&mut self) -> Result<()> {
        let mut outcome = Ok(());
        // Bounded: each turn completes a write or fails. All are waited for at once: beside readers that keep
        // all processors busy, each wait takes until they let this thread run again.
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
