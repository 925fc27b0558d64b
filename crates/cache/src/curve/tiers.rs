//! Two tiers as single caches: the sizes of caches that have the hits of DRAM, and of both tiers together.
//!
//! A promoted page stays in SCM until its slot is needed, so of the pages in DRAM a part is in SCM as well:
//! the part that SCM has of the memory of both tiers. And DRAM serves somewhat less than it would alone:
//! frames are kept free for pages that wait to be demoted, and a page in SCM is promoted only after some
//! uses. If nothing is promoted, as with SCM that is nearly as fast as DRAM, no page is in both tiers. The
//! constants were fitted to the reference simulator of the tiers, and hold within 0.8 points
//! (`scm::curve_tests`).

/// Part of the frames that are kept free if there is a lower tier.
const KEPT_FREE: f64 = 1.0 / 16.0;

/// Loss of DRAM hits because pages wait in SCM to be promoted, as a part of DRAM, if SCM is much larger.
const WAITING: f64 = 1.0 / 6.0;

/// The sizes of a cache that has the hits of DRAM, and of one that has the hits of both tiers, bytes. `dram`
/// bytes of DRAM hold pages, `scm` bytes of SCM, too. `stay_below`: no page is promoted; the first size then
/// means nothing, because DRAM holds the pages that SCM does not.
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
