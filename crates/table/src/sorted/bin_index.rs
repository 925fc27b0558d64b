//! The bin index: the first bin of each page of a partition, as an Elias-Fano sequence.
//!
//! Bins are stored as differences to the partition's first bin, and never descend. Each is split: its
//! lowest bits are stored as they are, and its highest bits in unary, as the number of zeros before its
//! one. That takes about two bits per page besides the lowest bits: eight bits with 64 bins a page. A
//! page with the bin of the page before continues the block of that page.
//!
//! A search counts zeros eight bytes at a time, so it costs less than the checksum of a page.
//! docs/format/bins.md has the byte table.

use std::ops::Range;

use base::{Cursor, Error, Result, broken_invariant, invariant};

/// Length of the number of low bits, and of the first bin, bytes.
pub(crate) const FIXED_BYTES: usize = 1 + 8;

/// Most low bits of a value, so that a value's low bits lie within eight bytes.
const LOW_BITS_MAX: u32 = 56;

/// The number of low bits for `count` values of which the last is `last`: about log2 of their mean
/// distance, which takes the least space.
const fn low_bits(count: usize, last: u64) -> u32 {
    match (last / if count == 0 { 1 } else { count as u64 }).checked_ilog2() {
        Some(bits) => bits,
        None => 0,
    }
}

/// Length of the index of `count` values of which the last is `last` more than the first, bytes.
pub(crate) fn encoded_bytes(count: usize, last: u64) -> usize {
    let low = low_bits(count, last);
    let high_bits = count + (last >> low) as usize;
    FIXED_BYTES + (count * low as usize).div_ceil(8) + high_bits.div_ceil(8)
}

/// Appends the index of `bins`, which do not descend, to `out`.
pub(crate) fn encode(bins: &[u64], out: &mut Vec<u8>) -> Result<()> {
    let (Some(base), Some(end)) = (bins.first().copied(), bins.last()) else {
        return Err(broken_invariant!("a partition has a block"));
    };
    let (count, last) = (bins.len(), end.saturating_sub(base));
    let low = low_bits(count, last);
    let start = out.len();
    out.push(low as u8);
    out.extend_from_slice(&base.to_le_bytes());
    let lows = out.len();
    out.resize(lows + (count * low as usize).div_ceil(8), 0);
    let highs = out.len();
    out.resize(highs + (count + (last >> low) as usize).div_ceil(8), 0);
    let mut previous = base;
    for (index, bin) in bins.iter().copied().enumerate() {
        invariant!(bin >= previous, "the bins of a partition do not descend");
        previous = bin;
        let value = bin.saturating_sub(base);
        let at = index * low as usize;
        let bits = u128::from(value & mask(low)) << (at % 8);
        for (byte, bits) in out.iter_mut().skip(lows + at / 8).zip(bits.to_le_bytes()) {
            *byte |= bits;
        }
        let at = index + (value >> low) as usize;
        if let Some(byte) = out.get_mut(highs + at / 8) {
            *byte |= 1 << (at % 8);
        }
    }
    invariant!(
        out.len() - start == encoded_bytes(count, last),
        "an index takes the space that was reserved for it"
    );
    Ok(())
}

const fn mask(bits: u32) -> u64 {
    (1 << bits) - 1
}

/// A view of a stored index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BinIndex<'a> {
    count: usize,
    low_bits: u32,
    /// The first bin.
    base: u64,
    lows: &'a [u8],
    highs: &'a [u8],
}

/// The position of a zero or one among the high bits, and the number of ones before it.
#[derive(Clone, Copy)]
struct HighBit {
    at: usize,
    ones: usize,
}

impl<'a> BinIndex<'a> {
    /// Views `bytes` as the index of `count` bins, at least one. Checks only the lengths;
    /// [`BinIndex::check`] checks the rest.
    pub(crate) fn parse(count: usize, bytes: &'a [u8]) -> Result<Self> {
        let mut cursor = Cursor::new("bin index", bytes);
        let (low_bits, base) = (u32::from(cursor.u8()?), cursor.u64()?);
        let lows = count.checked_mul(low_bits as usize).filter(|_| low_bits <= LOW_BITS_MAX);
        let Some(lows) = lows.filter(|_| count > 0) else {
            return Err(Error::corrupt("low bits of a bin index")
                .expected(format_args!("at most {LOW_BITS_MAX}"))
                .got(low_bits));
        };
        let lows = cursor.take(lows.div_ceil(8))?;
        Ok(Self { count, low_bits, base, lows, highs: cursor.rest() })
    }

    /// Number of bins.
    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    /// All bins in order; fewer if the index is damaged. Takes time for all of them, unlike a loop over
    /// [`BinIndex::bin`], which takes the square of it.
    pub(crate) fn bins(&self) -> impl Iterator<Item = u64> {
        let ones = (0..self.highs.len() * 8).filter(|at| self.is_one(*at));
        (0..self.count).zip(ones).map_while(|(index, at)| self.join(index, at))
    }

