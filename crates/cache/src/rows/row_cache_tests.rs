use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use base::{Budget, ReclaimOrder, Rng, key_hash};

use super::*;
use crate::rows::RowFrom;

pub(in crate::rows) const MIB: u64 = 1 << 20;

/// A value made of its key and version.
pub(in crate::rows) fn value(key: u64, seqno: u64, len: usize) -> Vec<u8> {
    let mut value = Rng::new(key << 32 | seqno).next_u64().to_le_bytes().to_vec();
    value.resize(len.max(8), key as u8);
    value
}

pub(in crate::rows) struct Rows {
    pub(in crate::rows) cache: Arc<RowCache>,
    pub(in crate::rows) owner: RowOwner,
}

impl Rows {
    pub(in crate::rows) fn new(account: &Account, capacity: u64) -> Self {
        let cache = Arc::new(RowCache::new(account, capacity).unwrap());
        let owner = cache.owner();
        Self { cache, owner }
    }

    pub(in crate::rows) fn unlimited(capacity: u64) -> Self {
        Self::new(&Account::unlimited("rows"), capacity)
    }

    pub(in crate::rows) fn hash(&self, key: u64) -> u64 {
        self.owner.hash(key_hash(&key.to_be_bytes()))
    }

    pub(in crate::rows) fn get(&self, key: u64, at: u64) -> Option<(Vec<u8>, u64)> {
        let mut value = Vec::new();
        let key_bytes = key.to_be_bytes();
        let at = Seqno::new(at);
        let hit = self.cache.get(&self.owner, &key_bytes, self.hash(key), at, &mut value)?;
        Some((value, hit.seqno.get()))
    }

    pub(in crate::rows) fn fill(&self, key: u64, seqno: u64, as_of: u64, len: usize) -> bool {
        let vacancy = self.vacancy(key).unwrap();
        self.fill_in(vacancy, key, seqno, as_of, len)
    }

    pub(in crate::rows) fn vacancy(&self, key: u64) -> Option<Vacancy> {
        self.cache.vacancy(&self.owner, self.hash(key))
    }

    pub(in crate::rows) fn fill_in(
        &self,
        vacancy: Vacancy,
        key: u64,
        seqno: u64,
        as_of: u64,
        len: usize,
    ) -> bool {
        let (key_bytes, value) = (key.to_be_bytes(), value(key, seqno, len));
        let (seqno, as_of) = (Seqno::new(seqno), Seqno::new(as_of));
        let (expiry, from) = (0, RowFrom::Device);
        let row = Row { key: &key_bytes, value: &value, packed: false, seqno, as_of, expiry, from };
        self.cache.fill(&self.owner, self.hash(key), vacancy, row).is_ok()
    }

    /// Reads as the engine does, and fills after a miss. Returns whether it was a hit.
    pub(in crate::rows) fn read(&self, key: u64, len: usize) -> bool {
        match self.get(key, 1) {
            Some((found, _)) => {
                assert_eq!(found, value(key, 1, len));
                true
            }
            None => {
                self.fill(key, 1, 1, len);
                false
            }
        }
    }
}

#[test]
fn a_row_answers_until_its_key_or_a_range_is_written() {
    let rows = Rows::unlimited(8 * MIB);
    assert!(rows.get(1, 10).is_none());
    assert!(rows.fill(1, 7, 10, 100));
    assert_eq!(rows.get(1, 10), Some((value(1, 7, 100), 7)));
    // A reader at a seqno before the version does not see the row, one at its seqno does.
    assert!(rows.get(1, 6).is_none() && rows.get(1, 7).is_some());
    assert!(rows.get(2, 10).is_none());
    let other = rows.cache.owner();
    let (key, mut out) = (1u64.to_be_bytes(), Vec::new());
    let seqno = Seqno::new(10);
    assert!(rows.cache.get(&other, &key, rows.hash(1), seqno, &mut out).is_none());
    rows.cache.invalidate(rows.hash(1));
    assert!(rows.get(1, 10).is_none());
    assert!(rows.fill(1, 7, 10, 100));
    rows.owner.raise_floor(Seqno::new(11));
    assert!(rows.get(1, 10).is_none() && rows.get(1, 12).is_none());
    assert!(rows.fill(1, 7, 12, 100));
    assert!(rows.get(1, 12).is_some());
    assert_eq!(rows.cache.statistics().rows, 1);
}

