use std::sync::atomic::AtomicBool;

use arena::{Frame, Page};
use base::limits::PAGE_BYTES;
use base::{Account, Clock, ManualClock, Rng};
use media::scm::{Blocks, Facts, Persistence, Region, Scm};
use media::{Access, Fault, Faulty, Medium, MemoryMedium, Metered, OpKind, Rule};

use super::admission_contest::AdmissionContest;
use super::reference::FoundIn;
use super::*;
use crate::{PageCache, PageKey, PageKind};

use std::sync::Arc;
use std::time::{Duration, Instant};

pub(super) const MIB: u64 = 1 << 20;

pub(super) fn key(page: u64) -> PageKey {
    PageKey { file: 0x9d8a_7b11 + (page >> 10), page: page as u32 & 0x3ff }
}

pub(super) fn content(key: PageKey) -> Page {
    let mut page = [0; PAGE_BYTES];
    Rng::new(key.file << 24 ^ u64::from(key.page)).fill(&mut page[..64]);
    page
}

pub(super) fn account() -> Account {
    Account::unlimited("test")
}

pub(super) fn memory(bytes: u64) -> Scm {
    Scm::Mapped(Region::anonymous(bytes).unwrap())
}

pub(super) fn blocks(medium: &Arc<dyn Medium>, bytes: u64) -> Scm {
    let file = medium
        .open("tier", Access::Direct)
        .or_else(|_| medium.create("tier", Access::Direct, bytes))
        .unwrap();
    if file.size().unwrap() < bytes {
        file.set_len(bytes).unwrap();
    }
    let facts = Facts {
        backend: "test",
        byte_addressable: false,
        persistence: Persistence::Power,
        write_unit: PAGE_BYTES,
        read_latency: Duration::from_micros(10),
        numa_node: None,
        emulated: None,
    };
    let medium = Arc::clone(medium);
    Scm::Blocks(Blocks::new(file, bytes, facts, move |depth| medium.queue(depth)))
}

pub(super) fn options(placement: Placement) -> ScmOptions {
    ScmOptions { placement, id: 5, ..ScmOptions::default() }
}

pub(super) fn tier(scm: Scm, options: ScmOptions) -> Arc<ScmTier> {
    timed(scm, options, &still())
}

/// A tier that measures time by `clock`.
pub(super) fn timed(scm: Scm, options: ScmOptions, clock: &Arc<dyn Clock>) -> Arc<ScmTier> {
    Arc::new(ScmTier::open(scm, options, &account(), clock).unwrap())
}

/// A clock that stands still.
fn still() -> Arc<dyn Clock> {
    Arc::new(ManualClock::default())
}

pub(super) fn upper_tier(tier: &Arc<ScmTier>, bytes: u64) -> PageCache {
    let cache = PageCache::new(&account(), bytes).unwrap();
    cache.set_lower_tier(tier);
    cache
}

/// Looks the page up and uses it, as the engine does; returns the place where it was.
pub(super) fn look(cache: &PageCache, key: PageKey, kind: PageKind) -> FoundIn {
    let check = |page: &[u8]| page[..64] == content(key)[..64];
    if let Some(frame) = cache.get(key, kind) {
        assert!(check(&frame), "{key:?}");
        return FoundIn::Dram;
    }
    let tier = cache.lower_tier().unwrap();
    match tier.find(key, kind) {
        None => {}
        Some(ScmHit::InPlace(page)) => {
            if check(&*page.page) {
                if !page.is_verified {
                    tier.verified(&page);
                }
                return FoundIn::Scm;
            }
            assert!(!page.is_verified, "{key:?}");
            tier.damaged(page.slot);
        }
        Some(ScmHit::Read(read)) => {
            let (buf, done) =
                read.file().read(read.at(), media::Buf::pages(1), media::Purpose::Data);
            match done {
                Err(error) => tier.fail(error),
                Ok(()) if !check(&buf) => tier.damaged(read.slot),
                Ok(()) => {
                    if read.should_promote
                        && cache.insert_warm(key, kind, buf.first_chunk().unwrap()).is_some()
                    {
                        tier.promoted(read.slot);
                    }
                    return FoundIn::Scm;
                }
            }
        }
    }
    FoundIn::Nowhere
}

