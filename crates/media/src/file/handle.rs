//! An open file of a directory.
//!
//! Blocking reads and writes are `pread` and `pwrite` on the calling thread. A ring at depth one
//! needs the same one system call a read and adds its own work: see docs/media.md for the figures.
//!
//! Byte stores go through a [`Window`] where the file's space is surely allocated, by `pwrite`
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
use super::transfer::Transfer;
use super::turns::Turns;
use super::window::{WINDOW_BYTES, Window};
use crate::{Access, Buf, File, Op, Purpose, check};

/// From this length on a store is one `pwrite`: cheaper than a page fault for every page.
const MAPPED_STORE_BYTES_MAX: usize = 16 << 10;

/// Windows mapped ahead of one file: at 130 MB/s, some 30 ms of writing.
const AHEAD_MAX: usize = 4;

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
    window: Option<Window>,
    /// Mapped ahead, behind `window`; at most [`AHEAD_MAX`].
    ahead: Vec<Window>,
    /// What `window` was before: unmapping is not a writer's work either.
    left: Option<Window>,
}

impl Mapping {
    const fn new(allocated: u64) -> Self {
        let written = 0..0;
        Self { allocated, stored: 0, written, window: None, ahead: Vec::new(), left: None }
    }

    /// Maps nothing any more, and nothing at or past `allocated` later.
    fn unmap(&mut self, allocated: u64) {
        let stored = self.stored;
        *self = Self { stored, ..Self::new(allocated) };
    }

    fn holds(&self, at: u64) -> bool {
        self.window.iter().chain(&self.ahead).any(|window| window.holds(at))
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
        if end > mapping.allocated || is_written {
            drop(mapping);
            return self.write_at(at, bytes);
        }
        let (mut at, mut rest) = (at, bytes);
        while !rest.is_empty() {
            let stored = mapping.window.as_mut().map_or(0, |window| window.store(at, rest));
            if stored == 0 {
                mapping.left = mapping.window.take();
                let ahead = mapping.ahead.iter().position(|window| window.holds(at));
                let ahead = ahead.map(|index| Ok(mapping.ahead.swap_remove(index)));
                match ahead.unwrap_or_else(|| Window::map(&self.file, at)) {
                    Ok(window) => mapping.window = Some(window),
                    Err(_) => {
                        // Refused once, refused for good: the file is as writable without.
                        mapping.unmap(0);
                        drop(mapping);
                        return self.write_at(at, rest);
                    }
                }
            }
            at += stored as u64;
            rest = rest.get(stored..).unwrap_or_default();
        }
        Ok(())
    }

    fn prepare_stores(&self, at: u64) {
        let allocated = {
            let mut mapping = self.mapping.lock();
            let allocated = mapping.allocated;
            if at == u64::MAX {
                mapping.unmap(allocated);
            }
            if at >= allocated {
                return;
            }
            mapping.left = None;
            // Those that a writer passed by in another way.
            let near = at.saturating_sub((AHEAD_MAX * WINDOW_BYTES) as u64);
            mapping.ahead.retain(|window| window.at() >= near);
            if let Some(window) = mapping.window.as_mut().filter(|window| window.holds(at)) {
                return window.populate(allocated);
            }
            if mapping.holds(at) || mapping.ahead.len() == AHEAD_MAX {
                return;
            }
            allocated
        };
        // Without the lock: writers go on meanwhile, and map for themselves where they get there.
        let Ok(mut window) = Window::map(&self.file, at) else { return };
        window.populate(allocated);
        let mut mapping = self.mapping.lock();
        if mapping.allocated == allocated && mapping.ahead.len() < AHEAD_MAX && !mapping.holds(at) {
            mapping.ahead.push(window);
        }
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
