//! Rows that DRAM evicts, that are demoted to a tier of memory, found there, and promoted.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

use base::{Account, Clock, ManualClock, Rng, Seqno};
use media::scm::{Region, Scm};

use super::row::{Row, RowFrom, RowHit};
use super::row_cache::tests::{Ends, MIB, Rows, value};
use crate::{PageCache, RowSetStatistics, ScmOptions, ScmTier};

/// A row cache over a tier, and a page cache that shares the tier.
struct Tiered {
    rows: Rows,
    tier: Arc<ScmTier>,
    pages: PageCache,
}

impl Tiered {
    fn new(capacity: u64, scm_bytes: u64, write_budget: Option<u64>) -> Self {
        let account = Account::unlimited("test");
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
        let options = ScmOptions { write_budget, id: 5, ..ScmOptions::default() };
        let scm = Scm::Mapped(Region::anonymous(scm_bytes).unwrap());
        let tier = Arc::new(ScmTier::open(scm, options, &account, &clock).unwrap());
        let pages = PageCache::new(&account, MIB).unwrap();
        let rows = Rows::unlimited(capacity);
        pages.set_lower_tier(&tier);
        rows.cache.set_lower_tier(&tier);
        Self { rows, tier, pages }
    }

    /// Does the background work.
    fn work(&self) {
        while self.rows.cache.demote_rows() {}
        self.tier.step(&self.pages);
    }

    fn get_from_scm(&self, key: u64, at: u64) -> Option<(Vec<u8>, RowHit)> {
        let (mut found, key_bytes) = (Vec::new(), key.to_be_bytes());
        let (Rows { cache, owner }, hash) = (&self.rows, self.rows.hash(key));
        let hit = cache.get_from_scm(owner, &key_bytes, hash, Seqno::new(at), &mut found)?;
        Some((found, hit))
    }

    /// Fills DRAM with a row that was found in the tier.
    fn promote(&self, vacancy: super::Vacancy, key: u64, (value, hit): &(Vec<u8>, RowHit)) -> bool {
        let (key_bytes, RowHit { seqno, as_of, expiry, packed }) = (key.to_be_bytes(), *hit);
        let from = RowFrom::ScmRow;
        let row = Row { key: &key_bytes, value, packed, seqno, as_of, expiry, from };
        self.rows.cache.fill(&self.rows.owner, self.rows.hash(key), vacancy, row).is_ok()
    }

    /// Reads `key` as the engine does. Returns whether it was found in DRAM, and in the tier.
    fn read(&self, key: u64, len: usize) -> [bool; 2] {
        let vacancy = self.rows.vacancy(key).unwrap();
        if let Some((found, _)) = self.rows.get(key, 1) {
            assert_eq!(found, value(key, 1, len));
            return [true, false];
        }
        let found = self.get_from_scm(key, 1);
        match &found {
            Some(row) => {
                assert_eq!(row.0, value(key, 1, len));
                self.promote(vacancy, key, row);
            }
            None => _ = self.rows.fill(key, 1, 1, len),
        }
        [false, found.is_some()]
    }

    fn counts(&self) -> RowSetStatistics {
        self.tier.statistics().rows
    }
}

