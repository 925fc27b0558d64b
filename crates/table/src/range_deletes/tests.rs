use super::*;
use base::Rng;

fn delete(start: &str, end: &str, seqno: u64) -> RangeDelete {
    let [start, end] = [start, end].map(|key| Bytes::copy_from_slice(key.as_bytes()));
    RangeDelete { start, end, seqno: Seqno::new(seqno) }
}

fn shown(deletes: &RangeDeletes) -> String {
    let fragments = deletes.iter().map(|Fragment { start, end, seqnos }| {
        let seqnos: Vec<String> = seqnos.iter().map(ToString::to_string).collect();
        format!("{}-{}@{}", start.escape_ascii(), end.escape_ascii(), seqnos.join(","))
    });
    fragments.collect::<Vec<String>>().join(" ")
}

#[test]
fn overlaps_are_cut_and_equal_neighbours_are_joined() {
    let deletes = [delete("b", "f", 5), delete("d", "h", 9), delete("h", "k", 9)];
    let built = RangeDeletes::build(deletes.clone());
    assert_eq!(shown(&built), "b-d@5 d-f@9,5 f-k@9");
    assert_eq!(shown(&RangeDeletes::build_newest(deletes)), "b-d@5 d-k@9");
    assert_eq!(built.bounds(), Some((&b"b"[..], &b"k"[..])));
    assert_eq!((built.len(), built.seqnos().len()), (3, 4));
    let nothing = RangeDeletes::build([delete("b", "b", 1), delete("c", "a", 2)]);
    assert!(nothing.is_empty() && nothing.bounds().is_none());
    assert_eq!(nothing.newest_covering(b"b", Seqno::MAX), None);
}

#[test]
fn clipping_cuts_fragments_and_with_seqno_replaces_their_seqnos() {
    let built = RangeDeletes::build([delete("b", "f", 5), delete("d", "h", 9)]);
    let clipped = |first: Option<&'static str>, end: Option<&'static str>| {
        let within = built.positions(first.unwrap_or_default().as_bytes(), end.map(str::as_bytes));
        let clipped =
            built.clipped(&Bounds { first: first.map(Into::into), end: end.map(Into::into) });
        assert_eq!(within.len(), clipped.len());
        shown(&clipped)
    };
    assert_eq!(clipped(None, None), "b-d@5 d-f@9,5 f-h@9");
    assert_eq!(clipped(Some("c"), Some("e")), "c-d@5 d-e@9,5");
    assert_eq!(clipped(Some("f"), None), "f-h@9");
    assert_eq!(clipped(Some("a"), Some("f")), "b-d@5 d-f@9,5");
    assert_eq!(clipped(None, Some("b")), "");
    assert_eq!(clipped(Some("h"), Some("z")), "");
    assert_eq!(shown(&built.with_seqno(Seqno::new(3))), "b-d@3 d-f@3 f-h@3");
}

