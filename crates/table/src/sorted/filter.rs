//! The filter of a partition: does it hold any version of this key?
//!
//! A ribbon filter (Dillinger and Walzer, 2021) with rows of 64 bits and values of 8: for each key
//! the hash gives a start slot, 64 coefficient bits and a byte, and the slots are solved so that
//! the slots under the set bits sum (by xor) to that byte. A key that is not there matches by
//! chance, once in 256 times. It is probed in place: the 64 slots are adjacent bytes, one or two
//! cache lines.
//!
//! Of the filters measured at 200 to 3500 keys (docs/performance.md) it is the smallest by a sixth
//! at equal false positives: 8.3 to 8.6 bits a key above 1000 keys.
//!
//! Cost: about 25 ns to probe, 60 ns a key to build.

/// Slots under one row.
const ROW_SLOTS: usize = 64;

/// More seeds than any set of keys needs: one fails with a probability of less than a half.
const SEEDS_MAX: u32 = 64;

/// The slots, one byte each, of a filter for `keys` keys. Monotone, so that a partition that fits
/// its page with duplicate hashes fits it without.
#[must_use]
pub const fn filter_bytes(keys: usize) -> usize {
    let slots = keys + keys * 3 / 100 + ROW_SLOTS / 2;
    if slots < ROW_SLOTS { ROW_SLOTS } else { slots }
}

/// One key's equation.
struct Row {
    start: usize,
    bits: u64,
    value: u8,
}

impl Row {
    fn new(hash: u64, seed: u32, slots: usize) -> Self {
        let mut mixed = (hash ^ u64::from(seed)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^= mixed >> 32;
        mixed = mixed.wrapping_mul(0xd6e8_feb8_6659_fd93);
        mixed ^= mixed >> 32;
        let starts = (slots + 1).saturating_sub(ROW_SLOTS) as u64;
        let bits = mixed.wrapping_mul(0xff51_afd7_ed55_8ccd);
        Self {
            start: (((mixed >> 32) * starts) >> 32) as usize,
            // The first bit is always set, so that elimination has a pivot.
            bits: (bits ^ bits >> 29) | 1,
            value: mixed as u8,
        }
    }
}

/// A filter within a page.
#[derive(Clone, Copy, Debug)]
pub struct Filter<'a> {
    seed: u32,
    slots: &'a [u8],
}

impl<'a> Filter<'a> {
    /// The filter whose slots are these. No slots at all stand for "any key may be there".
    #[must_use]
    pub const fn new(seed: u32, slots: &'a [u8]) -> Self {
        Self { seed, slots }
    }

    /// False where no key with this hash is there. True of every key that is, and of about one in
    /// 256 others.
    #[must_use]
    pub fn may_contain(&self, hash: u64) -> bool {
        if self.slots.len() < ROW_SLOTS {
            return true;
        }
        let row = Row::new(hash, self.seed, self.slots.len());
        let under = self.slots.get(row.start..).unwrap_or_default();
        sum(under, row.bits) == row.value
    }
}

/// The xor of those of the first 64 `slots` whose bit is set; slots past the end count as zero.
fn sum(slots: &[u8], bits: u64) -> u8 {
    let mut total = 0;
    let (eights, rest) = slots.split_at(slots.len().min(ROW_SLOTS)).0.as_chunks::<8>();
    for (eight, bits) in eights.iter().zip(bits.to_le_bytes()) {
        total ^= u64::from_le_bytes(*eight) & bytes_of_bits(bits);
    }
    if !rest.is_empty() {
        let mut eight = [0; 8];
        for (slot, byte) in eight.iter_mut().zip(rest) {
            *slot = *byte;
        }
        let bits = bits.to_le_bytes().get(eights.len()).copied().unwrap_or_default();
        total ^= u64::from_le_bytes(eight) & bytes_of_bits(bits);
    }
    total.to_le_bytes().iter().fold(0, |sum, byte| sum ^ byte)
}

/// Eight bytes, each all ones where its bit is set and zero where it is not.
const fn bytes_of_bits(bits: u8) -> u64 {
    // A copy of the bits in each byte, of which byte `i` keeps bit `i` alone; adding 0x7f then
    // carries into the top bit of each byte that is not zero, and no further.
    let own = (bits as u64 * 0x0101_0101_0101_0101) & 0x8040_2010_0804_0201;
    let tops = (own + 0x7f7f_7f7f_7f7f_7f7f) | own;
    ((tops & 0x8080_8080_8080_8080) >> 7) * 0xff
}

