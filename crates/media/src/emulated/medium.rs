//! Any medium as slow as a profile says: what the flash below a tier is where none is there to measure.
//!
//! The medium below should be fast, memory or files in memory: its own time is part of the wait, not
//! added to it. Names are not slowed down.

use std::any::Any;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

use base::Result;

use super::device::{Device, Emulation};
use super::file::EmulatedFile;
use super::queue::EmulatedQueue;
use crate::{Access, Capabilities, File, Listing, Medium, Queue, Space};

/// Files that take as long as an emulated device's.
#[derive(Debug)]
pub struct Emulated {
    inner: Arc<dyn Medium>,
    device: Arc<Device>,
}

impl Emulated {
    /// The files of `inner`, on `device`, which must be one of blocks.
    #[must_use]
    pub fn new(inner: Arc<dyn Medium>, device: Arc<Device>) -> Self {
        Self { inner, device }
    }

    /// What the emulation did so far.
    #[must_use]
    pub fn emulation(&self) -> Emulation {
        self.device.emulation()
    }

    fn file(&self, inner: Arc<dyn File>) -> Arc<dyn File> {
        // Files lie apart, wherever that is.
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(inner.name());
        let base = hash >> 20 << 12;
        Arc::new(EmulatedFile::new(inner, Arc::clone(&self.device), base))
    }
}

impl Medium for Emulated {
    fn capabilities(&self) -> Capabilities {
        let profile = self.device.profile();
        Capabilities { backend: profile.backend, ..self.inner.capabilities() }
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
        Ok(Box::new(EmulatedQueue::new(Arc::clone(&self.device), depth)))
    }

    fn undecorated(&self) -> &dyn Any {
        self.inner.undecorated()
    }
}