#[test]
fn demoted_rows_are_found_in_scm_and_promoted() {
    let it = Tiered::new(2 * MIB, 32 * MIB, None);
    // Six times as many rows as fit DRAM.
    let read_all = || {
        let mut hits = [0; 2];
        for key in 0..30_000 {
            let found = it.read(key, 300);
            hits = [hits[0] + usize::from(found[0]), hits[1] + usize::from(found[1])];
            if key % 64 == 0 {
                it.work();
            }
        }
        it.work();
        hits
    };
    read_all();
    let counts = it.counts();
    // Some rows are refused by DRAM, because none was used again so far.
    assert!(counts.demoted > 10_000 && counts.rows > 10_000, "{counts:?}");
    // Rows have at most 7/8 of the slots.
    assert!(counts.slots <= counts.slots_max && counts.slots_max <= 7168, "{counts:?}");
    let [in_dram, in_scm] = read_all();
    assert!(in_scm > 10_000, "{in_dram} {in_scm}");
    // A promoted row that is evicted again is still in the tier, and is not written again.
    let counts = it.counts();
    assert!(counts.kept > 100, "{counts:?}");
    assert_eq!(counts.damaged, 0);
    // The ghost list of refused pages is sized for the slots that rows leave to pages.
    let (all, remembered) = (it.tier.statistics().slots, it.tier.ghost_entries());
    let left = 2 * (all - counts.slots) as usize;
    assert!(counts.slots >= all / 8 && remembered.abs_diff(left) <= left / 16, "{remembered}");
    assert!(it.tier.statistics().bytes_written > counts.bytes_written);
}

#[test]
fn a_demoted_row_is_not_found_after_a_write_or_range_delete() {
    let it = Tiered::new(2 * MIB, 16 * MIB, None);
    for key in 0..12_000 {
        it.rows.fill(key, 1, 5, 300);
        it.work();
    }
    let in_scm: Vec<u64> = (0..12_000).filter(|key| it.get_from_scm(*key, 9).is_some()).collect();
    assert!(in_scm.len() > 500, "{}", in_scm.len());
    let [key, other] = [in_scm[0], in_scm[1]];
    // A reader at a seqno before the version does not see the row.
    assert!(it.get_from_scm(key, 0).is_none());
    it.rows.cache.invalidate(it.rows.hash(key));
    assert!(it.get_from_scm(key, 9).is_none() && it.get_from_scm(other, 9).is_some());
    it.rows.owner.raise_floor(Seqno::new(6));
    assert!(in_scm.iter().all(|key| it.get_from_scm(*key, 9).is_none()));
}

#[test]
fn a_row_written_while_it_waits_is_not_demoted() {
    let it = Tiered::new(2 * MIB, 16 * MIB, None);
    (0..9_000).for_each(|key| _ = it.rows.fill(key, 1, 5, 300));
    let evicted: Vec<u64> = (0..9_000).filter(|key| it.rows.get(*key, 9).is_none()).collect();
    assert!(evicted.len() > 100);
    evicted.iter().for_each(|key| it.rows.cache.invalidate(it.rows.hash(*key)));
    it.work();
    let counts = it.counts();
    assert!(evicted.iter().all(|key| it.get_from_scm(*key, 9).is_none()));
    assert!(counts.refused_written > 0 && counts.demoted == 0, "{counts:?}");
}

#[test]
fn rows_whose_pages_are_in_scm_are_not_demoted() {
    let it = Tiered::new(2 * MIB, 16 * MIB, None);
    for key in 0..9_000u64 {
        let (bytes, value) = (key.to_be_bytes(), value(key, 1, 300));
        let (seqno, from) = (Seqno::new(1), RowFrom::Scm);
        let (as_of, expiry, packed) = (seqno, 0, false);
        let row = Row { key: &bytes, value: &value, packed, seqno, as_of, expiry, from };
        let (vacancy, hash) = (it.rows.vacancy(key).unwrap(), it.rows.hash(key));
        let _ = it.rows.cache.fill(&it.rows.owner, hash, vacancy, row);
    }
    it.work();
    assert_eq!(
        it.counts(),
        RowSetStatistics { slots_max: it.counts().slots_max, ..Default::default() }
    );
    assert!(it.rows.cache.statistics().evicted > 1_000);
}

#[test]
fn waiting_rows_and_their_writes_are_bounded() {
    let it = Tiered::new(2 * MIB, 16 * MIB, Some(1024));
    (0..20_000).for_each(|key| _ = it.rows.fill(key, 1, 5, 300));
    it.work();
    let counts = it.counts();
    assert!(counts.refused_busy > 1_000, "nobody wrote them: {counts:?}");
    (0..2_000).for_each(|key| _ = it.rows.fill(key, 1, 5, 300));
    it.work();
    let (counts, written) = (it.counts(), it.tier.statistics().bytes_written);
    // The budget of a minute.
    assert!(counts.refused_budget > 50 && written <= 60 << 10, "{written} {counts:?}");
}

