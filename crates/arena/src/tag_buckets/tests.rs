use super::*;

fn place(number: u64) -> Position {
    Position::new(number as u32).unwrap()
}

fn index(entries: usize) -> TagBuckets {
    TagBuckets::new(&Account::unlimited("test"), entries).unwrap()
}

#[cfg(not(feature = "shuttle"))]
mod on_threads {
    use std::sync::atomic::AtomicBool;

    use base::{Budget, ErrorKind, Rng};

    use super::slot::HEAT_MAX;
    use super::*;

    /// Whether the entry at `at` is found.
    fn is_found(index: &TagBuckets, hash: u64, at: Position) -> bool {
        index.find(hash, |place| (place == at).then_some(())).is_some()
    }

    #[test]
    fn entries_are_found_moved_replaced_and_invalidated() {
        let index = index(1000);
        let hash = 0x1234_5678_9abc_def0;
        let bucket = index.bucket(hash).unwrap();
        assert!(index.insert(hash, bucket, place(5), 0));
        assert!(!index.insert(hash, bucket, place(6), 0), "the bucket changed since it was taken");
        assert!(is_found(&index, hash, place(5)) && !is_found(&index, hash, place(6)));
        let heat = |at: u64| index.entry(hash, place(at)).map(|entry| entry.heat);
        assert_eq!(heat(5), Some(1));
        (0..9).for_each(|_| assert!(is_found(&index, hash, place(5))));
        assert_eq!(heat(5), Some(HEAT_MAX));
        assert!(index.replace(hash, place(5), place(7), 1));
        assert_eq!(index.remove(hash, place(5)), Removed::Nothing);
        assert_eq!((heat(7), index.len()), (Some(1), 1));
        // A newer entry of the key replaces the older one.
        let bucket = index.bucket(hash).unwrap();
        assert!(index.insert(hash, bucket, place(8), 0));
        assert_eq!((heat(7), index.len()), (None, 1));
        assert_eq!(index.invalidate(hash), 1);
        assert!(index.is_empty() && !is_found(&index, hash, place(8)));
    }

    #[test]
    fn an_insert_from_before_an_invalidation_is_refused() {
        let index = index(1000);
        let bucket = index.bucket(42).unwrap();
        assert_eq!(index.invalidate(42), 0);
        assert!(!index.insert(42, bucket, place(1), 0));
        // An invalidation in another bucket does not matter.
        let bucket = index.bucket(42).unwrap();
        index.invalidate(43);
        assert!(index.insert(42, bucket, place(1), 0));
    }

    #[test]
    fn the_bucket_of_a_removed_entry_shows_a_later_invalidation() {
        let index = index(1000);
        let removed = |hash: u64, at: u64| {
            assert!(index.insert(hash, index.bucket(hash).unwrap(), place(at), 0));
            match index.remove(hash, place(at)) {
                Removed::Entry(bucket) => bucket,
                other => panic!("{other:?}"),
            }
        };
        let bucket = removed(42, 1);
        assert!(index.is_unchanged(42, bucket) && index.is_empty());
        index.invalidate(42);
        assert!(
            !index.is_unchanged(42, bucket),
            "an invalidation without an entry changes the version"
        );
        let bucket = removed(42, 2);
        index.invalidate(43);
        assert!(index.is_unchanged(42, bucket));
    }

