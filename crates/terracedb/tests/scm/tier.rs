//! The SCM tier: it serves its pages, survives any fault, and no store depends on it.
//!
//! I6, I8: SCM contents may vanish or change at any time, and no wrong byte is ever served.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use base::Rng;
use terracedb::events::{Event, Listener, Task};
use terracedb::scm::{Placement, Scm};
use terracedb::stats::{ScmStatistics, ScmStatus};
use terracedb::{Db, Keyspace};

use crate::common::{MEMORY, Machine, child, until};

/// A directory in memory if there is such a file system: the tier is mapped and its pages are used in
/// place.
fn mapped() -> tempfile::TempDir {
    let shm = Path::new("/dev/shm");
    if shm.is_dir() { tempfile::tempdir_in(shm) } else { tempfile::tempdir() }.unwrap()
}

/// A directory on a disk: the tier is read page by page.
fn read() -> tempfile::TempDir {
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    tempfile::tempdir_in(target).unwrap()
}

const SIZE: u64 = 64 << 20;
const KEYS: u64 = 40_000;

fn scm(dir: &Path, placement: Placement) -> Scm {
    Scm::new(dir.to_str().unwrap(), SIZE).unwrap().placement(placement)
}

/// A store with background threads.
fn open(store: &Path, scm: Scm) -> (Db, Keyspace) {
    let db = Db::builder(store).memory(MEMORY).scm(scm).open().unwrap();
    let keyspace = db.open_or_create_keyspace("k").unwrap();
    (db, keyspace)
}

fn key(number: u64) -> Vec<u8> {
    format!("key {:012}", number * 7).into_bytes()
}

fn value(number: u64, version: u64) -> Vec<u8> {
    // One value in fifty takes several pages.
    let len = if number.is_multiple_of(50) { 9000 } else { 1500 };
    let mut value = vec![0; len];
    Rng::new(number << 8 | version).fill(&mut value);
    value
}

/// Some 60 MB that do not compress: more than the store's memory, and about the size of the tier.
fn fill(keyspace: &Keyspace, version: u64) {
    for number in 0..KEYS {
        keyspace.put(key(number), value(number, version)).unwrap();
    }
}

/// A get of a skewed random key, verified.
fn get_one(keyspace: &Keyspace, rng: &mut Rng, version: u64) {
    let number = rng.below(rng.clone().below(KEYS) + 1).wrapping_mul(48_271) % KEYS;
    assert_eq!(keyspace.get(key(number)).unwrap().unwrap(), value(number, version), "{number}");
}

/// `gets` gets of skewed random keys, verified.
fn get(keyspace: &Keyspace, rng: &mut Rng, gets: u64, version: u64) {
    (0..gets).for_each(|_| get_one(keyspace, rng, version));
}

fn from_env() -> Rng {
    let (rng, seed) = Rng::from_env();
    println!("TERRACE_SEED={seed}");
    rng
}

/// A store over a tier on a simulated machine, whose background work keeps pace with the reads.
struct Paced {
    machine: Machine,
    place: tempfile::TempDir,
    placement: Placement,
}

impl Paced {
    fn new(place: tempfile::TempDir, placement: Placement) -> Self {
        Self { machine: Machine::new(), place, placement }
    }

    fn open(&self) -> (Db, Keyspace) {
        self.machine.open(self.place.path().to_str().unwrap(), SIZE, self.placement)
    }

    /// Opens and fills the store, and warms the tier by `gets` gets.
    fn warmed(&self, gets: u64) -> (Db, Keyspace, Rng) {
        let (db, keyspace) = self.open();
        let mut rng = from_env();
        fill(&keyspace, 0);
        db.compact().unwrap();
        self.get(&keyspace, &mut rng, gets, 0);
        (db, keyspace, rng)
    }

    fn get(&self, keyspace: &Keyspace, rng: &mut Rng, gets: u64, version: u64) {
        self.machine.times(gets, || get_one(keyspace, rng, version));
    }