/// Inserts the page, as after a read from flash.
pub(super) fn fill(cache: &PageCache, key: PageKey, kind: PageKind) {
    let _: Frame = cache.insert(key, kind, &content(key));
}

/// Reads as the engine does: looks the page up, and reads it from flash after a miss.
fn read(cache: &PageCache, key: PageKey, kind: PageKind) -> FoundIn {
    let found = look(cache, key, kind);
    if found == FoundIn::Nowhere {
        fill(cache, key, kind);
    }
    found
}

/// A skewed random choice of `pages` pages.
pub(super) fn skewed(rng: &mut Rng, pages: u64) -> u64 {
    let scale = rng.below(pages) + 1;
    let rank = rng.below(scale);
    rank.wrapping_mul(0x9e37_79b9_7f4a_7c15) % pages
}

#[test]
fn admission_refuses_most_writes_and_leaves_no_slot_empty() {
    let mut rng = Rng::new(3);
    let tier = tier(memory(8 * MIB), options(Placement::DramFirst));
    let cache = upper_tier(&tier, 2 * MIB + 200_000);
    for _ in 0..400_000 {
        read(&cache, key(skewed(&mut rng, 20_000)), PageKind::Data);
        tier.step(&cache);
    }
    let counts = tier.statistics();
    assert!(counts.refused.cold > counts.demoted, "{counts:?}");
    assert_eq!(counts.resident, counts.slots);
    assert_eq!(counts.late, 0, "a frame was free for each that went down");
    assert_every_offer_has_one_fate(&tier);
    let all = counts.hits_data + counts.misses;
    assert!((counts.bytes_written / 4096) * 10 < all * 3, "{counts:?}");
    assert!(counts.bytes_written_map * 8 < counts.bytes_written, "{counts:?}");
}

#[test]
fn every_placement_serves_hits_from_a_device() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
    for (name, placement) in Placement::NAMES {
        let tier = tier(blocks(&medium, 8 * MIB), options(placement));
        let (cache, mut rng) = (upper_tier(&tier, 2 * MIB), Rng::new(11));
        let mut found = [0; 3];
        for _ in 0..60_000 {
            let page = skewed(&mut rng, 6000);
            found[read(&cache, key(page), PageKind::Data) as usize] += 1;
            tier.step(&cache);
        }
        assert!(found[1] > 5000, "{name}: {found:?}");
        assert_eq!(tier.statistics().damaged, 0);
        medium.remove("tier").unwrap();
    }
}

/// Fills a tier, closes it or leaves it as a crash does, and opens it again. Returns the share of its pages
/// that the second tier finds.
fn restarted(is_clean: bool) -> f64 {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
    let first = tier(blocks(&medium, 8 * MIB), options(Placement::DramFirst));
    let cache = upper_tier(&first, 2 * MIB);
    for page in 0..1800 {
        read(&cache, key(page), PageKind::Data);
        first.step(&cache);
    }
    let resident = |tier: &ScmTier| -> Vec<u64> {
        (0..1800).filter(|page| tier.map.find(key(*page).hash()).is_some()).collect()
    };
    let before = resident(&first);
    if is_clean {
        drop(cache);
        drop(first);
    } else {
        // A crash loses the map pages that closing would write.
        first.fail(base::Error::invalid("crash"));
    }
    let second =
        tier(blocks(&medium, 8 * MIB), ScmOptions { id: 6, ..options(Placement::DramFirst) });
    let cache = upper_tier(&second, 2 * MIB);
    let found =
        before.iter().filter(|page| read(&cache, key(**page), PageKind::Data) == FoundIn::Scm);
    let part = found.count() as f64 / before.len() as f64;
    let counts = second.statistics();
    assert!(before.len() > 1000 && counts.restored as usize <= before.len(), "{counts:?}");
    part
}

#[test]
fn a_restart_finds_all_pages_after_a_clean_stop_and_most_after_a_crash() {
    assert!(restarted(true) > 0.999);
    assert!(restarted(false) > 0.9, "{}", restarted(false));
}

