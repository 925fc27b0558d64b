use super::*;

#[cfg(not(feature = "shuttle"))]
mod on_threads {
    use std::collections::HashMap;
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering::SeqCst;

    use base::{Budget, Rng};

    use super::*;
    use crate::{Frame, FrameName, FramePool};

    fn place(number: u64) -> FrameId {
        FrameId::new(number as u32).unwrap()
    }

    fn lookup(index: &FrameIndex, part: usize, hash: u64, wanted: FrameId) -> bool {
        index.find(part, hash, |place| (place == wanted).then_some(())).is_some()
    }

    /// Entries in crowded buckets are found from their insertion to their removal, also after they are
    /// replaced.
    #[test]
    fn entries_are_found_until_they_are_removed() {
        let (mut rng, seed) = Rng::from_env();
        let (entries, turns) = if cfg!(miri) { (12, 120) } else { (200, 20_000) };
        for crowd in [1, 4, 64] {
            let index =
                FrameIndex::new(&Account::unlimited("index"), 2, entries, 8 * entries).unwrap();
            let mut there: HashMap<(usize, u64), FrameId> = HashMap::new();
            for turn in 1..turns {
                // Few home buckets, so that entries pass full ones.
                let key = rng.below(3 * entries as u64);
                let (part, hash) = ((key % 2) as usize, (key << 32) | (key % crowd) << 25);
                match there.get(&(part, hash)).copied() {
                    None if there.len() < 2 * entries => {
                        assert!(index.insert(part, hash, place(turn)), "seed {seed}");
                        there.insert((part, hash), place(turn));
                    }
                    None => {}
                    Some(old) if rng.one_in(3) => {
                        assert!(index.replace(part, hash, old, place(turn)), "seed {seed}");
                        there.insert((part, hash), place(turn));
                    }
                    Some(old) => {
                        assert!(index.remove(part, hash, old), "seed {seed}");
                        there.remove(&(part, hash));
                        assert!(!index.remove(part, hash, old), "seed {seed}");
                        assert!(!lookup(&index, part, hash, old), "seed {seed}");
                    }
                }
            }
            for ((part, hash), place) in &there {
                assert!(lookup(&index, *part, *hash, *place), "seed {seed}");
                assert!(index.remove(*part, *hash, *place), "seed {seed}");
            }
            // No entry is left, and all passed counts are 0 again.
            let words = index.words.get(0, index.words.len());
            assert!(words.iter().all(|word| word.load(Relaxed) == 0), "seed {seed}");
        }
    }

    #[test]
    fn a_full_part_refuses_inserts_and_grows_if_there_is_memory() {
        // Small under Miri, for which a reference to one word is one to all.
        let (few, more, most, bytes) =
            if cfg!(miri) { (10, 50, 300, 2 << 10) } else { (50, 500, 10_000, 20 << 10) };
        let budget = Budget::new(bytes);
        let index = FrameIndex::new(&budget.account("index"), 1, few, most).unwrap();
        let before = budget.used();
        let fits = (1..).take_while(|number| index.insert(0, number << 32, place(*number))).count();
        assert!(fits >= few && fits as u64 == before / 64 * 7, "{fits}");
        assert!(!index.grow(few), "the part has room for as many already");
        assert!(!index.grow(most), "the budget has no room");
        assert!(index.grow(more) && budget.used() > before);
        assert!(!lookup(&index, 0, 1 << 32, place(1)), "a grown index is empty");
        assert!((1..=more as u64).all(|number| index.insert(0, number << 32, place(number))));
        drop(index);
        assert_eq!(budget.used(), 0);
    }

