//! A file on storage-class memory: stores through its mapping, made durable by a fence, and loads through
//! another one, which costs no system call.
//!
//! Concurrency: stores of one file are serialised by a lock, which a log's only writer takes without
//! contention.

use std::fmt;
use std::sync::{Arc, OnceLock};

use base::{Error, Result};
use parking_lot::Mutex;

use crate::emulated::{Device, Stream};
use crate::file::{Tick, descriptor};
use crate::scm::mapping::Mapping;
use crate::{Buf, File, Purpose, check};

/// See the module.
pub(super) struct ScmFile {
    inner: Arc<dyn File>,
    stores: Mutex<Stores>,
    /// The file as long as it was at the first load. `None` if the system refused the mapping: loads are
    /// system calls then, as they are beyond its end.
    loads: OnceLock<Option<Mapping>>,
    /// Whether stored lines must be flushed to be durable.
    flushes: bool,
    emulated: Option<Arc<Device>>,
}

struct Stores {
    /// The whole file, until its length changes. `None` for a file that was opened again, or if the system
    /// refused the mapping: stores then use system calls, and a sync is one too.
    mapping: Option<Mapping>,
    /// Whether stores went past the mapping since the last sync.
    is_past: bool,
    /// When a sync last found that the file has its name.
    checked: Tick,
}

impl ScmFile {
    pub(super) fn new(
        inner: Arc<dyn File>,
        mapping: Option<Mapping>,
        flushes: bool,
        emulated: Option<Arc<Device>>,
    ) -> Self {
        // A file that is opened again may have stores of a process that died before its fence.
        let is_past = mapping.is_none();
        Self {
            inner,
            stores: Mutex::new(Stores { mapping, is_past, checked: Tick::new() }),
            loads: OnceLock::new(),
            flushes,
            emulated,
        }
    }

    fn map_for_loads(&self) -> Option<Mapping> {
        let len = usize::try_from(self.inner.size().ok()?).ok()?;
        descriptor(&*self.inner).filter(|_| len > 0).and_then(|it| Mapping::read_only(it, len).ok())
    }

    #[cold]
    fn lost(&self) -> Error {
        Error::corrupt("file on storage-class memory")
            .at(self.inner.name())
            .expected("its memory")
            .got("none: it was cut, or the device failed")
    }
}

impl File for ScmFile {
    crate::delegate!(inner: name, size, prepare_stores, write_ahead, undecorated);

    fn read(&self, at: u64, buf: Buf, purpose: Purpose) -> (Buf, Result<()>) {
        if let Some(device) = &self.emulated {
            device.delay(Stream::of_thread(), true, at, buf.len());
        }
        self.inner.read(at, buf, purpose)
    }

    fn write(&self, at: u64, buf: Buf, purpose: Purpose) -> (Buf, Result<()>) {
        self.stores.lock().is_past = true;
        self.inner.write(at, buf, purpose)
    }

    fn store(&self, at: u64, bytes: &[u8], purpose: Purpose) -> Result<()> {
        let mut stores = self.stores.lock();
        if let Some(device) = &self.emulated {
            device.delay(Stream::of_thread(), false, at, bytes.len());
        }
        let end = check::end(self.inner.name(), at, bytes.len())?;
        match &mut stores.mapping {
            Some(mapping) if end <= mapping.len() as u64 => {
                // In range: it ends in the mapping.
                let at = usize::try_from(at).unwrap_or(usize::MAX);
                mapping.store(at, bytes);
                if self.flushes {
                    mapping.write_back(at, bytes.len());
                }
                if mapping.is_lost() { Err(self.lost()) } else { Ok(()) }
            }
            _ => {
                stores.is_past = true;
                self.inner.store(at, bytes, purpose)
            }
        }
    }

    /// Reads no page around the bytes: on these file systems a file has no copy in the page cache. Another
    /// program, or another handle, may have cut the file since it was mapped: the system call then tells.
    fn load(&self, at: u64, bytes: &mut [u8], purpose: Purpose) -> Result<()> {
        if let Some(device) = &self.emulated {
            device.delay(Stream::of_thread(), true, at, bytes.len());
        }
        let end = check::end(self.inner.name(), at, bytes.len())?;
        let mapping = self.loads.get_or_init(|| self.map_for_loads()).as_ref();
        if let Some(mapping) = mapping.filter(|it| end <= it.len() as u64 && !it.is_lost()) {
            // In range: it ends in the mapping.
            mapping.load(usize::try_from(at).unwrap_or(usize::MAX), bytes);
            if !mapping.is_lost() {
                return Ok(());
            }
        }
        let Some(file) = descriptor(&*self.inner) else {
            return self.inner.load(at, bytes, purpose);
        };
        let read = std::os::unix::fs::FileExt::read_exact_at(file, bytes, at);
        read.map_err(|error| Error::io("read", self.inner.name(), error))
    }

    /// A fence: every line was flushed when it was stored.
    fn sync(&self, purpose: Purpose) -> Result<()> {
        let mut stores = self.stores.lock();
        if let Some(mapping) = &stores.mapping {
            mapping.fence();
            if mapping.is_lost() {
                return Err(self.lost());
            }
        }
        // The sync of a file also finds that another program removed it. Not for each fence: a system call
        // costs more than the fence.
        let is_due = stores.checked.is_due();
        if std::mem::take(&mut stores.is_past) || is_due {
            self.inner.sync(purpose)?;
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<()> {
        let mut stores = self.stores.lock();
        // A store past the end of the file would raise a signal.
        if let Some(mapping) = stores.mapping.take() {
            mapping.fence();
        }
        stores.is_past = true;
        self.inner.set_len(len)
    }
}

impl fmt::Debug for ScmFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ScmFile({})", self.inner.name())
    }
}