    /// The file of the tier.
    fn file(&self) -> std::fs::File {
        let file = std::fs::read_dir(self.place.path()).unwrap().map(|entry| entry.unwrap().path());
        let file = file.into_iter().find(|path| path.is_file()).unwrap();
        OpenOptions::new().read(true).write(true).open(file).unwrap()
    }
}

fn status(db: &Db) -> ScmStatus {
    db.statistics().scm.unwrap()
}

#[test]
fn every_placement_serves_from_scm_in_place_and_by_reads() {
    for is_mapped in [true, false] {
        for (name, placement) in Placement::NAMES {
            let paced = Paced::new(if is_mapped { mapped() } else { read() }, placement);
            let (db, keyspace) = paced.open();
            let mut rng = from_env();
            fill(&keyspace, 0);
            db.flush().unwrap();
            paced.get(&keyspace, &mut rng, 15_000, 0);
            let (before, gets) = (db.statistics().hits, 10_000);
            paced.get(&keyspace, &mut rng, gets, 0);
            let hits = db.statistics().hits.scm - before.scm;
            let status = status(&db);
            assert_eq!((status.failure, status.counts.damaged), (None, 0), "{name}");
            assert!(
                hits > gets / 10,
                "{name}: {hits} {:?} {:?}",
                status.counts,
                db.statistics().hits
            );
        }
    }
}

#[test]
fn multi_gets_and_cursors_find_the_same_values() {
    for place in [mapped(), read()] {
        let paced = Paced::new(place, Placement::DramFirst);
        let (db, keyspace, mut rng) = paced.warmed(0);
        for _ in 0..800 {
            let numbers: Vec<u64> = (0..64).map(|_| rng.below(KEYS)).collect();
            let keys: Vec<_> = numbers.iter().map(|number| key(*number)).collect();
            for (number, found) in numbers.iter().zip(keyspace.multi_get(&keys).unwrap()) {
                assert_eq!(found.unwrap().unwrap(), value(*number, 0));
            }
            (0..8).for_each(|_| paced.machine.step());
        }
        assert!(db.statistics().hits.scm > 4000, "{:?}", status(&db));
        let mut numbers = 0..KEYS;
        for entry in keyspace.iter().unwrap() {
            let (key_found, value_found) = entry.unwrap();
            let number = numbers.next().unwrap();
            assert_eq!((&*key_found, &*value_found), (&*key(number), &*value(number, 0)));
        }
        assert_eq!(numbers.next(), None);
    }
}

#[test]
fn overwritten_and_merged_pages_are_never_served_from_scm() {
    let paced = Paced::new(mapped(), Placement::DramFirst);
    let (db, keyspace) = paced.open();
    let mut rng = from_env();
    for version in 0..2 {
        fill(&keyspace, version);
        paced.get(&keyspace, &mut rng, 20_000, version);
        db.compact().unwrap();
        paced.get(&keyspace, &mut rng, 20_000, version);
    }
    assert!(status(&db).counts.dropped > 0, "pages of dead tables go");
}

/// The shares of gets answered by SCM and by flash.
fn shares(paced: &Paced, (db, keyspace): (&Db, &Keyspace), rng: &mut Rng, gets: u64) -> (f64, f64) {
    let before = db.statistics().hits;
    paced.get(keyspace, rng, gets, 0);
    let after = db.statistics().hits;
    let share = |hits: u64| hits as f64 / gets as f64;
    (share(after.scm - before.scm), share(after.flash - before.flash))
}

#[test]
fn a_merge_carries_over_pages_that_were_read() {
    for place in [mapped(), read()] {
        let paced = Paced::new(place, Placement::DramFirst);
        let (db, keyspace, mut rng) = paced.warmed(60_000);
        let before = shares(&paced, (&db, &keyspace), &mut rng, 5000);
        // Overwrites one key in eight, so every table is merged.
        for number in (0..KEYS).step_by(8) {
            keyspace.put(key(number), value(number, 0)).unwrap();
        }
        db.compact().unwrap();
        // Gives background work time to write pending pages and to drop pages of removed files.
        (0..1000).for_each(|_| paced.machine.step());
        let counts = status(&db).counts;
        let after = shares(&paced, (&db, &keyspace), &mut rng, 3000);
        println!("below, flash: {before:.2?} before, {after:.2?} after; {counts:?}");
        assert!(counts.carried > 2000 && counts.dropped > 2000, "{counts:?}");
        // No page of the new tables was read before, so all hits in SCM are of pages carried over by the
        // merge.
        assert!(after.0 > before.0 / 2.0, "{before:?}, {after:?}, {counts:?}");
        assert_eq!((counts.damaged, status(&db).failure), (0, None));
    }
}

