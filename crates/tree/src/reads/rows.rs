//! Reads through the row cache: a get looks for a row before it searches the tree, and fills a row if it
//! found the value in a table.
//!
//! The order of a get: the key's bucket ([`Rows::probe`]), the read view, the read sequence number, the row,
//! and only then the search of memtables and tables. The header of `cache::RowCache` explains why no row is
//! ever stale (I1). Its condition on fills is met in [`Rows::fill`]: no memtable of the view may have a newer
//! version. No row is filled for the result of merge operands, for a separated value, or by a read at a
//! snapshot. A value found in a memtable gets its row when that is flushed ([`crate::RowRefresh`]).

use std::ops::Deref;
use std::sync::Arc;

use base::{Key, Seqno, key_hash};
use bytes::Bytes;
use cache::rows::{Row, RowFrom, Vacancy, row_bytes};
use cache::{Balance, RowCache, RowHit, RowOwner};
use read::{Curves, Depth};

use super::lookup::RowTarget;
use super::{Lookup, Value};
use crate::View;
use crate::row_compression::RowCompression;

/// The state of a key's bucket, taken before the key is read.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    /// As `base::key_hash`.
    pub hash: u64,
    /// Allows a row to be filled; `None` if none may be.
    pub vacancy: Option<Vacancy>,
}

impl Probe {
    /// For a read that fills no row.
    pub fn without_fill(key: &[u8]) -> Self {
        Self { hash: key_hash(key), vacancy: None }
    }
}

/// The value of a row.
#[derive(Debug)]
pub struct RowValue {
    /// The value.
    pub value: Value,
    /// Whether the row was found in SCM, not in DRAM.
    pub from_scm: bool,
}

/// The row cache as used by a store's reads. Any thread may call.
#[derive(Debug)]
pub struct Rows {
    cache: Arc<RowCache>,
    balance: Arc<Balance>,
    curves: Arc<Curves>,
    /// Whether reads fill rows.
    is_enabled: bool,
    compression: Arc<RowCompression>,
}

impl Rows {
    /// Reads through `cache`. If `is_enabled` is false, rows are looked up but not filled. `balance` and
    /// `curves` count misses; `compression` decides how values are stored.
    pub fn new(
        cache: Arc<RowCache>,
        balance: Arc<Balance>,
        curves: Arc<Curves>,
        compression: Arc<RowCompression>,
        is_enabled: bool,
    ) -> Self {
        Self { cache, balance, curves, is_enabled, compression }
    }

    /// The row cache.
    #[must_use]
    pub fn cache(&self) -> &RowCache {
        &self.cache
    }

    /// The probe of `key`. To be called before the view is taken in which `key` is looked up.
    #[inline]
    pub fn probe(&self, owner: &RowOwner, key: &[u8]) -> Probe {
        let hash = key_hash(key);
        Probe { hash, vacancy: self.cache.vacancy(owner, owner.hash(hash)) }
    }

