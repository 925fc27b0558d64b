//! The SCM tier: its state, whether it is on, and its statistics.
//!
//! What callers do with it is in the modules above this one: [`super::open`], [`super::lookup`] (readers),
//! [`super::demotion`] and [`super::warm_outputs`] (admission), [`super::background`] (the writer), the row
//! part of [`super::row_sets`] and [`super::scrub`]. Any number of threads share a tier. Lock order: the
//! writer's mutex first; the mutexes of the queues, the ghost lists and the warm output counter are leaves.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::time::Duration;

use base::{Charge, Clock, Error, Owner};
use media::emulated::Emulation;
use media::scm::Facts;
use parking_lot::Mutex;

use super::admission::Admission;
use super::admission_contest::AdmissionContest;
use super::backing::Backing;
use super::costs::MeasuredCosts;
use super::latency_sampler::LatencySampler;
use super::pending::PendingWork;
use super::placement::Placement;
use super::prior::Prior;
use super::row_sets::{RowSets, ghost_pages, ghost_rows, holds_rows};
use super::shared_ghost::SharedGhost;
use super::slot_map::SlotMap;
use super::statistics::{Counters, ScmStatistics, count};
use super::stored_map::Layout;
use super::tier_bypass::{Route, TierBypass};
use super::warm_output_counter::WarmOutputCounter;
use super::writer_state::ScmWriterState;

/// A lower cache tier of 4 KiB slots on storage-class memory, shared by any number of threads and stores.
pub struct ScmTier {
    /// A process forked from it leaves the medium alone.
    pub(super) owner: Owner,
    clock: Arc<dyn Clock>,
    pub(super) backing: Backing,
    pub(super) layout: Layout,
    /// Random number, drawn when the tier was formatted. Map pages of another tier do not verify under it.
    pub(super) id: u64,
    pub(super) map: SlotMap,
    pub(super) placement: Placement,
    pub(super) admission: Admission,
    pub(super) contest: AdmissionContest,
    pub(super) pending: PendingWork,
    pub(super) counters: Counters,
    prior: Prior,
    pub(super) measured: MeasuredCosts,
    pub(super) bypass: TierBypass,
    /// Which reads, of many in flight, are waited for and timed alone: reads from this tier, and from flash.
    pub(super) latency_samplers: [LatencySampler; 2],
    /// Ghost list of pages that were refused: [`GHOST_PAGES_PER_SLOT`] for each slot that rows do not hold.
    pub(super) ghost: SharedGhost,
    /// Rows in some of the slots; `None` if the medium outlives the process.
    pub(super) rows: Option<RowSets>,
    /// Ghost lists of the rows and the pages that this tier evicted lately; empty without rows.
    pub(super) evicted_rows: SharedGhost,
    pub(super) evicted_pages: SharedGhost,
    /// Share of the write budget used in the last minute, in 1/256. A plain number: `Relaxed`.
    pub(super) fullness: AtomicU32,
    pub(super) warm_outputs: Mutex<WarmOutputCounter>,
    pub(super) writer: Mutex<ScmWriterState>,
    /// The tier failed, with `failure`, and is off.
    is_off: AtomicBool,
    failure: Mutex<Option<Error>>,
    pub(super) _charge: Charge,
}

/// What a tier is made of.
pub(super) struct TierParts {
    pub(super) backing: Backing,
    pub(super) layout: Layout,
    pub(super) id: u64,
    pub(super) placement: Placement,
    pub(super) admission: Admission,
    pub(super) writer: ScmWriterState,
    pub(super) prior: Prior,
    pub(super) charge: Charge,
    pub(super) clock: Arc<dyn Clock>,
}

/// Size of the ghost list of refused pages, for each slot of pages.
pub(super) const GHOST_PAGES_PER_SLOT: usize = 2;

impl ScmTier {
    pub(super) fn new(parts: TierParts) -> Self {
        let TierParts { backing, layout, id, placement, admission, writer, prior, charge, clock } =
            parts;
        let map = SlotMap::new(layout.sets);
        let (measured, counters) = (MeasuredCosts::new(prior), Counters::default());
        measured.update_promotion_heat(&counters);
        let rows = holds_rows(backing.facts()).then(|| RowSets::new(layout.sets));
        let ghost_beside_rows =
            |entries: usize| SharedGhost::new(if rows.is_some() { entries } else { 0 });
        Self {
            owner: Owner::this(),
            clock,
            ghost: SharedGhost::new(map.slots() * GHOST_PAGES_PER_SLOT),
            evicted_rows: ghost_beside_rows(ghost_rows(map.slots())),
            evicted_pages: ghost_beside_rows(ghost_pages(map.slots())),
            rows,
            backing,
            layout,
            id,
            map,
            placement,
            admission,
            contest: AdmissionContest::new(layout.sets),
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

    /// Facts about the medium.
    #[must_use]
    pub fn facts(&self) -> &Facts {
        self.backing.facts()
    }

    /// The costs that the tier assumed before it measured any.
    #[must_use]
    pub const fn prior(&self) -> Prior {
        self.prior
    }

    /// The time of the clock by which the tier measures costs.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.clock.monotonic()
    }

    /// Counts of the emulated device; `None` for a real one.
    #[must_use]
    pub fn emulation(&self) -> Option<Emulation> {
        self.backing.emulation()
    }

    /// The error that turned the tier off, if it is off.
    #[must_use]
    pub fn failure(&self) -> Option<Error> {
        self.failure.lock().clone()
    }

    pub(super) fn is_off(&self) -> bool {
        self.is_off.load(Relaxed)
    }

    /// Turns the tier off for good: from now on every lookup misses and nothing is written.
    pub fn fail(&self, error: Error) {
        self.is_off.store(true, Relaxed);
        self.failure.lock().get_or_insert(error);
    }

    /// Sets the function that wakes the background task. The first caller's function stays.
    pub fn on_work(&self, wake: Box<dyn Fn() + Send + Sync>) {
        self.pending.on_work(wake);
    }

    /// Wakes the background task.
    pub(crate) fn wake(&self) {
        self.pending.wake();
    }

    /// Whether the tier is slower than flash, so that reads skip it.
    #[must_use]
    pub fn is_slow(&self) -> bool {
        self.bypass.route() == Route::Flash
    }

    /// Checks that the memory of a tier used in place is still there. If not, turns the tier off: content
    /// that was read in place does not count.
    pub(super) fn check_memory(&self) -> bool {
        self.backing.check().map_err(|error| self.fail(error)).is_ok()
    }

    /// Measured latency of a read from flash and of a use of a page in this tier, nanoseconds.
    pub(crate) fn miss_nanos(&self) -> (u32, u32) {
        (self.measured.flash_nanos(), self.measured.hit_nanos())
    }

    /// Queues the removal of all `pages` pages of an obsolete file.
    pub fn remove_file(&self, file: u64, pages: u32) {
        self.remove_pages(file, 0..pages);
    }

    /// Queues the removal of pages of a file that nobody reads any more.
    pub fn remove_pages(&self, file: u64, pages: Range<u32>) {
        if !self.pending.purge(file, pages) {
            count(&self.counters.unpurged);
        }
    }

    /// Size of the ghost list of refused pages.
    #[cfg(test)]
    pub(crate) fn ghost_entries(&self) -> usize {
        self.ghost.entries()
    }

    /// The statistics since the tier was opened.
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
        let (slots, backend) = (self.map.slots(), self.facts().backend);
        write!(f, "ScmTier({slots} slots, {backend}, {})", self.placement.name())
    }
}
