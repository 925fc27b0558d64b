//! The counters of a `keep` keyspace against the formulas of its schedule, over several rewrites of its base:
//! with *d* the share of runs at which a slice is merged, each flushed byte is merged 1 / *d* times, and the
//! runs hold *d* / 2 of the base.

use std::sync::Arc;

use base::Rng;
use compact::plan::Options;
use compact::plan::hashed::keep;
use media::MemoryMedium;
use terracedb::stats::KeyspaceStatistics;
use terracedb::{Codec, Db, Keyspace, Result};

use crate::common::{Stepped, cells::hashed_options};

const KEYS: u64 = 100_000;

/// Writes of a flush: half a hundredth of the keys.
const FLUSH_KEYS: u64 = KEYS / 200;

const KEY_BYTES: usize = 20;
const VALUE_BYTES: usize = 236;

/// A keyspace whose base has every key, and the version of each key's value.
struct Keep {
    stepped: Stepped,
    db: Db,
    keyspace: Keyspace,
    versions: Vec<u64>,
    rng: Rng,
}

fn key_of(number: u64) -> [u8; KEY_BYTES] {
    let mut key = [7; KEY_BYTES];
    key[..8].copy_from_slice(&number.to_be_bytes());
    key
}

fn value_of(number: u64, version: u64) -> Vec<u8> {
    let mut value = vec![0; VALUE_BYTES];
    Rng::new(number << 32 | version).fill(&mut value);
    value
}

impl Keep {
    fn new(memory: u64) -> Self {
        let (stepped, device) = (Stepped::with_memory(1, memory), Arc::new(MemoryMedium::new()));
        // Flushed tables of this length; slices may be as short as the data asks for.
        let unit_bytes = Some(FLUSH_KEYS * (KEY_BYTES + VALUE_BYTES) as u64);
        let options = Options { slice_bytes: 64 << 10, unit_bytes, ..Options::default() };
        let builder = stepped.on(Arc::clone(&device) as _).codec(Codec::None);
        let db = builder.compaction_options(options).open().unwrap();
        let options = hashed_options().hash_key([9; 16]);
        let keyspace = db.create_keyspace_opt("keep", &options).unwrap();
        let (versions, rng) = (vec![0; KEYS as usize], Rng::new(2));
        for number in 0..KEYS {
            keyspace.put(key_of(number), value_of(number, 0)).unwrap();
        }
        db.compact().unwrap();
        Self { stepped, db, keyspace, versions, rng }
    }

    /// Overwrites keys, and flushes them.
    fn overwrite(&mut self) -> Result<()> {
        for _ in 0..FLUSH_KEYS {
            let number = self.rng.below(KEYS);
            let version = self.versions[number as usize] + 1;
            self.keyspace.put(key_of(number), value_of(number, version))?;
            self.versions[number as usize] = version;
        }
        self.keyspace.flush()
    }

    /// Does the merges that are due.
    fn merge(&self) {
        self.stepped.work(1_000_000);
    }

    fn statistics(&self) -> KeyspaceStatistics {
        self.db.statistics().keyspaces.remove(0)
    }

    /// Every key has the value that was written last.
    fn check(&self, why: &str) {
        for (number, version) in (0..KEYS).zip(&self.versions) {
            let value = self.keyspace.get(key_of(number)).unwrap();
            assert!(value.as_deref() == Some(&value_of(number, *version)[..]), "{why}: {number}");
        }
    }
}

fn level_bytes(statistics: &KeyspaceStatistics, is_base: bool) -> f64 {
    let levels = statistics.levels.iter().filter(|level| (level.level > 0) == is_base);
    levels.map(|level| level.bytes).sum::<u64>() as f64
}

/// Bytes of a flush as a part of the base, and rewrites of the base, since `before`.
fn written(before: &KeyspaceStatistics, now: &KeyspaceStatistics) -> (f64, f64) {
    let flushed = (now.flush_bytes - before.flush_bytes) as f64;
    (flushed / level_bytes(now, true), now.base_cycles - before.base_cycles)
}

#[test]
fn the_counters_of_keep_are_those_of_its_formulas() {
    let share = keep::Options::default().run_share;
    let cycle = (share * KEYS as f64 / FLUSH_KEYS as f64) as u64;
    let mut keep = Keep::new(256 << 20);
    let warm = |keep: &mut Keep| {
        keep.overwrite().unwrap();
        keep.merge();
    };
    (0..2 * cycle).for_each(|_| warm(&mut keep));
    let before = keep.statistics();
    let (mut run_bytes, mut flushes) = (0.0, 0.0);
    for _ in 0..4 * cycle {
        warm(&mut keep);
        run_bytes += level_bytes(&keep.statistics(), false);
        flushes += 1.0;
    }
    let now = keep.statistics();
    let near = |found: f64, expected: f64, name: &str| {
        println!("{name}: {found}, expected {expected}");
        assert!((found / expected - 1.0).abs() < 0.05, "{name}: {found}, not {expected}");
    };
    let (flushed, cycles) = written(&before, &now);
    assert!(cycles > 3.0, "{cycles}");
    near(cycles, flushed / share, "rewrites of the base");
    let bytes = |it: &KeyspaceStatistics| (it.flush_bytes + it.merge_bytes) as f64;
    let user = flushes * (FLUSH_KEYS as usize * (KEY_BYTES + VALUE_BYTES)) as f64;
    let flush = (now.flush_bytes - before.flush_bytes) as f64;
    let amplification = flush / user * (1.0 + 1.0 / share);
    near((bytes(&now) - bytes(&before)) / user, amplification, "write amplification");
    // A flushed table has only 33 pages of entries, so the pieces that merges left of it weigh more than
    // their part of the file.
    let found = run_bytes / flushes / level_bytes(&now, true);
    println!("share of runs: {found}");
    assert!((0.95..1.2).contains(&(found / (share / 2.0))), "share of runs: {found}");
    keep.check("at the end");
}

/// While merges run, the memory shrinks to that of a few runs: every value is right, and the base is
/// rewritten far less often than once for each five runs.
#[test]
fn memory_that_shrinks_within_a_merge_costs_no_value_and_few_rewrites() {
    let share = keep::Options::default().run_share;
    let cycle = (share * KEYS as f64 / FLUSH_KEYS as f64) as u64;
    let mut keep = Keep::new(256 << 20);
    for _ in 0..cycle {
        keep.overwrite().unwrap();
        keep.merge();
    }
    // In the middle of whatever merge is due.
    keep.overwrite().unwrap();
    keep.stepped.work(3);
    keep.stepped.set_memory(64 << 20);
    let before = keep.statistics();
    for _ in 0..cycle {
        keep.overwrite().unwrap();
        keep.merge();
    }
    let frugal = |name: &str, before: &KeyspaceStatistics, now: &KeyspaceStatistics| {
        let (flushed, cycles) = written(before, now);
        let folded =
            (now.merge_bytes - before.merge_bytes) as f64 / level_bytes(now, true) - cycles;
        println!("{name}: {flushed} flushed, {cycles} rewrites, {folded} folded");
        // 2.5 times as many as with large data: tables of so few entries are mostly other pages, which count
        // as runs. Without folds each rewrite would take five runs of the 54 that are due.
        let due = (flushed + share / 2.0) / share;
        assert!(cycles <= 3.5 * due, "{name}: {cycles} rewrites, {due} due");
        assert!(folded <= 5.0 * (flushed + share / 2.0), "{name}: {folded} folded");
    };
    frugal("little memory", &before, &keep.statistics());
    keep.check("with little memory");
}