    /// Readers find frames by name while one thread replaces pages and attaches and detaches blocks: a reader
    /// that finds a frame reads the page of that name as long as it holds the frame.
    #[test] // I6
    fn a_found_frame_holds_the_requested_page() {
        const PAGES: u32 = 40;
        let pages = if cfg!(miri) { 6 } else { PAGES };
        let (mut rng, seed) = Rng::from_env();
        println!("TERRACE_SEED={seed}");
        let account = Account::unlimited("test");
        let pool = FramePool::new(&account, 16, 0).unwrap();
        let index = FrameIndex::new(&account, 1, 16, 16).unwrap();
        let hash = |page: u32| u64::from(page) << 31;
        let name = |page| FrameName { file: 7, page };
        let find = |page| index.find(0, hash(page), |place| pool.find(place, name(page)));
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let mut readers = Vec::new();
            for _ in 0..2 {
                let mut rng = Rng::new(rng.next_u64());
                let (find, done) = (&find, &done);
                readers.push(scope.spawn(move || {
                    let mut found = 0;
                    while !done.load(SeqCst) {
                        let page = rng.below(u64::from(pages)) as u32;
                        let Some(frame) = find(page) else { continue };
                        found += 1;
                        assert!(frame.iter().step_by(500).all(|byte| *byte == page as u8));
                        assert!(frame.block().is_none_or(|block| block[..] == [page as u8; 9]));
                    }
                    found
                }));
            }
            let mut held: Vec<(u32, Frame)> = Vec::new();
            for _ in 0..if cfg!(miri) { 200 } else { 60_000 } {
                let page = rng.below(u64::from(pages)) as u32;
                if let Some((_, frame)) = held.iter().find(|(other, _)| *other == page) {
                    frame.attach(vec![page as u8; 9].into());
                    continue;
                }
                let old = (held.len() > 8).then(|| held.remove(0)).and_then(|(old, frame)| {
                    assert!(index.remove(0, hash(old), frame.id().unwrap()));
                    frame.try_thaw().ok()
                });
                let Some(mut frame) = old.or_else(|| pool.alloc()) else { continue };
                drop(frame.take_block());
                frame.fill(page as u8);
                frame.set_name(name(page));
                let frame = frame.freeze();
                assert!(index.insert(0, hash(page), frame.id().unwrap()));
                held.push((page, frame));
            }
            done.store(true, SeqCst);
            let found: u32 = readers.into_iter().map(|reader| reader.join().unwrap()).sum();
            println!("{found} found");
        });
    }
}

/// Interleavings of hits with a thread that evicts pages and reuses their frames: a reader that finds a frame
/// holds the requested page, and the page does not change; no frame is lost.
#[cfg(feature = "shuttle")]
#[test] // I6
fn shuttle_hits_against_eviction_and_replacement() {
    use std::sync::Arc;

    use crate::{FrameName, FramePool};

    const PAGES: u32 = 3;

    fn name(page: u32) -> FrameName {
        FrameName { file: 1, page }
    }

    crate::sync::explore(2000, || {
        let account = Account::unlimited("test");
        let pool = FramePool::new(&account, 2, 0).unwrap();
        let index = Arc::new(FrameIndex::new(&account, 1, 2, 2).unwrap());
        let reader = |from: u32| {
            let (pool, index) = (pool.clone(), Arc::clone(&index));
            shuttle::thread::spawn(move || {
                for turn in from..from + 4 {
                    let page = turn % PAGES;
                    // All pages have the same hash: only their names differ.
                    let found = index.find(0, 9, |place| pool.find(place, name(page)));
                    if let Some(frame) = found {
                        assert_eq!((frame[0], frame[4095]), (page as u8, page as u8));
                        shuttle::thread::yield_now();
                        assert_eq!((frame[0], frame[4095]), (page as u8, page as u8));
                        assert_eq!(frame.name(), Some(name(page)));
                        assert!(frame.block().is_none_or(|block| block[0] == page as u8));
                    }
                }
            })
        };
        let readers = [reader(0), reader(1)];
        let mut kept: Option<crate::Frame> = None;
        for turn in 0..5 {
            let page = turn % PAGES;
            let evicted = kept.take().and_then(|frame| {
                assert!(index.remove(0, 9, frame.id().unwrap()));
                // If a reader has the frame, it becomes free when the reader drops it.
                frame.try_thaw().ok()
            });
            let Some(mut frame) = evicted.or_else(|| pool.alloc()) else { continue };
            drop(frame.take_block());
            frame[0] = page as u8;
            frame[4095] = page as u8;
            frame.set_name(name(page));
            let frame = frame.freeze();
            assert!(index.insert(0, 9, frame.id().unwrap()));
            frame.attach(vec![page as u8].into());
            kept = Some(frame);
        }
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        drop(kept);
        let all: Vec<_> = std::iter::from_fn(|| pool.alloc()).collect();
        assert_eq!(all.len(), 2);
    });
}
