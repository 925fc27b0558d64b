//! What readers ask of the tier and what is offered to it; [`super::background`] does the rest.

use std::fmt;
use std::hint::black_box;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::time::Duration;

use arena::{Frame, Page};
use base::{Charge, Clock, Error};
use media::emulated::Emulation;
use media::scm::{Facts, Pinned};
use media::{File, Queue};
use parking_lot::Mutex;

use super::admission::{Admission, Candidate, Refusal};
use super::background::ScmWriterState;
use super::backing::{Backing, PinnedPage, ScmLocation};
use super::costs::MeasuredCosts;
use super::latency_sampler::LatencySampler;
use super::pending::{Origin, PendingWork, StagedPage};
use super::placement::{Placement, Tier};
use super::prior::Prior;
use super::row_sets::{RowSets, ghost_pages, ghost_rows, holds_rows};
use super::shared_ghost::SharedGhost;
use super::slot_map::{SlotMap, tag_of};
use super::statistics::{Counters, ScmStatistics, count};
use super::stored_map::Layout;
use super::tier_bypass::{Route, TierBypass};
use super::warm_outputs::WarmOutputs;
use crate::{PageKey, PageKind};

/// A tier of 4 KiB slots below DRAM, shared by any number of threads and stores.
pub struct ScmTier {
    clock: Arc<dyn Clock>,
    pub(super) backing: Backing,
    pub(super) layout: Layout,
    /// Drawn when the place was taken over; what is found of another is not this one's.
    pub(super) id: u64,
    pub(super) map: SlotMap,
    pub(super) placement: Placement,
    admission: Admission,
    pub(super) pending: PendingWork,
    pub(super) counters: Counters,
    prior: Prior,
    pub(super) measured: MeasuredCosts,
    pub(super) bypass: TierBypass,
    /// When one of many reads in flight is waited for, to be timed: from here, from flash.
    latency_samplers: [LatencySampler; 2],
    /// What left DRAM and was refused: [`GHOST_PAGES_PER_SLOT`] pages for each slot that is not rows'.
    pub(super) ghost: SharedGhost,
    /// Rows among the pages; none where it holds none.
    pub(super) rows: Option<RowSets>,
    /// Of these what went last, and of pages.
    pub(super) evicted_rows: SharedGhost,
    pub(super) evicted_pages: SharedGhost,
    /// Of the last minute's budget so much is written, in 256ths. Only a number: `Relaxed`.
    pub(super) fullness: AtomicU32,
    /// What of late counts for pages that merges write.
    pub(super) warm_outputs: Mutex<WarmOutputs>,
    /// What the one who writes has.
    pub(super) writer: Mutex<ScmWriterState>,
    /// Off since it failed, for `failure`.
    is_off: AtomicBool,
    failure: Mutex<Option<Error>>,
    pub(super) _charge: Charge,
}

/// A page that was found below.
#[derive(Debug)]
pub enum ScmHit {
    /// It is used where it lies, and was, if it is not lost afterwards ([`Pinned::is_lost`]).
    InPlace(ScmPage),
    /// It is to be read from there.
    Read(ScmRead),
}

/// A page where it lies. It stays what it is for as long as this is held, but where the medium takes it away.
#[derive(Debug)]
pub struct ScmPage {
    /// Its content.
    pub page: Pinned,
    /// Whether that is known to be the page's; otherwise it is to be verified, and
    /// [`ScmTier::verified`] or [`ScmTier::damaged`] told.
    pub is_verified: bool,
    /// Which one it is.
    pub slot: ScmSlot,
}

/// A page that is to be read, and stays what it is for as long as this is held. It is to be verified, and
/// [`ScmTier::damaged`] told where it is another.
#[derive(Debug)]
pub struct ScmRead {
    place: ScmLocation,
    tag: u16,
    /// Whether it is to be put into DRAM.
    pub should_promote: bool,
    /// Which one it is.
    pub slot: ScmSlot,
}

impl ScmRead {
    /// The file it lies in.
    #[must_use]
    pub const fn file(&self) -> &Arc<dyn File> {
        &self.place.file
    }

    /// The offset there, bytes.
    #[must_use]
    pub const fn at(&self) -> u64 {
        self.place.at
    }

