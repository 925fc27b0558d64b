//! A backup as a medium with the store's files under their own names, so that code that reads a store, such
//! as a check, reads a backup in place.
//!
//! It is read-only. The caller holds the repository's lock.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{Error, Result};
use media::{Access, Buf, Capabilities, File, Listing, Medium, Purpose, Queue, Space};

use super::index::{Index, IndexEntry};

/// The files of one backup, as a read-only medium.
#[derive(Debug)]
pub(super) struct View {
    repository: Arc<dyn Medium>,
    /// The index entries by file name.
    files: BTreeMap<String, IndexEntry>,
}

impl View {
    pub(super) fn new(repository: &Arc<dyn Medium>, index: &Index) -> Self {
        let files = index.files.iter().map(|entry| (entry.name.clone(), entry.clone())).collect();
        Self { repository: Arc::clone(repository), files }
    }
}

fn read_only() -> Error {
    Error::invalid("backup").expected("to be read only")
}

impl Medium for View {
    fn capabilities(&self) -> Capabilities {
        self.repository.capabilities()
    }

    fn create(&self, _name: &str, _access: Access, _reserve: u64) -> Result<Arc<dyn File>> {
        Err(read_only())
    }

    fn open(&self, name: &str, access: Access) -> Result<Arc<dyn File>> {
        let entry = self.files.get(name).ok_or_else(|| {
            Error::invalid("file of a backup").at(name).expected("one that exists")
        })?;
        let file = self.repository.open(&entry.object(), access)?;
        if entry.bytes == entry.len {
            return Ok(file);
        }
        Ok(Arc::new(Padded { file, bytes: entry.bytes, len: entry.len }))
    }

    fn remove(&self, _name: &str) -> Result<()> {
        Err(read_only())
    }

    fn rename(&self, _from: &str, _to: &str) -> Result<()> {
        Err(read_only())
    }

    fn link(&self, _name: &str, _to: &dyn Medium) -> Result<bool> {
        Ok(false)
    }

    fn list(&self) -> Result<Vec<Listing>> {
        let listed = self.repository.list()?;
        let listing = |entry: &IndexEntry| {
            let object = entry.object();
            let at = listed.binary_search_by(|file| file.name.cmp(&object)).ok()?;
            let len = listed.get(at)?.len + (entry.len - entry.bytes);
            Some(Listing { name: entry.name.clone(), len })
        };
        // A file with a missing object is not listed.
        Ok(self.files.values().filter_map(listing).collect())
    }

    fn space(&self) -> Result<Option<Space>> {
        self.repository.space()
    }

    fn sync_names(&self, _names: &[&str]) -> Result<()> {
        Ok(())
    }

    fn lock(&self) -> Result<Box<dyn Any + Send + Sync>> {
        Ok(Box::new(()))
    }

    fn queue(&self, depth: usize) -> Result<Box<dyn Queue>> {
        self.repository.queue(depth)
    }

    fn undecorated(&self) -> &dyn Any {
        self
    }
}

/// A file that ends in zeros that are not stored.
#[derive(Debug)]
struct Padded {
    file: Arc<dyn File>,
    bytes: u64,
    len: u64,
}

impl File for Padded {
    fn name(&self) -> &str {
        self.file.name()
    }

    fn size(&self) -> Result<u64> {
        // If stored bytes are missing, the file is shorter by those.
        Ok((self.file.size()? + (self.len - self.bytes)).min(self.len))
    }

    fn read(&self, at: u64, mut buf: Buf, purpose: Purpose) -> (Buf, Result<()>) {
        let wanted = buf.len() as u64;
        if at.saturating_add(wanted) <= self.bytes {
            return self.file.read(at, buf, purpose);
        }
        buf.fill(0);
        let stored = self.bytes.saturating_sub(at);
        if stored == 0 {
            return (buf, Ok(()));
        }
        let pages = stored.div_ceil(PAGE_BYTES as u64) as usize;
        let (part, result) = self.file.read(at, Buf::pages(pages), purpose);
        for (to, from) in buf.iter_mut().zip(part.iter()) {
            *to = *from;
        }
        (buf, result)
    }

    fn write(&self, _at: u64, buf: Buf, _purpose: Purpose) -> (Buf, Result<()>) {
        (buf, Err(read_only()))
    }

    fn store(&self, _at: u64, _bytes: &[u8], _purpose: Purpose) -> Result<()> {
        Err(read_only())
    }

    fn sync(&self, _purpose: Purpose) -> Result<()> {
        Ok(())
    }

    fn set_len(&self, _len: u64) -> Result<()> {
        Err(read_only())
    }

    fn undecorated(&self) -> &dyn Any {
        self.file.undecorated()
    }
}
