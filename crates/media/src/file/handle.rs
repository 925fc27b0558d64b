//! An open file of a directory.
//!
//! Blocking reads and writes are `pread` and `pwrite` on the calling thread. A ring at depth one needs the
//! same one system call a read and adds its own work (figures: docs/decisions/013).
//!
//! Byte stores go through a mapping ([`Mapped`]) where the file's space is known to be allocated, and by
//! `pwrite` elsewhere and where zeros were written ahead. Both reach the page cache of the operating system,
//! so they may be mixed.
//!
//! A sync fails if another program removed the file or its directory, and so does a store, at the latest some
//! milliseconds after the removal: what is written there is lost.
//!
//! Concurrency: `stores` serialises the stores of one file; nothing else is locked.

use std::any::Any;
use std::fmt;
use std::fs;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use base::Result;
use base::limits::PAGE_BYTES;
use parking_lot::Mutex;
use rustix::fs::{OFlags, fcntl_getfl};

use super::mapped::Mapped;
use super::open_files::OpenFile;
use super::permits::IoPermits;
use super::system::failed;
use super::tick::Tick;
use super::transfer::Transfer;
use crate::Class;
use crate::fork::Descriptor;
use crate::{Access, Buf, File, Op, Purpose, check};

/// Stores of this length and more use one `pwrite`: cheaper than a page fault for every page, bytes.
const MAPPED_STORE_BYTES_MAX: usize = 16 << 10;

/// Pages are prepared in chunks of this size, bytes: some milliseconds of writing each.
const CHUNK_BYTES: u64 = 1 << 20;

/// The most chunks that stay mapped, the last prepared one included; few enough that their dirty pages add
/// little to the memory of the process.
const CHUNKS_MAX: u64 = 5;

/// An open file.
pub(super) struct DiskFile {
    name: String,
    file: Descriptor,
    /// The file's entry among the open files of its directory; `None` for a file that was opened without one.
    open: Option<OpenFile>,
    access: Access,
    is_direct: bool,
    permits: Arc<IoPermits>,
    stores: Mutex<StoreState>,
}

/// One step of writing ahead, bytes: a store waits at most this long for the lock.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// How the stores of a file reach it.
struct StoreState {
    /// Offsets below this one are allocated on the device, have not been evicted from the page cache, and
    /// may be mapped.
    allocated: u64,
    /// The greatest end of a store so far.
    stored: u64,
    /// The range that was written ahead. Stores into it use `pwrite`: after a store through a mapping the
    /// kernel marks the whole folio dirty, 16 pages and more, and a sync writes all of them.
    written_ahead: Range<u64>,
    /// The mapping, from the first store on; none if the kernel refused it.
    mapped: Option<Mapped>,
    /// The window of prepared pages. Pages before it were released, pages after it were not prepared.
    prepared: Range<u64>,
    /// The tick in which a store last found that the file has its name.
    checked: Tick,
}

impl StoreState {
    const fn new(allocated: u64) -> Self {
        let (mapped, checked) = (None, Tick::new());
        Self { allocated, stored: 0, written_ahead: 0..0, mapped, prepared: 0..0, checked }
    }

    /// Removes the mapping. A later mapping ends at `allocated`.
    fn unmap(&mut self, allocated: u64) {
        let stored = self.stored;
        *self = Self { stored, ..Self::new(allocated) };
    }

    /// The mapping, if it reaches or can be made to reach `end`.
    fn map_up_to(&mut self, file: &fs::File, end: u64) -> Option<&mut Mapped> {
        if end > self.allocated {
            return None;
        }
        if self.mapped.is_none() {
            match Mapped::map(file, self.allocated) {
                Ok(mapped) => self.mapped = Some(mapped),
                // Not tried again: `pwrite` does as well.
                Err(_) => self.unmap(0),
            }
        }
        let covers = self.mapped.as_ref().is_none_or(|mapped| mapped.len() == self.allocated);
        base::invariant!(covers, "the mapping is the allocated part of the file");
        self.mapped.as_mut()
    }

    /// Moves the window to the chunk of offset `at`. Returns the range to populate and the range to
    /// release.
    fn advance_window(&mut self, at: u64) -> (Range<u64>, Range<u64>) {
        let chunk = at - at % CHUNK_BYTES;
        let (from, end) = (self.prepared.end.max(chunk), (chunk + CHUNK_BYTES).min(self.allocated));
        if from >= end {
            return (0..0, 0..0);
        }
        self.prepared.end = end;
        (from..end, self.release_before(end.saturating_sub(CHUNKS_MAX * CHUNK_BYTES)))
    }

    /// Moves the start of the window to `keep`. Returns the range to release.
    fn release_before(&mut self, keep: u64) -> Range<u64> {
        let start = self.prepared.start;
        let released = start..keep.max(start);
        self.prepared = released.end..self.prepared.end.max(released.end);
        released
    }

    /// The range that a store ending at `end` releases: empty if a background task moves the window.
    fn released_by_store(&mut self, end: u64) -> Range<u64> {
        if end.saturating_sub(self.prepared.start) <= (CHUNKS_MAX + 1) * CHUNK_BYTES {
            return 0..0;
        }
        self.release_before((end - CHUNK_BYTES) / CHUNK_BYTES * CHUNK_BYTES)
    }
}

impl DiskFile {
    /// The first `allocated` bytes may be mapped; 0 if the file system makes no such promise.
    pub(super) fn new(
        name: &str,
        file: Descriptor,
        access: Access,
        allocated: u64,
        permits: Arc<IoPermits>,
        open: Option<OpenFile>,
    ) -> Self {
        let stores = Mutex::new(StoreState::new(allocated));
        let is_direct = file
            .get()
            .is_ok_and(|file| fcntl_getfl(file).is_ok_and(|flags| flags.contains(OFlags::DIRECT)));
        Self { name: name.to_owned(), file, open, access, is_direct, permits, stores }
    }

