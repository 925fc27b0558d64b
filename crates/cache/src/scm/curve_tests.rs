//! Hits of both tiers, measured with the reference simulator, compared with the prediction of one page curve
//! (`curve::equivalent_sizes`).

use base::Rng;

use super::placement::{Costs, Placement};
use super::reference::{FoundIn, Reference};
use super::slot_map::WAYS;
use crate::curve::{Simulations, Subject, equivalent_sizes};
use crate::{PageKey, PageKind};

const PAGE: u64 = 4096;

/// Percent of accesses that hit DRAM, and either tier: predicted, and measured.
struct Compared {
    dram: [f64; 2],
    both: [f64; 2],
}

const SSD: Costs =
    Costs { dram_hit: 400, dram_put: 2500, scm_hit: 10_400, scm_write: 10_000, rewritten: 64 };
const CXL: Costs =
    Costs { dram_hit: 400, dram_put: 2500, scm_hit: 900, scm_write: 1200, rewritten: 64 };

/// Pages of a file of `pages` pages, drawn independently by a power law of `skew`.
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
    // In SCM as fast as memory, data pages are never promoted.
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
    let predicted = sizes.map(|bytes| 100.0 * (1.0 - curve.miss_ratio(bytes as f64)));
    let [dram, scm] = [FoundIn::Dram, FoundIn::Scm].map(|tier| found[tier as usize]);
    Compared { dram: [predicted[0], part(dram)], both: [predicted[1], part(dram + scm)] }
}

#[test]
fn one_page_curve_predicts_the_hits_of_both_tiers() {
    for (skew, frames, sets) in [(0.9, 256, 64), (0.9, 512, 128), (0.9, 512, 32), (0.7, 512, 128)] {
        for policy in
            [(Placement::DramFirst, SSD), (Placement::Adaptive, SSD), (Placement::Adaptive, CXL)]
        {
            let Compared { dram, both } = compare(skew, 20_000, frames, sets, policy);
            let (name, slots) = (policy.0.name(), sets * WAYS);
            println!("{skew} {frames}+{slots} {name}: DRAM {dram:.2?}, both {both:.2?}");
            // If no page is promoted, the curve does not predict the hits of DRAM.
            let compared = if policy.1 == CXL { vec![both] } else { vec![dram, both] };
            for [predicted, measured] in compared {
                assert!(
                    (predicted - measured).abs() < 1.0,
                    "{skew} {frames}+{slots} {name}: {predicted}, {measured}"
                );
            }
        }
    }
}
