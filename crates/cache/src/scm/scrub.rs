//! Scrubbing the tier: the scrubber, which reads all of a store in the background, verifies the copies of its
//! pages here too.
//!
//! Otherwise a page in memory is verified once after it was written or restored, and could change later (I8).

use media::{Buf, Purpose};

use super::backing::PinnedPage;
use super::hit::ScmSlot;
use super::slot_map::tag_of;
use super::statistics::count;
use super::tier::ScmTier;
use crate::PageKey;

impl ScmTier {
    /// Verifies the page if the tier holds it and is not writing it. `is_right` checks its content; a page
    /// that fails is dropped. Returns whether the page was right, `None` if it was not checked. A device that
    /// cannot be read turns the tier off.
    pub fn scrub(&self, key: PageKey, is_right: impl FnOnce(&[u8]) -> bool) -> Option<bool> {
        let hash = key.hash();
        let slot = self.map.find(hash).filter(|_| !self.is_off())?;
        let pinned = self.backing.pin(self.layout.page_of(slot))?;
        if !self.map.holds(slot, hash) {
            return None;
        }
        let tag = self.map.tag(slot);
        let is_right = match pinned {
            PinnedPage::InPlace(page) => {
                let is_right = tag_of(&*page) == tag && is_right(&*page);
                if !self.check_memory() {
                    return None;
                }
                if is_right {
                    self.map.set_verified(slot);
                }
                is_right
            }
            PinnedPage::AtDevice(place) => {
                let (buf, read) = place.file.read(place.at, Buf::pages(1), Purpose::Scrub);
                if let Err(error) = read {
                    self.fail(error);
                    return None;
                }
                tag_of(&buf) == tag && is_right(&buf)
            }
        };
        count(&self.counters.scrubbed);
        if !is_right {
            self.damaged(ScmSlot { slot, hash });
        }
        Some(is_right)
    }
}
