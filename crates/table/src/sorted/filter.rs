//! The filter of a partition: may it contain a version of a key?
//!
//! A ribbon filter (Dillinger and Walzer, 2021) with rows of 64 bits and values of 1 to 16 bits. The
//! hash of a key gives a start slot, 64 coefficient bits and a value. The slots are solved so that the
//! slots under the set bits sum (by xor) to that value. An absent key matches by chance: once in 256
//! times with values of 8 bits. The filter is probed in place. Slots are stored in planes: first whole
//! bytes, one byte per slot, then the remaining bits, one bit per slot. So the 64 slots of a row are
//! adjacent, one or two cache lines per plane.
//!
//! Of the filters measured at 200 to 3500 keys (docs/decisions/004-tables-and-values.md) it is the smallest
//! by a sixth at equal false positives: 8.3 to 8.6 bits per key above 1000 keys.
//!
//! Cost: a probe about 25 ns, a build about 60 ns per key.

use arena::prefetch;
use base::invariant;

/// Default bits of a value: one false positive in 256.
pub const FILTER_BITS_DEFAULT: u8 = 8;

/// Most bits of a value: one false positive in 65,536.
pub const FILTER_BITS_MAX: u8 = 16;

/// Slots under one row.
const ROW_SLOTS: usize = 64;

/// More seeds than any set of keys needs: each fails with a probability below one half.
const SEEDS_MAX: u32 = 64;

/// Number of slots of a filter for `keys` keys. Monotone: a partition that fits its page with duplicate
/// hashes also fits without them.
const fn slots_for(keys: usize, bits: u8) -> usize {
    let slots = keys + keys * 3 / 100 + ROW_SLOTS / 2;
    let slots = if slots < ROW_SLOTS { ROW_SLOTS } else { slots };
    // A plane of bits has whole bytes.
    if bits.is_multiple_of(8) { slots } else { slots.next_multiple_of(8) }
}

/// Length of a filter for `keys` keys with values of `bits` bits, bytes; 0 without bits.
#[must_use]
pub const fn filter_bytes(keys: usize, bits: u8) -> usize {
    slots_for(keys, bits) * bits as usize / 8
}

/// The equation of one key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    start: usize,
    bits: u64,
    value: u16,
}

impl Row {
    fn new(hash: u64, seed: u32, slots: usize, width: u8) -> Self {
        let mut mixed = (hash ^ u64::from(seed)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^= mixed >> 32;
        mixed = mixed.wrapping_mul(0xd6e8_feb8_6659_fd93);
        mixed ^= mixed >> 32;
        let starts = (slots + 1).saturating_sub(ROW_SLOTS) as u64;
        let bits = mixed.wrapping_mul(0xff51_afd7_ed55_8ccd);
        Self {
            start: (((mixed >> 32) * starts) >> 32) as usize,
            // The first bit is always set, so that elimination finds a pivot.
            bits: (bits ^ bits >> 29) | 1,
            value: mixed as u16 & low_bits(width),
        }
    }
}

/// A mask of the `width` low bits, at most 16.
const fn low_bits(width: u8) -> u16 {
    ((1u32 << width) - 1) as u16
}

/// A view of a filter in a page.
#[derive(Clone, Copy, Debug)]
pub struct Filter<'a> {
    seed: u32,
    width: u8,
    slots: usize,
    planes: &'a [u8],
}

impl<'a> Filter<'a> {
    /// The filter with values of `width` bits, at most 16, and these slots. Without slots any key may be
    /// present.
    #[must_use]
    pub const fn new(seed: u32, width: u8, planes: &'a [u8]) -> Self {
        let slots = if width == 0 { 0 } else { planes.len() * 8 / width as usize };
        Self { seed, width, slots, planes }
    }

    /// The seed, and the width of a value in bits.
    pub(crate) const fn seed_and_width(&self) -> (u32, u8) {
        (self.seed, self.width)
    }

