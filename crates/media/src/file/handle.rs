//! An open file of a directory.
//!
//! Blocking reads and writes are `pread` and `pwrite` on the calling thread. A ring at depth one
//! needs the same one system call a read and adds its own work: see docs/media.md for the figures.
//!
//! Byte stores go through [`Mapped`] where the file's space is surely allocated, by `pwrite`
//! elsewhere and where zeros were written ahead of syncs; both meet in the operating system's cache, so
//! they may be mixed.
//!
//! Concurrency: `mapping` serialises stores of one file; nothing else is locked.

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

use super::failed;
use super::mapped::Mapped;
use super::transfer::Transfer;
use super::turns::Turns;
use crate::{Access, Buf, File, Op, Purpose, check};

/// From this length on a store is one `pwrite`: cheaper than a page fault for every page.
const MAPPED_STORE_BYTES_MAX: usize = 16 << 10;

/// Pages are prepared in pieces of this, bytes: some milliseconds of writing.
const PIECE_BYTES: u64 = 1 << 20;

/// So many pieces stay mapped, with the last that was prepared; few enough that their dirty pages do not
/// count in a process's memory.
const PIECES_MAX: u64 = 5;

/// An open file.
pub(super) struct DiskFile {
    name: String,
    file: fs::File,
    access: Access,
    is_direct: bool,
    turns: Arc<Turns>,
    mapping: Mutex<Mapping>,
}

/// What is written ahead between two looks at where stores are, bytes: a writer waits for so much.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Where stores may go through memory.
struct Mapping {
    /// Offsets below are allocated on the device, hold no content that was ever evicted, and may
    /// be mapped.
    allocated: u64,
    /// No store reached further.
    stored: u64,
    /// What was written ahead. Stores there are written: to the system a page that is written through a
    /// mapping is all of the pages that it keeps together, 16 and more, and a sync writes them all.
    written: Range<u64>,
    /// There from the first store on; none again where it was refused.
    mapped: Option<Mapped>,
    /// Pages before it were let go, and those behind it were not prepared.
    prepared: Range<u64>,
}

impl Mapping {
    const fn new(allocated: u64) -> Self {
        Self { allocated, stored: 0, written: 0..0, mapped: None, prepared: 0..0 }
    }

    /// Maps nothing any more, and nothing at or past `allocated` later.
    fn unmap(&mut self, allocated: u64) {
        let stored = self.stored;
        *self = Self { stored, ..Self::new(allocated) };
    }

    /// What is mapped, where all below `end` is or can be.
    fn reach(&mut self, file: &fs::File, end: u64) -> Option<&mut Mapped> {
        if end > self.allocated {
            return None;
        }
        if self.mapped.is_none() {
            match Mapped::map(file, self.allocated) {
                Ok(mapped) => self.mapped = Some(mapped),
                // Refused once, refused for good: the file is as writable without.
                Err(_) => self.unmap(0),
            }
        }
        self.mapped.as_mut()
    }

    /// Moves the part that is prepared on to the piece that holds offset `at`: what is to be made of it,
    /// and what is to be let go.
    fn move_on(&mut self, at: u64) -> (Range<u64>, Range<u64>) {
        let piece = at - at % PIECE_BYTES;
        let (from, end) = (self.prepared.end.max(piece), (piece + PIECE_BYTES).min(self.allocated));
        if from >= end {
            return (0..0, 0..0);
        }
        self.prepared.end = end;
        (from..end, self.leave(end.saturating_sub(PIECES_MAX * PIECE_BYTES)))
    }

    /// What is to be let go so that nothing before `keep` is mapped.
    fn leave(&mut self, keep: u64) -> Range<u64> {
        let start = self.prepared.start;
        let left = start..keep.max(start);
        self.prepared = left.end..self.prepared.end.max(left.end);
        left
    }

    /// What a store that ends at `end` is to let go: nothing where pages are prepared, which does it.
    fn fall_behind(&mut self, end: u64) -> Range<u64> {
        if end.saturating_sub(self.prepared.start) <= (PIECES_MAX + 1) * PIECE_BYTES {
            return 0..0;
        }
        self.leave((end - PIECE_BYTES) / PIECE_BYTES * PIECE_BYTES)
    }
}