    /// Whether `page`, which was read, may be the one; if so it is to be verified.
    #[must_use]
    pub fn may_be(&self, page: &Page) -> bool {
        tag_of(page) == self.tag
    }
}

/// A slot, and the page that it held.
#[derive(Clone, Copy, Debug)]
pub struct ScmSlot {
    pub(super) slot: usize,
    pub(super) hash: u64,
}

/// A page that leaves DRAM, or was read past it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EvictedPage {
    pub(crate) key: PageKey,
    pub(crate) kind: PageKind,
    /// Whether it was in DRAM.
    pub(crate) is_demoted: bool,
}

/// Pages that the ghost remembers, for each slot of pages.
pub(super) const GHOST_PAGES_PER_SLOT: usize = 2;

/// Of so many uses of a page where it lies, one is timed.
const TIMED: u64 = 64;

impl ScmTier {
    pub(super) fn new(
        (backing, layout, id): (Backing, Layout, u64),
        (placement, admission): (Placement, Admission),
        (writer, prior): (ScmWriterState, Prior),
        charge: Charge,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let map = SlotMap::new(layout.sets);
        let (measured, counters) = (MeasuredCosts::new(prior), Counters::default());
        measured.update_promotion_heat(&counters);
        let rows = holds_rows(backing.facts()).then(|| RowSets::new(layout.sets));
        let remembered = |count: usize| SharedGhost::new(if rows.is_some() { count } else { 0 });
        Self {
            clock,
            ghost: SharedGhost::new(map.slots() * GHOST_PAGES_PER_SLOT),
            evicted_rows: remembered(ghost_rows(map.slots())),
            evicted_pages: remembered(ghost_pages(map.slots())),
            rows,
            backing,
            layout,
            id,
            map,
            placement,
            admission,
            pending: PendingWork::default(),
            counters,
            measured,
            bypass: TierBypass::new(prior),
            prior,
            latency_samplers: Default::default(),
            fullness: AtomicU32::new(0),
            warm_outputs: Mutex::default(),
            writer: Mutex::new(writer),
            is_off: AtomicBool::new(false),
            failure: Mutex::default(),
            _charge: charge,
        }
    }

    /// What it lies on.
    #[must_use]
    pub fn facts(&self) -> &Facts {
        self.backing.facts()
    }

    /// What it took that for at first.
    #[must_use]
    pub const fn prior(&self) -> Prior {
        self.prior
    }