    /// The planes.
    pub(crate) const fn planes(&self) -> &'a [u8] {
        self.planes
    }

    /// False if no key with this hash is present. True for every present key, and for about one in
    /// 2^width others.
    #[must_use]
    pub fn may_contain(&self, hash: u64) -> bool {
        self.slots < ROW_SLOTS || self.admits(&self.row(hash))
    }

    /// The equation of the key with this hash.
    pub(crate) fn row(&self, hash: u64) -> Row {
        Row::new(hash, self.seed, self.slots, self.width)
    }

    /// Requests the cache lines of the first plane that `row` needs.
    pub(crate) fn prefetch(&self, row: &Row) {
        let first = if self.width < 8 { row.start / 8 } else { row.start };
        prefetch(self.planes, first);
        prefetch(self.planes, first + ROW_SLOTS - 1);
    }

    /// As [`Filter::may_contain`], for the equation of a key.
    pub(crate) fn admits(&self, row: &Row) -> bool {
        if self.slots < ROW_SLOTS {
            return true;
        }
        debug_assert!(row.start + ROW_SLOTS <= self.slots, "a row lies within the slots");
        let (mut planes, mut value) = (self.planes, row.value);
        for _ in 0..self.width / 8 {
            let (plane, rest) = planes.split_at(self.slots.min(planes.len()));
            if sum(plane.get(row.start..).unwrap_or_default(), row.bits) != value as u8 {
                return false;
            }
            (planes, value) = (rest, value >> 8);
        }
        for _ in 0..self.width % 8 {
            let (plane, rest) = planes.split_at((self.slots / 8).min(planes.len()));
            if parity(plane, row.start, row.bits) != value & 1 {
                return false;
            }
            (planes, value) = (rest, value >> 1);
        }
        true
    }
}

/// The xor of the bits that `bits` selects among the 64 bits of `plane` from bit `start` on. Bits past
/// the end are zero.
fn parity(plane: &[u8], start: usize, bits: u64) -> u16 {
    let mut window = [0; 16];
    for (slot, byte) in window.iter_mut().zip(plane.iter().skip(start / 8).take(9)) {
        *slot = *byte;
    }
    let under = (u128::from_le_bytes(window) >> (start % 8)) as u64;
    ((under & bits).count_ones() & 1) as u16
}

/// The xor of the slots that `bits` selects among the first 64 of `slots`. Slots past the end are zero.
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

/// Eight bytes: all ones for each set bit, zero for each clear bit.
const fn bytes_of_bits(bits: u8) -> u64 {
    // Copies the bits to each byte, in which byte `i` keeps only bit `i`. Adding 0x7f then carries into
    // the top bit of each nonzero byte, and no further.
    let own = (bits as u64 * 0x0101_0101_0101_0101) & 0x8040_2010_0804_0201;
    let tops = (own + 0x7f7f_7f7f_7f7f_7f7f) | own;
    ((tops & 0x8080_8080_8080_8080) >> 7) * 0xff
}

/// Builds filters, and keeps its scratch memory (about 20 bytes per key of a partition).
#[derive(Debug, Default)]
pub(crate) struct FilterBuilder {
    rows: Vec<(u64, u16)>,
    /// One plane, one byte per slot.
    plane: Vec<u8>,
    planes: Vec<u8>,
}

impl FilterBuilder {
    /// Builds the filter of `hashes`, few of which occur twice, with values of `width` bits. Returns the
    /// seed, and the planes of [`filter_bytes`] bytes.
    pub(crate) fn build(&mut self, hashes: &[u64], width: u8) -> (u32, &[u8]) {
        let slots = slots_for(hashes.len(), width);
        self.planes.clear();
        let wanted = width > 0;
        let seed =
            (0..SEEDS_MAX).find(|seed| wanted && self.eliminate(hashes, *seed, slots, width));
        // An empty filter admits every key: reads stay correct, and cost an extra page.
        let Some(seed) = seed else { return (0, &[]) };
        for plane in 0..width / 8 {
            self.substitute(slots, |value| (value >> (8 * plane)) as u8);
            self.planes.extend_from_slice(&self.plane);
        }
        let whole = width / 8 * 8;
        if width > whole {
            self.substitute(slots, |value| (value >> whole) as u8);
            for bit in 0..width - whole {
                let bytes = self.plane.chunks(8).map(|eight| {
                    let bits = eight.iter().map(|value| value >> bit & 1);
                    bits.rev().fold(0, |byte, bit| byte << 1 | bit)
                });
                self.planes.extend(bytes);
            }
        }
        invariant!(
            self.planes.len() == filter_bytes(hashes.len(), width),
            "a filter has the length that its page reserved"
        );
        (seed, &self.planes)
    }