#[test] // I6
fn foreign_content_is_formatted_and_damaged_pages_are_dropped() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
    let file = medium.create("tier", Access::Direct, 8 * MIB).unwrap();
    let noise = |at: u64, seed| {
        let mut buf = media::Buf::pages(16);
        Rng::new(seed).fill(&mut buf);
        file.write(at, buf, media::Purpose::Data).1.unwrap();
    };
    (0..128).for_each(|at| noise(at * 16 * 4096, at));
    let first = tier(blocks(&medium, 8 * MIB), options(Placement::ScmFirst));
    assert_eq!(first.statistics().restored, 0);
    let cache = upper_tier(&first, 2 * MIB);
    for page in 0..1500 {
        read(&cache, key(page), PageKind::Data);
        first.step(&cache);
    }
    // Overwrite slots in the middle of the device.
    (40..80).for_each(|at| noise(at * 16 * 4096, at));
    let found = (0..1500).filter(|page| read(&cache, key(*page), PageKind::Data) == FoundIn::Scm);
    let found = found.count();
    let damaged = first.statistics().damaged;
    assert!(damaged > 300 && found > 500, "{damaged} damaged, {found} found");
    assert!(first.failure().is_none());
    // A tier of another size counts as foreign.
    drop((cache, first));
    let shorter = tier(blocks(&medium, 4 * MIB), options(Placement::ScmFirst));
    assert_eq!(shorter.statistics().restored, 0);
}

#[test]
fn a_failed_device_turns_the_tier_off() {
    let faulty = Arc::new(Faulty::new(1));
    let medium: Arc<dyn Medium> = Arc::clone(&faulty) as _;
    let tier = tier(blocks(&medium, 8 * MIB), options(Placement::DramFirst));
    let cache = upper_tier(&tier, 2 * MIB);
    let run = |from: u64, to: u64| {
        (from..to).for_each(|page| {
            read(&cache, key(page), PageKind::Data);
            tier.step(&cache);
        });
    };
    run(0, 1000);
    assert!(tier.failure().is_none() && tier.statistics().demoted > 0);
    faulty.inject(Rule::new(OpKind::Write, Fault::Io)).unwrap();
    run(1000, 2000);
    let written = tier.statistics().bytes_written;
    assert!(tier.failure().is_some());
    run(0, 2000);
    assert_eq!(tier.statistics().bytes_written, written);
    assert!(tier.find(key(1), PageKind::Data).is_none());
}

/// An offered page is admitted, refused, kept or late, or waits: never two of them.
fn assert_every_offer_has_one_fate(tier: &ScmTier) {
    let counts = tier.statistics();
    assert_eq!(counts.decided() + tier.staged() as u64, counts.offered, "{counts:?}");
    assert!(counts.demoted + counts.carried <= counts.admitted, "{counts:?}");
}

#[test]
fn writes_of_any_minute_stay_within_the_budget() {
    let rate = 200_000;
    let limited = ScmOptions { write_budget: Some(rate), ..options(Placement::DramFirst) };
    let clock = Arc::new(ManualClock::default());
    let tier = timed(memory(32 * MIB), limited, &(Arc::clone(&clock) as _));
    let (cache, mut rng) = (upper_tier(&tier, 2 * MIB), Rng::new(5));
    let mut written = vec![0; 300];
    for written in &mut written {
        for _ in 0..600 {
            read(&cache, key(skewed(&mut rng, 40_000)), PageKind::Data);
            tier.step(&cache);
        }
        clock.advance(Duration::from_secs(1));
        assert_every_offer_has_one_fate(&tier);
        *written = tier.statistics().bytes_written;
    }
    for window in written.windows(61) {
        assert!(window[60] - window[0] <= rate * 60, "{window:?}");
    }
    assert!(tier.statistics().refused.budget > 0);
    assert!(written[299] > rate * 300 / 3, "{}", written[299]);
}

