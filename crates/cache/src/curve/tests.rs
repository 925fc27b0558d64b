use base::{Budget, Rng, key_hash};

use super::reference::Reference;
use super::*;
use crate::PageKind;

const PAGE: u32 = 4096;

/// Keys drawn by a power law; `skew` 0 is uniform.
fn draw(rng: &mut Rng, keys: u64, skew: f64) -> u64 {
    let unit = (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
    let number = (keys as f64).powf(1.0 - skew) * unit;
    key_hash(&(number.max(1e-9).powf(1.0 / (1.0 - skew)) as u64).to_le_bytes())
}

/// Random draws, a loop, and draws that alternate with a scan.
fn mixed(seed: u64, keys: u64, count: u64) -> Vec<u64> {
    let mut rng = Rng::new(seed);
    let hash = |number: u64| key_hash(&number.to_le_bytes());
    let part = count / 3;
    let draws = (0..part).map(|_| draw(&mut rng, keys, 0.7)).collect::<Vec<_>>();
    let looped = (0..part).map(|at| hash(at % (keys / 5)));
    let scanned = (0..part).map(|at| hash(keys + at));
    let alternating = draws.iter().copied().zip(scanned).flat_map(|(one, other)| [one, other]);
    draws.iter().copied().chain(looped).chain(alternating).collect()
}

/// Miss ratios of whole caches of these sizes, in keys, without sampling.
fn exact(stream: &[u64], sizes: &[u64], subject: Subject) -> Vec<f64> {
    let miss_ratio = |size: &u64| {
        let mut cache = Reference::new(*size as usize, subject == Subject::Rows);
        let misses = stream.iter().filter(|key| !cache.ask(**key)).count();
        misses as f64 / stream.len() as f64
    };
    sizes.iter().map(miss_ratio).collect()
}

fn in_bytes(sizes: &[u64]) -> Vec<u64> {
    sizes.iter().map(|size| size * u64::from(PAGE)).collect()
}

#[test]
fn without_sampling_each_simulation_matches_its_cache() {
    for subject in [Subject::Pages, Subject::Rows] {
        let sizes = [64, 100, 200, 400, 1000];
        let bytes = in_bytes(&sizes);
        let mut all = Simulations::new(subject, &bytes, 1.0, 16 << 20);
        let mut each: Vec<_> = sizes
            .iter()
            .map(|size| Reference::new(*size as usize, subject == Subject::Rows))
            .collect();
        for (at, key) in mixed(7, 3000, 60_000).into_iter().enumerate() {
            let asked = all.ask(key, PAGE, PageKind::Data).unwrap();
            for (number, cache) in each.iter_mut().enumerate() {
                let is_hit = asked.missed >> number & 1 == 0;
                assert_eq!(cache.ask(key), is_hit, "{subject:?} {number} at access {at}");
            }
        }
    }
}

#[test]
fn a_sampled_curve_is_within_two_points_of_the_exact_one() {
    let (footprint, sizes) = (100_000, [1000, 2500, 5000, 10_000, 25_000, 50_000]);
    for (skew, seed) in [(0.0, 1), (0.7, 2), (0.9, 3)] {
        let mut rng = Rng::new(seed);
        let stream: Vec<_> = (0..400_000).map(|_| draw(&mut rng, footprint, skew)).collect();
        for subject in [Subject::Pages, Subject::Rows] {
            let mut sampled = Simulations::new(subject, &in_bytes(&sizes), 1.0, 600 << 10);
            stream.iter().for_each(|key| {
                sampled.ask(*key, PAGE, PageKind::Data);
            });
            assert!(sampled.rate() < 0.2, "{}", sampled.rate());
            let curve = sampled.curve(stream.len() as u64);
            for (size, exact) in sizes.iter().zip(exact(&stream, &sizes, subject)) {
                let estimated = curve.miss_ratio((size * u64::from(PAGE)) as f64);
                let error = estimated - exact;
                println!("{subject:?} skew {skew} size {size}: {estimated:.4}, exactly {exact:.4}");
                assert!(error.abs() < 0.02, "{subject:?} skew {skew} size {size}: {error}");
            }
        }
    }
}

#[test]
fn a_meter_stays_within_its_charge() {
    let budget = Budget::new(1 << 20);
    let account = budget.account("curves");
    for subject in [Subject::Pages, Subject::Rows] {
        // Few keys that fit every cache, many that fit none, and some between.
        for (keys, memory) in [(3000, 256 << 20), (5_000_000, 64 << 20), (400_000, 400 << 20)] {
            let meter = Meter::new(&account, subject, memory, 1).unwrap();
            assert_eq!(account.used(), memory / 420);
            assert!(account.used() * 200 <= memory);
            let mut rng = Rng::new(keys);
            for at in 0..300_000u64 {
                // Samples keys at the rate of a data set that is a hundred times as large.
                let hash = draw(&mut rng, keys, 0.5).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                meter.ask(hash, 100 + (hash % 500) as usize, PageKind::Data);
                if at % 20_000 == 0 {
                    let bytes = meter.bytes() as u64;
                    assert!(bytes <= account.used(), "{subject:?} {keys}: {bytes} of {memory}");
                }
            }
        }
    }
    assert_eq!(account.used(), 0);
    let full = Budget::new(1000);
    assert!(Meter::new(&full.account("curves"), Subject::Rows, 1 << 30, 1).is_none());
}

#[test]
fn a_written_row_misses_once_and_metadata_outlives_data() {
    let mut rows = Simulations::new(Subject::Rows, &[1 << 20], 1.0, 1 << 20);
    let missed = |rows: &mut Simulations| rows.ask(7, 200, PageKind::Data).unwrap().missed;
    assert_eq!([missed(&mut rows), missed(&mut rows)], [1, 0]);
    rows.invalidate(7);
    rows.invalidate(8);
    assert_eq!([missed(&mut rows), missed(&mut rows)], [1, 0]);
    assert_eq!(rows.curve(4).miss_ratio(f64::from(1 << 20)), 0.5);
    let mut pages = Simulations::new(Subject::Pages, &in_bytes(&[64]), 1.0, 1 << 20);
    let meta = key_hash(b"meta");
    pages.ask(meta, PAGE, PageKind::Meta);
    for number in 0..400u64 {
        pages.ask(key_hash(&number.to_le_bytes()), PAGE, PageKind::Data);
    }
    assert_eq!(pages.ask(meta, PAGE, PageKind::Meta).unwrap().missed, 0);
}

#[test]
fn sizes_range_from_a_sixteenth_to_sixteenfold() {
    let sizes = sizes_about(1 << 30);
    assert_eq!((sizes[0], sizes[8], sizes[16]), (1 << 26, 1 << 30, 1 << 34));
    assert!(sizes.len() == 17 && sizes.is_sorted());
}

#[test]
fn concurrent_accesses_give_a_curve() {
    let meter = Meter::new(&Budget::new(1 << 30).account("curves"), Subject::Rows, 64 << 20, 1);
    let meter = meter.unwrap();
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let meter = &meter;
            scope.spawn(move || {
                let mut rng = Rng::new(seed);
                for _ in 0..100_000 {
                    let hash = draw(&mut rng, 50_000, 0.7);
                    if rng.below(10) == 0 {
                        meter.invalidate(hash);
                    } else {
                        meter.ask(hash, 200, PageKind::Data);
                    }
                }
            });
        }
    });
    let curve = meter.curve(360_000);
    assert!(curve.points.is_sorted_by(|one, other| one.bytes < other.bytes));
    assert!(curve.miss_ratio(1e12) < 0.9 && curve.points[0].misses > 0.0);
}