/// I6, I8: no stale page is served, and repeated merges carry over only pages that are still requested.
#[test] // I6, I8
fn unread_pages_are_not_carried_over_repeatedly() {
    let paced = Paced::new(mapped(), Placement::DramFirst);
    let (db, keyspace, mut rng) = paced.warmed(60_000);
    let carried = [1, 2, 3].map(|version| {
        fill(&keyspace, version);
        db.compact().unwrap();
        status(&db).counts.carried
    });
    println!("{carried:?} pages: {:?}", status(&db).counts);
    let ScmStatistics { hits_data, hits_meta, misses, .. } = status(&db).counts;
    // Pages that were read are carried over, also several times without a read; but carried pages never
    // exceed a quarter of the lookups.
    assert!(carried[0] > 1000, "{carried:?}");
    assert!(carried[2] * 4 <= hits_data + hits_meta + misses, "{carried:?}");
    paced.get(&keyspace, &mut rng, 10_000, 3);
    assert_eq!(status(&db).counts.damaged, 0);
}

#[test]
fn a_restart_finds_the_tier_warm() {
    for place in [mapped(), read()] {
        let paced = Paced::new(place, Placement::DramFirst);
        let (db, keyspace, mut rng) = paced.warmed(50_000);
        let resident = status(&db).counts.resident;
        drop((db, keyspace));
        let (db, keyspace) = paced.open();
        let counts = status(&db).counts;
        assert!(counts.restored * 10 >= resident * 9, "{} of {resident}", counts.restored);
        paced.get(&keyspace, &mut rng, 5000, 0);
        let hits = db.statistics().hits;
        assert!(hits.scm > 2 * hits.flash, "{hits:?}");
        assert_eq!(status(&db).counts.damaged, 0);
    }
}

/// A store and its SCM tier in one directory, which outlive the process.
struct Outliving {
    machine: Machine,
    db: Db,
    keyspace: Keyspace,
}

impl Outliving {
    fn open(directory: &Path) -> Self {
        let (machine, place) = (Machine::new(), directory.join("tier"));
        std::fs::create_dir_all(&place).unwrap();
        let (store, place) = (directory.join("store"), place.to_str().unwrap());
        let (db, keyspace) = machine.open_in(&store, place, SIZE, Placement::DramFirst);
        Self { machine, db, keyspace }
    }

    /// The share of tier lookups, during `gets` gets, that found their page.
    fn found(&self, rng: &mut Rng, gets: u64) -> f64 {
        let counts = || {
            let ScmStatistics { hits_data, hits_meta, misses, .. } = status(&self.db).counts;
            [hits_data + hits_meta, misses]
        };
        let before = counts();
        self.machine.times(gets, || get_one(&self.keyspace, rng, 0));
        let [hits, misses] = [0, 1].map(|at| (counts()[at] - before[at]) as f64);
        hits / (hits + misses).max(1.0)
    }
}

/// Child: reads until it is killed, and reports its share of tier lookups that found their page.
#[test]
fn reads_until_killed() {
    let Some(directory) = child::directory() else { return };
    let opened = Outliving::open(&directory);
    let mut rng = Rng::new(1);
    fill(&opened.keyspace, 0);
    opened.db.compact().unwrap();
    loop {
        child::say(&opened.found(&mut rng, 5000).to_string());
    }
}

