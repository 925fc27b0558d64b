//! A mapped region: a fixed number of bytes that loads and stores reach.
//!
//! A region by itself gives no access. [`Slots`](super::Slots) take a region and hand out its pages, so that
//! no byte is read while it is written.

use std::any::Any;
use std::fmt;
use std::io;
use std::ptr::NonNull;
use std::time::Duration;

use base::limits::PAGE_BYTES;
use base::{Error, Result};

use super::facts::{Facts, Persistence};
use super::mapping::Mapping;
use crate::emulated::{Device, Emulation, Stream};

/// The way in which stored bytes become durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Durability {
    /// Stored bytes never become durable.
    Never,
    /// By flushing cache lines.
    Lines,
    /// By syncing pages of a file.
    Pages,
}

/// Bytes that loads and stores reach.
pub struct Region {
    mapping: Mapping,
    durability: Durability,
    facts: Facts,
    emulated: Option<Device>,
    /// Keeps other processes away: an open, locked file.
    _guard: Option<Box<dyn Any + Send + Sync>>,
}

impl Region {
    /// Zeroed memory of this process, allocated on first access; `len` in whole pages.
    ///
    /// # Errors
    /// `Retry` if the system has no memory.
    pub fn anonymous(len: u64) -> Result<Self> {
        let failed = |error: io::Error| {
            Error::retry("shared memory").expected(format_args!("{len} bytes")).caused_by(error)
        };
        let len = usize::try_from(len).unwrap_or(usize::MAX) / PAGE_BYTES * PAGE_BYTES;
        let mapping = Mapping::anonymous(len.max(PAGE_BYTES)).map_err(failed)?;
        let facts = Self::in_memory();
        Ok(Self::new(mapping, Durability::Never, facts, None))
    }

    /// The properties of memory of this process.
    pub(super) const fn in_memory() -> Facts {
        Facts {
            backend: "memory",
            byte_addressable: true,
            persistence: Persistence::Process,
            write_unit: 64,
            read_latency: Duration::from_nanos(100),
            numa_node: None,
            emulated: None,
        }
    }

    pub(super) fn new(
        mapping: Mapping,
        durability: Durability,
        facts: Facts,
        guard: Option<Box<dyn Any + Send + Sync>>,
    ) -> Self {
        let is_paged = mapping.len() > 0 && mapping.len().is_multiple_of(PAGE_BYTES);
        base::invariant!(is_paged, "a region is whole pages, at least one");
        base::invariant!(facts.byte_addressable, "a mapped region is reached by loads and stores");
        Self { mapping, durability, facts, emulated: None, _guard: guard }
    }

    /// The same bytes with the latencies of `device`.
    #[must_use]
    pub fn emulated(self, device: Device) -> Self {
        let profile = device.profile();
        let persistence = self.facts.persistence;
        let facts =
            Facts { persistence, numa_node: self.facts.numa_node, ..Facts::of_profile(profile) };
        Self { facts, emulated: Some(device), ..self }
    }

    /// Counters of the emulation so far; none for a real device.
    #[must_use]
    pub fn emulation(&self) -> Option<Emulation> {
        self.emulated.as_ref().map(Device::emulation)
    }

    /// Waits for the difference between emulated memory and DRAM in an access to the first `bytes` of `page`.
    pub(super) fn delay(&self, is_read: bool, page: usize, bytes: usize) {
        if let Some(device) = &self.emulated {
            device.delay(Stream::of_thread(), is_read, (page * PAGE_BYTES) as u64, bytes);
        }
    }

    /// The length, bytes; whole pages.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a region has at least a page")]
    pub const fn len(&self) -> u64 {
        self.mapping.len() as u64
    }

    /// The properties of the memory.
    #[must_use]
    pub const fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The address of page `page`; none if it is past the end.
    pub(super) fn page(&self, page: usize) -> Option<NonNull<u8>> {
        let at = page.checked_mul(PAGE_BYTES).filter(|at| *at < self.mapping.len())?;
        // SAFETY: `at` lies within the mapping.
        Some(unsafe { self.mapping.start().add(at) })
    }

    /// Whether the medium took bytes away since the region was opened (`SIGBUS`). A read is valid only if
    /// this is false afterwards; later stores are lost.
    pub(super) fn is_lost(&self) -> bool {
        self.mapping.is_lost()
    }

    /// Makes the stores to `pages` pages from `first` on durable, if the region can.
    pub(super) fn persist(&self, first: usize, pages: usize) -> Result<()> {
        let at = first.saturating_mul(PAGE_BYTES);
        let len = pages.saturating_mul(PAGE_BYTES);
        match self.durability {
            Durability::Never => Ok(()),
            Durability::Lines => {
                self.mapping.flush(at, len);
                Ok(())
            }
            Durability::Pages => self
                .mapping
                .sync(at, len)
                .map_err(|error| Error::io("sync of a region", format_args!("offset {at}"), error)),
        }
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Region({} bytes, {})", self.len(), self.facts.backend)
    }
}
