//! Opens storage-class memory, mapped or as blocks.

use base::limits::PAGE_BYTES;
use base::{Error, Result, format_bytes};

use super::blocks::Blocks;
use super::facts::Facts;
use super::location::ScmLocation;
use super::probe;
use super::region::Region;
use crate::emulated::Emulation;

/// Open storage-class memory.
#[derive(Debug)]
pub enum Scm {
    /// Accessed by loads and stores.
    Mapped(Region),
    /// Read and written by whole pages.
    Blocks(Blocks),
}

impl Scm {
    /// Opens `size` bytes at `place`, rounded down to whole pages. The space is allocated, and locked for
    /// this process; a shorter file is extended, a device is not. A file is accepted if it begins with
    /// `magic`, is empty, or holds zeros; a device is accepted with any content.
    ///
    /// # Errors
    /// `Invalid` if there is no such location, if it is too small, or if the file holds something else;
    /// `Locked` if it is in use; `NoSpace` if the device has too little space; otherwise errors of
    /// the device.
    pub fn open(place: &ScmLocation, size: u64, magic: &[u8]) -> Result<Self> {
        let pages = size / PAGE_BYTES as u64;
        if pages == 0 || u32::try_from(pages).is_err() {
            return Err(Error::invalid("size of storage-class memory")
                .at(place)
                .expected("at least a page, at most 2^32 of them")
                .got(format_bytes(size)));
        }
        probe::open(place, pages * PAGE_BYTES as u64, magic)
    }

    /// Counters of the emulation so far; none for a real device.
    #[must_use]
    pub fn emulation(&self) -> Option<Emulation> {
        match self {
            Self::Mapped(region) => region.emulation(),
            Self::Blocks(blocks) => blocks.emulation(),
        }
    }

    /// The properties of the memory.
    #[must_use]
    pub const fn facts(&self) -> &Facts {
        match self {
            Self::Mapped(region) => region.facts(),
            Self::Blocks(blocks) => blocks.facts(),
        }
    }
}
