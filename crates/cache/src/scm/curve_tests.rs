//! Hits of both tiers beside what one curve of pages says of them (`curve::equivalent_sizes`).

use base::Rng;

use super::placement::{Costs, Placement};
use super::reference::{FoundIn, Reference};
use super::slot_map::WAYS;
use crate::curve::{Simulations, Subject, equivalent_sizes};
use crate::{PageKey, PageKind};

const PAGE: u64 = 4096;

/// Of accesses in hundredths: found in DRAM, and found in either, as predicted and as it went.
struct Compared {
    dram: [f64; 2],
    both: [f64; 2],
}

const SSD: Costs =
    Costs { dram_hit: 400, dram_put: 2500, scm_hit: 10_400, scm_write: 10_000, rewritten: 64 };
const CXL: Costs =
    Costs { dram_hit: 400, dram_put: 2500, scm_hit: 900, scm_write: 1200, rewritten: 64 };

/// Pages drawn by a power law of `skew`, each for itself, from a file of `pages`.
fn compare(
    skew: f64,
    pages: u64,
    frames: usize,
    sets: usize,
    (placement, costs): (Placement, Costs),
) -> Compared {
    let mut tiers = Reference::new(frames, sets, placement, costs);
    let slots = sets * WAYS;
    let bytes = |pages: usize| pages as f64 * PAGE as f64;
    // On memory, data pages stay where they are: below.
    let stay_below = (placement, costs) == (Placement::Adaptive, CXL);
    let sizes = equivalent_sizes(bytes(frames), bytes(slots), stay_below).map(|bytes| bytes as u64);
    let mut curve = Simulations::new(Subject::Pages, &sizes, 1.0, 8 << 20);
    let mut rng = Rng::new(5);
    let mut found = [0u64; 3];
    let count = 250_000u32;
    for _ in 0..count {
        let unit = (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let rank = ((pages as f64).powf(1.0 - skew) * unit).powf(1.0 / (1.0 - skew)) as u64;
        let key = PageKey { file: 7, page: rank.min(pages) as u32 };
        found[tiers.access(key, PageKind::Data) as usize] += 1;
        curve.ask(key.hash(), PAGE as u32, PageKind::Data);
    }
    let part = |of: u64| 100.0 * of as f64 / f64::from(count);
    let curve = curve.curve(count.into());
    let told = sizes.map(|bytes| 100.0 * (1.0 - curve.miss_ratio(bytes as f64)));
    let [dram, scm] = [FoundIn::Dram, FoundIn::Scm].map(|tier| found[tier as usize]);
    Compared { dram: [told[0], part(dram)], both: [told[1], part(dram + scm)] }
}

#[test]
fn one_curve_tells_the_hits_of_both_tiers() {
    for (skew, frames, sets) in [(0.9, 256, 64), (0.9, 512, 128), (0.9, 512, 32), (0.7, 512, 128)] {
        for policy in
            [(Placement::DramFirst, SSD), (Placement::Adaptive, SSD), (Placement::Adaptive, CXL)]
        {
            let Compared { dram, both } = compare(skew, 20_000, frames, sets, policy);
            let (name, slots) = (policy.0.name(), sets * WAYS);
            println!("{skew} {frames}+{slots} {name}: DRAM {dram:.2?}, both {both:.2?}");
            // Where pages stay below, the curve does not tell what DRAM has.
            let compared = if policy.1 == CXL { vec![both] } else { vec![dram, both] };
            for [told, went] in compared {
                assert!(
                    (told - went).abs() < 1.0,
                    "{skew} {frames}+{slots} {name}: {told}, {went}"
                );
            }
        }
    }
}