#[test]
fn writes_of_any_minute_stay_within_the_budget_across_restarts() {
    let (rate, clock) = (200_000, Arc::new(ManualClock::default()));
    let limited = ScmOptions { write_budget: Some(rate), ..options(Placement::DramFirst) };
    let metered = Arc::new(Metered::new(Arc::new(MemoryMedium::new()), still()));
    let medium: Arc<dyn Medium> = Arc::clone(&metered) as _;
    // Bytes that the device saw, from its own counter.
    let all = || metered.snapshot().total().write_bytes;
    let (mut rng, mut written) = (Rng::new(5), vec![]);
    // Lifetimes of the processes, seconds.
    for lives in [150, 5, 20, 20, 70, 1, 1, 1, 100] {
        let tier = timed(blocks(&medium, 32 * MIB), limited, &(Arc::clone(&clock) as _));
        let cache = upper_tier(&tier, 2 * MIB);
        for _ in 0..lives {
            for _ in 0..600 {
                read(&cache, key(skewed(&mut rng, 40_000)), PageKind::Data);
                tier.step(&cache);
            }
            clock.advance(Duration::from_secs(1));
            written.push(all());
        }
        // Closing writes map pages, too.
        drop((cache, tier));
        *written.last_mut().unwrap() = all();
    }
    for window in written.windows(61) {
        assert!(window[60] - window[0] <= rate * 60, "{window:?}");
    }
    assert!(all() > rate * 100, "{}", all());
}

#[test]
fn pages_of_a_removed_file_are_purged() {
    let tier = tier(memory(8 * MIB), options(Placement::ScmFirst));
    let cache = upper_tier(&tier, 2 * MIB);
    for page in 0..1500 {
        read(&cache, key(page), PageKind::Data);
        while tier.step(&cache) {}
    }
    cache.remove_file(key(0).file, 1024);
    while tier.step(&cache) {}
    let resident = |from: u64, to: u64| {
        (from..to).filter(|page| tier.map.find(key(*page).hash()).is_some()).count()
    };
    assert_eq!(resident(0, 1024), 0);
    assert!(resident(1024, 1500) > 400);
    assert_eq!(tier.statistics().resident, resident(0, 1500) as u64);
}

/// A page that waits to be demoted is not written if its file is obsolete, whether DRAM evicted the page
/// before or after the file became obsolete.
#[test]
fn pages_of_obsolete_files_are_not_written() {
    let tier = tier(memory(8 * MIB), options(Placement::ScmFirst));
    let cache = upper_tier(&tier, 2 * MIB);
    let [first, second] = [key(0), key(1024)];
    let files = [first, first, second].map(|key| cache.keep_file(key.file));
    let resident_after_steps = |from: u64| {
        while tier.step(&cache) {}
        (from..from + 20).filter(|page| tier.map.find(key(*page).hash()).is_some()).count()
    };
    let read =
        |from: u64| (from..from + 20).for_each(|page| fill(&cache, key(page), PageKind::Data));
    let [one, other, last] = files;
    read(0);
    // A copy of the store has the same file.
    drop(one);
    assert_eq!(resident_after_steps(0), 20);
    // Evicted before the file became obsolete, written after.
    read(100);
    drop(other);
    cache.remove_file(first.file, 1024);
    assert_eq!((resident_after_steps(0), resident_after_steps(100)), (0, 0));
    assert_eq!(tier.statistics().refused.dead, 20);
    // Evicted long after: a reader held them until now.
    read(200);
    read(1024);
    assert_eq!((resident_after_steps(200), resident_after_steps(1024)), (0, 20));
    let counts = tier.statistics();
    assert_eq!((counts.refused.dead, counts.resident), (40, 20), "{counts:?}");
    assert_every_offer_has_one_fate(&tier);
    drop(last);
}

