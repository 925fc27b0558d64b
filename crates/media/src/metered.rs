//! A medium that counts every operation and byte by purpose, and lists the operations in progress.
//!
//! It counts the operations that reach the device below, whether or not they succeed; a request that is
//! refused earlier (a bad name, a full queue) is not counted. A byte store counts the pages that it
//! touches and that no store touched since the file's last sync: the device writes these pages once, if
//! stores go forward through the file, as those of a log do.
//!
//! Concurrency: relaxed atomics, no lock but that of [`crate::pending`]. Cost: two atomic additions a read.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use base::limits::PAGE_BYTES;
use base::{Clock, Result};

use crate::pending::{Pending, PendingOps};
use crate::{Access, Buf, Counts, File, Medium, Op, Purpose, Queue, Refused, Request, Usage};

/// Counts the operations on the medium below it.
#[derive(Debug)]
pub struct Metered {
    inner: Arc<dyn Medium>,
    meter: Arc<Meter>,
}

impl Metered {
    /// Counts from zero; `clock` measures how long operations take.
    #[must_use]
    pub fn new(inner: Arc<dyn Medium>, clock: Arc<dyn Clock>) -> Self {
        let (by_purpose, name_ops, name_syncs) = Default::default();
        let pending = PendingOps::new(clock);
        Self { inner, meter: Arc::new(Meter { by_purpose, name_ops, name_syncs, pending }) }
    }

    /// The operation in progress that began first. Reads and queued operations are not tracked.
    #[must_use]
    pub fn pending(&self) -> Option<Pending> {
        self.meter.pending.oldest()
    }

    /// Counts from zero, with a clock that does not move.
    #[cfg(test)]
    pub(crate) fn still(inner: Arc<dyn Medium>) -> Self {
        Self::new(inner, Arc::new(base::ManualClock::default()))
    }

    /// The counts so far.
    #[must_use]
    pub fn snapshot(&self) -> Usage {
        let meter = &self.meter;
        Usage {
            counts: meter.by_purpose.each_ref().map(Cell::load),
            name_ops: meter.name_ops.load(Relaxed),
            name_syncs: meter.name_syncs.load(Relaxed),
        }
    }

    fn file(&self, inner: Arc<dyn File>) -> Arc<dyn File> {
        let stored = AtomicU64::new(0);
        Arc::new(MeteredFile { inner, meter: Arc::clone(&self.meter), stored })
    }
}

/// Counters. They publish no other memory, so `Relaxed` suffices.
#[derive(Debug)]
struct Meter {
    by_purpose: [Cell; Purpose::ALL.len()],
    name_ops: AtomicU64,
    name_syncs: AtomicU64,
    pending: PendingOps,
}

/// One purpose's counters, on cache lines of their own: log writers and readers do not share a line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Cell {
    read_ops: AtomicU64,
    read_bytes: AtomicU64,
    write_ops: AtomicU64,
    write_bytes: AtomicU64,
    syncs: AtomicU64,
}

impl Cell {
    fn load(&self) -> Counts {
        Counts {
            read_ops: self.read_ops.load(Relaxed),
            read_bytes: self.read_bytes.load(Relaxed),
            write_ops: self.write_ops.load(Relaxed),
            write_bytes: self.write_bytes.load(Relaxed),
            syncs: self.syncs.load(Relaxed),
        }
    }

    fn read(&self, bytes: usize) {
        self.read_ops.fetch_add(1, Relaxed);
        self.read_bytes.fetch_add(bytes as u64, Relaxed);
    }

    fn write(&self, bytes: usize) {
        self.write_ops.fetch_add(1, Relaxed);
        self.write_bytes.fetch_add(bytes as u64, Relaxed);
    }
}

impl Meter {
    #[expect(clippy::indexing_slicing, reason = "there is one cell for each purpose")]
    fn cell(&self, purpose: Purpose) -> &Cell {
        &self.by_purpose[purpose as usize]
    }
}

impl Medium for Metered {
    crate::delegate!(inner: capabilities, list, space, lock, undecorated);

    fn create(&self, name: &str, access: Access, reserve: u64) -> Result<Arc<dyn File>> {
        self.meter.name_ops.fetch_add(1, Relaxed);
        let _pending = self.meter.pending.begin("creation", name);
        self.inner.create(name, access, reserve).map(|file| self.file(file))
    }

    fn open(&self, name: &str, access: Access) -> Result<Arc<dyn File>> {
        self.inner.open(name, access).map(|file| self.file(file))
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.meter.name_ops.fetch_add(1, Relaxed);
        let _pending = self.meter.pending.begin("removal", name);
        self.inner.remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.meter.name_ops.fetch_add(1, Relaxed);
        let _pending = self.meter.pending.begin("renaming", from);
        self.inner.rename(from, to)
    }

    fn link(&self, name: &str, to: &dyn Medium) -> Result<bool> {
        self.meter.name_ops.fetch_add(1, Relaxed);
        self.inner.link(name, to)
    }

    fn sync_names(&self, names: &[&str]) -> Result<()> {
        self.meter.name_syncs.fetch_add(1, Relaxed);
        let _pending = self.meter.pending.begin("sync", "");
        self.inner.sync_names(names)
    }

