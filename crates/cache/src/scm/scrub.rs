//! Verifying pages that lie below, for who reads all of a store in the background anyway.
//!
//! Memory is otherwise verified once since a page was written or found, and can change after that (I8).

use media::{Buf, Purpose};

use super::backing::PinnedPage;
use super::hit::ScmSlot;
use super::slot_map::tag_of;
use super::statistics::count;
use super::tier::ScmTier;
use crate::PageKey;

impl ScmTier {
    /// Verifies the page, if it lies here and nobody is just writing there: `is_right` says whether bytes are
    /// its own. Where they are not it is dropped. Whether they were; none where nothing was looked at. A tier
    /// that cannot be read is off.
    pub fn scrub(&self, key: PageKey, is_right: impl FnOnce(&[u8]) -> bool) -> Option<bool> {
        let hash = key.hash();
        let slot = self.map.find(hash).filter(|_| !self.is_off())?;
        let held = self.backing.pin(self.layout.page_of(slot))?;
        if !self.map.holds(slot, hash) {
            return None;
        }
        let tag = self.map.tag(slot);
        let is_right = match held {
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
