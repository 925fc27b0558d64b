//! The places of a memtable's writes in the log, until a flush brings them into the index.
//!
//! A write takes 16 bytes. Its memory, and that of the sorted copy that a flush makes, is charged with the
//! memory of the memtable's entries, before the write is logged (I10). A memtable of another keyspace has no
//! places, and charges nothing.

use std::sync::atomic::{AtomicBool, Ordering};

use base::{Account, Charge, Result, Seqno, broken_invariant};
use parking_lot::Mutex;

use super::place::Place;

/// See the module.
#[derive(Debug)]
pub struct Places {
    /// Whether the memtable is of a resident keyspace. Set before the memtable takes writes.
    is_resident: AtomicBool,
    state: Mutex<PlacesState>,
}

#[derive(Debug)]
struct PlacesState {
    /// The seqno and the place of each write, in the order in which they were applied.
    writes: Vec<(Seqno, Place)>,
    /// Writes that memory was charged for.
    reserved: usize,
    /// The shard of each slot that the index keeps free for these writes; `None` once they are in the index.
    promises: Option<Vec<u16>>,
    charge: Charge,
}

impl PlacesState {
    /// Charges what the vectors take if each doubles when it is full.
    fn recharge(&mut self) -> Result<()> {
        let bytes = Places::reserved_bytes(self.reserved);
        match bytes.checked_sub(self.charge.bytes()) {
            Some(more) if more > 0 => self.charge.grow(more),
            _ => Ok(()),
        }
    }
}

impl Places {
    /// No places, to be charged to `account`.
    pub(crate) fn new(account: &Account) -> Self {
        let (writes, promises) = (Vec::new(), Some(Vec::new()));
        let state = PlacesState { writes, reserved: 0, promises, charge: account.empty_charge() };
        Self { is_resident: AtomicBool::new(false), state: Mutex::new(state) }
    }

    /// Notes that the memtable is of a resident keyspace.
    pub(crate) fn set_resident(&self) {
        self.is_resident.store(true, Ordering::Relaxed);
    }

    /// The memory that is charged for `count` writes, bytes.
    pub const fn reserved_bytes(count: usize) -> u64 {
        const EACH: usize = size_of::<(Seqno, Place)>() + size_of::<u16>();
        (2 * EACH * count.next_power_of_two()) as u64
    }

    /// Charges the memory for `count` writes, in a resident keyspace.
    ///
    /// # Errors
    /// `Retry` if there is none.
    pub(crate) fn reserve(&self, count: usize) -> Result<()> {
        if !self.is_resident.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut state = self.state.lock();
        state.reserved += count;
        state.recharge().inspect_err(|_| state.reserved -= count)
    }

    /// Notes that the index keeps a slot of `shard` free for a write. Returns false if the memtable was
    /// flushed meanwhile, so that the write goes to a newer one.
    #[must_use]
    pub(super) fn note_promise(&self, shard: u16) -> bool {
        let mut state = self.state.lock();
        state.promises.as_mut().map(|promises| promises.push(shard)).is_some()
    }

    /// Takes the promises of the shards below `shard`, because their writes are in the index.
    pub(super) fn take_promises_below(&self, shard: u16) -> Vec<u16> {
        let mut state = self.state.lock();
        let promises = state.promises.as_mut();
        promises.map_or_else(Vec::new, |it| it.extract_if(.., |of| *of < shard).collect())
    }

    /// Ends the promises, because the writes are in the index. Returns their shards.
    pub(super) fn take_promises(&self) -> Vec<u16> {
        self.state.lock().promises.take().unwrap_or_default()
    }

    /// Notes that the write at `seqno` is at `place`. To be called before the write is in the memtable.
    pub(super) fn note(&self, seqno: Seqno, place: Place) {
        self.state.lock().writes.push((seqno, place));
    }

    /// The place of the write at `seqno`. To be called while writes are noted in the order of their seqnos,
    /// as in a replay.
    pub(super) fn of(&self, seqno: Seqno) -> Result<Place> {
        find(&self.state.lock().writes, seqno)
    }

    /// The places in the order of their seqnos.
    pub(super) fn sorted(&self) -> SortedPlaces {
        let mut writes = self.state.lock().writes.clone();
        writes.sort_unstable_by_key(|(seqno, _)| *seqno);
        SortedPlaces(writes)
    }

    /// The memory that is charged, bytes.
    pub fn bytes(&self) -> u64 {
        // Asked by every put: without a lock if there is nothing to count.
        if !self.is_resident.load(Ordering::Relaxed) {
            return 0;
        }
        self.state.lock().charge.bytes()
    }
}

/// The places of a sealed memtable, in the order of their seqnos.
#[derive(Debug)]
pub(super) struct SortedPlaces(Vec<(Seqno, Place)>);

impl SortedPlaces {
    /// The place of the write at `seqno`.
    pub(super) fn of(&self, seqno: Seqno) -> Result<Place> {
        find(&self.0, seqno)
    }
}

/// The place of the write at `seqno` among `writes`, which are in the order of their seqnos.
fn find(writes: &[(Seqno, Place)], seqno: Seqno) -> Result<Place> {
    let found = writes.binary_search_by_key(&seqno, |(seqno, _)| *seqno);
    let found = found.ok().and_then(|at| writes.get(at));
    let (_, place) = found.ok_or_else(|| {
        broken_invariant!("a write to a resident keyspace has its place in the log")
    })?;
    Ok(*place)
}