    /// As [`Rows::probe`], for many keys: their cache lines are prefetched together.
    pub fn probes<'k>(&self, owner: &RowOwner, keys: impl Iterator<Item = Key<'k>>) -> Vec<Probe> {
        let hashed = keys.map(|key| {
            let hash = key_hash(key.bytes());
            self.cache.prefetch(owner.hash(hash));
            Probe { hash, vacancy: None }
        });
        let mut probes: Vec<_> = hashed.collect();
        for probe in &mut probes {
            let hash = owner.hash(probe.hash);
            probe.vacancy = self.cache.vacancy(owner, hash);
            self.cache.prefetch_row(hash);
        }
        probes
    }

    /// The value of `key` at the seqno `at`, if a row has it that is not expired at `now`. `now` is in Unix
    /// milliseconds; `None` means the time when it is first needed.
    #[inline]
    pub fn get(
        &self,
        view: &View,
        key: &[u8],
        probe: Probe,
        at: Seqno,
        now: Option<u64>,
    ) -> Option<RowValue> {
        let owner = view.read_context.rows();
        let mut bytes = Vec::new();
        let hash = owner.hash(probe.hash);
        let (hit, from_scm) = match self.cache.get(owner, key, hash, at, &mut bytes) {
            Some(hit) => (hit, false),
            None => (self.cache.get_from_scm(owner, key, hash, at, &mut bytes)?, true),
        };
        let is_expired =
            || hit.expiry <= now.unwrap_or_else(|| view.read_context.timekeeper().now());
        if hit.expiry > 0 && is_expired() {
            return None;
        }
        if let Some(clock) = view.read_context.clock() {
            clock.note_read(key, hit.seqno);
        }
        match from_scm {
            false => self.curves.row_hit(hash, key, bytes.len()),
            true => self.promote(view, key, probe, at, (hit, &bytes)),
        }
        if hit.packed {
            bytes = table::unpack_value(&bytes).ok()?;
        }
        Some(RowValue { value: Value { bytes: Bytes::from(bytes), expiry: hit.expiry }, from_scm })
    }

    /// Fills a row in DRAM with one that was found in SCM, if allowed.
    fn promote(
        &self,
        view: &View,
        key: &[u8],
        probe: Probe,
        at: Seqno,
        (hit, stored): (RowHit, &[u8]),
    ) {
        let Some(vacancy) = probe.vacancy.filter(|_| self.is_enabled) else { return };
        self.balance.missed();
        // A writer that made the row stale in DRAM may not have done so in SCM yet.
        if view.holds_newer(key, at) {
            return;
        }
        let owner = view.read_context.rows();
        let hash = owner.hash(probe.hash);
        self.curves.row_missed(hash, key, stored.len());
        let RowHit { seqno, as_of, expiry, packed } = hit;
        let row = Row { key, value: stored, packed, seqno, as_of, expiry, from: RowFrom::ScmRow };
        // The cache counts refusals.
        let _ = self.cache.fill(owner, hash, vacancy, row);
    }

    /// Asks the flush to make a row of a value that `lookup` found in a memtable, if allowed.
    fn note_miss<K: AsRef<[u8]>, V: Deref<Target = Arc<View>>>(
        &self,
        lookup: &Lookup<K, V>,
        value: &Value,
    ) {
        let Some(probe) = lookup.probe().filter(|_| self.is_enabled) else { return };
        let hash = lookup.view().read_context.rows().hash(probe.hash);
        let (key, stored) = (lookup.key(), value.bytes.len());
        if self.cache.note_miss(hash, row_bytes(key.len(), stored, value.expiry > 0)) {
            self.curves.row_flushed(hash, key, stored);
        }
    }

    /// Fills a row with the value that `lookup` found, if allowed. `depth` says how far the lookup had to
    /// read.
    pub fn fill<K: AsRef<[u8]>, V: Deref<Target = Arc<View>>>(
        &self,
        lookup: &Lookup<K, V>,
        value: &Value,
        depth: Depth,
    ) {
        let target = lookup.row().filter(|_| self.is_enabled);
        let Some(RowTarget { hash, vacancy, seqno, as_of }) = target else {
            if depth == Depth::Memtable {
                self.note_miss(lookup, value);
            }
            return;
        };
        self.balance.missed();
        let (key, view) = (lookup.key(), lookup.view());
        if view.holds_newer(key, as_of) {
            return;
        }
        let owner = view.read_context.rows();
        let hash = owner.hash(hash);
        self.with_row(lookup, value, depth, (seqno, as_of), |row| {
            self.curves.row_missed(hash, key, row.value.len());
            // The cache counts refusals.
            let _ = self.cache.fill(owner, hash, vacancy, row);
        });
    }

    /// As [`Rows::fill`], for a row that was hot before the store was opened and that nobody asked for yet:
    /// it evicts no other, and counts as no miss.
    pub fn fill_ahead<K: AsRef<[u8]>, V: Deref<Target = Arc<View>>>(
        &self,
        lookup: &Lookup<K, V>,
        value: &Value,
        depth: Depth,
    ) {
        let target = lookup.row().filter(|_| self.is_enabled);
        let Some(RowTarget { hash, vacancy, seqno, as_of }) = target else { return };
        let (key, view) = (lookup.key(), lookup.view());
        if view.holds_newer(key, as_of) {
            return;
        }
        let owner = view.read_context.rows();
        self.with_row(lookup, value, depth, (seqno, as_of), |row| {
            // The cache counts refusals.
            let _ = self.cache.fill_ahead(owner, owner.hash(hash), vacancy, row);
        });
    }

    /// Calls `fill` with the row of the value that `lookup` found, compressed if memory is short.
    fn with_row<K: AsRef<[u8]>, V: Deref<Target = Arc<View>>>(
        &self,
        lookup: &Lookup<K, V>,
        value: &Value,
        depth: Depth,
        (seqno, as_of): (Seqno, Seqno),
        fill: impl FnOnce(Row<'_>),
    ) {
        let (value, expiry) = (&*value.bytes, value.expiry);
        let from = match depth {
            Depth::Memtable | Depth::Page => RowFrom::Dram,
            Depth::Scm | Depth::ScmRead => RowFrom::Scm,
            Depth::Flash => RowFrom::Device,
        };
        let form = self.compression.form(&self.cache, value);
        let (value, packed) = form.as_deref().map_or((value, false), |form| (form, true));
        fill(Row { key: lookup.key(), value, packed, seqno, as_of, expiry, from });
    }
}