/// Builds filters, keeping its scratch memory (about 10 bytes for each key of a partition).
#[derive(Debug, Default)]
pub(crate) struct FilterBuilder {
    rows: Vec<(u64, u8)>,
    slots: Vec<u8>,
}

impl FilterBuilder {
    /// The filter of `hashes`, whose duplicates are removed: seed and slots. Never longer than
    /// [`filter_bytes`] of the number given.
    pub(crate) fn build(&mut self, hashes: &mut Vec<u64>) -> (u32, &[u8]) {
        hashes.sort_unstable();
        hashes.dedup();
        let slots = filter_bytes(hashes.len());
        let seed = (0..SEEDS_MAX).find(|seed| self.eliminate(hashes, *seed, slots));
        self.slots.clear();
        match seed {
            Some(seed) => {
                self.substitute(slots);
                (seed, &self.slots)
            }
            // An empty filter admits every key: reads stay right, and cost a page more.
            None => (0, &[]),
        }
    }

    /// Brings the equations to echelon form, one per pivot slot. False where they contradict.
    fn eliminate(&mut self, hashes: &[u64], seed: u32, slots: usize) -> bool {
        self.rows.clear();
        self.rows.resize(slots, (0, 0));
        hashes.iter().all(|hash| {
            let Row { start: mut at, mut bits, mut value } = Row::new(*hash, seed, slots);
            // Each round clears the lowest bit, so 64 rounds end it.
            while bits != 0 {
                let skip = bits.trailing_zeros();
                at += skip as usize;
                bits >>= skip;
                let Some(pivot) = self.rows.get_mut(at) else { return false };
                if pivot.0 == 0 {
                    *pivot = (bits, value);
                    return true;
                }
                bits ^= pivot.0;
                value ^= pivot.1;
            }
            // The equation follows from others where nothing is left of its value either.
            value == 0
        })
    }

    /// Solves the equations from the last slot to the first.
    fn substitute(&mut self, slots: usize) {
        self.slots.resize(slots, 0);
        for (at, (bits, value)) in self.rows.iter().enumerate().rev() {
            // A slot that is no pivot is free, and zero.
            if *bits != 0 {
                let known = sum(self.slots.get(at..).unwrap_or_default(), *bits);
                if let Some(slot) = self.slots.get_mut(at) {
                    *slot = known ^ value;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Rng;

    #[test]
    fn every_key_is_found_and_one_other_in_256() {
        let (mut rng, seed) = Rng::from_env();
        let mut builder = FilterBuilder::default();
        for keys in [0, 1, 2, 30, 63, 64, 200, 999, 1000, 2000, 3500] {
            let mut hashes: Vec<u64> = (0..keys).map(|_| rng.next_u64()).collect();
            let kept = hashes.clone();
            hashes.extend_from_slice(&kept[..keys / 2]);
            let (filter_seed, slots) = builder.build(&mut hashes);
            assert!(!slots.is_empty() && slots.len() <= filter_bytes(keys));
            let filter = Filter::new(filter_seed, slots);
            assert!(kept.iter().all(|hash| filter.may_contain(*hash)), "seed {seed} keys {keys}");
            let tries = 100_000;
            let wrong = (0..tries).filter(|_| filter.may_contain(rng.next_u64())).count();
            // 391 are expected; the bounds are ten standard deviations away.
            assert!((190..600).contains(&wrong), "seed {seed} keys {keys}: {wrong}");
        }
    }

    #[test]
    fn no_slots_and_foreign_slots_never_panic() {
        assert!(Filter::new(0, &[]).may_contain(1));
        for length in 0..200 {
            let slots = vec![0x5a; length];
            let filter = Filter::new(7, &slots);
            assert!((0..1000).any(|hash| filter.may_contain(hash)));
        }
    }

    #[test]
    fn sizes_are_monotone() {
        assert!((0..5000).all(|keys| filter_bytes(keys) <= filter_bytes(keys + 1)));
    }
}
