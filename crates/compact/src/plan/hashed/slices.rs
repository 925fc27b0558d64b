//! Slices of the hash space, and the bytes of pieces in them.

use std::ops::Range;

use base::invariant;
use bytes::Bytes;

use crate::plan::Piece;

/// One more than the largest hash.
const HASHES: u128 = 1 << 64;

/// Slices of a keyspace of common size.
const SLICES: u64 = 64;

/// Most slices, which bounds the planner's time.
const SLICES_MAX: u64 = 1 << 14;

/// The hash space divided into slices of equal size. Slices of one division nest in those of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slices {
    /// Number of slices, a power of two.
    pub(super) count: u64,
}

impl Slices {
    /// Slices for `bytes` bytes of tables: 64, but fewer if they would be below `bytes_min` each, and more if
    /// they would be above `bytes_max`, so that a merge is neither a trifle nor endless.
    pub(super) fn of(bytes: u64, bytes_min: u64, bytes_max: u64) -> Self {
        let most = (bytes / bytes_min.max(1)).max(1);
        let least = bytes.div_ceil(bytes_max.max(1)).max(1);
        // Rounded down: slices are at least `bytes_min` long.
        let most = 1 << most.ilog2();
        let count = SLICES.min(most).max(least.next_power_of_two()).min(SLICES_MAX);
        invariant!(count.is_power_of_two(), "the number of slices is a power of two");
        Self { count }
    }

    /// The hashes of slice `slice`.
    pub(super) fn hashes(self, slice: usize) -> Range<u128> {
        let width = HASHES / u128::from(self.count.max(1));
        let first = width * slice as u128;
        first..first + width
    }

    /// The slices that meet the hashes `hashes`.
    pub(super) fn meeting(self, hashes: &Range<u128>) -> Range<usize> {
        let width = HASHES / u128::from(self.count.max(1));
        let end = hashes.end.div_ceil(width).min(u128::from(self.count));
        (hashes.start / width) as usize..end as usize
    }
}

/// The hash that a key begins with; a shorter key is followed by zeros.
fn hash_of(key: &[u8]) -> u128 {
    let mut hash = [0; 8];
    for (to, from) in hash.iter_mut().zip(key) {
        *to = *from;
    }
    u128::from(u64::from_be_bytes(hash))
}

/// The shortest key that is not after any key with the hash `hash`; `None` after all hashes.
pub(super) fn key_of(hash: u128) -> Option<Bytes> {
    let hash = u64::try_from(hash).ok()?.to_be_bytes();
    let used = hash.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    Some(Bytes::copy_from_slice(hash.get(..used).unwrap_or_default()))
}

/// The hashes between the keys `first` and `end`, with those of both if the keys are longer than hashes.
pub(super) fn hashes_of(first: &[u8], end: Option<&[u8]>) -> Range<u128> {
    let after = |end: &[u8]| hash_of(end) + u128::from(end.len() > 8);
    let start = hash_of(first);
    start..end.map_or(HASHES, after).max(start + 1).min(HASHES)
}

/// The hashes of a piece.
pub(super) fn hashes_of_piece(piece: &Piece) -> Range<u128> {
    hashes_of(&piece.first, piece.end.as_deref())
}

/// Bytes of `piece` with the hashes `hashes`, in proportion to those of its file.
pub(super) fn bytes_in(piece: &Piece, hashes: &Range<u128>) -> u64 {
    let own = hashes_of_piece(piece);
    let first = own.start.max(hashes.start);
    let shared = own.end.min(hashes.end).saturating_sub(first) as f64;
    let file = &piece.file;
    let whole = match file.last_key.is_empty() {
        true => own,
        // The keys of the file, whatever the piece.
        false => hash_of(&file.first_key)..hash_of(&file.last_key) + 1,
    };
    let width = (whole.end.saturating_sub(whole.start) as f64).max(1.0);
    (file.bytes as f64 * (shared / width).min(1.0)) as u64
}

/// `piece` clipped to the hashes `hashes`, which it meets.
pub(super) fn clipped(piece: &Piece, hashes: &Range<u128>) -> Piece {
    let first = key_of(hashes.start).unwrap_or_default();
    let end = match (&piece.end, key_of(hashes.end)) {
        (Some(own), Some(end)) => Some(own.clone().min(end)),
        (own, end) => own.clone().or(end),
    };
    Piece { first: piece.first.clone().max(first), end, ..piece.clone() }
}

/// Whether two ranges of hashes have one in common.
pub(super) fn meet(one: &Range<u128>, other: &Range<u128>) -> bool {
    one.start < other.end && other.start < one.end
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn slices_have_a_useful_size() {
        let of = |bytes| Slices::of(bytes, MIB, 512 * MIB).count;
        for (bytes, count) in [
            (0, 1),
            (MIB, 1),
            (10 * MIB, 8),
            (64 * MIB, 64),
            (5 << 30, 64),
            (32 << 30, 64),
            (33 << 30, 128),
            (1 << 40, 2048),
            (u64::MAX, SLICES_MAX),
        ] {
            assert_eq!(of(bytes), count, "{bytes}");
        }
    }

    #[test]
    fn slices_meet_and_their_keys_are_their_bounds() {
        let slices = Slices { count: 64 };
        assert_eq!(key_of(slices.hashes(0).start), Some(Bytes::new()));
        assert_eq!(key_of(slices.hashes(1).start), Some(Bytes::from_static(&[4])));
        assert_eq!(key_of(slices.hashes(63).end), None);
        for slice in 0..64 {
            let hashes = slices.hashes(slice);
            assert_eq!(slices.meeting(&hashes), slice..slice + 1);
            let key = key_of(hashes.start).unwrap();
            assert_eq!(hash_of(&key), hashes.start);
        }
        assert_eq!(slices.meeting(&(0..HASHES)), 0..64);
        // A key longer than a hash ends after the first keys of its hash.
        let within = hashes_of(&[4], Some(&[8, 0, 0, 0, 0, 0, 0, 0, 1]));
        assert_eq!(slices.meeting(&within), 1..3);
        assert_eq!(slices.meeting(&hashes_of(&[4], Some(&[8]))), 1..2);
        assert_eq!(hashes_of(&[0xff; 12], None).end, HASHES);
    }
}
