//! Lookups: how readers find pages in the tier, and what they report about them.
//!
//! Any thread may call. A lookup takes no lock: it searches one set of the slot map, pins the slot, and
//! checks the map again, since the background writer may have given the slot to another page in between (I6).
//! In a tier of memory it compares the tag of an unverified page, and now and then times the use. Promotions
//! of in-place pages are queued for the background writer.

use std::hint::black_box;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use base::invariant;
use media::Queue;
use media::scm::Pinned;

use super::backing::{PinnedPage, ScmLocation};
use super::hit::{ScmHit, ScmPage, ScmRead, ScmSlot};
use super::slot_map::tag_of;
use super::statistics::count;
use super::tier::ScmTier;
use crate::{PageKey, PageKind};

/// One in this many in-place uses is timed.
const TIMED_ONE_IN: u64 = 64;

/// A page that was found and pinned, before its content is looked at.
struct FoundPage {
    kind: PageKind,
    key: PageKey,
    slot: ScmSlot,
    /// Start time, if this use is timed.
    began: Option<Duration>,
}

impl ScmTier {
    /// Looks the page up. `None` if the tier does not hold it, is off, or is bypassed because flash answers
    /// sooner; also if the slot gets another page during the lookup, or its page has a wrong tag.
    #[must_use]
    pub fn find(&self, key: PageKey, kind: PageKind) -> Option<ScmHit> {
        if self.is_off() {
            return None;
        }
        let hash = key.hash();
        self.contest.looked_up(hash);
        let Some(slot) = self.map.find(hash) else {
            count(&self.counters.misses);
            self.page_missed(hash);
            return None;
        };
        if self.bypass.skips_tier(|| self.now()) {
            count(&self.counters.passed);
            return None;
        }
        let hits = match kind {
            PageKind::Data => &self.counters.hits_data,
            PageKind::Meta => &self.counters.hits_meta,
        };
        let is_timed = self.is_slow() || hits.load(Relaxed).is_multiple_of(TIMED_ONE_IN);
        let began = is_timed.then(|| self.now());
        let pinned = self.backing.pin(self.layout.page_of(slot));
        // The slot may have got another page before the pin. With the pin it keeps its page.
        let Some(pinned) = pinned.filter(|_| self.map.holds(slot, hash)) else {
            count(&self.counters.busy);
            return None;
        };
        let found = FoundPage { kind, key, slot: ScmSlot { slot, hash }, began };
        if let PinnedPage::InPlace(page) = &pinned
            && !self.is_usable(page, found.slot)
        {
            count(&self.counters.misses);
            return None;
        }
        count(hits);
        Some(match pinned {
            PinnedPage::AtDevice(location) => self.hit_at_device(location, &found),
            PinnedPage::InPlace(page) => self.hit_in_place(page, &found),
        })
    }

    /// Whether the pinned page has its tag or was verified, and the tier's memory is still there. A page with
    /// another tag is dropped.
    fn is_usable(&self, page: &Pinned, slot: ScmSlot) -> bool {
        let is_other =
            !self.map.is_verified(slot.slot) && tag_of(&**page) != self.map.tag(slot.slot);
        let is_present = self.check_memory();
        // Memory that is gone reads as zeros: no damage of the page.
        if is_other && is_present {
            self.damaged(slot);
        }
        !is_other && is_present
    }

    fn hit_at_device(&self, location: ScmLocation, found: &FoundPage) -> ScmHit {
        let slot = found.slot;
        let tag = self.map.tag(slot.slot);
        let used = self.map.record_use(slot.slot);
        let should_promote = self.should_promote(found, used.heat);
        ScmHit::Read(ScmRead { location, tag, should_promote, slot })
    }

    fn hit_in_place(&self, page: Pinned, found: &FoundPage) -> ScmHit {
        let slot = found.slot;
        let used = self.map.record_use(slot.slot);
        if let Some(began) = found.began {
            // Reads every cache line, as a search of the page does.
            black_box(page.iter().step_by(64).fold(0, |all, byte| all ^ byte));
            self.read_took(self.now().saturating_sub(began));
        }
        let promotes = self.should_promote(found, used.heat)
            && !used.is_promoting
            && self.map.set_promoting(slot.slot);
        if promotes && !self.pending.promote(found.key, found.kind) {
            self.map.clear_promoting(slot.slot);
        }
        ScmHit::InPlace(ScmPage { page, is_verified: used.is_verified, slot })
    }

    fn should_promote(&self, found: &FoundPage, heat: u8) -> bool {
        let promotion_heat = self.measured.promotion_heat(found.kind, found.slot.hash);
        self.placement.promotes(found.kind, heat, promotion_heat)
    }

    /// A queue for one thread to read pages of a device with, for [`ScmHit::Read`]. `None` if the tier is
    /// memory or off, or the device has no queue left: the caller then reads from flash.
    #[must_use]
    pub fn queue(&self, depth: usize) -> Option<Box<dyn Queue>> {
        if self.is_off() { None } else { self.backing.queue(depth).ok().flatten() }
    }

    /// Records that the caller verified the content of `page`.
    pub fn verified(&self, page: &ScmPage) {
        // The pin keeps the slot with its page, unless a reader found the page damaged and dropped it.
        self.map.set_verified(page.slot.slot);
    }

    /// Drops a page with wrong content. The caller still holds its pin.
    pub fn damaged(&self, slot: ScmSlot) {
        if self.map.clear_if(slot.slot, slot.hash) {
            count(&self.counters.damaged);
            self.page_removed();
        }
    }

    /// Counts a page that left its slot.
    pub(super) fn page_removed(&self) {
        let before = self.counters.resident.fetch_sub(1, Relaxed);
        invariant!(before > 0, "a page that leaves its slot was counted as resident");
    }

    /// Records that the caller promoted a page that it had read from the device.
    pub fn promoted(&self, slot: ScmSlot) {
        if self.map.holds(slot.slot, slot.hash) {
            self.map.set_promoted(slot.slot);
        }
        count(&self.counters.promoted);
    }

    /// Records how long a read of a page from flash took; the page was in no tier.
    pub fn flash_took(&self, took: Duration) {
        self.measured.flash(took);
        self.bypass.flash(took);
    }

    /// Records how long a read of a page from this tier took. The tier itself times some in-place uses.
    pub fn read_took(&self, took: Duration) {
        self.measured.hit(took);
        self.bypass.hit(took);
    }

    /// Whether a reader with many reads in flight should wait for its next read alone, and report the time it
    /// took. `is_here`: the read is from this tier, not from flash. Overlapping reads give no device latency,
    /// and neither does a read whose completion is noticed late.
    #[must_use]
    pub fn times_next_read(&self, is_here: bool) -> bool {
        let [here, flash] = &self.latency_samplers;
        match is_here {
            // Readers skip a slow tier, except for the reads that measure it.
            true => self.is_slow() || here.is_due(self.now(), self.measured.hit_nanos()),
            false => flash.is_due(self.now(), self.measured.flash_nanos()),
        }
    }
}
