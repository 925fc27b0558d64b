//! Memory that outlives the region on it: what a process finds that was mapped by the one before, for
//! simulations of deaths and power cuts.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use base::limits::PAGE_BYTES;
use base::{Error, Result};
use rustix::fs::{MemfdFlags, memfd_create};

use super::mapping::Mapping;
use super::region::{Durability, Region};
use crate::memory::Guard;

/// Whole pages of memory that belong to no file system.
#[derive(Debug)]
pub struct AnonymousMemory {
    file: fs::File,
    len: usize,
    /// A region is on it: one at a time, as on any place.
    taken: Arc<AtomicBool>,
}

impl AnonymousMemory {
    /// Memory that holds `content`, cut to whole pages.
    ///
    /// # Errors
    /// `Retry` where the system has none to give.
    pub fn new(content: &[u8]) -> Result<Self> {
        let len = content.len() / PAGE_BYTES * PAGE_BYTES;
        let file = memfd_create("terrace-scm", MemfdFlags::CLOEXEC).map(fs::File::from);
        let file = file.map_err(|error| failed("make", error.into()))?;
        let content = content.get(..len).unwrap_or_default();
        file.write_all_at(content, 0).map_err(|error| failed("fill", error))?;
        Ok(Self { file, len, taken: Arc::default() })
    }

    /// All of it as a region, whose loads and stores reach it.
    ///
    /// # Errors
    /// `Invalid` where another region is on it, `Retry` where it cannot be mapped.
    pub fn region(&self) -> Result<Region> {
        let guard = Guard::take(&self.taken)?;
        let mapping = Mapping::shared(&self.file, self.len, false);
        let mapping = mapping.map_err(|error| failed("map", error))?;
        let facts = Region::in_memory();
        Ok(Region::new(mapping, Durability::Never, facts, Some(Box::new(guard))))
    }

    /// A copy of it, as of a moment at which nobody writes to it.
    ///
    /// # Errors
    /// `Retry` where it cannot be read.
    pub fn content(&self) -> Result<Vec<u8>> {
        let mut content = vec![0; self.len];
        self.file.read_exact_at(&mut content, 0).map_err(|error| failed("read", error))?;
        Ok(content)
    }
}

#[cold]
fn failed(what: &'static str, error: io::Error) -> Error {
    Error::retry("memory that is kept").at(what).caused_by(error)
}

#[cfg(all(test, not(miri)))]
mod tests {
    use base::Account;

    use super::*;
    use crate::scm::Slots;

    #[test]
    fn what_a_region_wrote_is_found_by_the_next() {
        let kept = AnonymousMemory::new(&[7; 3 * PAGE_BYTES + 5]).unwrap();
        let account = Account::unlimited("test");
        let slots = Slots::new(kept.region().unwrap(), &account).unwrap();
        assert_eq!(slots.len(), 3);
        assert!(kept.region().is_err(), "one at a time");
        slots.fill(1).unwrap().fill(9);
        drop(slots);
        let content = kept.content().unwrap();
        assert_eq!(
            (content[PAGE_BYTES - 1], content[PAGE_BYTES], content[2 * PAGE_BYTES]),
            (7, 9, 7)
        );
        let slots = Slots::new(kept.region().unwrap(), &account).unwrap();
        assert!(slots.pin(1).unwrap().iter().all(|byte| *byte == 9));
    }
}