/// I6, I8: map entries that a kill loses cost few hits, and no answer is wrong.
#[test]
fn a_kill_leaves_the_tier_warm() {
    // In memory, which outlives the process.
    let (directory, place) = (read(), mapped());
    std::os::unix::fs::symlink(place.path(), directory.path().join("tier")).unwrap();
    let said = child::one_life(
        "tier::reads_until_killed",
        directory.path(),
        12,
        Duration::from_millis(20),
    );
    let before: f64 = said.last().unwrap().parse().unwrap();
    let opened = Outliving::open(directory.path());
    let after = opened.found(&mut Rng::new(2), 5000);
    let status = status(&opened.db);
    println!("{before:.3} before, {after:.3} after; {said:?} {:?}", status.counts);
    assert!(before > 0.3 && after >= 0.9 * before, "{before} {after} {status:?}");
    assert!(status.failure.is_none() && status.counts.restored > 1000, "{status:?}");
}

#[test] // I8
fn a_diverged_copy_is_not_served_pages_of_the_other_store() {
    let (store, place, copies) = (read(), mapped(), read());
    let copy = copies.path().join("copy");
    let policy = Placement::ScmFirst;
    let (mut rng, seed) = Rng::from_env();
    println!("TERRACE_SEED={seed}");
    let (db, keyspace) = open(store.path(), scm(place.path(), policy));
    fill(&keyspace, 0);
    db.flush().unwrap();
    db.checkpoint(&copy).unwrap();
    // Both stores diverge from here, and give their next tables the same numbers.
    fill(&keyspace, 1);
    db.compact().unwrap();
    get(&keyspace, &mut rng, 15_000, 1);
    drop((db, keyspace));
    let (db, keyspace) = open(&copy, scm(place.path(), policy));
    fill(&keyspace, 2);
    db.compact().unwrap();
    get(&keyspace, &mut rng, 15_000, 2);
    drop((db, keyspace));
    let (db, keyspace) = open(store.path(), scm(place.path(), policy));
    get(&keyspace, &mut rng, 15_000, 1);
    assert_eq!(status(&db).counts.damaged, 0);
}

/// Sets a flag when it is dropped, so that threads end whether a test passes or fails.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// I6, I8: a mapped file can be cut at any time, also in the middle of a read.
#[test] // I6, I8
fn a_tier_file_cut_under_its_readers_disables_the_tier_and_no_answer_is_wrong() {
    let (store, place) = (read(), mapped());
    let (db, keyspace) = open(store.path(), scm(place.path(), Placement::DramFirst));
    let mut rng = from_env();
    fill(&keyspace, 0);
    db.compact().unwrap();
    until("hits below", || {
        get(&keyspace, &mut rng, 5000, 0);
        (db.statistics().hits.scm > 5000).then_some(())
    });
    let in_order = |from: u64| keyspace.range(key(from)..).unwrap();
    let expect = |entry: Option<terracedb::Result<terracedb::Entry>>, number: u64| {
        let (found, held) = entry.unwrap().unwrap();
        assert_eq!((&*found, &*held), (&*key(number), &*value(number, 0)));
    };
    // In use while the file is cut: values, and positioned cursors.
    let numbers: Vec<u64> = (0..2000).map(|number| number * 19 % KEYS).collect();
    let held: Vec<_> = numbers.iter().map(|n| keyspace.get(key(*n)).unwrap().unwrap()).collect();
    let mut walks: Vec<_> = (0..KEYS).step_by(2000).map(|from| (from, in_order(from))).collect();
    for (next, walk) in &mut walks {
        for _ in 0..50 {
            expect(walk.next(), *next);
            *next += 1;
        }
    }
    assert!(status(&db).failure.is_none());
    let (is_over, turns) = (AtomicBool::new(false), [const { AtomicU64::new(0) }; 6]);
    thread::scope(|scope| {
        // Also if an assertion fails: the readers never end by themselves.
        let over = SetAtEnd(&is_over);
        for (thread, turns) in turns.iter().enumerate() {
            let (mut rng, keyspace, is_over) = (rng.clone(), &keyspace, &is_over);
            let (in_order, expect) = (&in_order, &expect);
            (0..thread).for_each(|_| _ = rng.next_u64());
            scope.spawn(move || {
                while !is_over.load(Relaxed) {
                    match thread {
                        0 => {
                            let first = rng.below(KEYS - 200);
                            let numbers = first..first + 200;
                            numbers
                                .zip(in_order(first))
                                .for_each(|(n, entry)| expect(Some(entry), n));
                        }
                        1 => {
                            let numbers: Vec<u64> = (0..64).map(|_| rng.below(KEYS)).collect();
                            let keys: Vec<_> = numbers.iter().map(|number| key(*number)).collect();
                            let found = keyspace.multi_get(&keys).unwrap();
                            for (number, found) in numbers.iter().zip(found) {
                                assert_eq!(found.unwrap().unwrap(), value(*number, 0));
                            }
                        }
                        _ => get(keyspace, &mut rng, 100, 0),
                    }
                    turns.fetch_add(1, Relaxed);
                }
            });
        }
        let reads_go_on = || {
            let before = turns.each_ref().map(|turns| turns.load(Relaxed));
            until("each reader's next turn but one", || {
                let mut both = turns.iter().zip(before);
                both.all(|(now, before)| now.load(Relaxed) > before + 1).then_some(())
            });
        };
        reads_go_on();
        let file = std::fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().path());
        let file = file.into_iter().find(|path| path.is_file()).unwrap();
        OpenOptions::new().write(true).open(file).unwrap().set_len(0).unwrap();
        until("a reader that meets the end", || status(&db).failure);
        reads_go_on();
        drop(over);
    });
    for (number, held) in numbers.iter().zip(held) {
        assert_eq!(held, value(*number, 0), "{number}");
    }
    for (next, walk) in &mut walks {
        for _ in 0..500 {
            expect(walk.next(), *next);
            *next += 1;
        }
    }
    let failure = status(&db).failure.unwrap().to_string();
    println!("{failure}");
    let hits = db.statistics().hits.scm;
    get(&keyspace, &mut rng.clone(), 2000, 0);
    assert_eq!(db.statistics().hits.scm, hits, "a tier that is off serves nothing");
    drop((walks, db, keyspace));
    // The next process finds a file without content, and begins with an empty tier.
    let (db, keyspace) = open(store.path(), scm(place.path(), Placement::DramFirst));
    assert_eq!((status(&db).counts.restored, status(&db).failure), (0, None));
    get(&keyspace, &mut rng.clone(), 2000, 0);
}

