//! Storage-class memory: what a second cache tier lies on.
//!
//! A place is named by one string (docs/media.md): a directory or file, a device, `numa:N`,
//! `emulated:PROFILE`. What can
//! be mapped becomes a [`Region`], whose [`Slots`] are read where they lie; anything else is
//! [`Blocks`], read through the queues of `file`. What a place keeps, and for how long, is probed and
//! told as [`Facts`]; nothing here trusts a name.
//!
//! A place has a fixed size, one owner at a time, and no content that anyone relies on: what is
//! missing, too small, in use or somebody else's file is an ordinary error, and so is what goes away while it
//! is used.

mod anonymous;
mod blocks;
mod facts;
mod flush;
mod location;
mod mapping;
mod node;
mod probe;
mod region;
mod slots;
mod sync;
#[cfg(not(miri))]
mod watch;

pub use anonymous::AnonymousMemory;
pub use blocks::Blocks;
pub use facts::{Facts, Persistence};
pub use location::ScmLocation;
pub use region::Region;
pub use slots::{Filling, Lent, Page, Pinned, SLOT_WORDS, Slots};

use base::limits::PAGE_BYTES;
use base::{Error, Result, format_bytes};

use crate::emulated::Emulation;

/// An open place.
#[derive(Debug)]
pub enum Scm {
    /// Loads and stores reach it.
    Mapped(Region),
    /// Whole pages are read and written.
    Blocks(Blocks),
}

impl Scm {
    /// Opens `place` for `size` bytes, rounded down to whole pages. Space is set aside and locked for
    /// this process; a file that is shorter is made longer, a device is not. A file is taken where it begins
    /// with `magic`, is empty, or holds zeros; a device whatever it holds.
    ///
    /// # Errors
    /// `Invalid` where there is no such place, it is in use or too small, or a file that holds something
    /// else; `NoSpace` where there is not as much; as the device's otherwise.
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

    /// What its emulation did so far; none of a real one.
    #[must_use]
    pub fn emulation(&self) -> Option<Emulation> {
        match self {
            Self::Mapped(region) => region.emulation(),
            Self::Blocks(blocks) => blocks.emulation(),
        }
    }

    /// What it is.
    #[must_use]
    pub const fn facts(&self) -> &Facts {
        match self {
            Self::Mapped(region) => region.facts(),
            Self::Blocks(blocks) => blocks.facts(),
        }
    }
}