    /// Checks that there are as many bins as stated, and that they do not descend.
    ///
    /// # Errors
    /// `Corrupt` if not.
    pub(crate) fn check(&self, last: u64) -> Result<()> {
        let ones: usize = self.highs.iter().map(|byte| byte.count_ones() as usize).sum();
        let (mut found, mut previous, mut is_sorted) = (0, self.base, true);
        for bin in self.bins() {
            is_sorted &= bin >= previous && (found > 0 || bin == self.base);
            (found, previous) = (found + 1, bin);
        }
        if (ones, found) == (self.count, self.count) && is_sorted && previous <= last {
            return Ok(());
        }
        Err(Error::corrupt("bin index")
            .expected(format_args!("{} bins from {} up to at most {last}", self.count, self.base))
            .got(format_args!("{ones} ones, {found} bins, the last {previous}")))
    }

    /// The bin number `index`.
    pub(crate) fn bin(&self, index: usize) -> Result<u64> {
        let bit = self.one(index)?;
        self.join(index, bit.at).ok_or_else(damaged)
    }

    /// The number of the last bin at or before `bin`; 0 if there is none.
    pub(crate) fn search(&self, bin: u64) -> usize {
        let Some(value) = bin.checked_sub(self.base) else { return 0 };
        let (high, low) = (value >> self.low_bits, value & mask(self.low_bits));
        let zero = self.zero(high);
        let (mut index, mut at) = (zero.ones.min(self.count), zero.at);
        // The ones directly before the zero are the bins with the same high bits.
        while index > 0 && at > 0 && self.is_one(at - 1) {
            (index, at) = (index - 1, at - 1);
            if self.low(index) <= low {
                return index;
            }
        }
        index.saturating_sub(1)
    }

    /// The numbers of the bins that equal bin number `index`, which are adjacent.
    pub(crate) fn equal_to(&self, index: usize) -> Result<Range<usize>> {
        let (bit, low) = (self.one(index)?, self.low(index));
        let (mut first, mut end) = (index, index + 1);
        while first > 0
            && self.is_one((bit.at + first).wrapping_sub(index + 1))
            && self.low(first - 1) == low
        {
            first -= 1;
        }
        while end < self.count && self.is_one(bit.at + end - index) && self.low(end) == low {
            end += 1;
        }
        Ok(first..end)
    }

    /// The bin number `index`, with its one at `at`.
    fn join(&self, index: usize, at: usize) -> Option<u64> {
        let high = at.checked_sub(index)? as u64;
        let shifted = high.checked_mul(1 << self.low_bits)?;
        self.base.checked_add(shifted | self.low(index))
    }

    /// The low bits of bin number `index`.
    fn low(&self, index: usize) -> u64 {
        let at = index * self.low_bits as usize;
        (word(self.lows, at / 8) >> (at % 8)) & mask(self.low_bits)
    }

    fn is_one(&self, at: usize) -> bool {
        self.highs.get(at / 8).is_some_and(|byte| byte >> (at % 8) & 1 == 1)
    }

    /// The one number `number`, from 0.
    fn one(&self, number: usize) -> Result<HighBit> {
        let mut left = number as u64;
        for start in (0..self.highs.len()).step_by(8) {
            let word = word(self.highs, start);
            let here = u64::from(word.count_ones());
            if left < here {
                return Ok(HighBit { at: start * 8 + nth_one(word, left), ones: number });
            }
            left -= here;
        }
        Err(damaged())
    }

    /// The zero number `number`, from 0. The high bits are followed by any number of zeros.
    fn zero(&self, number: u64) -> HighBit {
        let (mut left, mut ones) = (number, 0);
        for start in (0..self.highs.len()).step_by(8) {
            let word = word(self.highs, start);
            let here = u64::from(word.count_zeros());
            if left < here {
                let at = nth_one(!word, left);
                // The position in the word is that many zeros and ones.
                return HighBit { at: start * 8 + at, ones: ones + at - left as usize };
            }
            left -= here;
            ones += word.count_ones() as usize;
        }
        let read = self.highs.len().next_multiple_of(8) * 8;
        HighBit { at: read.saturating_add(left as usize), ones }
    }
}

/// The eight bytes of `bytes` from `at` on, little-endian; bytes past the end are zero.
#[inline]
fn word(bytes: &[u8], at: usize) -> u64 {
    let rest = bytes.get(at..).unwrap_or_default();
    if let Some(word) = rest.first_chunk() {
        return u64::from_le_bytes(*word);
    }
    let mut word = [0; 8];
    for (to, from) in word.iter_mut().zip(rest) {
        *to = *from;
    }
    u64::from_le_bytes(word)
}

