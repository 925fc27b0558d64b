//! Rows for reads: looked for before anything else, left by gets that found theirs in a table.
//!
//! The order of a get: the key's bucket, a view, the number to read at, the row, and only then the
//! search. `cache::RowCache` says why no row is ever stale; what it asks of the caller is done in
//! [`Rows::keep`]: a row is left only where no memtable of the view has a newer version. What merge
//! operands make and what lies apart leaves no row, nor does a read of a snapshot; what came from a memtable
//! has one once that is flushed (`ordered::RowRefresh`).

use std::ops::Deref;
use std::sync::Arc;

use base::{Seqno, key_hash};
use bytes::Bytes;
use cache::rows::{Row, RowFrom, Vacancy, row_bytes};
use cache::{Balance, RowCache, RowHit, RowOwner};

use read::{Curves, Depth};

use super::{Lookup, Value};
use crate::View;
use crate::row_compression::RowCompression;

/// What is known of a key before its data is looked at.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    /// As `base::key_hash`.
    pub hash: u64,
    /// Where a row may be left.
    pub vacancy: Option<Vacancy>,
}

impl Probe {
    /// Of a read that leaves no row.
    pub fn without_fill(key: &[u8]) -> Self {
        Self { hash: key_hash(key), vacancy: None }
    }
}

/// The value of a row, and whether that was one of the tier below.
#[derive(Debug)]
pub struct RowValue {
    pub value: Value,
    pub from_scm: bool,
}

/// The row cache, as a store's reads use it.
#[derive(Debug)]
pub struct Rows {
    cache: Arc<RowCache>,
    balance: Arc<Balance>,
    curves: Arc<Curves>,
    /// Whether reads leave any.
    is_enabled: bool,
    compression: Arc<RowCompression>,
}

impl Rows {
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

    /// To be called before the view is taken that `key` is looked up in.
    #[inline]
    pub fn probe(&self, owner: &RowOwner, key: &[u8]) -> Probe {
        let hash = key_hash(key);
        Probe { hash, vacancy: self.cache.vacancy(owner, owner.hash(hash)) }
    }

    /// As [`Rows::probe`], for many keys: what each needs is asked for together.
    pub fn probes<K: AsRef<[u8]>>(&self, owner: &RowOwner, keys: &[K]) -> Vec<Probe> {
        let hashed = keys.iter().map(|key| {
            let hash = key_hash(key.as_ref());
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

    /// The value of `key` as of `at`, where a row has it, at the time `now` in Unix milliseconds;
    /// none: whenever it matters.
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
        match from_scm {
            false => self.curves.row_hit(hash, key, bytes.len()),
            true => self.promote(view, key, probe, at, (hit, &bytes)),
        }
        if hit.packed {
            bytes = table::unpack_value(&bytes).ok()?;
        }
        Some(RowValue { value: Value { bytes: Bytes::from(bytes), expiry: hit.expiry }, from_scm })
    }

    /// Leaves a row in DRAM of one that was found below, where it may.
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
        // A writer that forgot it above may have yet to forget it below.
        if view.holds_newer(key, at) {
            return;
        }
        let owner = view.read_context.rows();
        let hash = owner.hash(probe.hash);
        self.curves.row_missed(hash, key, stored.len());
        let RowHit { seqno, as_of, expiry, packed } = hit;
        let row = Row { key, value: stored, packed, seqno, as_of, expiry, from: RowFrom::ScmRow };
        // Refusals are counted there.
        let _ = self.cache.fill(owner, hash, vacancy, row);
    }

    /// Has the flush leave a row of what `lookup` found in memtables, where it may.
    fn note_miss<K: AsRef<[u8]>, V: Deref<Target = Arc<View>>>(
        &self,
        lookup: &Lookup<K, V>,
        value: &Value,
    ) {
        let Some(probe) = lookup.probe().filter(|_| self.is_enabled) else { return };
        let hash = lookup.view().read_context.rows().hash(probe.hash);
        let (key, stored) = (lookup.key(), value.bytes.len());
        if self.cache.expect(hash, row_bytes(key.len(), stored, value.expiry > 0)) {
            self.curves.row_expected(hash, key, stored);
        }
    }

    /// Leaves a row of what `lookup` found, where it may.
    pub fn fill<K: AsRef<[u8]>, V: Deref<Target = Arc<View>>>(
        &self,
        lookup: &Lookup<K, V>,
        value: &Value,
        depth: Depth,
    ) {
        let Some((probe, vacancy, seqno, as_of)) = lookup.row().filter(|_| self.is_enabled) else {
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
        let (value, expiry) = (&*value.bytes, value.expiry);
        let from = match depth {
            Depth::Memtable | Depth::Page => RowFrom::Dram,
            Depth::Below | Depth::BelowRead => RowFrom::Scm,
            Depth::Flash => RowFrom::Device,
        };
        let form = self.compression.form(&self.cache, value);
        let (value, packed) = form.as_deref().map_or((value, false), |form| (form, true));
        let row = Row { key, value, packed, seqno, as_of, expiry, from };
        let hash = owner.hash(probe.hash);
        self.curves.row_missed(hash, key, value.len());
        // Refusals are counted there.
        let _ = self.cache.fill(owner, hash, vacancy, row);
    }
}