/// Any range deletes, read for any key at any seqno, agree with a scan over all of them.
#[test]
fn fragments_agree_with_a_scan_of_the_deletes() {
    let (mut rng, seed) = Rng::from_env();
    for round in 0..300 {
        let prefix = ["", "key/", "a/long/common/prefix/"][rng.below(3) as usize];
        let spread = 1 + rng.below(60);
        let key = |rng: &mut Rng| match rng.below(3) {
            0 => format!("{prefix}{}", rng.below(spread)),
            1 => format!("{prefix}{:012}", rng.below(spread)),
            _ => prefix[..rng.below(prefix.len() as u64 + 1) as usize].to_owned(),
        };
        let deletes: Vec<RangeDelete> = (0..rng.below(40))
            .map(|_| delete(&key(&mut rng), &key(&mut rng), 1 + rng.below(50)))
            .collect();
        let mut readers: Vec<Seqno> =
            (0..rng.below(4)).map(|_| Seqno::new(rng.below(50))).collect();
        // The last reader is the present.
        readers.push(Seqno::new(50));
        readers.sort();
        let all = RangeDeletes::build(deletes.clone());
        let some = RangeDeletes::build_for(deletes.clone(), &readers);
        let newest = RangeDeletes::build_newest(deletes.clone());
        assert_eq!(RangeDeletes::build(all.deletes()), all, "seed {seed} round {round}");
        for (before, next) in all.iter().zip(all.iter().skip(1)) {
            assert!(before.start < before.end && before.end <= next.start);
            assert!(before.seqnos.is_sorted_by(|one, other| one > other));
        }
        assert!(some.iter().all(|fragment| fragment.seqnos.len() <= readers.len()));
        let (one, other) = deletes.split_at(rng.below(1 + deletes.len() as u64) as usize);
        let build = |part: &[RangeDelete]| RangeDeletes::build_newest(part.iter().cloned());
        let both = RangeDeletes::overlay(&build(one), &build(other));
        assert!(both.iter().zip(both.iter().skip(1)).all(|(it, next)| it.end <= next.start));
        for _ in 0..60 {
            let (key, at) = (key(&mut rng), Seqno::new(rng.below(52)));
            let scan = |at: Seqno| {
                let covers = |it: &&RangeDelete| {
                    &*it.start <= key.as_bytes() && key.as_bytes() < &*it.end && it.seqno <= at
                };
                deletes.iter().filter(covers).map(|it| it.seqno).max()
            };
            let context = format!("seed {seed} round {round} key {key} at {at}");
            assert_eq!(all.newest_covering(key.as_bytes(), at), scan(at), "{context}");
            for reader in readers.iter().chain([&Seqno::MAX]) {
                let found = some.newest_covering(key.as_bytes(), *reader);
                assert_eq!(found, scan(*reader), "{context}");
            }
            let found = newest.newest_covering(key.as_bytes(), Seqno::MAX);
            assert_eq!(found, scan(Seqno::MAX), "{context}");
            let found = both.newest_covering(key.as_bytes(), Seqno::MAX);
            assert_eq!(found, scan(Seqno::MAX), "{context}");
            let (first, end, fragment) = all.stretch_at(key.as_bytes());
            assert_eq!(fragment, all.fragment_at(key.as_bytes()), "{context}");
            assert!(first.is_none_or(|first| **first <= *key.as_bytes()), "{context}");
            assert!(end.is_none_or(|end| *key.as_bytes() < **end), "{context}");
            let within = |bound: &Bytes| {
                first.is_none_or(|first| first < bound) && end.is_none_or(|end| bound < end)
            };
            let mut bounds = all.iter().flat_map(|it| [it.start, it.end]);
            assert!(!bounds.any(within), "{context}");
            let from: Vec<_> = all.iter_from(key.as_bytes()).collect();
            let expected = all.iter().filter(|it| key.as_bytes() < &**it.end);
            assert_eq!(from, expected.collect::<Vec<_>>(), "{context}");
        }
    }
}

/// Nested range deletes have a quadratic number of seqnos. Readers can distinguish few of them, and
/// picking these does not take quadratic time.
#[test]
fn nested_deletes_keep_only_seqnos_that_readers_distinguish() {
    let count = 20_000;
    let deletes = (0..count).map(|number| {
        delete(&format!("{number:06}"), &format!("{:06}", 2 * count - number), 1 + number)
    });
    let readers = [100, 10_000, count].map(Seqno::new);
    let built = RangeDeletes::build_for(deletes, &readers);
    assert_eq!(built.len() as u64, 2 * count - 1);
    assert!(built.seqnos().len() <= readers.len() * built.len());
    assert_eq!(built.newest_covering(b"015000", Seqno::MAX), Some(Seqno::new(15_001)));
    assert_eq!(built.newest_covering(b"015000", readers[1]), Some(Seqno::new(10_000)));
    assert!(built.bytes() > built.len() * 70);
    // Later readers may read above the present.
    let present =
        RangeDeletes::build_for([delete("a", "b", 5), delete("a", "b", 6)], &readers[..1]);
    assert_eq!(shown(&present), "a-b@6");
    let above =
        RangeDeletes::build_for([delete("a", "b", 105), delete("a", "b", 6)], &readers[..1]);
    assert_eq!(shown(&above), "a-b@105,6");
}