/// The position of the one number `number`, from 0, of `word`, which has more ones.
fn nth_one(mut word: u64, number: u64) -> usize {
    for _ in 0..number {
        word &= word.wrapping_sub(1);
    }
    word.trailing_zeros() as usize
}

#[cold]
fn damaged() -> Error {
    Error::corrupt("bin index").expected("a bin for each page")
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Rng;

    fn encoded(bins: &[u64]) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode(bins, &mut bytes).unwrap();
        bytes
    }

    fn random_bins(rng: &mut Rng) -> Vec<u64> {
        let count = 1 + rng.below(400);
        let span = 1 << rng.below(45);
        let base = rng.below(1 << 50);
        let mut bins: Vec<u64> = (0..count).map(|_| base + rng.below(span)).collect();
        if rng.one_in(3) {
            // Runs of equal bins.
            let from = rng.below(count) as usize;
            let to = (from + rng.below(200) as usize).min(bins.len());
            bins.sort_unstable();
            let equal = bins[from];
            bins[from..to].fill(equal);
        }
        bins.sort_unstable();
        bins
    }

    #[test]
    fn searches_and_values_agree_with_a_list() {
        let (mut rng, seed) = Rng::from_env();
        for round in 0..300 {
            let bins = random_bins(&mut rng);
            let bytes = encoded(&bins);
            let index = BinIndex::parse(bins.len(), &bytes).unwrap();
            index.check(u64::MAX >> 8).unwrap();
            assert!(index.check(bins.last().unwrap().saturating_sub(1)).is_err());
            assert_eq!(index.bins().collect::<Vec<_>>(), bins, "seed {seed} round {round}");
            for number in (0..bins.len()).step_by(7) {
                assert_eq!(index.bin(number).unwrap(), bins[number]);
                let first = bins.partition_point(|bin| *bin < bins[number]);
                let end = bins.partition_point(|bin| *bin <= bins[number]);
                assert_eq!(index.equal_to(number).unwrap(), first..end);
            }
            assert!(index.bin(bins.len()).is_err() && index.equal_to(bins.len()).is_err());
            for _ in 0..100 {
                let near = bins[rng.below(bins.len() as u64) as usize];
                let bin = (near + rng.below(5)).saturating_sub(rng.below(5));
                let bin = if rng.one_in(10) { rng.next_u64() >> 8 } else { bin };
                let expected = bins.partition_point(|other| *other <= bin).saturating_sub(1);
                assert_eq!(index.search(bin), expected, "seed {seed} round {round} bin {bin}");
            }
        }
    }

    /// Eight bits for each of many pages with 64 bins each, and no more than the bound in any case.
    #[test]
    fn an_index_takes_eight_bits_a_page() {
        let mut rng = Rng::new(3);
        for bins_per_page in [45, 64, 90] {
            let mut bins: Vec<u64> = (0..3000).map(|_| rng.below(3000 * bins_per_page)).collect();
            bins.sort_unstable();
            let bits = encoded(&bins).len() as f64 * 8.0 / 3000.0;
            assert!((7.3..8.5).contains(&bits), "{bins_per_page}: {bits}");
        }
        assert_eq!(encoded(&[7; 1000]).len(), FIXED_BYTES + 125);
        assert_eq!(encoded(&[7]).len(), FIXED_BYTES + 1);
    }

    /// Any bytes: no panic, no endless loop, and results within the bounds.
    #[test]
    fn a_damaged_index_never_panics() {
        let (mut rng, _) = Rng::from_env();
        let bins = random_bins(&mut rng);
        let clean = encoded(&bins);
        for at in 0..clean.len() {
            for bit in 0..8 {
                let mut bytes = clean.clone();
                bytes[at] ^= 1 << bit;
                let Ok(index) = BinIndex::parse(bins.len(), &bytes) else { continue };
                let same = index.bins().eq(bins.iter().copied());
                assert!(!same || index.check(u64::MAX >> 8).is_err() || is_padding(&index));
                for bin in [0, bins[0], bins[bins.len() / 2], u64::MAX] {
                    assert!(index.search(bin) < bins.len());
                }
                let _ = (index.bin(bins.len() / 2), index.equal_to(bins.len() / 2));
            }
        }
        for cut in 0..clean.len() {
            if let Ok(index) = BinIndex::parse(bins.len(), &clean[..cut]) {
                assert!(index.check(u64::MAX >> 8).is_err(), "cut at {cut}");
                assert!(index.search(u64::MAX) < bins.len());
            }
        }
        assert!(BinIndex::parse(0, &clean).is_err());
        assert!(BinIndex::parse(9, &[57; 200]).is_err());
    }

    /// Whether the low bits do not fill their last byte: a flip in the rest of it changes no bin.
    fn is_padding(index: &BinIndex<'_>) -> bool {
        !(index.count * index.low_bits as usize).is_multiple_of(8)
    }
}
