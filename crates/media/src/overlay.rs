//! Pinned files of another medium, and files in memory above them: the view of a process that reads a store
//! beside the process that writes it.
//!
//! A pinned file is open, so it stays readable after the writer removes its name. A frozen file is a copy in
//! memory of a file that the writer still appends to. Everything else that is created, changed or removed
//! here stays in memory: the medium below is never written, and no lock is taken.
//!
//! Concurrency: any thread may call; one lock for each operation on a name. Cost: reads of pinned files are
//! those of the medium below. Memory of frozen files is charged to the account of the overlay.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{Account, Charge, Error, ErrorKind, Result};
use parking_lot::Mutex;

use crate::memory::file_len;
use crate::{Access, Buf, File, Listing, Medium, MemoryMedium, Purpose, Space, check};

/// A frozen file is read in steps of this length, bytes.
const STEP_BYTES: usize = 256 << 10;

/// See the module.
pub struct Overlay {
    below: Arc<dyn Medium>,
    pinned: Mutex<BTreeMap<String, Arc<dyn File>>>,
    above: MemoryMedium,
    account: Account,
    /// For the files in memory.
    memory: Mutex<Charge>,
}

impl Overlay {
    /// An overlay of `below` without files.
    #[must_use]
    pub fn new(below: Arc<dyn Medium>, account: &Account) -> Self {
        let (pinned, above) = Default::default();
        let memory = Mutex::new(account.empty_charge());
        Self { below, pinned, above, account: account.clone(), memory }
    }

    /// Opens the file `name` of the medium below, and keeps it.
    ///
    /// # Errors
    /// Those of the medium below: `Invalid` if there is no such file.
    pub fn pin(&self, name: &str, access: Access) -> Result<()> {
        let inner = self.below.open(name, access)?;
        self.pinned.lock().insert(name.to_owned(), Arc::new(PinnedFile { inner }));
        Ok(())
    }

    /// Keeps the file `name` that `other`, an overlay of the same medium, has pinned. Returns whether it has
    /// one.
    pub fn pin_like(&self, other: &Self, name: &str) -> bool {
        let file = other.pinned.lock().get(name).map(Arc::clone);
        file.map(|file| self.pinned.lock().insert(name.to_owned(), file)).is_some()
    }

    /// Copies the present content of a file that only grows: each byte is stored after those before it.
    /// Returns the end of its content: the offset after the last byte that is not zero.
    ///
    /// The copy is a state that the file had: it is read from its end to its beginning, so that a byte which
    /// is stored meanwhile is not in the copy unless all bytes before it are.
    ///
    /// # Errors
    /// Those of the medium below and of the memory limit.
    pub fn freeze(&self, name: &str, purpose: Purpose) -> Result<u64> {
        let file = self.below.open(name, Access::Bytes)?;
        let len = file.size()?;
        // Zeroed memory takes no space until it is written.
        let mut content = vec![0; file_len(name, len)?];
        let mut end = 0;
        let mut steps = content.chunks_mut(STEP_BYTES).enumerate().rev();
        let _charge = self.account.charge(STEP_BYTES as u64)?;
        let mut buf = Buf::pages(STEP_BYTES / PAGE_BYTES);
        steps.try_for_each(|(number, step)| {
            let at = number as u64 * STEP_BYTES as u64;
            let pages = step.len().div_ceil(PAGE_BYTES);
            if pages * PAGE_BYTES != buf.len() {
                buf = Buf::pages(pages);
            }
            let (read, result) = file.read(at, std::mem::replace(&mut buf, Buf::pages(1)), purpose);
            result?;
            if let Some(last) = read.iter().take(step.len()).rposition(|byte| *byte != 0) {
                self.memory.lock().grow(step.len() as u64)?;
                end = end.max(at + last as u64 + 1);
                step.iter_mut().zip(read.iter()).for_each(|(to, from)| *to = *from);
            }
            buf = read;
            Ok::<_, Error>(())
        })?;
        self.above.insert(name, content)?;
        Ok(end)
    }

    /// Adds a file with `content`, in memory.
    ///
    /// # Errors
    /// `Invalid` for a wrong name; those of the memory limit.
    pub fn insert(&self, name: &str, content: Vec<u8>) -> Result<()> {
        self.memory.lock().grow(content.len() as u64)?;
        self.above.insert(name, content)
    }
}

