//! A medium whose syncs last until a test lets them end. Other operations are served meanwhile, which
//! [`media::Fault::Delay`] does not allow.

use std::any::Any;
use std::fmt;

use media::{Access, Buf, Capabilities, File, Listing, Purpose, Queue, Space};

use super::*;

type Wait = Arc<dyn Fn() + Send + Sync>;

/// See the module.
pub(super) struct SlowSyncs {
    inner: Arc<dyn Medium>,
    wait: Wait,
}

impl SlowSyncs {
    /// A sync of a file of `inner` calls `wait` first.
    pub(super) fn new(inner: Arc<dyn Medium>, wait: impl Fn() + Send + Sync + 'static) -> Self {
        Self { inner, wait: Arc::new(wait) }
    }

    fn file(&self, inner: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(SlowFile { inner, wait: Arc::clone(&self.wait) })
    }
}

impl fmt::Debug for SlowSyncs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SlowSyncs({:?})", self.inner)
    }
}

impl Medium for SlowSyncs {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn create(&self, name: &str, access: Access, reserve: u64) -> Result<Arc<dyn File>> {
        self.inner.create(name, access, reserve).map(|file| self.file(file))
    }

    fn open(&self, name: &str, access: Access) -> Result<Arc<dyn File>> {
        self.inner.open(name, access).map(|file| self.file(file))
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.inner.remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.inner.rename(from, to)
    }

    fn link(&self, name: &str, to: &dyn Medium) -> Result<bool> {
        self.inner.link(name, to)
    }

    fn list(&self) -> Result<Vec<Listing>> {
        self.inner.list()
    }

    fn space(&self) -> Result<Option<Space>> {
        self.inner.space()
    }

    fn sync_names(&self, names: &[&str]) -> Result<()> {
        self.inner.sync_names(names)
    }

    fn lock(&self) -> Result<Box<dyn Any + Send + Sync>> {
        self.inner.lock()
    }

    fn queue(&self, depth: usize) -> Result<Box<dyn Queue>> {
        self.inner.queue(depth)
    }

    fn undecorated(&self) -> &dyn Any {
        self.inner.undecorated()
    }
}

struct SlowFile {
    inner: Arc<dyn File>,
    wait: Wait,
}

impl fmt::Debug for SlowFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SlowFile({:?})", self.inner)
    }
}

impl File for SlowFile {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn size(&self) -> Result<u64> {
        self.inner.size()
    }

    fn read(&self, at: u64, buf: Buf, purpose: Purpose) -> (Buf, Result<()>) {
        self.inner.read(at, buf, purpose)
    }

    fn write(&self, at: u64, buf: Buf, purpose: Purpose) -> (Buf, Result<()>) {
        self.inner.write(at, buf, purpose)
    }

    fn store(&self, at: u64, bytes: &[u8], purpose: Purpose) -> Result<()> {
        self.inner.store(at, bytes, purpose)
    }

    fn sync(&self, purpose: Purpose) -> Result<()> {
        (self.wait)();
        self.inner.sync(purpose)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.inner.set_len(len)
    }

    fn undecorated(&self) -> &dyn Any {
        self.inner.undecorated()
    }
}