    #[test]
    fn a_stale_entry_is_renewed_with_its_heat() {
        let index = index(1000);
        let (hash, other) = (7 << LEVEL_MIN, 8 << LEVEL_MIN);
        assert!(index.insert(hash, index.bucket(hash).unwrap(), place(5), 0));
        assert!(is_found(&index, hash, place(5)) && is_found(&index, hash, place(5)));
        assert!(index.awaited(hash).is_none());
        assert_eq!((index.invalidate(hash), index.invalidate(hash)), (1, 0));
        assert_eq!((index.len(), index.stale_len()), (0, 1));
        assert_eq!(index.entry(hash, place(5)), Some(TagEntry { heat: 2, is_stale: true }));
        assert!(index.awaited(other).is_none(), "another key of the bucket");
        // A stale entry stays stale when it moves.
        assert!(index.replace(hash, place(5), place(6), 1));
        assert!(!is_found(&index, hash, place(6)));
        // Invalidated once more: a renewal from before is refused.
        let (bucket, _) = index.awaited(hash).unwrap();
        index.invalidate(hash);
        assert!(!index.renew(hash, bucket, place(9)));
        let (bucket, _) = index.awaited(hash).unwrap();
        assert!(!index.renew(other, bucket, place(9)), "no stale entry has that tag");
        let (bucket, _) = index.awaited(hash).unwrap();
        assert!(index.renew(hash, bucket, place(9)) && index.awaited(hash).is_none());
        assert_eq!(index.entry(hash, place(9)), Some(TagEntry { heat: 1, is_stale: false }));
        assert!(is_found(&index, hash, place(9)));
        assert_eq!((index.len(), index.stale_len()), (1, 0));
        // An insert also replaces a stale entry; a stale entry can be removed.
        index.invalidate(hash);
        assert!(index.insert(hash, index.bucket(hash).unwrap(), place(3), 0));
        assert_eq!((index.len(), index.stale_len()), (1, 0));
        index.invalidate(hash);
        assert_eq!(index.remove(hash, place(3)), Removed::Stale);
        assert_eq!((index.len(), index.stale_len()), (0, 0));
    }

    #[test]
    fn a_missed_key_is_noted_renewed_and_removed() {
        let index = index(1000);
        let hash = 7 << LEVEL_MIN;
        let bucket = index.bucket(hash).unwrap();
        assert!(index.note_miss(hash) && !index.note_miss(hash) && !index.note_miss(hash));
        assert_eq!(index.awaited(hash).unwrap().1, Awaited::Expected(2));
        assert!(index.find(hash, Some).is_none() && index.is_empty());
        // A note does not refuse an insert from before it.
        assert!(index.insert(hash, bucket, place(5), 0));
        assert!(index.awaited(hash).is_none() && !index.note_miss(hash));
        index.invalidate(hash);
        assert!(!index.note_miss(hash));
        assert_eq!(index.awaited(hash).unwrap().1, Awaited::Version);
        index.remove_stale(hash);
        assert!(index.awaited(hash).is_none() && index.stale_len() == 0);
        index.remove_stale(hash);
        assert!(index.note_miss(hash));
        let (bucket, awaited) = index.awaited(hash).unwrap();
        assert_eq!(awaited, Awaited::Expected(0));
        assert!(index.renew(hash, bucket, place(6)) && is_found(&index, hash, place(6)));
        assert_eq!((index.len(), index.stale_len()), (1, 0));
    }

    #[test]
    fn a_full_bucket_refuses_miss_notes_and_inserts_replace_them_first() {
        let index = index(10);
        let hash = |number: u64| number << LEVEL_MIN;
        let slots = SLOTS as u64;
        (1..=slots).for_each(|number| assert!(index.note_miss(hash(number))));
        assert!(!index.note_miss(hash(99)));
        for number in 101..=100 + slots {
            let bucket = index.bucket(hash(number)).unwrap();
            assert!(index.insert(hash(number), bucket, place(number), 0));
        }
        assert_eq!((index.len(), index.stale_len()), (SLOTS, 0));
    }

    #[test]
    fn an_insert_into_a_full_bucket_replaces_the_coldest_entry() {
        let index = index(10);
        // Different tags in the same bucket.
        let hash = |number: u64| number << LEVEL_MIN;
        for number in 1..=SLOTS as u64 {
            let bucket = index.bucket(hash(number)).unwrap();
            assert!(index.insert(hash(number), bucket, place(number), 0));
            if number != 4 {
                assert!(is_found(&index, hash(number), place(number)));
            }
        }
        let bucket = index.bucket(hash(99)).unwrap();
        assert!(index.insert(hash(99), bucket, place(99), 0));
        assert!(!is_found(&index, hash(4), place(4)) && is_found(&index, hash(99), place(99)));
        assert_eq!(index.len(), SLOTS);
    }