impl Medium for Overlay {
    crate::delegate!(below: capabilities, queue, undecorated);

    fn create(&self, name: &str, access: Access, reserve: u64) -> Result<Arc<dyn File>> {
        if self.pinned.lock().contains_key(name) {
            return Err(check::exists(name));
        }
        self.above.create(name, access, reserve)
    }

    fn open(&self, name: &str, access: Access) -> Result<Arc<dyn File>> {
        if let Some(file) = self.pinned.lock().get(name) {
            return Ok(Arc::clone(file));
        }
        self.above.open(name, access)
    }

    fn remove(&self, name: &str) -> Result<()> {
        if self.pinned.lock().remove(name).is_some() {
            return Ok(());
        }
        self.above.remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let mut pinned = self.pinned.lock();
        if pinned.contains_key(from) {
            return Err(read_only(from));
        }
        self.above.rename(from, to)?;
        pinned.remove(to);
        Ok(())
    }

    fn link(&self, name: &str, to: &dyn Medium) -> Result<bool> {
        if !self.pinned.lock().contains_key(name) {
            // Looks for the name: a file in memory must be copied.
            return self.above.open(name, Access::Bytes).map(|_| false);
        }
        match self.below.link(name, to) {
            // The writer removed the name meanwhile, or the user may not link the file.
            Err(error)
                if matches!(error.kind(), ErrorKind::Invalid | ErrorKind::PermissionDenied) =>
            {
                match to.list()?.iter().any(|file| file.name == name) {
                    true => Err(error),
                    false => Ok(false),
                }
            }
            linked => linked,
        }
    }

    fn list(&self) -> Result<Vec<Listing>> {
        let mut files = self.above.list()?;
        for (name, file) in &*self.pinned.lock() {
            files.push(Listing { name: name.clone(), len: file.size()? });
        }
        files.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(files)
    }

    /// None: nothing is written below.
    fn space(&self) -> Result<Option<Space>> {
        Ok(None)
    }

    fn sync_names(&self, _names: &[&str]) -> Result<()> {
        Ok(())
    }

    fn lock(&self) -> Result<Box<dyn Any + Send + Sync>> {
        Ok(Box::new(()))
    }
}

impl fmt::Debug for Overlay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Overlay").field(&self.below).finish()
    }
}

fn read_only(name: &str) -> Error {
    Error::invalid("file of a store that is open for reading only").at(name).got("a write")
}

/// An open file of the medium below.
#[derive(Debug)]
struct PinnedFile {
    inner: Arc<dyn File>,
}

impl PinnedFile {
    /// Whether the file has `bytes` at `at`.
    fn holds(&self, at: u64, bytes: &[u8], purpose: Purpose) -> Result<bool> {
        let page = PAGE_BYTES as u64;
        let first = at - at % page;
        let end = (at + bytes.len() as u64).next_multiple_of(page);
        let mut rest = bytes;
        for start in (first..end).step_by(PAGE_BYTES) {
            let (buf, read) = self.inner.read(start, Buf::pages(1), purpose);
            read?;
            let skip = usize::try_from(at.saturating_sub(start)).unwrap_or(PAGE_BYTES);
            let held = buf.get(skip..).unwrap_or_default();
            let (now, later) = rest.split_at(held.len().min(rest.len()));
            if !held.starts_with(now) {
                return Ok(false);
            }
            rest = later;
        }
        Ok(rest.is_empty())
    }
}

impl File for PinnedFile {
    crate::delegate!(inner: name, size, read, undecorated);

    fn write(&self, _at: u64, buf: Buf, _purpose: Purpose) -> (Buf, Result<()>) {
        (buf, Err(read_only(self.inner.name())))
    }

    /// Stores nothing, and so succeeds only if the file has these bytes: recovery stores records again that
    /// it read, to make them durable.
    fn store(&self, at: u64, bytes: &[u8], purpose: Purpose) -> Result<()> {
        match self.holds(at, bytes, purpose)? {
            true => Ok(()),
            false => Err(read_only(self.inner.name())),
        }
    }

