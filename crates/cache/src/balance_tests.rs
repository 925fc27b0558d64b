//! Rows and pages under one memory limit, read as the engine reads.

use base::{Budget, ReclaimOrder, Rng, Seqno, key_hash};

use super::*;
use crate::rows::{Row, RowFrom};
use crate::{PageKey, PageKind, RowOwner};

const MIB: u64 = 1 << 20;
const VALUE: [u8; 400] = [7; 400];
/// Rows per page: 400 bytes each, compressed to half.
const ROWS_PER_PAGE: u64 = 19;

struct Tier {
    budget: Budget,
    pages: Arc<PageCache>,
    rows: Arc<RowCache>,
    owner: RowOwner,
    balance: Arc<Balance>,
}

/// Where a read was answered.
#[derive(PartialEq, Eq)]
enum End {
    Row,
    Page,
    Device,
}

impl Tier {
    fn new(bytes: u64) -> Self {
        let budget = Budget::new(bytes);
        let pages = PageCache::new(&budget.spare_account("pages"), bytes).unwrap();
        let rows = budget.spare_account("rows");
        let rows = RowCache::new(&rows, Balance::first_rows(bytes)).unwrap();
        let (pages, rows) = (Arc::new(pages), Arc::new(rows));
        let balance = Arc::new(Balance::new(&pages, &rows));
        budget.add_reclaimer(ReclaimOrder::Cache, Arc::downgrade(&balance) as _);
        let owner = rows.owner();
        Self { budget, pages, rows, owner, balance }
    }

    fn read(&self, number: u64) -> End {
        let key = number.to_be_bytes();
        let hash = self.owner.hash(key_hash(&key));
        let (at, mut value) = (Seqno::new(1), Vec::new());
        let vacancy = self.rows.vacancy(&self.owner, hash);
        if self.rows.get(&self.owner, &key, hash, at, &mut value).is_some() {
            assert_eq!(value, VALUE);
            return End::Row;
        }
        let page = (number / ROWS_PER_PAGE) as u32;
        let page = PageKey { file: 1, page };
        let from_device = self.pages.get(page, PageKind::Data).is_none();
        if from_device {
            drop(self.pages.insert(page, PageKind::Data, &[7; 4096]));
        }
        self.balance.missed();
        let from = if from_device { RowFrom::Device } else { RowFrom::Dram };
        let row =
            Row { key: &key, value: &VALUE, packed: false, seqno: at, as_of: at, expiry: 0, from };
        let _ = self.rows.fill(&self.owner, hash, vacancy.unwrap(), row);
        if from_device { End::Device } else { End::Page }
    }

    /// Reads one of `pages` pages as a scan does.
    fn scan(&self, pages: u64, rng: &mut Rng) {
        let page = PageKey { file: 2, page: rng.below(pages) as u32 };
        if self.pages.get(page, PageKind::Data).is_none() {
            drop(self.pages.insert(page, PageKind::Data, &[7; 4096]));
            self.balance.scanned();
        }
    }

    /// Share of `reads` reads, of keys from `next`, that needed no device read.
    fn hits(&self, reads: u64, mut next: impl FnMut() -> u64) -> f64 {
        let hits = (0..reads).filter(|_| self.read(next()) != End::Device).count();
        hits as f64 / reads as f64
    }
}

#[test]
fn scans_alone_give_no_memory_to_rows() {
    let (mut rng, seed) = Rng::from_env();
    let tier = Tier::new(24 * MIB);
    for _ in 0..200 {
        (0..1000).for_each(|_| tier.scan(9_000, &mut rng));
        let rows = tier.rows.bytes();
        assert!(rows <= 2 * MIB, "{rows}, seed {seed}");
    }
    assert!(tier.pages.bytes() >= 20 * MIB, "seed {seed}");
}

