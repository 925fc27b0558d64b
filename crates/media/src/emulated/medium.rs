//! A medium with the latencies and bandwidths of a profile: stands for a flash device that this machine
//! does not have.
//!
//! The medium below should be fast, such as files in memory: its own time counts as part of the emulated
//! latency, not in addition to it. Operations on names are not delayed.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

use base::Result;

use super::device::{Device, Emulation};
use super::file::EmulatedFile;
use super::queue::EmulatedQueue;
use crate::{Access, Capabilities, File, Medium, Queue};

/// Files that take as long as those of an emulated device.
#[derive(Debug)]
pub struct Emulated {
    inner: Arc<dyn Medium>,
    device: Arc<Device>,
}

impl Emulated {
    /// The files of `inner`, with the latencies of `device`, which must have the profile of a block device.
    #[must_use]
    pub fn new(inner: Arc<dyn Medium>, device: Arc<Device>) -> Self {
        Self { inner, device }
    }

    /// Counters of the emulation so far.
    #[must_use]
    pub fn emulation(&self) -> Emulation {
        self.device.emulation()
    }

    fn file(&self, inner: Arc<dyn File>) -> Arc<dyn File> {
        // A hash of the name places each file elsewhere on the model's device.
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(inner.name());
        let base = hash >> 20 << 12;
        Arc::new(EmulatedFile::new(inner, Arc::clone(&self.device), base))
    }
}

impl Medium for Emulated {
    crate::delegate!(inner: remove, rename, link, list, space, sync_names, lock, undecorated);

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

    fn queue(&self, depth: usize) -> Result<Box<dyn Queue>> {
        Ok(Box::new(EmulatedQueue::new(Arc::clone(&self.device), depth)))
    }
}