#[test] // I8
fn flipped_bytes_in_scm_cost_hits_and_no_answer_is_wrong() {
    for place in [mapped(), read()] {
        let paced = Paced::new(place, Placement::DramFirst);
        let (db, keyspace, mut rng) = paced.warmed(40_000);
        drop((db, keyspace));
        let file = paced.file();
        // Flips every other slot, but not the map in front of the slots.
        for page in (1000..SIZE / 4096).step_by(2) {
            let at = page * 4096 + rng.below(4096);
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 1 << rng.below(8)], at).unwrap();
        }
        let (db, keyspace) = paced.open();
        paced.get(&keyspace, &mut rng, 20_000, 0);
        let status = status(&db);
        assert!(status.counts.damaged > 1000 && status.failure.is_none(), "{status:?}");
    }
}

/// A page in mapped memory is verified only once while it is in its slot; the scrubber finds later changes.
#[test] // I6
fn the_scrubber_drops_changed_pages_in_scm() {
    for place in [mapped(), read()] {
        let paced = Paced::new(place, Placement::DramFirst);
        let (db, keyspace, mut rng) = paced.warmed(40_000);
        let clean = db.scrub().unwrap();
        assert!(clean.pages_below > 5000 && clean.damaged_below == 0, "{clean:?}");
        let file = paced.file();
        for page in 1000..SIZE / 4096 {
            let at = page * 4096 + rng.below(4096);
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 1 << rng.below(8)], at).unwrap();
        }
        let found = db.scrub().unwrap();
        assert!(found.damaged_below > 5000 && found.damages == 0, "{found:?}");
        let (counts, scrub) = (status(&db).counts, db.statistics().scrub);
        assert_eq!(counts.damaged, found.damaged_below);
        assert_eq!(counts.scrubbed, clean.pages_below + found.pages_below);
        assert_eq!(scrub.damaged_below, found.damaged_below);
        paced.get(&keyspace, &mut rng, 20_000, 0);
        let again = db.scrub().unwrap();
        assert_eq!(again.damaged_below, 0);
    }
}

