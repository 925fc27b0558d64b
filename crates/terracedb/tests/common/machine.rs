//! A machine with a tier below DRAM, whose time and background work move with its reads.
//!
//! What the tier holds then follows from what was asked for: not from how fast the machine is, nor from what
//! else it does.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base::{Executor, ManualClock, Stepper, StoreId};
use cache::SCM_MAGIC;
use media::{Fault, Faulty, OpKind, Pace, Rule};
use terracedb::{Builder, Db, Keyspace, Placement, Resources, Scm};

use super::MEMORY;

/// What a read of flash takes. A read of the tier takes no time at all.
const FLASH: Duration = Duration::from_micros(100);

/// A step of the background work goes with so many reads.
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

    /// The store on the machine's flash, the same one each time, over `size` bytes of `place`.
    pub(crate) fn open(&self, place: &str, size: u64, placement: Placement) -> (Db, Keyspace) {
        self.open_on(Db::on_medium(Arc::clone(&self.flash) as _), place, size, placement)
    }

    /// The same, of a store in a directory, which outlives the process.
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
        // Drawn by no chance: checksums follow from it, and places from checksums.
        let db = builder.identity(StoreId(7)).resources(&resources).open().unwrap();
        let keyspace = db.keyspace("k").unwrap();
        (db, keyspace)
    }

    /// Does `read` so often; background work keeps up with it.
    pub(crate) fn times(&self, reads: u64, mut read: impl FnMut()) {
        for turn in 0..reads {
            read();
            if turn % READS_A_STEP == 0 {
                self.step();
            }
        }
    }

    /// A millisecond passes, in which background work takes a few steps.
    pub(crate) fn step(&self) {
        self.clock.advance(Duration::from_millis(1));
        // Bounded: some steps wake others.
        (0..8).all(|_| self.executor.help());
    }
}
