//! Selects the entries that a partial discard of a window retains.
//!
//! An entry is retained if it is the newest version of its key, no tombstone, and has a priority above 0. The
//! retained entries take a bounded number of bytes. Entries come in the order of a uniform hash, so those
//! seen so far show how many of each priority the rest has: at every point, the entries retained so far take
//! about the share of the bytes that the hash space has been passed of. So the highest priorities win over
//! the whole hash space, and of entries of equal priority, those retained are a fair sample.
//!
//! Only the thread of the merge calls. Cost: the priority, and a few additions an entry.

use std::fmt;

use base::{EntryKind, KEY_HASH_BYTES, Result, expiry, invariant};
use table::Pointer;

use crate::RetainedVersion;

/// The priority of an entry, by its stored key (hash and user key) and its value; 0: it is evicted. The value
/// is `None` if it is stored apart from its key.
pub type PriorityFn = Box<dyn FnMut(&[u8], Option<&[u8]>) -> u8 + Send>;

/// Entries cluster by chance: those that fit as a whole may exceed their share so far by this part of the
/// bytes, and by this many of the longest entries, but at most by half of the bytes.
const SLACK_PART: u64 = 16;
const SLACK_ENTRIES: u64 = 4;

/// Selects the entries that stay. See the module.
pub struct Selection {
    priority: PriorityFn,
    bytes_max: u64,
    kept_bytes: u64,
    evicted: u64,
    /// The longest entry so far, bytes.
    longest: u64,
    /// Bytes of the entries so far by priority, retained or not.
    seen: [u64; 256],
    /// Entries of this priority or a higher one fit their share. 256: none does.
    threshold: usize,
    /// Bytes of the entries so far of `threshold` or a higher priority.
    above: u64,
}

impl Selection {
    /// Selects entries of at most `bytes_max` bytes by `priority`.
    #[must_use]
    pub fn new(bytes_max: u64, priority: PriorityFn) -> Self {
        Self {
            priority,
            bytes_max,
            kept_bytes: 0,
            evicted: 0,
            longest: 0,
            seen: [0; 256],
            threshold: 1,
            above: 0,
        }
    }

    /// Most bytes of the entries that stay.
    #[must_use]
    pub const fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Versions that were evicted.
    pub(crate) const fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Whether `version` stays.
    ///
    /// # Errors
    /// `Corrupt` if a table cannot hold such a version.
    pub(crate) fn retains(&mut self, version: &RetainedVersion<'_>) -> Result<bool> {
        let is_kept = self.decide(version)?;
        self.evicted += u64::from(!is_kept);
        Ok(is_kept)
    }

    fn decide(&mut self, version: &RetainedVersion<'_>) -> Result<bool> {
        // An older version must not outlive a newer one that is evicted.
        if version.superseded_by.is_some() {
            return Ok(false);
        }
        let mut bytes = (version.key.len() + version.value.len()) as u64;
        let value = match version.trailer.kind()? {
            EntryKind::Put => Some(version.value),
            EntryKind::PutExpiring => Some(expiry::split(version.value)?.1),
            EntryKind::PutPointer => {
                bytes = bytes.saturating_add(Pointer::decode(version.value)?.bytes);
                None
            }
            // Nothing lies below the output, so there is nothing to hide. Windows have no operands.
            EntryKind::Delete | EntryKind::DeleteRange | EntryKind::Merge => return Ok(false),
        };
        let priority = usize::from((self.priority)(version.key, value));
        if priority == 0 {
            return Ok(false);
        }
        self.longest = self.longest.max(bytes);
        let slack = (self.bytes_max / SLACK_PART)
            .saturating_add(self.longest.saturating_mul(SLACK_ENTRIES))
            .min(self.bytes_max / 2);
        let share = share_of(self.bytes_max - slack, version.key);
        self.count(priority, bytes, share.saturating_add(slack));
        // Entries just below the threshold fill the share up. The slack is left for those above it.
        let room = match priority >= self.threshold {
            true => self.bytes_max,
            false if self.is_just_below(priority) => share,
            false => return Ok(false),
        };
        let kept_bytes = self.kept_bytes.saturating_add(bytes);
        if kept_bytes > room {
            return Ok(false);
        }
        self.kept_bytes = kept_bytes;
        invariant!(
            self.kept_bytes <= self.bytes_max,
            "the entries that stay take no more than their part of the window"
        );
        Ok(true)
    }

    /// Whether no entry so far has a priority between `priority` and the threshold.
    fn is_just_below(&self, priority: usize) -> bool {
        let between = self.seen.get(priority + 1..self.threshold);
        between.is_some_and(|seen| seen.iter().all(|bytes| *bytes == 0))
    }

    /// Counts an entry and moves the threshold, so that the entries from there up fit `share`.
    fn count(&mut self, priority: usize, bytes: u64, share: u64) {
        let seen = |this: &Self, priority: usize| this.seen.get(priority).copied().unwrap_or(0);
        if let Some(count) = self.seen.get_mut(priority) {
            *count = count.saturating_add(bytes);
        }
        if priority >= self.threshold {
            self.above = self.above.saturating_add(bytes);
        }
        while self.above > share && self.threshold < self.seen.len() {
            self.above = self.above.saturating_sub(seen(self, self.threshold));
            self.threshold += 1;
        }
        while self.threshold > 1 {
            let wider = self.above.saturating_add(seen(self, self.threshold - 1));
            if wider > share {
                break;
            }
            (self.above, self.threshold) = (wider, self.threshold - 1);
        }
        debug_assert!(
            self.above == self.seen.iter().skip(self.threshold).sum::<u64>(),
            "the bytes from the threshold up are those of its priorities"
        );
    }
}

