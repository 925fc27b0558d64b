//! Memory that outlives the region on it: simulates the death of a process or a power cut, after which
//! another process maps the same memory.

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

/// Whole pages of memory outside any file system.
#[derive(Debug)]
pub struct AnonymousMemory {
    file: fs::File,
    len: usize,
    /// True while a region is on the memory: one at a time, as for any location.
    taken: Arc<AtomicBool>,
}

impl AnonymousMemory {
    /// Memory that holds `content`, truncated to whole pages.
    ///
    /// # Errors
    /// `Retry` if the system has no memory.
    pub fn new(content: &[u8]) -> Result<Self> {
        let len = content.len() / PAGE_BYTES * PAGE_BYTES;
        let file = memfd_create("terrace-scm", MemfdFlags::CLOEXEC).map(fs::File::from);
        let file = file.map_err(|error| failed("make", error.into()))?;
        let content = content.get(..len).unwrap_or_default();
        file.write_all_at(content, 0).map_err(|error| failed("fill", error))?;
        Ok(Self { file, len, taken: Arc::default() })
    }

    /// The memory as a region.
    ///
    /// # Errors
    /// `Invalid` if another region is on it, `Retry` if it cannot be mapped.
    pub fn region(&self) -> Result<Region> {
        let guard = Guard::take(&self.taken)?;
        let mapping = Mapping::shared(&self.file, self.len, false);
        let mapping = mapping.map_err(|error| failed("map", error))?;
        let facts = Region::in_memory();
        Ok(Region::new(mapping, Durability::Never, facts, Some(Box::new(guard))))
    }

    /// A copy of the memory. Consistent only if no thread writes meanwhile.
    ///
    /// # Errors
    /// `Retry` if the memory cannot be read.
    pub fn content(&self) -> Result<Vec<u8>> {
        let mut content = vec![0; self.len];
        self.file.read_exact_at(&mut content, 0).map_err(|error| failed("read", error))?;
        Ok(content)
    }
}

#[cold]
fn failed(what: &'static str, error: io::Error) -> Error {
    Error::retry("anonymous memory").at(what).caused_by(error)
}

#[cfg(all(test, not(miri)))]
mod tests {
    use base::Account;

    use super::*;
    use crate::scm::Slots;

    #[test]
    fn a_region_finds_the_content_of_the_previous_one() {
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
