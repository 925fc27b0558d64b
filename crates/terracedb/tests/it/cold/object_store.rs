//! An object store that the store's process can no longer reach once the power of its machine is cut.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::{Error, Result};
use media::{
    Access, Buf, Capabilities, Faulty, File, Freeze, Immediate, Listing, Medium, Purpose, Queue,
    Space,
};

/// Passes operations to the objects until the machine with the device `local` dies: when that device is
/// frozen, or before or after the change `dies_at` of the objects.
#[derive(Clone, Debug)]
pub(super) struct Reachable {
    pub(super) objects: Arc<Faulty>,
    pub(super) local: Arc<Faulty>,
    pub(super) dies_at: Option<u64>,
    /// Changes are counted.
    pub(super) is_counting: Arc<AtomicBool>,
    /// The last change has its effect.
    pub(super) has_effect: bool,
    pub(super) changes: Arc<AtomicU64>,
    pub(super) is_dead: Arc<AtomicBool>,
}

impl Reachable {
    fn check(&self) -> Result<()> {
        match self.is_dead.load(Ordering::SeqCst) || self.local.is_frozen() {
            true => Err(Error::retry("object store").got("a dead machine")),
            false => Ok(()),
        }
    }

    fn change<T>(&self, change: impl FnOnce() -> Result<T>) -> Result<T> {
        self.check()?;
        if !self.is_counting.load(Ordering::SeqCst) {
            return change();
        }
        if self.dies_at != Some(self.changes.fetch_add(1, Ordering::SeqCst)) {
            return change();
        }
        if self.has_effect {
            let _ = change();
        }
        self.is_dead.store(true, Ordering::SeqCst);
        self.local.freeze(Freeze::AtChange(self.local.changes()));
        self.check().map(|()| unreachable!("it is dead"))
    }

    fn file(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(ReachableFile { file, store: self.clone() })
    }
}

impl Medium for Reachable {
    fn capabilities(&self) -> Capabilities {
        self.objects.capabilities()
    }

    fn create(&self, name: &str, access: Access, reserve: u64) -> Result<Arc<dyn File>> {
        self.change(|| self.objects.create(name, access, reserve)).map(|file| self.file(file))
    }

    fn open(&self, name: &str, access: Access) -> Result<Arc<dyn File>> {
        self.check()?;
        self.objects.open(name, access).map(|file| self.file(file))
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.change(|| self.objects.remove(name))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.change(|| self.objects.rename(from, to))
    }

    fn link(&self, _name: &str, _to: &dyn Medium) -> Result<bool> {
        Ok(false)
    }

    fn list(&self) -> Result<Vec<Listing>> {
        self.check()?;
        self.objects.list()
    }

    fn space(&self) -> Result<Option<Space>> {
        Ok(None)
    }

    fn sync_names(&self, names: &[&str]) -> Result<()> {
        self.change(|| self.objects.sync_names(names))
    }

    fn lock(&self) -> Result<Box<dyn Any + Send + Sync>> {
        self.check()?;
        self.objects.lock()
    }

    fn queue(&self, depth: usize) -> Result<Box<dyn Queue>> {
        Ok(Box::new(Immediate::new(depth)))
    }

    fn undecorated(&self) -> &dyn Any {
        self
    }
}

#[derive(Debug)]
struct ReachableFile {
    file: Arc<dyn File>,
    store: Reachable,
}

impl File for ReachableFile {
    fn name(&self) -> &str {
        self.file.name()
    }

    fn size(&self) -> Result<u64> {
        self.file.size()
    }

    fn read(&self, at: u64, buf: Buf, purpose: Purpose) -> (Buf, Result<()>) {
        match self.store.check() {
            Ok(()) => self.file.read(at, buf, purpose),
            Err(error) => (buf, Err(error)),
        }
    }

    fn write(&self, at: u64, buf: Buf, purpose: Purpose) -> (Buf, Result<()>) {
        let mut back = None;
        let mut buf = Some(buf);
        let result = self.store.change(|| {
            let (buf, result) = self.file.write(at, buf.take().unwrap(), purpose);
            back = Some(buf);
            result
        });
        (back.or(buf).unwrap(), result)
    }

    fn store(&self, at: u64, bytes: &[u8], purpose: Purpose) -> Result<()> {
        self.store.change(|| self.file.store(at, bytes, purpose))
    }

    fn sync(&self, purpose: Purpose) -> Result<()> {
        self.store.change(|| self.file.sync(purpose))
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.store.change(|| self.file.set_len(len))
    }

    fn undecorated(&self) -> &dyn Any {
        self
    }
}
