//! Loads that no policy here was tuned for: cyclic scans, mixed with zipfian reads or with reads of recent
//! keys.
//!
//! A seed draws the share of the scan, the number of the other keys and the rate of new ones. The first half
//! of the seeds may be looked at while a policy is changed; the second half is held out.

use base::{Result, Rng, key_hash};
use terrace_workload::Zipf;

/// Entries of the caches that read these loads.
pub(crate) const CAPACITY: usize = 4000;

/// Lengths of the scans, in caches.
pub(crate) const LENGTHS: [f64; 5] = [0.5, 1.0, 2.0, 4.0, 8.0];

/// The seeds, and how many of them are not held out.
pub(crate) const SEEDS: u64 = 8;
pub(crate) const SEEDS_SEEN: u64 = SEEDS / 2;

/// Reads of a load, in caches.
const READS: usize = 150;

/// The reads that a scan is mixed with.
#[derive(Clone, Copy)]
pub(crate) enum Mix {
    /// Zipfian reads with an exponent of 0.9.
    Zipfian,
    /// Reads of recent keys, zipfian by age, among which new keys come.
    Recent,
}

impl Mix {
    pub(crate) const ALL: [(&str, Self); 2] =
        [("zipfian 0.9", Self::Zipfian), ("recent keys", Self::Recent)];
}

/// A scan of `length` caches over and over, mixed with other reads.
pub(crate) fn load(mix: Mix, length: f64, seed: u64) -> Result<Vec<u64>> {
    let mut rng = Rng::new(seed);
    let scan_share = 64 + rng.below(129);
    let others = CAPACITY as u64 * (4 + rng.below(13));
    let reads_a_new_key = 4 + rng.below(13);
    let zipf = Zipf::new(others, 0.9)?;
    let scanned = (CAPACITY as f64 * length) as u64;
    let (mut at, mut newest) = (0, others);
    let mut read = || {
        let (kind, number) = if rng.below(256) < scan_share {
            at = (at + 1) % scanned;
            (0, at)
        } else {
            match mix {
                Mix::Zipfian => (1, zipf.draw(&mut rng)),
                Mix::Recent => {
                    newest += u64::from(rng.one_in(reads_a_new_key));
                    (1, newest - zipf.draw(&mut rng))
                }
            }
        };
        key_hash(&(seed << 48 | kind << 40 | number).to_le_bytes())
    };
    Ok((0..CAPACITY * READS).map(|_| read()).collect())
}
