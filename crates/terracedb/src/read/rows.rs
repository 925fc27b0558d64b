//! Rows for reads: looked for before anything else, left by gets that found theirs in a table.
//!
//! The order of a get: the key's bucket, a view, the number to read at, the row, and only then the
//! search. `cache::RowCache` says why no row is ever stale; what it asks of the caller is done in
//! [`Rows::keep`]: a row is left only where no memtable of the view has a newer version. What merge
//! operands make and what lies apart leaves no row, nor does a read of a snapshot; what came from a memtable
//! has one once that is flushed (`ordered::RowRenewal`).

use std::ops::Deref;
use std::sync::Arc;

use base::{Seqno, key_hash};
use bytes::Bytes;
use cache::rows::{Row, RowFrom, Vacancy, row_bytes};
use cache::{Balance, RowCache, RowHit, RowOwner};

use super::pages::Depth;
use super::{Curves, Lookup, Value};
use crate::ordered::View;
use crate::packing::Packing;

/// What is known of a key before its data is looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probe {
    /// As `base::key_hash`.
    pub(crate) hash: u64,
    /// Where a row may be left.
    pub(crate) vacancy: Option<Vacancy>,
}

impl Probe {
    /// Of a read that leaves no row.
    pub(crate) fn only_looking(key: &[u8]) -> Self {
        Self { hash: key_hash(key), vacancy: None }
    }
}

/// The value of a row, and whether that was one of the tier below.
#[derive(Debug)]
pub(crate) struct RowValue {
    pub(crate) value: Value,
    pub(crate) is_below: bool,
}

/// The row cache, as a store's reads use it.
#[derive(Debug)]
pub(crate) struct Rows {
    cache: Arc<RowCache>,
    balance: Arc<Balance>,
    curves: Arc<Curves>,
    /// Whether reads leave any.
    are_kept: bool,
    packing: Arc<Packing>,
}

impl Rows {
    pub(crate) fn new(
        cache: Arc<RowCache>,
        balance: Arc<Balance>,
        curves: Arc<Curves>,
        packing: Arc<Packing>,
        are_kept: bool,
    ) -> Self {
        Self { cache, balance, curves, are_kept, packing }
    }

    /// To be called before the view is taken that `key` is looked up in.
    #[inline]
    pub(crate) fn probe(&self, owner: &RowOwner, key: &[u8]) -> Probe {
        let hash = key_hash(key);
        Probe { hash, vacancy: self.cache.vacancy(owner, owner.hash(hash)) }
    }

