//! Counters of one keyspace since the store was opened: its lookups, and the bytes that its flushes and
//! merges wrote.
//!
//! Threads: any. Cost: a lookup adds to two or three striped counters at its end.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use base::{Counter, KeyRange};

/// Lookups that were not answered by a row, and the device reads that they waited for.
#[derive(Debug, Default)]
pub struct LookupCounters {
    /// Lookups that found a value.
    pub hits: Counter,
    /// Lookups that found none.
    pub misses: Counter,
    /// Device reads of lookups that found a value.
    pub hit_reads: Counter,
    /// Device reads of lookups that found none.
    pub miss_reads: Counter,
    /// The part of `hit_reads` in tables with filters that do not have the key: a filter did not exclude it.
    pub hit_false_reads: Counter,
    /// The same of `miss_reads`.
    pub miss_false_reads: Counter,
}

/// Walks of iterators, cursors and transactions, and their work.
#[derive(Debug, Default)]
pub struct WalkCounters {
    /// Seeks: how much the keyspace is scanned decides how eagerly it is merged.
    pub seeks: Counter,
    /// Runs of tables that seeks found an entry in.
    pub seek_runs: Counter,
    /// Device reads of walks, those of read-ahead counted once a window.
    pub device_reads: Counter,
    /// Versions that walks stepped over without returning them.
    pub stepped_over: Counter,
}

/// The device reads of one lookup.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LookupReads {
    /// All of them.
    pub(crate) all: u32,
    /// Those in tables with filters that do not have the key.
    pub(crate) useless: u32,
}

impl LookupCounters {
    /// Counts a lookup that ended.
    #[inline]
    pub(crate) fn ended(&self, reads: LookupReads, is_hit: bool) {
        let (lookups, all, useless) = match is_hit {
            true => (&self.hits, &self.hit_reads, &self.hit_false_reads),
            false => (&self.misses, &self.miss_reads, &self.miss_false_reads),
        };
        lookups.add(1);
        if reads.all > 0 {
            all.add(u64::from(reads.all));
        }
        if reads.useless > 0 {
            useless.add(u64::from(reads.useless));
        }
    }
}

/// Parts of the hash space are counted in units of 2^-32 of it.
const WHOLE: f64 = (1u64 << 32) as f64;

/// Bytes written by a keyspace and for it.
#[derive(Debug, Default)]
pub struct WriteCounters {
    /// Bytes of the keys and values of acknowledged writes, keys as they are stored.
    pub user_bytes: Counter,
    /// Bytes of the files that flushes wrote.
    pub flush_bytes: AtomicU64,
    /// Bytes of the files that merges wrote.
    pub merge_bytes: AtomicU64,
    /// Merges into the oldest data.
    pub base_merges: AtomicU64,
    base_merged: AtomicU64,
    /// Versions that merges dropped.
    pub dropped_entries: AtomicU64,
}

impl WriteCounters {
    /// Counts a merge that wrote `bytes` and dropped `dropped` versions; `base`: the keys, if it merged the
    /// oldest data.
    pub fn merged(&self, bytes: u64, dropped: u64, base: Option<&KeyRange>) {
        self.merge_bytes.fetch_add(bytes, Relaxed);
        self.dropped_entries.fetch_add(dropped, Relaxed);
        if let Some(keys) = base {
            self.base_merges.fetch_add(1, Relaxed);
            self.base_merged.fetch_add((hash_share(keys) * WHOLE) as u64, Relaxed);
        }
    }

    /// How many times the oldest data was merged as a whole: the sum of the parts of the hash space that
    /// merges covered. Meaningless for ordered keys.
    #[must_use]
    pub fn base_cycles(&self) -> f64 {
        self.base_merged.load(Relaxed) as f64 / WHOLE
    }
}

/// The part of the hash space between the bounds of `keys`.
fn hash_share(keys: &KeyRange) -> f64 {
    let at = |key: &[u8]| {
        let mut hash = [0; 8];
        hash.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
        u64::from_be_bytes(hash) as f64 / 2f64.powi(64)
    };
    (keys.end.as_deref().map_or(1.0, at) - at(&keys.first)).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merges_of_every_slice_are_one_cycle() {
        let counters = WriteCounters::default();
        for slice in 0..64u8 {
            let end = [(slice + 1) << 2];
            let keys = KeyRange::new(&[slice << 2], (slice < 63).then_some(&end));
            counters.merged(10, 1, Some(&keys));
        }
        counters.merged(5, 0, None);
        assert!((counters.base_cycles() - 1.0).abs() < 1e-6, "{}", counters.base_cycles());
        assert_eq!(counters.merge_bytes.load(Relaxed), 645);
        assert_eq!(counters.base_merges.load(Relaxed), 64);
        assert_eq!(hash_share(&KeyRange::all()), 1.0);
        assert_eq!(hash_share(&KeyRange::new(&[0x80], Some(&[0x80, 0, 0, 0, 0, 0, 0, 0, 1]))), 0.0);
    }
}