#[test]
fn scans_take_memory_from_idle_rows_only() {
    let (mut rng, seed) = Rng::from_env();
    let tier = Tier::new(24 * MIB);
    let rows = 30_000;
    let hot = |rng: &mut Rng| rng.below(rows) * ROWS_PER_PAGE;
    tier.hits(600_000, || hot(&mut rng));
    let full = tier.rows.bytes();
    assert!(full > 13 * MIB, "{:?}, seed {seed}", tier.rows.statistics());
    // Scans read more pages than fit beside the rows.
    for _ in 0..400_000 {
        tier.scan(4_500, &mut rng);
        tier.read(hot(&mut rng));
    }
    // One more chunk gains about as much for either, so the split moves back and forth by some chunks.
    let hits = tier.hits(50_000, || hot(&mut rng));
    assert!(hits > 0.7, "{hits}, seed {seed}");
    (0..600_000).for_each(|_| tier.scan(4_500, &mut rng));
    let left = tier.rows.bytes();
    assert!(left < full / 3, "{left} of {full}, seed {seed}");
}

#[test]
fn the_split_follows_the_workload() {
    let (mut rng, seed) = Rng::from_env();
    let tier = Tier::new(24 * MIB);
    // A few rows of each page are read, more than fit: rows gain most.
    let rows = 120_000;
    let skewed = |rng: &mut Rng| {
        let rank = (rows as f64).powf(rng.unit()) as u64;
        rank.wrapping_mul(0x9e37_79b1) % (rows * ROWS_PER_PAGE)
    };
    let cold = tier.hits(50_000, || skewed(&mut rng));
    tier.hits(500_000, || skewed(&mut rng));
    let warm = tier.hits(50_000, || skewed(&mut rng));
    println!("hit ratio {cold:.3}, with its part of rows {warm:.3}");
    let first = tier.balance.rows_part();
    assert!(first > 0.55, "{first} for rows, seed {seed}");
    assert!(tier.rows.bytes() > 13 * MIB, "{:?}, seed {seed}", tier.rows.statistics());
    // All rows of a set of pages are read alike, more than fit: a page serves nineteen.
    let pages = 7_000;
    tier.hits(1_500_000, || rng.below(pages * ROWS_PER_PAGE));
    let second = tier.balance.rows_part();
    assert!(second < first - 0.1, "{second} after {first}, seed {seed}");
    // Back to the first workload, from a share so small that hardly a row is evicted.
    tier.hits(1_000_000, || skewed(&mut rng));
    let third = tier.balance.rows_part();
    assert!(third > 0.55, "{third} after {second}, seed {seed}");
    let again = tier.hits(50_000, || skewed(&mut rng));
    assert!(again > warm - 0.02, "{again} after {warm}, seed {seed}");
    // A charge of another account reclaims from both.
    let held = tier.budget.account("writes").charge(12 * MIB).unwrap();
    assert!(tier.rows.bytes() > 0 && tier.pages.bytes() > 0);
    assert!(tier.budget.used() <= tier.budget.limit());
    drop(held);
}

/// A miss waits for the move of one chunk at most, in either direction.
#[test]
fn one_miss_moves_at_most_one_chunk() {
    let (mut rng, seed) = Rng::from_env();
    let tier = Tier::new(96 * MIB);
    let (mut grown, mut shrunk) = (0, 0);
    let mut read = |number: u64| {
        let (before, had_room) = (tier.rows.bytes(), tier.pages.has_room());
        tier.read(number);
        let after = tier.rows.bytes();
        // While memory is free nothing is moved.
        if !had_room {
            assert!(after.abs_diff(before) <= CHUNK_BYTES, "{before} to {after}, seed {seed}");
            grown += u64::from(after > before);
            shrunk += u64::from(after < before);
        }
    };
    // Single rows of many pages, then all rows of few pages.
    (0..600_000).for_each(|_| read(rng.below(150_000) * ROWS_PER_PAGE));
    (0..900_000).for_each(|_| read(rng.below(20_000 * ROWS_PER_PAGE)));
    assert!(grown > 4 && shrunk > 4, "{grown} and {shrunk}, seed {seed}");
}