    /// As [`Rows::probe`], for many keys: what each needs is asked for together.
    pub(crate) fn probes<K: AsRef<[u8]>>(&self, owner: &RowOwner, keys: &[K]) -> Vec<Probe> {
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
    pub(crate) fn get(
        &self,
        view: &View,
        key: &[u8],
        probe: Probe,
        at: Seqno,
        now: Option<u64>,
    ) -> Option<RowValue> {
        let owner = view.semantics.rows();
        let mut bytes = Vec::new();
        let hash = owner.hash(probe.hash);
        let (hit, is_below) = match self.cache.get(owner, key, hash, at, &mut bytes) {
            Some(hit) => (hit, false),
            None => (self.cache.get_from_scm(owner, key, hash, at, &mut bytes)?, true),
        };
        let is_over = || hit.expiry <= now.unwrap_or_else(|| view.semantics.timekeeper().now());
        if hit.expiry > 0 && is_over() {
            return None;
        }
        match is_below {
            false => self.curves.row_hit(hash, key, bytes.len()),
            true => self.rise(view, key, probe, at, (hit, &bytes)),
        }
        if hit.packed {
            bytes = table::unpack_value(&bytes).ok()?;
        }
        Some(RowValue { value: Value { bytes: Bytes::from(bytes), expiry: hit.expiry }, is_below })
    }

    /// Leaves a row in DRAM of one that was found below, where it may.
    fn rise(
        &self,
        view: &View,
        key: &[u8],
        probe: Probe,
        at: Seqno,
        (hit, stored): (RowHit, &[u8]),
    ) {
        let Some(vacancy) = probe.vacancy.filter(|_| self.are_kept) else { return };
        self.balance.missed();
        // A writer that forgot it above may have yet to forget it below.
        if view.holds_newer(key, at) {
            return;
        }
        let owner = view.semantics.rows();
        let hash = owner.hash(probe.hash);
        self.curves.row_missed(hash, key, stored.len());
        let RowHit { seqno, as_of, expiry, packed } = hit;
        let row = Row { key, value: stored, packed, seqno, as_of, expiry, from: RowFrom::ScmRow };
        // Refusals are counted there.
        let _ = self.cache.fill(owner, hash, vacancy, row);
    }

    /// A scan reads a page from the device.
    pub(super) fn scanned(&self) {
        if self.are_kept {
            self.balance.scanned();
        }
    }

    /// Has the flush leave a row of what `lookup` found in memtables, where it may.
    fn expect<K: AsRef<[u8]>, V: Deref<Target = Arc<View>>>(
        &self,
        lookup: &Lookup<K, V>,
        value: &Value,
    ) {
        let Some(probe) = lookup.probe().filter(|_| self.are_kept) else { return };
        let hash = lookup.view().semantics.rows().hash(probe.hash);
        let (key, stored) = (lookup.key(), value.bytes.len());
        if self.cache.expect(hash, row_bytes(key.len(), stored, value.expiry > 0)) {
            self.curves.row_expected(hash, key, stored);
        }
    }

    /// Leaves a row of what `lookup` found, where it may.
    pub(crate) fn keep<K: AsRef<[u8]>, V: Deref<Target = Arc<View>>>(
        &self,
        lookup: &Lookup<K, V>,
        value: &Value,
        depth: Depth,
    ) {
        let Some((probe, vacancy, seqno, as_of)) = lookup.row().filter(|_| self.are_kept) else {
            if depth == Depth::Memtable {
                self.expect(lookup, value);
            }
            return;
        };
        self.balance.missed();
        let (key, view) = (lookup.key(), lookup.view());
        if view.holds_newer(key, as_of) {
            return;
        }
        let owner = view.semantics.rows();
        let (value, expiry) = (&*value.bytes, value.expiry);
        let from = match depth {
            Depth::Memtable | Depth::Page => RowFrom::Dram,
            Depth::Below | Depth::BelowRead => RowFrom::Scm,
            Depth::Flash => RowFrom::Device,
        };
        let form = self.packing.form(&self.cache, value);
        let (value, packed) = form.as_deref().map_or((value, false), |form| (form, true));
        let row = Row { key, value, packed, seqno, as_of, expiry, from };
        let hash = owner.hash(probe.hash);
        self.curves.row_missed(hash, key, value.len());
        // Refusals are counted there.
        let _ = self.cache.fill(owner, hash, vacancy, row);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use base::{EntryKind, Trailer};
    use media::MemoryMedium;

    use super::*;
    use crate::Db;
    use crate::batch::WriteSize;

    /// A get takes its view, a memtable is sealed and a range delete goes into the next one, and only then
    /// the get takes its number: it may find what was deleted meanwhile, and leaves no row of it.
    #[test]
    fn a_range_delete_between_the_view_and_the_number_leaves_no_row_of_what_it_deletes() {
        let db = Db::on_medium(Arc::new(MemoryMedium::new())).memory(64 << 20).open().unwrap();
        let keyspace = db.keyspace("k").unwrap();
        keyspace.put("b", "old").unwrap();
        db.flush().unwrap();
        // So that there is something to seal.
        keyspace.put("z", "other").unwrap();
        let (store, tree) = (keyspace.store(), keyspace.tree());
        let probe = store.reader.rows.probe(tree.rows(), b"b");
        let view = tree.view_owned();
        assert!(store.buffers.seal(tree).unwrap());
        keyspace.delete_range("a".."c").unwrap();
        let at = store.ring.visible();
        let mut lookup = Lookup::new(&b"b"[..], probe, &view, at, None);
        let (value, depth) = store.reader.run(&mut lookup, None).unwrap();
        assert_eq!(value.as_ref().map(|it| &*it.bytes), Some(&b"old"[..]));
        store.reader.rows.keep(&lookup, &value.unwrap(), depth);
        assert_eq!(keyspace.get("b").unwrap(), None);
        // Others do.
        keyspace.put("x", "kept").unwrap();
        db.flush().unwrap();
        let rows = db.statistics().rows;
        keyspace.get("x").unwrap();
        assert_eq!(db.statistics().rows.rows, rows.rows + 1);
    }

    /// A writer put a version in a memtable and forgot the key above, but not below yet: a reader finds the
    /// row there, which its number still sees, and leaves none above.
    #[test]
    fn a_row_below_comes_up_only_where_no_memtable_has_a_newer_version() {
        let scm = crate::Scm::new("emulated:cxl-dram", 16 << 20).unwrap();
        let db = Db::on_medium(Arc::new(MemoryMedium::new())).memory(64 << 20).scm(scm);
        let db = db.open().unwrap();
        let keyspace = db.keyspace("k").unwrap();
        for key in ["a", "b"] {
            keyspace.put(key, "old").unwrap();
        }
        db.flush().unwrap();
        let (store, tree) = (keyspace.store(), keyspace.tree());
        let (rows, owner) = (&store.reader.rows.cache, tree.rows());
        let (at, expiry) = (store.ring.visible(), 0);
        let fill = |key: &[u8], value: &[u8]| {
            let hash = owner.hash(key_hash(key));
            let row = Row {
                key,
                value,
                packed: false,
                seqno: at,
                as_of: at,
                expiry,
                from: RowFrom::Device,
            };
            let _ = rows.fill(owner, hash, rows.vacancy(owner, hash).unwrap(), row);
        };
        let is_above = |key: &[u8]| {
            let hash = owner.hash(key_hash(key));
            rows.get(owner, key, hash, at, &mut Vec::new()).is_some()
        };
        let is_below = |key: &[u8]| {
            let hash = owner.hash(key_hash(key));
            rows.get_from_scm(owner, key, hash, at, &mut Vec::new()).is_some()
        };
        // Until both left for the tier below: now and then one's bucket changes on its way.
        let mut numbers = 0u64..;
        for _ in 0..20 {
            fill(b"a", b"old");
            fill(b"b", b"old");
            for number in numbers.by_ref().take(40_000) {
                fill(&number.to_be_bytes(), &[7; 1900]);
                if is_below(b"a") && is_below(b"b") {
                    break;
                }
                if number % 64 == 0 {
                    rows.demote_rows();
                }
            }
            if is_below(b"a") && is_below(b"b") {
                break;
            }
        }
        let newer = Seqno::new(at.get() + 1);
        let view = tree.view_owned();
        let memtable = view.memtable_for(newer);
        let size = WriteSize { entries: 1, bytes: 4, ranges: 0, range_bytes: 0 };
        memtable.reserve(size).unwrap();
        let trailer = Trailer::new(newer, EntryKind::Put);
        memtable.insert(b"a", trailer, b"new", || store.snapshots.horizon(&store.ring));
        for (key, rises) in [(b"a", false), (b"b", true)] {
            let probe = store.reader.rows.probe(owner, key);
            let found = store.reader.rows.get(&view, key, probe, at, None).unwrap();
            assert_eq!((&found.value.bytes[..], found.is_below), (&b"old"[..], true));
            assert_eq!(is_above(key), rises, "{key:?}");
        }
    }

    /// A batch in a memtable after the view's, one of whose keys has a row: whoever reads both keys would see
    /// half of it.
    #[test]
    fn many_keys_are_read_in_a_view_that_has_all_that_rows_may_have() {
        let db = Db::on_medium(Arc::new(MemoryMedium::new())).memory(64 << 20).open().unwrap();
        let keyspace = db.keyspace("k").unwrap();
        let write = |value: &str| {
            let mut batch = crate::WriteBatch::new();
            batch.put(&keyspace, "a", value).unwrap();
            batch.put(&keyspace, "b", value).unwrap();
            db.write(&batch).unwrap();
        };
        write("old");
        let (store, tree) = (keyspace.store(), keyspace.tree());
        let written = Cell::new(false);
        // What comes between the view and the number, the first time.
        let visible = || {
            if !written.replace(true) {
                assert!(store.buffers.seal(tree).unwrap());
                write("new");
                db.flush().unwrap();
                assert_eq!(keyspace.get("a").unwrap().as_deref(), Some(&b"new"[..]));
            }
            store.ring.visible()
        };
        let read = |view: &Arc<View>, at| -> Vec<_> {
            let values = keyspace.multi_get_at(&["a", "b"], Arc::clone(view), at).unwrap();
            values.into_iter().map(|value| value.unwrap().unwrap()).collect()
        };
        let (view, at) = tree.read_view(visible);
        assert_eq!(read(&view, at), ["new", "old"], "what one key's moment is not for");
        written.set(false);
        write("old");
        let (view, at) = tree.batch_read_view(visible);
        assert_eq!(read(&view, at), ["new", "new"]);
    }
}