/// As the test of the row cache alone, but with more keys than DRAM holds: rows are evicted, demoted while
/// keys are written, and promoted.
#[test] // I1
fn no_reader_gets_anything_but_the_newest_version() {
    const KEYS: u64 = 16_000;
    let (mut rng, seed) = Rng::from_env();
    println!("TERRACE_SEED={seed}");
    let it = Tiered::new(2 * MIB, 4 * MIB, None);
    let applied: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(1)).collect();
    let (visible, done) = (AtomicU64::new(1), AtomicBool::new(false));
    let [in_dram, in_scm] = [AtomicU64::new(0), AtomicU64::new(0)];
    std::thread::scope(|scope| {
        let (it, applied, visible, done) = (&it, &applied, &visible, &done);
        let (in_dram, in_scm) = (&in_dram, &in_scm);
        for _ in 0..2 {
            let mut rng = Rng::new(rng.next_u64());
            scope.spawn(move || {
                let _ends = Ends(done);
                while !done.load(SeqCst) {
                    let key = rng.below(KEYS);
                    let vacancy = it.rows.vacancy(key);
                    let at = visible.load(SeqCst);
                    let before = applied[key as usize].load(SeqCst);
                    let check = |found: &[u8], seqno: u64| {
                        assert_eq!(found, value(key, seqno, 300), "seed {seed}");
                        assert!(before > at || seqno == before, "{seqno} {before} {at}, {seed}");
                    };
                    if let Some((found, seqno)) = it.rows.get(key, at) {
                        check(&found, seqno);
                        in_dram.fetch_add(1, Relaxed);
                    } else if let Some(row) = it.get_from_scm(key, at) {
                        check(&row.0, row.1.seqno.get());
                        in_scm.fetch_add(1, Relaxed);
                        // A reader whose view has a newer version fills nothing.
                        if before <= at
                            && let Some(vacancy) = vacancy
                        {
                            it.promote(vacancy, key, &row);
                        }
                    } else if before <= at
                        && let Some(vacancy) = vacancy
                    {
                        it.rows.fill_in(vacancy, key, before, at, 300);
                    }
                }
            });
        }
        scope.spawn(move || {
            let _ends = Ends(done);
            while !done.load(SeqCst) {
                it.work();
            }
        });
        // Until readers found enough rows in SCM that were put there beside readers and writers, however long
        // their threads wait for a core; only a tier that keeps nothing takes minutes.
        let began = Instant::now();
        let is_late = || began.elapsed() > Duration::from_secs(300);
        let is_found = || in_scm.load(Relaxed) >= 20_000 && it.counts().demoted > 200;
        let enough = || done.load(SeqCst) || is_found() || is_late();
        for seqno in (2..).take_while(|_| !enough()) {
            if rng.one_in(20_000) {
                it.rows.owner.raise_floor(Seqno::new(seqno));
            } else {
                // A few keys are written again and again; readers read all keys alike.
                let key = if rng.one_in(4) { rng.below(KEYS) } else { rng.below(200) };
                applied[key as usize].store(seqno, SeqCst);
                it.rows.cache.invalidate(it.rows.hash(key));
            }
            visible.store(seqno, SeqCst);
            // Lets readers read something before the next write.
            (0..rng.below(2000)).for_each(|_| std::hint::spin_loop());
        }
        done.store(true, SeqCst);
    });
    let (counts, found) = (it.counts(), in_scm.into_inner());
    assert!(counts.demoted > 200 && found >= 20_000, "seed {seed}: {counts:?}");
    assert!(counts.hits >= found, "seed {seed}: {counts:?}, {found} found");
    assert_eq!(counts.damaged, 0, "seed {seed}: {counts:?}");
}
