//! What DRAM and a tier below it come to, as caches of one size.
//!
//! A page that comes up stays below as well, for as long as nothing takes its slot: of what lies in DRAM, as
//! large a part lies below, too, as the tier is of both. And DRAM itself serves somewhat less than alone:
//! frames are kept free for what is on its way down, and a page that is asked for below comes up only after
//! a while. Where nothing comes up, as on memory, no page lies in both. The parts were fitted to the tiers'
//! reference simulator, and hold within 0.8 points (`scm::predicted_tests`).

/// The part of frames that a tier below has kept free.
const KEPT_FREE: f64 = 1.0 / 16.0;

/// What waiting below costs DRAM, as a part of it, where the tier is much the larger.
const WAITING: f64 = 1.0 / 6.0;

/// The sizes of one cache that finds as much as DRAM does, and of one that finds as much as both: of `dram`
/// bytes for pages, and `scm` below, where what is asked for there stays there or comes up. Where it stays,
/// the first says nothing: DRAM has what is not below.
#[must_use]
pub fn equivalent_sizes(dram: f64, scm: f64, stay_below: bool) -> [f64; 2] {
    let (dram, scm) = (dram.max(0.0), scm.max(0.0));
    if scm == 0.0 {
        return [dram, dram];
    }
    let dram = dram * (1.0 - KEPT_FREE);
    let below = scm / (dram + scm);
    let both = if stay_below { scm + dram } else { scm + dram * (1.0 - below) };
    [dram * (1.0 - WAITING * below), both]
}