/// The part of `bytes` that belongs to the hashes up to that of the stored key `key`.
fn share_of(bytes: u64, key: &[u8]) -> u64 {
    let hash = key.first_chunk::<KEY_HASH_BYTES>().map_or(u64::MAX, |it| u64::from_be_bytes(*it));
    // At most `bytes`, so that the cast loses nothing.
    ((u128::from(bytes) * (u128::from(hash) + 1)) >> u64::BITS) as u64
}

impl fmt::Debug for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Selection({} of {} bytes)", self.kept_bytes, self.bytes_max)
    }
}

#[cfg(test)]
mod tests {
    use base::{Rng, Seqno, Trailer};

    use super::*;

    /// Entries of random hashes in their order, `value` of each by its number.
    fn entries(
        rng: &mut Rng,
        count: usize,
        value: impl Fn(&mut Rng) -> Vec<u8>,
    ) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut all: Vec<_> = (0..count)
            .map(|number| {
                let mut key = rng.next_u64().to_be_bytes().to_vec();
                key.extend_from_slice(&(number as u32).to_be_bytes());
                (key, value(rng))
            })
            .collect();
        all.sort();
        all
    }

    fn put<'a>(key: &'a [u8], value: &'a [u8]) -> RetainedVersion<'a> {
        let trailer = Trailer::new(Seqno::new(9), EntryKind::Put);
        RetainedVersion { key, trailer, value, superseded_by: None }
    }

    fn by_first_byte(bytes_max: u64) -> Selection {
        let priority = |_: &[u8], value: Option<&[u8]>| value.map_or(0, |value| value[0]);
        Selection::new(bytes_max, Box::new(priority))
    }

    /// Bytes retained by priority, and by quarter of the hash space.
    fn retained(
        selection: &mut Selection,
        entries: &[(Vec<u8>, Vec<u8>)],
    ) -> ([u64; 256], [u64; 4]) {
        let (mut priorities, mut quarters) = ([0; 256], [0; 4]);
        for (key, value) in entries {
            if selection.retains(&put(key, value)).unwrap() {
                let bytes = (key.len() + value.len()) as u64;
                priorities[usize::from(value[0])] += bytes;
                quarters[usize::from(key[0] >> 6)] += bytes;
            }
        }
        (priorities, quarters)
    }

    #[test]
    fn everything_of_a_priority_stays_if_it_fits() {
        let (mut rng, seed) = Rng::from_env();
        println!("TERRACE_SEED={seed}");
        let all = entries(&mut rng, 10_000, |rng| vec![u8::from(rng.one_in(3)); 20]);
        let bytes = all.iter().filter(|(_, value)| value[0] == 1).count() as u64 * 32;
        let mut selection = by_first_byte(bytes + bytes / 8);
        let (priorities, _) = retained(&mut selection, &all);
        assert_eq!((priorities[0], priorities[1]), (0, bytes));
        assert_eq!(selection.evicted() * 32 + bytes, 320_000);
    }

    /// Scenario: of four priorities, the two highest fit and the third in part.
    #[test]
    fn higher_priorities_win_evenly_over_the_hash_space() {
        let (mut rng, seed) = Rng::from_env();
        println!("TERRACE_SEED={seed}");
        let all = entries(&mut rng, 20_000, |rng| vec![[0, 7, 9, 200][rng.below(4) as usize]; 20]);
        let of =
            |priority| all.iter().filter(|(_, value)| value[0] == priority).count() as u64 * 32;
        let bytes_max = of(200) + of(9) + of(7) / 2;
        let (priorities, quarters) = retained(&mut by_first_byte(bytes_max), &all);
        assert_eq!(priorities.iter().sum::<u64>(), quarters.iter().sum::<u64>());
        assert!(priorities.iter().sum::<u64>() <= bytes_max);
        for priority in [200, 9] {
            let (kept, all) = (priorities[usize::from(priority)], of(priority));
            assert!(kept >= all - all / 100, "{priority}: {kept} of {all}");
        }
        let third = priorities[7];
        assert!(third > of(7) / 3 && third < of(7) * 2 / 3 && priorities[0] == 0, "{third}");
        for quarter in quarters {
            assert!(quarter.abs_diff(bytes_max / 4) < bytes_max / 16, "{quarters:?}");
        }
    }

    #[test]
    fn equal_priorities_are_thinned_evenly_and_never_exceed_the_bytes() {
        let (mut rng, seed) = Rng::from_env();
        println!("TERRACE_SEED={seed}");
        let all = entries(&mut rng, 10_000, |_| vec![1; 20]);
        for bytes_max in [0, 10, 1000, 30_000, 1 << 40] {
            let mut selection = by_first_byte(bytes_max);
            let (priorities, quarters) = retained(&mut selection, &all);
            assert!(priorities[1] <= bytes_max, "{bytes_max}");
            if bytes_max == 30_000 {
                assert!(priorities[1] > 27_500, "{}", priorities[1]);
                assert!(quarters.iter().all(|bytes| bytes.abs_diff(7500) < 2500), "{quarters:?}");
            }
            if bytes_max == 1 << 40 {
                assert_eq!((priorities[1], selection.evicted()), (320_000, 0));
            }
        }
    }

    #[test]
    fn neither_tombstones_nor_superseded_versions_stay() {
        let mut selection = Selection::new(1 << 20, Box::new(|_, _| 1));
        let mut retains = |kind, superseded_by| {
            let trailer = Trailer::new(Seqno::new(9), kind);
            let version =
                RetainedVersion { key: b"12345678k", trailer, value: b"v", superseded_by };
            selection.retains(&version).unwrap()
        };
        assert!(retains(EntryKind::Put, None));
        assert!(!retains(EntryKind::Put, Some(Seqno::new(12))));
        assert!(!retains(EntryKind::Delete, None));
    }
}
