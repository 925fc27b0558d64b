//! A medium in DRAM: for tests, for simulation, and as the image of a device after a crash.
//!
//! It behaves as a directory of files does; operations complete at once, a sync is free, and nothing
//! survives the process. It stands for a device, so no account is charged for its content.
//!
//! Concurrency: lock order `names`, then one file's `bytes`. Cost: one copy and one lock an operation.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::limits::PAGE_BYTES;
use base::{Error, Result, format_bytes};
use parking_lot::{Mutex, RwLock};

use crate::immediate::Immediate;
use crate::{Access, Buf, Capabilities, File, Listing, Medium, Purpose, Queue, Space, check};

/// The longest file in memory, bytes: an absurd offset is an error and not an abort.
const FILE_BYTES_MAX: u64 = 16 << 30;

type Bytes = Arc<RwLock<Vec<u8>>>;

/// Files in memory.
#[derive(Default)]
pub struct MemoryMedium {
    names: Mutex<BTreeMap<String, Bytes>>,
    locked: Arc<AtomicBool>,
}

impl MemoryMedium {
    /// A medium without files.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a file with `content`, replacing one of that name.
    ///
    /// # Errors
    /// `Invalid` if the name is not a valid file name.
    pub fn insert(&self, name: &str, content: Vec<u8>) -> Result<()> {
        check::name(name)?;
        self.names.lock().insert(name.to_owned(), Arc::new(RwLock::new(content)));
        Ok(())
    }

    /// A copy of a file's content; `None` if there is no such file.
    #[must_use]
    pub fn content(&self, name: &str) -> Option<Vec<u8>> {
        self.names.lock().get(name).map(|bytes| bytes.read().clone())
    }

    fn file(name: &str, access: Access, bytes: &Bytes) -> Arc<dyn File> {
        Arc::new(MemoryFile { name: name.to_owned(), access, bytes: Arc::clone(bytes) })
    }
}

impl Medium for MemoryMedium {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            block_bytes: PAGE_BYTES,
            byte_addressable: true,
            persistent: false,
            queue_depth: 32,
            backend: "memory",
            open_files_max: None,
        }
    }

    fn create(&self, name: &str, access: Access, reserve: u64) -> Result<Arc<dyn File>> {
        check::name(name)?;
        let len = if access == Access::Bytes { file_len(name, reserve)? } else { 0 };
        let mut names = self.names.lock();
        if names.contains_key(name) {
            return Err(check::exists(name));
        }
        let bytes = Arc::new(RwLock::new(vec![0; len]));
        names.insert(name.to_owned(), Arc::clone(&bytes));
        Ok(Self::file(name, access, &bytes))
    }

    fn open(&self, name: &str, access: Access) -> Result<Arc<dyn File>> {
        check::name(name)?;
        match self.names.lock().get(name) {
            Some(bytes) => Ok(Self::file(name, access, bytes)),
            None => Err(check::missing(name)),
        }
    }

    fn remove(&self, name: &str) -> Result<()> {
        check::name(name)?;
        match self.names.lock().remove(name) {
            Some(_) => Ok(()),
            None => Err(check::missing(name)),
        }
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        check::name(from)?;
        check::name(to)?;
        let mut names = self.names.lock();
        match names.remove(from) {
            Some(bytes) => {
                names.insert(to.to_owned(), bytes);
                Ok(())
            }
            None => Err(check::missing(from)),
        }
    }

    fn link(&self, name: &str, to: &dyn Medium) -> Result<bool> {
        check::name(name)?;
        let Some(to) = to.undecorated().downcast_ref::<Self>() else { return Ok(false) };
        let bytes = self.names.lock().get(name).cloned().ok_or_else(|| check::missing(name))?;
        let mut names = to.names.lock();
        if names.contains_key(name) {
            return Err(check::exists(name));
        }
        names.insert(name.to_owned(), bytes);
        Ok(true)
    }

    fn list(&self) -> Result<Vec<Listing>> {
        let listing = |(name, bytes): (&String, &Bytes)| Listing {
            name: name.clone(),
            len: bytes.read().len() as u64,
        };
        Ok(self.names.lock().iter().map(listing).collect())
    }

    /// None: the machine's memory is the only bound.
    fn space(&self) -> Result<Option<Space>> {
        Ok(None)
    }

    fn sync_names(&self, _names: &[&str]) -> Result<()> {
        Ok(())
    }

    fn lock(&self) -> Result<Box<dyn Any + Send + Sync>> {
        Guard::take(&self.locked).map(|guard| Box::new(guard) as Box<dyn Any + Send + Sync>)
    }

    fn queue(&self, depth: usize) -> Result<Box<dyn Queue>> {
        Ok(Box::new(Immediate::of::<MemoryFile>(depth)))
    }

    fn undecorated(&self) -> &dyn Any {
        self
    }
}

