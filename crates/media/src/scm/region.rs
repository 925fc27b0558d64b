//! A mapped region: a fixed number of bytes that loads and stores reach.
//!
//! It gives no access by itself. [`Slots`](super::Slots) take a region and lend its pages, so that
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

/// How stored bytes become durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Durability {
    /// Not at all.
    Never,
    /// As cache lines written back.
    Lines,
}

/// Bytes that loads and stores reach.
pub struct Region {
    mapping: Mapping,
    durability: Durability,
    facts: Facts,
    /// What keeps others away: an open, locked file.
    _guard: Option<Box<dyn Any + Send + Sync>>,
}

impl Region {
    /// Memory of this process, zeroed, taken as it is touched; `len` in whole pages.
    ///
    /// # Errors
    /// `Retry` where the system has none to give.
    pub fn anonymous(len: u64) -> Result<Self> {
        let failed = |error: io::Error| {
            Error::retry("shared memory").expected(format_args!("{len} bytes")).caused_by(error)
        };
        let len = usize::try_from(len).unwrap_or(usize::MAX) / PAGE_BYTES * PAGE_BYTES;
        let mapping = Mapping::anonymous(len.max(PAGE_BYTES)).map_err(failed)?;
        let facts = Facts {
            backend: "memory",
            byte_addressable: true,
            persistence: Persistence::Process,
            write_unit: 64,
            read_latency: Duration::from_nanos(100),
            numa_node: None,
            emulated: None,
        };
        Ok(Self::new(mapping, Durability::Never, facts, None))
    }

    pub(super) fn new(
        mapping: Mapping,
        durability: Durability,
        facts: Facts,
        guard: Option<Box<dyn Any + Send + Sync>>,
    ) -> Self {
        Self { mapping, durability, facts, _guard: guard }
    }

    /// How many bytes there are; whole pages.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a region has at least a page")]
    pub const fn len(&self) -> u64 {
        self.mapping.len() as u64
    }

    /// What it is.
    #[must_use]
    pub const fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The address of page `page`; none past the end.
    pub(super) fn page(&self, page: usize) -> Option<NonNull<u8>> {
        let at = page.checked_mul(PAGE_BYTES).filter(|at| *at < self.mapping.len())?;
        // SAFETY: `at` lies within the mapping.
        Some(unsafe { self.mapping.start().add(at) })
    }

    /// Makes what was stored in `pages` from `first` on durable, as far as the region can.
    pub(super) fn persist(&self, first: usize, pages: usize) -> Result<()> {
        let at = first.saturating_mul(PAGE_BYTES);
        let len = pages.saturating_mul(PAGE_BYTES);
        match self.durability {
            Durability::Never => Ok(()),
            Durability::Lines => {
                self.mapping.flush(at, len);
                Ok(())
            }
        }
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Region({} bytes, {})", self.len(), self.facts.backend)
    }
}