    /// Brings the equations to echelon form, one per pivot slot. False if they contradict one another.
    fn eliminate(&mut self, hashes: &[u64], seed: u32, slots: usize, width: u8) -> bool {
        self.rows.clear();
        self.rows.resize(slots, (0, 0));
        hashes.iter().all(|hash| {
            let Row { start: mut at, mut bits, mut value } = Row::new(*hash, seed, slots, width);
            // Each round clears the lowest bit, so it ends after at most 64 rounds.
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
            // The equation is a combination of others, as a duplicate's is. It is consistent only if its
            // value cancels out too.
            value == 0
        })
    }

    /// Solves the equations for one byte of the values, from the last slot to the first.
    fn substitute(&mut self, slots: usize, byte_of: impl Fn(u16) -> u8) {
        self.plane.clear();
        self.plane.resize(slots, 0);
        for (at, (bits, value)) in self.rows.iter().enumerate().rev() {
            // A slot that is no pivot is free, and set to zero.
            if *bits != 0 {
                let known = sum(self.plane.get(at..).unwrap_or_default(), *bits);
                if let Some(slot) = self.plane.get_mut(at) {
                    *slot = known ^ byte_of(*value);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Rng;

    /// The false positive rate matches the width.
    #[test]
    fn every_key_is_found_and_false_positives_match_the_width() {
        let (mut rng, seed) = Rng::from_env();
        let mut builder = FilterBuilder::default();
        for width in [1, 4, 7, 8, 10, 12, 15, 16] {
            let (mut tried, mut wrong) = (0u32, 0u32);
            for keys in [0, 1, 2, 30, 63, 64, 200, 999, 1000, 2000, 3500] {
                let mut hashes: Vec<u64> = (0..keys).map(|_| rng.next_u64()).collect();
                let kept = hashes.clone();
                hashes.extend_from_slice(&kept[..keys / 20]);
                let (filter_seed, planes) = builder.build(&hashes, width);
                assert_eq!(planes.len(), filter_bytes(hashes.len(), width));
                let filter = Filter::new(filter_seed, width, planes);
                assert!(kept.iter().all(|hash| filter.may_contain(*hash)), "seed {seed} {keys}");
                tried += 200_000;
                wrong += (0..200_000).filter(|_| filter.may_contain(rng.next_u64())).count() as u32;
            }
            let expected = f64::from(tried) / f64::from(1u32 << width);
            println!("{width} bits: {} of {}", wrong, expected);
            // At 16 bits 34 are expected; half as many more are three standard deviations.
            let bound = (0.5 * expected).max(4.5 * expected.sqrt());
            assert!(
                (f64::from(wrong) - expected).abs() < bound,
                "seed {seed} width {width}: {wrong}"
            );
        }
        assert_eq!(builder.build(&[1, 2], 0), (0, &[][..]));
    }

    #[test]
    fn empty_and_foreign_slots_never_panic() {
        assert!(Filter::new(0, 8, &[]).may_contain(1) && Filter::new(0, 0, &[1]).may_contain(1));
        for length in 0..200 {
            let slots = vec![0x5a; length];
            for width in 1..=FILTER_BITS_MAX {
                let filter = Filter::new(7, width, &slots);
                assert!((0..200_000).any(|hash| filter.may_contain(hash)), "{length} {width}");
            }
        }
    }

    #[test]
    fn filter_sizes_are_monotone() {
        for width in 0..=FILTER_BITS_MAX {
            let ascends = |keys| filter_bytes(keys, width) <= filter_bytes(keys + 1, width);
            assert!((0..5000).all(ascends));
        }
    }
}