impl Rows {
    /// Renews the row of `key` as a flush does, if it is awaited.
    fn renew(
        &self,
        key: u64,
        seqno: u64,
        as_of: u64,
        len: usize,
    ) -> Option<std::result::Result<(), Refusal>> {
        let awaited = self.cache.awaited(self.hash(key))?;
        Some(self.renew_in(awaited, key, seqno, as_of, len))
    }

    fn renew_in(
        &self,
        awaited: (Bucket, Awaited),
        key: u64,
        seqno: u64,
        as_of: u64,
        len: usize,
    ) -> std::result::Result<(), Refusal> {
        let (key_bytes, value) = (key.to_be_bytes(), value(key, seqno, len));
        let (seqno, as_of) = (Seqno::new(seqno), Seqno::new(as_of));
        let (expiry, from) = (0, RowFrom::Dram);
        let row = Row { key: &key_bytes, value: &value, packed: false, seqno, as_of, expiry, from };
        self.cache.renew(&self.owner, self.hash(key), awaited, row)
    }
}

#[test]
fn a_flush_renews_the_row_of_a_written_key() {
    let rows = Rows::unlimited(8 * MIB);
    assert!(rows.fill(1, 7, 10, 100) && rows.renew(1, 7, 10, 100).is_none());
    assert!(!rows.cache.awaits_any());
    rows.cache.invalidate(rows.hash(1));
    assert!(rows.cache.awaits_any() && rows.get(1, 11).is_none());
    assert_eq!(rows.renew(1, 11, 12, 300), Some(Ok(())));
    assert_eq!(rows.get(1, 12), Some((value(1, 11, 300), 11)));
    assert!(rows.renew(1, 11, 12, 300).is_none() && rows.renew(2, 11, 12, 100).is_none());
    // A write to many keys came later, and may have changed this key.
    rows.cache.invalidate(rows.hash(1));
    rows.owner.raise_floor(Seqno::new(14));
    assert_eq!(rows.renew(1, 13, 15, 100), Some(Err(Refusal::Written)));
    assert_eq!(rows.renew(1, 16, 17, ROW_BYTES_MAX), Some(Err(Refusal::Large)));
    assert_eq!(rows.renew(1, 16, 17, 100), Some(Ok(())));
    let statistics = rows.cache.statistics();
    assert_eq!((statistics.renewed, statistics.rows, statistics.fills), (2, 1, 1));
    assert_eq!((statistics.refused.written, statistics.refused.large), (1, 1));
}

#[test]
fn a_flush_makes_the_row_of_a_key_read_from_memtables() {
    let rows = Rows::unlimited(8 * MIB);
    assert!(!rows.cache.note_miss(rows.hash(1), ROW_BYTES_MAX + 8) && !rows.cache.awaits_any());
    assert!(rows.cache.note_miss(rows.hash(1), 400) && !rows.cache.note_miss(rows.hash(1), 400));
    assert!(rows.get(1, 10).is_none());
    assert_eq!(rows.renew(1, 7, 10, 100), Some(Ok(())));
    assert_eq!(rows.get(1, 10), Some((value(1, 7, 100), 7)));
    assert!(rows.cache.note_miss(rows.hash(2), 400));
    rows.cache.give_up(rows.hash(2));
    assert!(rows.renew(2, 7, 10, 100).is_none());
}

#[test]
fn stale_rows_are_evicted_into_the_ghost_list() {
    let rows = Rows::unlimited(4 * MIB);
    for key in 0..1000 {
        assert!(rows.fill(key, 1, 1, 400) && rows.get(key, 1).is_some());
    }
    (0..1000).for_each(|key| rows.cache.invalidate(rows.hash(key)));
    for key in (10_000..60_000).take_while(|_| rows.cache.awaits_any()) {
        rows.read(key, 400);
    }
    assert!(!rows.cache.awaits_any() && (0..1000).all(|key| rows.get(key, 1).is_none()));
    assert_eq!(rows.cache.statistics().recalled, 0);
    let filled = (0..1000).filter(|key| rows.fill(*key, 2, 2, 400)).count();
    assert!(filled > 950 && rows.cache.statistics().recalled > 950, "{filled}");
}