    #[test] // I10
    fn buckets_grow_with_the_entries_and_are_charged_first() {
        let entries = if cfg!(miri) { 300 } else { 100_000 };
        let budget = Budget::new(u64::MAX);
        let index = TagBuckets::new(&budget.account("index"), entries).unwrap();
        let hash = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ number >> 7;
        for number in 1..=entries as u64 {
            let bucket = index.bucket(hash(number)).unwrap();
            assert!(index.insert(hash(number), bucket, place(number), 1));
            index.grow();
        }
        let kept =
            (1..=entries as u64).filter(|number| is_found(&index, hash(*number), place(*number)));
        let kept = kept.count();
        println!("{kept} of {entries} kept, {:.1} B each", index.bytes() as f64 / kept as f64);
        assert!(kept * 100 > entries * 98 && kept == index.len(), "{kept} of {entries}");
        assert!(index.bytes() as usize <= entries * 29);
        assert_eq!(index.bytes(), budget.used());
        let gone: usize = (1..=entries as u64).map(|number| index.invalidate(hash(number))).sum();
        assert_eq!((gone, index.len()), (kept, 0));
        drop(index);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn an_index_without_memory_stays_at_its_size() {
        let budget = Budget::new(bytes_of(BUCKETS_MIN));
        let account = budget.account("index");
        let most = if cfg!(miri) { 1 << 8 } else { 1 << 20 };
        let index = TagBuckets::new(&account, most).unwrap();
        for number in 1..=BUCKETS_MIN as u64 * 8 {
            let hash = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let bucket = index.bucket(hash).unwrap();
            assert!(index.insert(hash, bucket, place(number), 0));
            index.grow();
        }
        assert!(index.len() <= BUCKETS_MIN * SLOTS && budget.used() <= budget.limit());
        assert_eq!(TagBuckets::new(&account, 1).unwrap_err().kind(), ErrorKind::Retry);
    }

    /// Entries move, positions are overwritten as soon as no slot refers to them, and buckets split: no
    /// reader returns data of a position that belonged to another key by then.
    #[test] // I6
    fn readers_never_return_overwritten_data() {
        const KEYS: u64 = if cfg!(miri) { 40 } else { 6_000 };
        const ROUNDS: u64 = if cfg!(miri) { 200 } else { 200_000 };
        let (mut rng, seed) = Rng::from_env();
        println!("TERRACE_SEED={seed}");
        let index = index(KEYS as usize);
        // The data at a position are two words: the key, twice.
        let rows = Words::reserve(2 * (KEYS as usize + 2)).unwrap();
        let row = |place: Position| rows.get(2 * place.get() as usize, 2);
        let hash = |key: u64| key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                let (index, done) = (&index, &done);
                let mut rng = Rng::new(rng.next_u64());
                scope.spawn(move || {
                    let mut hits = 0u64;
                    while !done.load(Relaxed) {
                        let key = 1 + rng.below(KEYS);
                        let found = index.find(hash(key), |place| match row(place) {
                            [first, second] if first.load(Relaxed) == key => {
                                spin_loop();
                                Some(second.load(Relaxed))
                            }
                            _ => None,
                        });
                        assert!(found.is_none_or(|found| found == key), "seed {seed}");
                        hits += u64::from(found.is_some());
                    }
                    hits
                });
            }
            // One writer: a position is free once no slot refers to it.
            let mut free: Vec<Position> = (1..=KEYS / 2).map(place).collect();
            let mut at: Vec<Option<Position>> = vec![None; KEYS as usize + 1];
            for _ in 0..ROUNDS {
                let key = 1 + rng.below(KEYS);
                let old = at[key as usize].take();
                if let Some(old) = old {
                    if rng.below(3) == 0 {
                        index.invalidate(hash(key));
                        // None if an insert into a full bucket replaced the entry.
                        if let Some((bucket, _)) = index.awaited(hash(key))
                            && let Some(to) = free.pop()
                        {
                            fence(Release);
                            row(to).iter().for_each(|word| word.store(key, Relaxed));
                            assert!(index.renew(hash(key), bucket, to), "seed {seed}");
                            free.push(old);
                            at[key as usize] = Some(to);
                            continue;
                        }
                    }
                    index.remove(hash(key), old);
                    free.push(old);
                }
                let Some(to) = free.pop() else { continue };
                let bucket = index.bucket(hash(key)).unwrap();
                fence(Release);
                row(to).iter().for_each(|word| word.store(key, Relaxed));
                // The position of a replaced entry is never used again.
                assert!(index.insert(hash(key), bucket, to, 0), "seed {seed}");
                at[key as usize] = Some(to);
                index.grow();
            }
            done.store(true, Relaxed);
        });
    }
}

