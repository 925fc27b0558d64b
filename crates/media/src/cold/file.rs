//! A file that may move to the other medium while it is open.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use base::{Error, Result};
use parking_lot::RwLock;

use super::remote::Remote;
use crate::{Buf, File, Purpose};

/// See the module. Reads that began before the move end on the local file, which stays readable.
pub(super) struct ColdFile {
    name: String,
    current: RwLock<Current>,
}

/// Where the content is now.
#[derive(Clone)]
pub(super) enum Current {
    Local(Arc<dyn File>),
    Cold(Arc<Remote>),
}

impl ColdFile {
    pub(super) fn new(name: &str, current: Current) -> Self {
        Self { name: name.to_owned(), current: RwLock::new(current) }
    }

    pub(super) fn current(&self) -> Current {
        self.current.read().clone()
    }

    pub(super) fn move_to(&self, remote: Arc<Remote>) {
        *self.current.write() = Current::Cold(remote);
    }

    /// The local file, to change it.
    ///
    /// # Errors
    /// `Invalid` once the file is cold.
    fn local(&self) -> Result<Arc<dyn File>> {
        match self.current() {
            Current::Local(file) => Ok(file),
            Current::Cold(_) => Err(Error::invalid("change of a cold file").at(&self.name)),
        }
    }
}

impl File for ColdFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> Result<u64> {
        match self.current() {
            Current::Local(file) => file.size(),
            Current::Cold(remote) => Ok(remote.len()),
        }
    }

    fn read(&self, at: u64, buf: Buf, purpose: Purpose) -> (Buf, Result<()>) {
        match self.current() {
            Current::Local(file) => file.read(at, buf, purpose),
            Current::Cold(remote) => remote.read(at, buf, purpose),
        }
    }

    fn write(&self, at: u64, buf: Buf, purpose: Purpose) -> (Buf, Result<()>) {
        match self.local() {
            Ok(file) => file.write(at, buf, purpose),
            Err(error) => (buf, Err(error)),
        }
    }

    fn store(&self, at: u64, bytes: &[u8], purpose: Purpose) -> Result<()> {
        self.local()?.store(at, bytes, purpose)
    }

    fn sync(&self, purpose: Purpose) -> Result<()> {
        self.local()?.sync(purpose)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.local()?.set_len(len)
    }

    fn undecorated(&self) -> &dyn Any {
        self
    }
}

impl fmt::Debug for ColdFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ColdFile({})", self.name)
    }
}
