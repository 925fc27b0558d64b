//! A simulated machine with an SCM tier; its clock and background work advance with its reads.
//!
//! The contents of the tier then depend only on the reads, not on the speed or load of the machine that
//! runs the test.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base::{Executor, ManualClock, Stepper, StoreId};
use cache::SCM_MAGIC;
use media::{Fault, Faulty, OpKind, Pace, Rule};
use terracedb::scm::{Placement, Scm};
use terracedb::{Builder, Db, Keyspace, Resources};

use super::MEMORY;

/// Duration of a flash read. A read of the tier takes no time.
const FLASH: Duration = Duration::from_micros(100);

/// Reads per step of background work.
const READS_A_STEP: u64 = 8;

/// See the module.
pub(crate) struct Machine {
    clock: Arc<ManualClock>,
    executor: Arc<Stepper>,
    flash: Arc<Faulty>,
}

impl Machine {
    pub(crate) fn new() -> Self {
        let clock = Arc::new(ManualClock::at(1_700_000_000_000));
        let executor = Arc::new(Stepper::new(3, Arc::clone(&clock) as _));
        let flash = Arc::new(Faulty::new(1).with_pace(Pace::manual(Arc::clone(&clock))));
        let slow = Rule::new(OpKind::Read, Fault::Delay(FLASH)).times(u64::MAX);
        flash.inject(slow).unwrap();
        Self { clock, executor, flash }
    }

    /// Opens the store on the machine's flash (the same one on each call), with a tier of `size` bytes at
    /// `place`.
    pub(crate) fn open(&self, place: &str, size: u64, placement: Placement) -> (Db, Keyspace) {
        self.open_on(Db::on_medium(Arc::clone(&self.flash) as _), place, size, placement)
    }

    /// As [`Machine::open`], with the store in a directory, which outlives the process.
    pub(crate) fn open_in(
        &self,
        store: &Path,
        place: &str,
        size: u64,
        placement: Placement,
    ) -> (Db, Keyspace) {
        self.open_on(Db::builder(store), place, size, placement)
    }

    fn open_on(
        &self,
        builder: Builder,
        place: &str,
        size: u64,
        placement: Placement,
    ) -> (Db, Keyspace) {
        let opened = media::scm::Scm::open(&place.parse().unwrap(), size, &SCM_MAGIC);
        let scm = Scm::given(7, opened).placement(placement);
        let resources = Resources::builder().memory(MEMORY).scm(scm);
        let resources = resources.executor(Arc::clone(&self.executor) as _).build().unwrap();
        // A fixed store id: checksums depend on it, and slots of the tier depend on checksums.
        let db = builder.identity(StoreId(7)).resources(&resources).open().unwrap();
        let keyspace = db.open_or_create_keyspace("k").unwrap();
        (db, keyspace)
    }

    /// Calls `read` `reads` times, with background work in between.
    pub(crate) fn times(&self, reads: u64, mut read: impl FnMut()) {
        for turn in 0..reads {
            read();
            if turn % READS_A_STEP == 0 {
                self.step();
            }
        }
    }

    /// Advances the clock by a millisecond and lets background work take a few steps.
    pub(crate) fn step(&self) {
        self.clock.advance(Duration::from_millis(1));
        // Bounded, because a step may wake another.
        (0..8).all(|_| self.executor.help());
    }
}