impl fmt::Debug for MemoryMedium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryMedium({} files)", self.names.lock().len())
    }
}

/// Holds a flag until it is dropped: the lock of a device that only this process can see.
pub(crate) struct Guard(Arc<AtomicBool>);

impl Guard {
    pub(crate) fn take(flag: &Arc<AtomicBool>) -> Result<Self> {
        // Acquire pairs with the release in `drop`: the next owner sees all writes of the last one.
        if flag.swap(true, Ordering::Acquire) {
            return Err(Error::locked("device is in use by another open store"));
        }
        Ok(Self(Arc::clone(flag)))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        base::invariant!(
            self.0.load(Ordering::Relaxed),
            "a lock is held until its guard is dropped"
        );
        self.0.store(false, Ordering::Release);
    }
}

/// `len` as an index; `NoSpace` if it exceeds the longest file in memory.
pub(crate) fn file_len(name: &str, len: u64) -> Result<usize> {
    match usize::try_from(len) {
        Ok(short) if len <= FILE_BYTES_MAX => Ok(short),
        _ => Err(Error::no_space("file in memory")
            .at(name)
            .expected(format_args!("at most {}", format_bytes(FILE_BYTES_MAX)))
            .got(format_bytes(len))),
    }
}

/// Copies the bytes of `content` from `at` on into `buf`, and zeros after them.
pub(crate) fn read(name: &str, content: &[u8], at: u64, buf: &mut [u8]) -> Result<()> {
    check::aligned(name, at, buf.len())?;
    let held = check::readable(name, at, buf.len(), content.len() as u64)?;
    let content = usize::try_from(at).ok().and_then(|from| content.get(from..));
    let content = content.and_then(|rest| rest.get(..held));
    base::invariant!(content.is_some() || held == 0, "a readable range lies within the file");
    let content = content.unwrap_or_default();
    let (front, back) = buf.split_at_mut(content.len());
    front.copy_from_slice(content);
    back.fill(0);
    Ok(())
}

/// Copies `bytes` into `content` at `at`, extending it.
pub(crate) fn write(name: &str, content: &mut Vec<u8>, at: u64, bytes: &[u8]) -> Result<()> {
    let end = file_len(name, check::end(name, at, bytes.len())?)?;
    if content.len() < end {
        content.resize(end, 0);
    }
    let target = content.get_mut(end - bytes.len()..end);
    base::invariant!(target.is_some(), "a file is extended before it is written");
    if let Some(target) = target {
        target.copy_from_slice(bytes);
    }
    Ok(())
}

struct MemoryFile {
    name: String,
    access: Access,
    bytes: Bytes,
}

impl File for MemoryFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> Result<u64> {
        Ok(self.bytes.read().len() as u64)
    }

    fn read(&self, at: u64, mut buf: Buf, _purpose: Purpose) -> (Buf, Result<()>) {
        let result = read(&self.name, &self.bytes.read(), at, &mut buf);
        (buf, result)
    }

    fn write(&self, at: u64, buf: Buf, _purpose: Purpose) -> (Buf, Result<()>) {
        let result = check::aligned(&self.name, at, buf.len())
            .and_then(|()| write(&self.name, &mut self.bytes.write(), at, &buf));
        (buf, result)
    }

    fn store(&self, at: u64, bytes: &[u8], _purpose: Purpose) -> Result<()> {
        if self.access != Access::Bytes {
            return Err(check::not_bytes(&self.name));
        }
        // As on a file system, no bytes do not extend a file.
        match bytes {
            [] => Ok(()),
            _ => write(&self.name, &mut self.bytes.write(), at, bytes),
        }
    }

    fn load(&self, at: u64, bytes: &mut [u8], _purpose: Purpose) -> Result<()> {
        let stored = self.bytes.read();
        let from = usize::try_from(at).ok();
        let found = from.and_then(|from| stored.get(from..from.checked_add(bytes.len())?));
        bytes.copy_from_slice(found.ok_or_else(|| {
            Error::corrupt("file").at(&self.name).expected("its bytes").got("an end before them")
        })?);
        Ok(())
    }

    fn sync(&self, _purpose: Purpose) -> Result<()> {
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<()> {
        let len = file_len(&self.name, len)?;
        self.bytes.write().resize(len, 0);
        Ok(())
    }

    fn undecorated(&self) -> &dyn Any {
        self
    }
}

impl fmt::Debug for MemoryFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryFile({})", self.name)
    }
}