#[test]
fn a_fill_is_refused_after_a_write_and_above_the_size_limit() {
    let rows = Rows::unlimited(8 * MIB);
    let vacancy = rows.vacancy(1).unwrap();
    rows.cache.invalidate(rows.hash(1));
    assert!(!rows.fill_in(vacancy, 1, 7, 10, 100));
    assert!(!rows.fill(1, 7, 10, ROW_BYTES_MAX));
    let statistics = rows.cache.statistics();
    assert_eq!((statistics.refused.written, statistics.refused.large), (1, 1));
    // Refused rows use no memory.
    for _ in 0..20_000 {
        assert!(!rows.fill_in(vacancy, 1, 7, 10, 1000));
    }
    assert_eq!(rows.cache.statistics().evicted + rows.cache.statistics().rows, 0);
}

#[test] // I10
fn capacity_bounds_the_memory_of_rows_and_all_of_it_is_reclaimed() {
    let budget = Budget::new(u64::MAX);
    let rows = Rows::new(&budget.account("rows"), 8 * MIB);
    for key in 0..60_000 {
        rows.read(key, 16 + (key % 700) as usize);
    }
    let full = rows.cache.statistics();
    assert_eq!(full.bytes, 8 * MIB);
    assert_eq!(budget.used(), full.bytes + full.index_bytes);
    // Rows of all sizes share the memory without holes.
    assert!(full.free_bytes <= 128 << 10, "{full:?}");
    rows.cache.set_capacity(4 * MIB);
    assert_eq!(rows.cache.statistics().bytes, 4 * MIB);
    rows.cache.set_capacity(16 * MIB);
    for key in 100_000..200_000 {
        rows.read(key, 300);
        rows.read(key, 300);
    }
    assert_eq!(rows.cache.statistics().bytes, 16 * MIB);
    assert_eq!(rows.cache.reclaim(u64::MAX), 14 * MIB);
    drop(rows);
    assert_eq!(budget.used(), 0);
}

#[test]
fn without_memory_fills_are_refused() {
    let budget = Budget::new(MIB);
    let rows = Rows::new(&budget.spare_account("rows"), 8 * MIB);
    assert!(!rows.read(1, 100) && !rows.read(1, 100));
    assert_eq!(rows.cache.statistics().refused.memory, 2);
}

#[test]
fn hot_rows_outlive_scans_and_reclaimed_chunks() {
    let budget = Budget::new(u64::MAX);
    let rows = Rows::new(&budget.account("rows"), 16 * MIB);
    const HOT: u64 = 8_000;
    let mut scanned = 1 << 32;
    let mut hits = 0;
    for round in 0..12 {
        for key in 0..HOT {
            let hit = rows.read(key, 400);
            hits += u64::from(hit && round >= 4);
            for _ in 0..3 {
                scanned += 1;
                rows.read(scanned, 400);
            }
        }
    }
    assert!(hits > HOT * 8 * 95 / 100, "{hits} of {}", HOT * 8);
    // Half of the memory is reclaimed; hot rows are evicted last.
    assert_eq!(rows.cache.reclaim(8 * MIB), 8 * MIB);
    let kept = (0..HOT).filter(|key| rows.read(*key, 400)).count() as u64;
    assert!(kept > HOT * 90 / 100, "{kept} of {HOT}");
}

#[test]
fn uniform_reads_of_much_data_are_mostly_refused() {
    let rows = Rows::unlimited(4 * MIB);
    let (mut rng, seed) = Rng::from_env();
    for _ in 0..400_000 {
        rows.read(rng.below(1 << 40), 400);
    }
    let before = rows.cache.statistics();
    for _ in 0..100_000 {
        rows.read(rng.below(1 << 40), 400);
    }
    let after = rows.cache.statistics();
    assert!(after.fills - before.fills < 10_000, "{after:?}, seed {seed}");
    assert!(after.refused.seldom > before.refused.seldom + 80_000);
    // Once some rows are used again, all new ones are admitted.
    for _ in 0..400_000 {
        rows.read(rng.below(3_000), 400);
    }
    let hits = (0..3_000).filter(|key| rows.read(*key, 400)).count();
    assert!(hits > 2_900, "{hits}, seed {seed}");
}