#[test] // I6
fn a_store_opens_and_serves_without_its_tier() {
    let store = read();
    let missing = Scm::new("/no/such/device", SIZE).unwrap();
    let (db, keyspace) = open(store.path(), missing);
    keyspace.put("a", "b").unwrap();
    assert_eq!(keyspace.get("a").unwrap().unwrap(), "b");
    let failure = status(&db).failure.unwrap();
    assert!(failure.contains("/no/such"), "{failure}");
    drop((db, keyspace));
    // The tier is in use by another store of this process.
    let place = mapped();
    let second = read();
    let (other, first) = open(second.path(), scm(place.path(), Placement::DramFirst));
    first.put("c", "d").unwrap();
    let (db, keyspace) = open(store.path(), scm(place.path(), Placement::DramFirst));
    assert_eq!(keyspace.get("a").unwrap().unwrap(), "b");
    assert!(status(&db).failure.is_some() && status(&other).failure.is_none());
}

/// A wrong path in the settings disables the tier and does not overwrite the file.
#[test]
fn a_file_that_is_no_tier_is_not_overwritten() {
    let (store, place) = (read(), read());
    let file = place.path().join("letters.tar");
    let mut letters = vec![0; 1 << 20];
    Rng::new(5).fill(&mut letters);
    std::fs::write(&file, &letters).unwrap();
    let (db, keyspace) = open(store.path(), scm(&file, Placement::DramFirst));
    keyspace.put("a", "b").unwrap();
    let failure = status(&db).failure.unwrap();
    assert!(failure.contains("letters.tar") && failure.contains("would be lost"), "{failure}");
    drop((db, keyspace));
    assert!(std::fs::read(&file).unwrap() == letters);
    // A tier of another size or version is recognised as a tier; its contents are discarded.
    std::fs::write(&file, b"TERRASCM, of times to come").unwrap();
    let (db, keyspace) = open(store.path(), scm(&file, Placement::DramFirst));
    assert_eq!(keyspace.get("a").unwrap().unwrap(), "b");
    assert_eq!(status(&db).failure, None);
}

/// Records the events of failing tasks.
#[derive(Debug, Default)]
struct Failures(Mutex<Vec<String>>);

impl Listener for Failures {
    fn event(&self, event: &Event) {
        if let Event::TaskFailed { task: Task::Scm, error, .. } = event {
            self.0.lock().unwrap().push(error.clone());
        }
    }
}

#[test]
fn a_missing_tier_sends_an_event() {
    let (store, heard) = (read(), Arc::new(Failures::default()));
    let missing = Scm::new("/no/such/device", SIZE).unwrap();
    let builder = Db::builder(store.path()).memory(MEMORY).scm(missing);
    let db = builder.listener(Arc::clone(&heard) as _).open().unwrap();
    let events = until("a failing tier", || {
        let events = heard.0.lock().unwrap().clone();
        (!events.is_empty()).then_some(events)
    });
    assert!(events.len() == 1 && events[0].contains("/no/such"), "{events:?}");
    drop(db);
}

#[test]
fn many_threads_read_while_pages_move() {
    let (store, place) = (read(), mapped());
    let (db, keyspace) = open(store.path(), scm(place.path(), Placement::ScmFirst));
    fill(&keyspace, 0);
    let mut rng = from_env();
    // The rate at which pages move depends on the machine: reads go on until enough moved.
    until("pages that move and are read", || {
        thread::scope(|scope| {
            for _ in 0..4 {
                let (keyspace, mut rng) = (&keyspace, Rng::new(rng.next_u64()));
                scope.spawn(move || get(keyspace, &mut rng, 20_000, 0));
            }
            scope.spawn(|| db.compact().unwrap());
        });
        let status = status(&db);
        assert_eq!((status.failure, status.counts.damaged), (None, 0));
        (status.counts.promoted > 0 && db.statistics().hits.scm > 1000).then_some(())
    });
}