/// A put is applied, invalidates the row, and is published. A reader takes the bucket, then the visible
/// seqno, reads the value and inserts a row, unless a version newer than its seqno is applied already. A
/// flush renews stale rows with the newest applied version if that is visible. No reader ever gets a row
/// older than the newest version that its seqno sees. A second key shares the bucket, and another thread
/// splits it.
#[cfg(feature = "shuttle")]
#[test] // I1
fn shuttle_no_reader_gets_a_row_older_than_its_seqno() {
    use std::sync::Arc;

    struct Store {
        index: TagBuckets,
        /// The newest version applied of each key: the memtable.
        applied: [AtomicU64; 2],
        visible: AtomicU64,
    }

    const HASHES: [u64; 2] = [0b010, 0b110];

    /// Reads the newest visible version of `key`; the versions of a key are the seqnos with its parity.
    fn read(store: &Store, key: usize) {
        let hash = HASHES[key];
        let bucket = store.index.bucket(hash);
        let at = store.visible.load(Acquire);
        let seen = |number: u64| number.saturating_sub((number + key as u64) % 2);
        let row = store.index.find(hash, |place| Some(u64::from(place.get()) - 10));
        if let Some(row) = row.filter(|row| *row <= at) {
            assert_eq!(row, seen(at), "a row is the newest version that a reader sees");
            return;
        }
        if seen(at) == 0 || store.applied[key].load(Acquire) > at {
            store.index.note_miss(hash);
            return;
        }
        if let Some(bucket) = bucket {
            store.index.insert(hash, bucket, place(seen(at) + 10), 0);
        }
    }

    /// Renews the stale row of `key` with the newest applied version.
    fn renew(store: &Store, key: usize) {
        let flushed = store.applied[key].load(Acquire);
        let Some((bucket, _)) = store.index.awaited(HASHES[key]) else { return };
        let at = store.visible.load(Acquire);
        if flushed == 0 || flushed > at || store.applied[key].load(Acquire) != flushed {
            return;
        }
        store.index.renew(HASHES[key], bucket, place(flushed + 10));
    }

    crate::sync::explore(3000, || {
        let store = Arc::new(Store {
            index: index(8),
            applied: [AtomicU64::new(0), AtomicU64::new(0)],
            visible: AtomicU64::new(0),
        });
        let writer = {
            let store = Arc::clone(&store);
            shuttle::thread::spawn(move || {
                for number in 1..=4u64 {
                    let key = (number % 2) as usize;
                    store.applied[key].store(number, Release);
                    store.index.invalidate(HASHES[key]);
                    store.visible.store(number, Release);
                }
            })
        };
        let reader = || {
            let store = Arc::clone(&store);
            shuttle::thread::spawn(move || {
                for turn in 0..6 {
                    read(&store, turn % 2);
                }
            })
        };
        let readers = [reader(), reader()];
        let flusher = {
            let store = Arc::clone(&store);
            shuttle::thread::spawn(move || (0..4).for_each(|turn| renew(&store, turn % 2)))
        };
        let splitter = {
            let store = Arc::clone(&store);
            shuttle::thread::spawn(move || (0..2).for_each(|_| store.index.split()))
        };
        writer.join().unwrap();
        splitter.join().unwrap();
        flusher.join().unwrap();
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        read(&store, 0);
        read(&store, 1);
    });
}