pub(in crate::rows) struct Ends<'a>(pub(in crate::rows) &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// Writers put keys and raise the floor as the engine does; readers read at the visible seqno and fill;
/// another thread renews, and memory is reclaimed. No reader gets anything but the newest version that its
/// seqno sees.
#[test] // I1
fn no_reader_gets_anything_but_the_newest_version() {
    const KEYS: u64 = 3_000;
    let (mut rng, seed) = Rng::from_env();
    println!("TERRACE_SEED={seed}");
    let budget = Budget::new(u64::MAX);
    let rows = Rows::new(&budget.account("rows"), 4 * MIB);
    budget.add_reclaimer(ReclaimOrder::Cache, Arc::downgrade(&rows.cache) as _);
    // Seqno of the newest applied version of each key; one thread writes.
    let applied: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(1)).collect();
    let (visible, done) = (AtomicU64::new(1), AtomicBool::new(false));
    let hits = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let (rows, applied, visible) = (&rows, &applied, &visible);
            let (hits, done) = (&hits, &done);
            let mut rng = Rng::new(rng.next_u64());
            scope.spawn(move || {
                // A reader that fails stops the writer, too.
                let _ends = Ends(done);
                while !done.load(SeqCst) {
                    let key = rng.below(KEYS).min(rng.below(KEYS));
                    let vacancy = rows.vacancy(key);
                    let at = visible.load(SeqCst);
                    let before = applied[key as usize].load(SeqCst);
                    if let Some((found, seqno)) = rows.get(key, at) {
                        assert_eq!(found, value(key, seqno, 300), "seed {seed}");
                        // The version that was visible before the read is not newer than the one it got.
                        assert!(before > at || seqno == before, "{seqno} {before} {at}, {seed}");
                        hits.fetch_add(1, SeqCst);
                    } else if before <= at
                        && let Some(vacancy) = vacancy
                    {
                        rows.fill_in(vacancy, key, before, at, 300);
                    }
                }
            });
        }
        let (flushed, applied_then, visible_then) = (&rows, &applied, &visible);
        let (ended, mut keys) = (&done, Rng::new(rng.next_u64()));
        scope.spawn(move || {
            let _ends = Ends(ended);
            while !ended.load(SeqCst) {
                let key = keys.below(KEYS);
                let Some(awaited) = flushed.cache.awaited(flushed.hash(key)) else { continue };
                let at = visible_then.load(SeqCst);
                let newest = applied_then[key as usize].load(SeqCst);
                if newest <= at {
                    let _ = flushed.renew_in(awaited, key, newest, at, 300);
                }
            }
        });
        // However long the readers wait for a core; only rows that are never found take minutes.
        let began = Instant::now();
        let is_late = || began.elapsed() > Duration::from_secs(300);
        let enough = || hits.load(SeqCst) >= 40_000 || done.load(SeqCst) || is_late();
        for seqno in (2..).take_while(|_| !enough()) {
            if rng.one_in(500) {
                // A write to many keys that changes none of them only invalidates rows.
                rows.owner.raise_floor(Seqno::new(seqno));
            } else {
                let key = rng.below(KEYS);
                applied[key as usize].store(seqno, SeqCst);
                rows.cache.invalidate(rows.hash(key));
            }
            visible.store(seqno, SeqCst);
            if rng.one_in(5_000) {
                rows.cache.reclaim(2 * MIB);
            }
        }
        done.store(true, SeqCst);
    });
    assert!(hits.into_inner() >= 40_000, "seed {seed}: {:?}", rows.cache.statistics());
}

#[test]
fn a_fill_is_refused_while_another_is_in_progress() {
    let rows = Rows::unlimited(4 * MIB);
    let filling = rows.cache.log.lock();
    assert!(!rows.fill(1, 1, 1, 100));
    drop(filling);
    assert_eq!(rows.cache.statistics().refused.busy, 1);
    assert!(rows.fill(1, 1, 1, 100) && rows.get(1, 1).is_some());
}

#[test]
fn memory_is_tight_when_rows_use_it_and_new_ones_are_admitted() {
    let rows = Rows::unlimited(8 * MIB);
    let read_all = |from: u64, to: u64| {
        for key in from..to {
            rows.read(key, 400);
        }
    };
    read_all(0, 1000);
    // Memory is taken, but not used.
    rows.cache.grow_to(8 * MIB);
    assert_eq!(rows.cache.bytes(), 8 * MIB);
    read_all(1000, 2000);
    assert!(!rows.cache.is_tight(), "a tenth of what there is");
    read_all(2000, 10_000);
    assert!(rows.cache.is_tight());
    // None of these rows is used again.
    read_all(1_000_000, 1_100_000);
    assert!(!rows.cache.is_tight() && rows.cache.statistics().refused.seldom > 10_000);
}