    /// The time by which it measures what things cost.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.clock.monotonic()
    }

    /// What its emulation did so far; none of a real one.
    #[must_use]
    pub fn emulation(&self) -> Option<Emulation> {
        self.backing.emulation()
    }

    /// Why it is off, where it is.
    #[must_use]
    pub fn failure(&self) -> Option<Error> {
        self.failure.lock().clone()
    }

    pub(super) fn is_off(&self) -> bool {
        self.is_off.load(Relaxed)
    }

    /// Reuse it off for good: everything is a miss from now on.
    pub fn fail(&self, error: Error) {
        self.is_off.store(true, Relaxed);
        self.failure.lock().get_or_insert(error);
    }

    /// Has `wake` called when there is background work that should not wait; the first caller's stays.
    pub fn on_work(&self, wake: Box<dyn Fn() + Send + Sync>) {
        self.pending.on_work(wake);
    }

    /// Has the background work look at once.
    pub(crate) fn wake(&self) {
        self.pending.wake();
    }

    /// Whether it is slower than flash, so that reads go past it.
    #[must_use]
    pub fn is_slow(&self) -> bool {
        self.bypass.route() == Route::Flash
    }

    /// Whether pages are still where they are used in place: a tier whose memory is gone is off, and
    /// nothing counts that was read there.
    pub(super) fn check_memory(&self) -> bool {
        self.backing.check().map_err(|error| self.fail(error)).is_ok()
    }

    /// The page, if it lies here, and flash is not the sooner to give it.
    #[must_use]
    pub fn find(&self, key: PageKey, kind: PageKind) -> Option<ScmHit> {
        if self.is_off() {
            return None;
        }
        let hash = key.hash();
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
        let is_timed = self.is_slow() || hits.load(Relaxed).is_multiple_of(TIMED);
        let began = is_timed.then(|| self.now());
        let held = self.backing.pin(self.layout.page_of(slot));
        // It may have been given to another page before it was held, and cannot be from now on.
        let Some(held) = held.filter(|_| self.map.holds(slot, hash)) else {
            count(&self.counters.busy);
            return None;
        };
        let (tag, place) = (self.map.tag(slot), ScmSlot { slot, hash });
        if let PinnedPage::InPlace(page) = &held {
            let is_other = !self.map.is_verified(slot) && tag_of(&**page) != tag;
            let check_memory = self.check_memory();
            if is_other && check_memory {
                self.damaged(place);
            }
            if is_other || !check_memory {
                count(&self.counters.misses);
                return None;
            }
        }
        count(hits);
        let asked = self.map.record_use(slot);
        let promotion_heat = self.measured.promotion_heat(kind, hash);
        let should_promote = self.placement.promotes(kind, asked.heat, promotion_heat);
        Some(match held {
            PinnedPage::AtDevice(at) => {
                ScmHit::Read(ScmRead { place: at, tag, should_promote, slot: place })
            }
            PinnedPage::InPlace(page) => {
                if let Some(began) = began {
                    // Each line, as whoever searches it does.
                    black_box(page.iter().step_by(64).fold(0, |all, byte| all ^ byte));
                    self.read_took(self.now().saturating_sub(began));
                }
                let is_new = should_promote && !asked.is_promoting && self.map.set_promoting(slot);
                if is_new && !self.pending.promote(key, kind) {
                    self.map.clear_promoting(slot);
                }
                let is_verified = asked.is_verified;
                ScmHit::InPlace(ScmPage { page, is_verified, slot: place })
            }
        })
    }

    /// A queue for one thread to read pages with, where they are read; for [`ScmHit::Read`]. None where the
    /// device has none to give now, or is off: nothing in it is needed.
    #[must_use]
    pub fn queue(&self, depth: usize) -> Option<Box<dyn Queue>> {
        if self.is_off() { None } else { self.backing.queue(depth).ok().flatten() }
    }

    /// The bytes of the page, which the caller holds, are what they should be.
    pub fn verified(&self, page: &ScmPage) {
        self.map.set_verified(page.slot.slot);
    }

    /// The bytes of the page, which the caller holds, are not what they should be: it is dropped.
    pub fn damaged(&self, slot: ScmSlot) {
        if self.map.clear_if(slot.slot, slot.hash) {
            count(&self.counters.damaged);
            self.counters.resident.fetch_sub(1, Relaxed);
        }
    }

    /// A page that was read from here was put into DRAM.
    pub fn promoted(&self, slot: ScmSlot) {
        if self.map.holds(slot.slot, slot.hash) {
            self.map.set_promoted(slot.slot);
        }
        count(&self.counters.promoted);
    }

    /// A page that lay nowhere here was read from flash in so long.
    pub fn flash_took(&self, took: Duration) {
        self.measured.flash(took);
        self.bypass.flash(took);
    }

    /// Whether who has many reads in flight is to wait for the next one by itself, which is from here or from
    /// flash, and tell what it took. What one takes beside others is theirs as well, and what it takes until
    /// somebody looks for it is no device's.
    #[must_use]
    pub fn times_next_read(&self, is_here: bool) -> bool {
        let [here, flash] = &self.latency_samplers;
        match is_here {
            // What is read from a slow tier is read to be timed.
            true => self.is_slow() || here.is_due(self.now(), self.measured.hit_nanos()),
            false => flash.is_due(self.now(), self.measured.flash_nanos()),
        }
    }

    /// What a read from flash, and the use of a page here, cost lately, nanoseconds.
    pub(crate) fn miss_nanos(&self) -> (u32, u32) {
        (self.measured.flash_nanos(), self.measured.hit_nanos())
    }

    /// A page was got from here in so long; of those that are used in place, the tier times some itself.
    pub fn read_took(&self, took: Duration) {
        self.measured.hit(took);
        self.bypass.hit(took);
    }

    /// The pages of a file that is gone, of `pages` pages, go.
    pub fn remove_file(&self, file: u64, pages: u32) {
        self.remove_pages(file, 0..pages);
    }

    /// Pages of a file that nobody reads any more go.
    pub fn remove_pages(&self, file: u64, pages: Range<u32>) {
        if !self.pending.purge(file, pages) {
            count(&self.counters.unpurged);
        }
    }

    /// Whether a page of `kind` that was found nowhere goes here rather than into DRAM.
    pub(crate) fn takes_on_miss(&self, key: PageKey, kind: PageKind) -> bool {
        let promotion_heat = || self.measured.promotion_heat(kind, key.hash());
        !self.is_off()
            && !self.is_slow()
            && self.placement.tier_on_miss(kind, promotion_heat()) == Tier::Scm
    }

    /// Whether the page is to be handed to [`ScmTier::stage`].
    pub(crate) fn admit(&self, page: EvictedPage) -> bool {
        if self.is_off() {
            return false;
        }
        let hash = page.key.hash();
        if let Some(slot) = self.map.find(hash) {
            self.map.ensure_heat(slot);
            count(&self.counters.kept);
            return false;
        }
        match self.decide_admission(page, hash) {
            Ok(()) => count(&self.counters.admitted),
            Err(refusal) => {
                self.counters.refused(refusal);
                return false;
            }
        }
        true
    }

    fn decide_admission(&self, page: EvictedPage, hash: u64) -> Result<(), Refusal> {
        if page.is_demoted && !self.placement.may_demote(page.kind) {
            return Err(Refusal::Kind);
        }
        if !self.pending.has_room() {
            return Err(Refusal::Busy);
        }
        let has_room = self.map.has_room(hash);
        let is_remembered = || self.ghost.recall(hash);
        let candidate = Candidate {
            has_room,
            // Metadata always does.
            came_back: has_room || page.kind == PageKind::Meta || is_remembered(),
            chance: (hash >> 24) as u8,
            fullness: self.fullness.load(Relaxed),
            is_slow: self.is_slow(),
        };
        let decided = self.admission.decide(candidate);
        // What was just read and is not let in enters DRAM, and is remembered when it leaves that.
        if decided.is_err() && page.is_demoted {
            self.ghost.remember(hash);
        }
        decided
    }

    /// A page that it wants, in a frame that nobody changes any more.
    pub(crate) fn stage(&self, page: EvictedPage, frame: Frame) {
        let EvictedPage { key, kind, is_demoted, .. } = page;
        let origin = if is_demoted { Origin::Demoted } else { Origin::Read };
        self.pending.stage(StagedPage { key, hash: key.hash(), kind, frame, origin });
    }

    /// How many pages wait to be written.
    pub(crate) fn staged(&self) -> usize {
        self.pending.staged()
    }

    /// A page that it wants goes nowhere: there is no frame to take its place.
    pub(crate) fn note_late(&self) {
        count(&self.counters.late);
    }

    /// A page left DRAM with the memory under it, for which somebody waits: it is not offered.
    pub(crate) fn note_reclaimed(&self, key: PageKey) {
        let hash = key.hash();
        if let Some(slot) = self.map.find(hash) {
            self.map.ensure_heat(slot);
            return count(&self.counters.kept);
        }
        count(&self.counters.reclaimed);
        self.ghost.remember(hash);
    }

    /// How many pages it remembers of those that were refused.
    #[cfg(test)]
    pub(crate) fn ghost_entries(&self) -> usize {
        self.ghost.entries()
    }

    /// The counts so far.
    #[must_use]
    pub fn statistics(&self) -> ScmStatistics {
        ScmStatistics {
            slots: self.map.slots() as u64,
            flash_nanos: self.measured.flash_nanos(),
            hit_nanos: self.measured.hit_nanos(),
            write_nanos: self.measured.write_nanos(),
            rows: self.rows.as_ref().map(|rows| rows.counters.statistics()).unwrap_or_default(),
            ..self.counters.statistics()
        }
    }
}

impl fmt::Debug for ScmTier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (slots, place) = (self.map.slots(), self.facts().backend);
        write!(f, "ScmTier({slots} slots, {place}, {})", self.placement.name())
    }
}
