//! A file that may move to the other medium while it is open.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use base::Result;
use parking_lot::RwLock;

use super::counters::Counters;
use crate::{Buf, File, Purpose};

/// See the module. Reads that began before the move end on the local file, which stays readable.
pub(super) struct ColdFile {
    name: String,
    current: RwLock<Current>,
    counters: Arc<Counters>,
}

/// The file that has the content now.
#[derive(Clone)]
pub(super) struct Current {
    pub(super) file: Arc<dyn File>,
    pub(super) is_cold: bool,
}

impl ColdFile {
    fn new(name: &str, file: Arc<dyn File>, is_cold: bool, counters: &Arc<Counters>) -> Self {
        let current = RwLock::new(Current { file, is_cold });
        Self { name: name.to_owned(), current, counters: Arc::clone(counters) }
    }

    pub(super) fn local(name: &str, file: Arc<dyn File>, counters: &Arc<Counters>) -> Self {
        Self::new(name, file, false, counters)
    }

    pub(super) fn cold(name: &str, file: Arc<dyn File>, counters: &Arc<Counters>) -> Self {
        Self::new(name, file, true, counters)
    }

    pub(super) fn current(&self) -> Current {
        self.current.read().clone()
    }

    pub(super) fn move_to(&self, file: Arc<dyn File>) {
        *self.current.write() = Current { file, is_cold: true };
    }
}

impl File for ColdFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> Result<u64> {
        self.current().file.size()
    }

    fn read(&self, at: u64, buf: Buf, purpose: Purpose) -> (Buf, Result<()>) {
        let Current { file, is_cold } = self.current();
        let (buf, result) = file.read(at, buf, purpose);
        if is_cold {
            self.counters.range(1, buf.len(), result.is_ok());
        }
        (buf, result)
    }

    fn write(&self, at: u64, buf: Buf, purpose: Purpose) -> (Buf, Result<()>) {
        self.current().file.write(at, buf, purpose)
    }

    fn store(&self, at: u64, bytes: &[u8], purpose: Purpose) -> Result<()> {
        self.current().file.store(at, bytes, purpose)
    }

    fn sync(&self, purpose: Purpose) -> Result<()> {
        self.current().file.sync(purpose)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.current().file.set_len(len)
    }

    fn undecorated(&self) -> &dyn Any {
        self
    }
}

impl fmt::Debug for ColdFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ColdFile({:?})", self.current().file)
    }
}