impl DiskFile {
    /// `allocated` bytes from the front may be mapped; 0 where the file system promises nothing.
    pub(super) fn new(
        name: &str,
        file: fs::File,
        access: Access,
        allocated: u64,
        turns: Arc<Turns>,
    ) -> Self {
        let mapping = Mutex::new(Mapping::new(allocated));
        let is_direct = fcntl_getfl(&file).is_ok_and(|flags| flags.contains(OFlags::DIRECT));
        Self { name: name.to_owned(), file, access, is_direct, turns, mapping }
    }

    /// Whether it is read and written past the system's cache.
    pub(super) const fn is_direct(&self) -> bool {
        self.is_direct
    }

    /// The operating system's handle.
    pub(super) const fn file(&self) -> &fs::File {
        &self.file
    }

    fn transfer(&self, op: Op, purpose: Purpose) -> (Buf, Result<()>) {
        match Transfer::new(&self.name, op) {
            Ok(mut transfer) => {
                let _turn = self.turns.take(purpose.class());
                let result = transfer.run(&self.file, &self.name);
                (transfer.into_buf(), result)
            }
            Err((buf, error)) => (buf, Err(error)),
        }
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> Result<()> {
        let place = format_args!("{}, offset {at}", self.name);
        self.file.write_all_at(bytes, at).map_err(|error| failed("write", place, error))
    }
}

impl File for DiskFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> Result<u64> {
        let metadata = self.file.metadata();
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
        let mut mapping = self.mapping.lock();
        mapping.stored = mapping.stored.max(end);
        let is_written = bytes.len() >= MAPPED_STORE_BYTES_MAX || mapping.written.contains(&at);
        let Some(mapped) = mapping.reach(&self.file, end).filter(|_| !is_written) else {
            drop(mapping);
            return self.write_at(at, bytes);
        };
        mapped.store(at, bytes);
        let left = mapping.fall_behind(end);
        if let Some(mapped) = mapping.mapped.as_ref().filter(|_| !left.is_empty()) {
            mapped.pages().release(left);
        }
        Ok(())
    }

    fn prepare_stores(&self, at: u64) {
        let mut mapping = self.mapping.lock();
        let Some(pages) = mapping.mapped.as_ref().map(Mapped::pages) else { return };
        let (more, left) = if at == u64::MAX {
            let allocated = mapping.allocated;
            (0..0, mapping.leave(allocated))
        } else if at < mapping.allocated {
            mapping.move_on(at)
        } else {
            return;
        };
        // Without the lock: writers go on meanwhile.
        drop(mapping);
        pages.populate(more);
        pages.release(left);
    }

    fn write_ahead(&self, at: u64, len: u64, _purpose: Purpose) -> u64 {
        const PAGE: u64 = PAGE_BYTES as u64;
        let mut done = 0;
        loop {
            // Under the lock, so that no store is written over; a piece at a time, so that none waits long.
            let mut mapping = self.mapping.lock();
            let from = at.max(mapping.stored).next_multiple_of(PAGE).max(mapping.written.end);
            let end = at.saturating_add(len).min(mapping.allocated);
            let piece = usize::try_from(end.saturating_sub(from)).unwrap_or(usize::MAX);
            let zeros = ZEROS.get(..piece).unwrap_or(&ZEROS);
            if zeros.is_empty() || self.file.write_all_at(zeros, from).is_err() {
                return done;
            }
            if mapping.written.end < from {
                mapping.written.start = from;
            }
            mapping.written.end = from + zeros.len() as u64;
            done += zeros.len() as u64;
        }
    }

    fn sync(&self, purpose: Purpose) -> Result<()> {
        let _turn = self.turns.take(purpose.class());
        self.file.sync_data().map_err(|error| failed("sync", &self.name, error))
    }

    fn set_len(&self, len: u64) -> Result<()> {
        check::end(&self.name, len, 0)?;
        let mut mapping = self.mapping.lock();
        if len < mapping.allocated {
            mapping.unmap(len);
        }
        self.file.set_len(len).map_err(|error| failed("set the length", &self.name, error))
    }

    fn undecorated(&self) -> &dyn Any {
        self
    }
}

impl fmt::Debug for DiskFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DiskFile({})", self.name)
    }
}
