//! Results of a lookup in the tier: a page used in place, or a page to be read from the device.
//!
//! Each result holds a pin: the slot is not overwritten while the result exists (I6).

use std::sync::Arc;

use arena::Page;
use media::File;
use media::scm::Pinned;

use super::backing::ScmLocation;
use super::slot_map::tag_of;

/// A page that the tier holds.
#[derive(Debug)]
pub enum ScmHit {
    /// The tier is memory: use the page in place. The use was valid if [`Pinned::is_lost`] is false
    /// afterwards.
    InPlace(ScmPage),
    /// The tier is a device: read the page from it.
    Read(ScmRead),
}

/// A pinned page in the tier's memory. Its content does not change while this value exists, unless the medium
/// loses its memory ([`Pinned::is_lost`]).
#[derive(Debug)]
pub struct ScmPage {
    /// The content.
    pub page: Pinned,
    /// Whether the content was verified before. If not, the caller verifies it and then calls
    /// [`super::ScmTier::verified`] or [`super::ScmTier::damaged`] (I8).
    pub is_verified: bool,
    /// The slot, for those calls.
    pub slot: ScmSlot,
}

/// A pinned page on the tier's device. Its content does not change while this value exists. The caller reads
/// it, verifies it, and calls [`super::ScmTier::damaged`] if it is not the page asked for (I8).
#[derive(Debug)]
pub struct ScmRead {
    pub(super) location: ScmLocation,
    pub(super) tag: u16,
    /// Whether the caller should promote the page: insert it into DRAM, then call
    /// [`super::ScmTier::promoted`].
    pub should_promote: bool,
    /// The slot, for those calls.
    pub slot: ScmSlot,
}

impl ScmRead {
    /// The file to read.
    #[must_use]
    pub const fn file(&self) -> &Arc<dyn File> {
        &self.location.file
    }

    /// The page's offset in the file, bytes.
    #[must_use]
    pub const fn at(&self) -> u64 {
        self.location.at
    }

    /// Whether `page`, as read, has the expected tag. If so the caller verifies its checksum; if not it is
    /// another page.
    #[must_use]
    pub fn may_be(&self, page: &Page) -> bool {
        tag_of(page) == self.tag
    }
}

/// A slot and the hash of the page that a lookup found in it.
#[derive(Clone, Copy, Debug)]
pub struct ScmSlot {
    pub(super) slot: usize,
    pub(super) hash: u64,
}