    fn queue(&self, depth: usize) -> Result<Box<dyn Queue>> {
        let inner = self.inner.queue(depth)?;
        Ok(Box::new(MeteredQueue { inner, meter: Arc::clone(&self.meter) }))
    }
}

struct MeteredFile {
    inner: Arc<dyn File>,
    meter: Arc<Meter>,
    /// Stores below this page number have been counted since the last sync.
    stored: AtomicU64,
}

impl MeteredFile {
    fn count_store(&self, at: u64, bytes: usize, purpose: Purpose) {
        const PAGE: u64 = PAGE_BYTES as u64;
        let end = at.saturating_add(bytes as u64).div_ceil(PAGE);
        let before = self.stored.fetch_max(end, Relaxed);
        let pages = end.saturating_sub(before.max(at / PAGE));
        if pages > 0 {
            self.meter.cell(purpose).write(pages.saturating_mul(PAGE) as usize);
        }
    }
}

impl File for MeteredFile {
    crate::delegate!(inner: name, size, prepare_stores, undecorated);

    fn read(&self, at: u64, buf: Buf, purpose: Purpose) -> (Buf, Result<()>) {
        self.meter.cell(purpose).read(buf.len());
        self.inner.read(at, buf, purpose)
    }

    fn load(&self, at: u64, bytes: &mut [u8], purpose: Purpose) -> Result<()> {
        self.meter.cell(purpose).read(bytes.len());
        self.inner.load(at, bytes, purpose)
    }

    fn write(&self, at: u64, buf: Buf, purpose: Purpose) -> (Buf, Result<()>) {
        self.meter.cell(purpose).write(buf.len());
        let _pending = self.meter.pending.begin("write", self.inner.name());
        self.inner.write(at, buf, purpose)
    }

    fn store(&self, at: u64, bytes: &[u8], purpose: Purpose) -> Result<()> {
        self.count_store(at, bytes.len(), purpose);
        self.inner.store(at, bytes, purpose)
    }

    fn write_ahead(&self, at: u64, len: u64, purpose: Purpose) -> u64 {
        let written = self.inner.write_ahead(at, len, purpose);
        if written > 0 {
            self.meter.cell(purpose).write(usize::try_from(written).unwrap_or(usize::MAX));
        }
        written
    }

    fn sync(&self, purpose: Purpose) -> Result<()> {
        self.meter.cell(purpose).syncs.fetch_add(1, Relaxed);
        self.stored.store(0, Relaxed);
        let _pending = self.meter.pending.begin("sync", self.inner.name());
        self.inner.sync(purpose)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        let _pending = self.meter.pending.begin("cut", self.inner.name());
        self.inner.set_len(len)
    }
}

impl fmt::Debug for MeteredFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Metered({:?})", self.inner)
    }
}

struct MeteredQueue {
    inner: Box<dyn Queue>,
    meter: Arc<Meter>,
}

impl Queue for MeteredQueue {
    fn submit(&mut self, request: Request) -> Result<(), Refused> {
        let (purpose, bytes) = (request.purpose, request.op.buf().len());
        let is_read = matches!(request.op, Op::Read { .. });
        self.inner.submit(request)?;
        let cell = self.meter.cell(purpose);
        if is_read {
            cell.read(bytes)
        } else {
            cell.write(bytes)
        }
        Ok(())
    }

    crate::delegate!(inner: complete, descriptor, in_flight, depth);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryMedium;

    #[test]
    fn every_operation_is_counted_once_under_its_purpose() {
        let medium = Metered::still(Arc::new(MemoryMedium::new()));
        let file = medium.create("a", Access::Bytes, 8192).unwrap();
        file.store(3, b"seven b", Purpose::Log).unwrap();
        file.store(10, b"on the same page", Purpose::Log).unwrap();
        file.store(4090, b"on it and the next", Purpose::Log).unwrap();
        file.write(0, Buf::pages(2), Purpose::Flush).1.unwrap();
        file.sync(Purpose::Log).unwrap();
        let before = medium.snapshot();
        let mut queue = medium.queue(1).unwrap();
        let request = |token| Request {
            file: Arc::clone(&file),
            op: Op::Read { at: 0, buf: Buf::pages(1) },
            purpose: Purpose::Data,
            token,
        };
        queue.submit(request(1)).unwrap();
        // A refused request has not reached the device.
        queue.submit(request(2)).unwrap_err();
        medium.sync_names(&[]).unwrap();

        let log = before.of(Purpose::Log);
        assert_eq!((log.write_ops, log.write_bytes, log.syncs), (2, 8192, 1));
        let flush = before.of(Purpose::Flush);
        assert_eq!((flush.write_ops, flush.write_bytes), (1, 8192));
        assert_eq!(before.name_ops, 1);
        let between = medium.snapshot() - before;
        let reads = Counts { read_ops: 1, read_bytes: 4096, ..Counts::default() };
        assert_eq!((between.total(), between.of(Purpose::Data)), (reads, reads));
        assert_eq!((between.name_ops, between.name_syncs), (0, 1));
    }
}