    /// Nothing to do: the writer syncs its files.
    fn sync(&self, _purpose: Purpose) -> Result<()> {
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<()> {
        match self.inner.size()? == len {
            true => Ok(()),
            false => Err(read_only(self.inner.name())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FileMedium, FileOptions};

    fn bytes(medium: &dyn Medium, name: &str, pages: usize) -> Vec<u8> {
        let file = medium.open(name, Access::Bytes).unwrap();
        let (buf, read) = file.read(0, Buf::pages(pages), Purpose::Log);
        read.unwrap();
        buf.to_vec()
    }

    fn overlay(dir: &std::path::Path) -> (FileMedium, Overlay) {
        let written = FileMedium::open(dir, FileOptions::default()).unwrap();
        let options = FileOptions { create: false, read_only: true, ..FileOptions::default() };
        let below = FileMedium::open(dir, options).unwrap();
        (written, Overlay::new(Arc::new(below), &Account::unlimited("overlay")))
    }

    #[test]
    fn pinned_files_outlive_their_names_and_nothing_reaches_the_medium_below() {
        let dir = tempfile::tempdir().unwrap();
        let (written, overlay) = overlay(dir.path());
        let page = vec![7; PAGE_BYTES];
        for name in ["a", "b"] {
            let file = written.create(name, Access::Bytes, PAGE_BYTES as u64).unwrap();
            file.store(0, &page, Purpose::Log).unwrap();
        }
        overlay.pin("a", Access::Direct).unwrap();
        written.remove("a").unwrap();
        assert_eq!(bytes(&overlay, "a", 1), page);
        assert!(overlay.open("b", Access::Bytes).is_err(), "it is not pinned");
        let listed = overlay.list().unwrap();
        assert_eq!((listed.len(), &*listed[0].name, listed[0].len), (1, "a", PAGE_BYTES as u64));
        // The name is gone, so the file must be copied.
        assert!(!overlay.link("a", &MemoryMedium::new()).unwrap());

        let file = overlay.open("a", Access::Bytes).unwrap();
        file.store(100, &page[..200], Purpose::Log).unwrap();
        assert!(file.store(100, b"x", Purpose::Log).is_err(), "the bytes are others");
        assert!(file.store(4000, &page[..200], Purpose::Log).is_err(), "past the end");
        assert!(file.write(0, Buf::pages(1), Purpose::Log).1.is_err());
        assert!(file.set_len(0).is_err());
        overlay.create("c", Access::Bytes, 10).unwrap();
        overlay.remove("a").unwrap();
        assert_eq!(written.list().unwrap().len(), 1, "only `b` is there");
    }

    #[test]
    fn a_frozen_file_does_not_change_and_is_written_in_memory() {
        let dir = tempfile::tempdir().unwrap();
        let (written, overlay) = overlay(dir.path());
        let len = 3 * STEP_BYTES as u64 + 100;
        let file = written.create("log", Access::Bytes, len).unwrap();
        file.store(5, b"first", Purpose::Log).unwrap();
        file.store(STEP_BYTES as u64 + 7, b"second", Purpose::Log).unwrap();
        assert_eq!(overlay.freeze("log", Purpose::Log).unwrap(), STEP_BYTES as u64 + 13);
        file.store(20, b"later", Purpose::Log).unwrap();
        let frozen = overlay.open("log", Access::Bytes).unwrap();
        assert_eq!(frozen.size().unwrap(), len);
        let front = bytes(&overlay, "log", 1);
        assert_eq!((&front[5..10], &front[20..25]), (&b"first"[..], &[0; 5][..]));
        frozen.store(20, b"own", Purpose::Log).unwrap();
        assert_eq!(&bytes(&overlay, "log", 1)[20..23], b"own");
        assert_eq!(&bytes(&written, "log", 1)[20..25], b"later");
    }

    #[test]
    fn the_memory_of_frozen_files_is_charged() {
        let dir = tempfile::tempdir().unwrap();
        let (written, _) = overlay(dir.path());
        let file = written.create("log", Access::Bytes, 4 << 20).unwrap();
        file.store(0, b"x", Purpose::Log).unwrap();
        let account = Account::unlimited("overlay");
        account.set_cap(2 * STEP_BYTES as u64);
        let overlay = Overlay::new(Arc::new(written), &account);
        overlay.freeze("log", Purpose::Log).unwrap();
        assert_eq!(account.used(), STEP_BYTES as u64, "zeros take no memory");
        assert_eq!(account.peak(), 2 * STEP_BYTES as u64);
        file.store(STEP_BYTES as u64, b"x", Purpose::Log).unwrap();
        let error = overlay.freeze("log", Purpose::Log).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Retry, "{error}");
    }
}