/// The prior costs count until the tier has measured its own, and bound the writes in flight.
#[test]
fn measured_costs_replace_the_prior_ones() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
    let prior = Prior { read_nanos: 70_000, write_nanos: 90_000, writes: 3 };
    let depths: Arc<parking_lot::Mutex<Vec<usize>>> = Arc::default();
    let Scm::Blocks(inner) = blocks(&medium, 8 * MIB) else { panic!("memory") };
    let (file, seen) = (Arc::clone(inner.file()), Arc::clone(&depths));
    let scm = Blocks::new(file, inner.len(), inner.facts().clone(), move |depth| {
        seen.lock().push(depth);
        medium.queue(depth)
    });
    let tier =
        tier(Scm::Blocks(scm), ScmOptions { prior: Some(prior), ..options(Placement::DramFirst) });
    assert_eq!((tier.prior(), &*depths.lock()), (prior, &vec![3]));
    let begins = tier.statistics();
    assert_eq!((begins.hit_nanos, begins.write_nanos), (70_000 + DRAM_HIT_NANOS, 90_000));
    (0..200).for_each(|_| tier.read_took(Duration::from_micros(9)));
    assert!((9_400..9_600).contains(&tier.statistics().hit_nanos), "{:?}", tier.statistics());
    // More pages than may be in flight at once are written all the same.
    let cache = upper_tier(&tier, 2 * MIB);
    for page in 0..600 {
        fill(&cache, key(page), PageKind::Data);
        if page % 20 == 19 {
            tier.step(&cache);
        }
    }
    let resident = tier.statistics().resident;
    assert!(resident > 50, "{resident}");
    assert!((0..600).all(|page| look(&cache, key(page), PageKind::Data) != FoundIn::Nowhere));
}

/// If files become obsolete faster than the tier purges them, those beyond the queue are counted, and the
/// others are purged.
#[test]
fn files_beyond_the_purge_queue_are_counted_as_unpurged() {
    let tier = tier(memory(8 * MIB), options(Placement::ScmFirst));
    let cache = upper_tier(&tier, 2 * MIB);
    for page in 0..1024 {
        read(&cache, key(page), PageKind::Data);
        while tier.step(&cache) {}
    }
    // Other files fill the queue but for one entry. Two adjacent ranges of the file share that entry.
    (0..1023).for_each(|file| tier.remove_file(file, 10));
    tier.remove_pages(key(0).file, 0..100);
    tier.remove_pages(key(0).file, 100..1024);
    assert_eq!(tier.statistics().unpurged, 0);
    (2000..2007).for_each(|file| tier.remove_file(file, 10));
    assert_eq!(tier.statistics().unpurged, 7);
    while tier.step(&cache) {}
    assert_eq!((tier.statistics().resident, tier.statistics().unpurged), (0, 7));
}

#[test] // I6
fn concurrent_readers_get_only_their_own_pages() {
    let tier = tier(memory(MIB), options(Placement::DramFirst));
    let cache = upper_tier(&tier, 2 * MIB);
    let ((_, seed), done) = (Rng::from_env(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..3)
            .map(|thread| {
                let (cache, mut rng) = (&cache, Rng::new(seed + thread));
                scope.spawn(move || {
                    let mut hits = 0;
                    // On a busy machine who writes may come late; only one that never does takes minutes.
                    let began = Instant::now();
                    let waits = |hits| hits == 0 && began.elapsed() < Duration::from_secs(300);
                    for turn in 0.. {
                        if turn >= 60_000 && !waits(hits) {
                            break;
                        }
                        let page = skewed(&mut rng, 3000);
                        hits += u32::from(read(cache, key(page), PageKind::Data) == FoundIn::Scm);
                    }
                    hits
                })
            })
            .collect();
        let (tier, cache, done) = (&tier, &cache, &done);
        scope.spawn(move || {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                if !tier.step(cache) {
                    std::thread::yield_now();
                }
            }
        });
        let hits: Vec<_> = readers.into_iter().map(|reader| reader.join().unwrap()).collect();
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(hits.iter().all(|hits| *hits > 0), "seed {seed}: {hits:?}");
    });
    let counts = tier.statistics();
    assert_eq!(counts.damaged, 0, "seed {seed}: {counts:?}");
    let resident =
        (0..3000).filter(|page| tier.map.find(key(*page).hash()).is_some()).count() as u64;
    assert_eq!(counts.resident, resident, "seed {seed}");
}

#[test] // I10
fn dram_per_slot_is_charged_and_at_most_twelve_bytes() {
    let taken = account();
    let tier = ScmTier::open(memory(64 * MIB), options(Placement::default()), &taken, &still());
    let tier = tier.unwrap();
    let slots = tier.statistics().slots;
    let beside_ghosts = taken.used()
        - ScmTier::ghost_bytes(tier.facts(), slots as usize)
        - AdmissionContest::bytes_of(tier.layout.sets);
    assert!(beside_ghosts <= 12 * slots, "{} a slot", beside_ghosts as f64 / slots as f64);
}
