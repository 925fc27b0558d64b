//! Storage-class memory that is read and written by whole pages: a file or device with direct I/O.
//!
//! One file of fixed length, and queues to keep many of its pages in flight.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use base::Result;
use base::limits::PAGE_BYTES;

use super::facts::Facts;
use crate::emulated::{Device, EmulatedFile, EmulatedQueue, Emulation};
use crate::{File, Queue};

type MakeQueue = dyn Fn(usize) -> Result<Box<dyn Queue>> + Send + Sync;

/// Pages accessed through queues.
pub struct Blocks {
    file: Arc<dyn File>,
    len: u64,
    queue: Box<MakeQueue>,
    facts: Facts,
    emulated: Option<Arc<Device>>,
    /// Keeps other processes away: an open, locked file.
    _guard: Option<Box<dyn Any + Send + Sync>>,
}

impl Blocks {
    /// The first `len` bytes of `file`; `queue` creates a queue of a depth for it. The caller must not use
    /// the file otherwise.
    #[must_use]
    pub fn new(
        file: Arc<dyn File>,
        len: u64,
        facts: Facts,
        queue: impl Fn(usize) -> Result<Box<dyn Queue>> + Send + Sync + 'static,
    ) -> Self {
        let is_paged = len > 0 && len.is_multiple_of(PAGE_BYTES as u64);
        base::invariant!(is_paged, "blocks are whole pages, at least one");
        base::invariant!(!facts.byte_addressable, "blocks are not reached by loads and stores");
        Self { file, len, queue: Box::new(queue), facts, emulated: None, _guard: None }
    }

    /// The same pages with the latencies of `device`. Its queues replace the present ones.
    #[must_use]
    pub fn emulated(self, device: Device) -> Self {
        let device = Arc::new(device);
        let profile = device.profile();
        let persistence = self.facts.persistence;
        let facts = Facts { persistence, ..Facts::of_profile(profile) };
        let file = Arc::new(EmulatedFile::new(self.file, Arc::clone(&device), 0));
        let queues = Arc::clone(&device);
        let queue = move |depth| -> Result<Box<dyn Queue>> {
            Ok(Box::new(EmulatedQueue::new(Arc::clone(&queues), depth)))
        };
        Self { file, queue: Box::new(queue), facts, emulated: Some(device), ..self }
    }

    /// Counters of the emulation so far; none for a real device.
    #[must_use]
    pub fn emulation(&self) -> Option<Emulation> {
        self.emulated.as_ref().map(|device| device.emulation())
    }

    pub(super) fn guarded_by(self, guard: Box<dyn Any + Send + Sync>) -> Self {
        Self { _guard: Some(guard), ..self }
    }

    /// The file. Callers must not use bytes past [`Blocks::len`] nor change its length.
    #[must_use]
    pub const fn file(&self) -> &Arc<dyn File> {
        &self.file
    }

    /// The length, bytes; whole pages.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "there is at least a page")]
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// A queue for one thread, with at most `depth` operations on the file in flight.
    ///
    /// # Errors
    /// `Retry` if the device has no queue to give.
    pub fn queue(&self, depth: usize) -> Result<Box<dyn Queue>> {
        (self.queue)(depth)
    }

    /// The properties of the memory.
    #[must_use]
    pub const fn facts(&self) -> &Facts {
        &self.facts
    }
}

impl fmt::Debug for Blocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Blocks({} bytes, {})", self.len, self.facts.backend)
    }
}