    /// Whether it is read and written with direct I/O.
    pub(super) const fn is_direct(&self) -> bool {
        self.is_direct
    }

    /// The operating system's handle.
    ///
    /// # Errors
    /// `Closed` in a process forked from the one that opened the file.
    pub(super) fn file(&self) -> Result<&fs::File> {
        self.file.get()
    }

    /// Refuses if another program removed the file: it would be lost when it is closed.
    fn must_have_name(&self, file: &fs::File) -> Result<()> {
        self.open.as_ref().map_or(Ok(()), |open| open.must_have_name(&self.name, file))
    }

    fn transfer(&self, op: Op, purpose: Purpose) -> (Buf, Result<()>) {
        match Transfer::new(&self.name, op) {
            Ok(mut transfer) => {
                let result = self.file().and_then(|file| {
                    let _turn = self.permits.acquire(Class::of(purpose));
                    transfer.run(file, &self.name)
                });
                (transfer.into_buf(), result)
            }
            Err((buf, error)) => (buf, Err(error)),
        }
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> Result<()> {
        let place = format_args!("{}, offset {at}", self.name);
        self.file()?.write_all_at(bytes, at).map_err(|error| failed("write", place, error))
    }
}

impl File for DiskFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> Result<u64> {
        let metadata = self.file()?.metadata();
        metadata.map(|metadata| metadata.len()).map_err(|e| failed("stat", &self.name, e))
    }

    fn read(&self, at: u64, buf: Buf, purpose: Purpose) -> (Buf, Result<()>) {
        self.transfer(Op::Read { at, buf }, purpose)
    }

    fn write(&self, at: u64, buf: Buf, purpose: Purpose) -> (Buf, Result<()>) {
        self.transfer(Op::Write { at, buf }, purpose)
    }

    fn store(&self, at: u64, bytes: &[u8], _purpose: Purpose) -> Result<()> {
        if self.access != Access::Bytes {
            return Err(check::not_bytes(&self.name));
        }
        let end = check::end(&self.name, at, bytes.len())?;
        let file = self.file()?;
        let mut stores = self.stores.lock();
        if stores.checked.is_due() {
            self.must_have_name(file)?;
        }
        stores.stored = stores.stored.max(end);
        let use_pwrite =
            bytes.len() >= MAPPED_STORE_BYTES_MAX || stores.written_ahead.contains(&at);
        let Some(mapped) = stores.map_up_to(file, end).filter(|_| !use_pwrite) else {
            drop(stores);
            return self.write_at(at, bytes);
        };
        mapped.store(at, bytes);
        let released = stores.released_by_store(end);
        if let Some(mapped) = stores.mapped.as_ref().filter(|_| !released.is_empty()) {
            mapped.pages().release(released);
        }
        Ok(())
    }

    fn prepare_stores(&self, at: u64) {
        if !self.file.is_here() {
            return;
        }
        let mut stores = self.stores.lock();
        let Some(pages) = stores.mapped.as_ref().map(Mapped::pages) else { return };
        let (populate, release) = if at == u64::MAX {
            let allocated = stores.allocated;
            (0..0, stores.release_before(allocated))
        } else if at < stores.allocated {
            stores.advance_window(at)
        } else {
            return;
        };
        // The lock is not held here, so that writers are not delayed.
        drop(stores);
        pages.populate(populate);
        pages.release(release);
    }

    fn write_ahead(&self, at: u64, len: u64, _purpose: Purpose) -> u64 {
        const PAGE: u64 = PAGE_BYTES as u64;
        let mut done = 0;
        let Ok(file) = self.file() else { return 0 };
        loop {
            // The lock keeps a store from being overwritten; one step at a time, so that none waits long.
            let mut stores = self.stores.lock();
            let from = at.max(stores.stored).next_multiple_of(PAGE).max(stores.written_ahead.end);
            let end = at.saturating_add(len).min(stores.allocated);
            let left = usize::try_from(end.saturating_sub(from)).unwrap_or(usize::MAX);
            let zeros = ZEROS.get(..left).unwrap_or(&ZEROS);
            if zeros.is_empty() || file.write_all_at(zeros, from).is_err() {
                return done;
            }
            if stores.written_ahead.end < from {
                stores.written_ahead.start = from;
            }
            stores.written_ahead.end = from + zeros.len() as u64;
            done += zeros.len() as u64;
        }
    }

    fn sync(&self, purpose: Purpose) -> Result<()> {
        let file = self.file()?;
        let _turn = self.permits.acquire(Class::of(purpose));
        file.sync_data().map_err(|error| failed("sync", &self.name, error))?;
        // Last, so that a file that was removed during the sync is found too.
        self.must_have_name(file)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        check::end(&self.name, len, 0)?;
        let file = self.file()?;
        let mut stores = self.stores.lock();
        if len < stores.allocated {
            stores.unmap(len);
        }
        file.set_len(len).map_err(|error| failed("set the length", &self.name, error))
    }

    fn undecorated(&self) -> &dyn Any {
        self
    }
}

/// The operating system's handle of `file`, if it is a file of a directory that this process opened.
pub(crate) fn descriptor(file: &dyn File) -> Option<&fs::File> {
    file.undecorated().downcast_ref::<DiskFile>()?.file().ok()
}

impl fmt::Debug for DiskFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DiskFile({})", self.name)
    }
}
