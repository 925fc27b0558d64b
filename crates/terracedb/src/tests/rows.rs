//! The row cache and the read views that reads use with it.

use std::cell::Cell;
use std::sync::Arc;

use base::{EntryKind, ManualClock, Seqno, Stepper, Trailer, WriteSize, key_hash};
use cache::rows::{Row, RowFrom};
use media::MemoryMedium;
use tree::View;
use tree::reads::Lookup;

use crate::Db;

/// A get takes its view; then the memtable is sealed and a range delete is written to the next one; then the
/// get takes its read sequence number. The get may return the deleted value, but must not cache its row.
#[test] // I1
fn a_range_delete_between_the_view_and_the_read_seqno_leaves_no_row() {
    let db = Db::on_medium(Arc::new(MemoryMedium::new())).memory(64 << 20).open().unwrap();
    let keyspace = db.open_or_create_keyspace("k").unwrap();
    keyspace.put("b", "old").unwrap();
    db.flush().unwrap();
    // Makes the memtable non-empty, so that it can be sealed.
    keyspace.put("z", "other").unwrap();
    let (store, tree) = (keyspace.store(), keyspace.tree());
    let probe = store.reader.rows.probe(tree.rows(), b"b");
    let view = tree.view_owned();
    assert!(store.buffers.seal(tree).unwrap());
    keyspace.delete_range("a".."c").unwrap();
    let at = store.ring.visible();
    let mut lookup = Lookup::new(&b"b"[..], probe, &view, at, None);
    let (value, depth) = store.reader.pages.run(&mut lookup, None).unwrap();
    assert_eq!(value.as_ref().map(|it| &*it.bytes), Some(&b"old"[..]));
    store.reader.rows.fill(&lookup, &value.unwrap(), depth);
    assert_eq!(keyspace.get("b").unwrap(), None);
    // A get without such a range delete does cache its row.
    keyspace.put("x", "kept").unwrap();
    db.flush().unwrap();
    let rows = db.statistics().rows;
    keyspace.get("x").unwrap();
    assert_eq!(db.statistics().rows.rows, rows.rows + 1);
}

/// A writer inserted a new version into a memtable and invalidated the row in DRAM, but not yet in SCM. A
/// reader with an older read sequence number finds the row in SCM, and must not promote it to DRAM.
#[test]
fn a_row_in_scm_is_promoted_only_if_no_memtable_has_a_newer_version() {
    let scm = crate::scm::Scm::new("emulated:cxl-dram", 16 << 20).unwrap();
    // No thread demotes rows: the test does.
    let executor = Arc::new(Stepper::new(1, Arc::new(ManualClock::at(1_700_000_000_000))));
    let resources = crate::Resources::builder().memory(64 << 20).executor(executor).scm(scm);
    let db = Db::on_medium(Arc::new(MemoryMedium::new()));
    let db = db.resources(&resources.build().unwrap()).open().unwrap();
    let keyspace = db.open_or_create_keyspace("k").unwrap();
    for key in ["a", "b"] {
        keyspace.put(key, "old").unwrap();
    }
    db.flush().unwrap();
    let (store, tree) = (keyspace.store(), keyspace.tree());
    let (rows, owner) = (store.reader.rows.cache(), tree.rows());
    let (at, expiry) = (store.ring.visible(), 0);
    let fill = |key: &[u8], value: &[u8]| {
        let hash = owner.hash(key_hash(key));
        let row =
            Row { key, value, packed: false, seqno: at, as_of: at, expiry, from: RowFrom::Device };
        let _ = rows.fill(owner, hash, rows.vacancy(owner, hash).unwrap(), row);
    };
    let is_in_dram = |key: &[u8]| {
        let hash = owner.hash(key_hash(key));
        rows.get(owner, key, hash, at, &mut Vec::new()).is_some()
    };
    let is_in_scm = |key: &[u8]| {
        let hash = owner.hash(key_hash(key));
        rows.get_from_scm(owner, key, hash, at, &mut Vec::new()).is_some()
    };
    // Until both rows are demoted. A demotion is lost now and then, because the row's bucket changes.
    let mut numbers = 0u64..;
    for _ in 0..20 {
        fill(b"a", b"old");
        fill(b"b", b"old");
        for number in numbers.by_ref().take(40_000) {
            fill(&number.to_be_bytes(), &[7; 1900]);
            if is_in_scm(b"a") && is_in_scm(b"b") {
                break;
            }
            if number % 64 == 0 {
                rows.demote_rows();
            }
        }
        if is_in_scm(b"a") && is_in_scm(b"b") {
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
    for (key, is_promoted) in [(b"a", false), (b"b", true)] {
        let probe = store.reader.rows.probe(owner, key);
        let found = store.reader.rows.get(&view, key, probe, at, None).unwrap();
        assert_eq!((&found.value.bytes[..], found.from_scm), (&b"old"[..], true));
        assert_eq!(is_in_dram(key), is_promoted, "{key:?}");
    }
}

/// A batch is written to a memtable that the view lacks, and one of its keys has a cached row. A multi-get
/// of both keys in the view of a single get would see half of the batch.
#[test]
fn a_multi_get_uses_a_view_that_is_at_least_as_new_as_any_row() {
    let db = Db::on_medium(Arc::new(MemoryMedium::new())).memory(64 << 20).open().unwrap();
    let keyspace = db.open_or_create_keyspace("k").unwrap();
    let write = |value: &str| {
        let mut batch = crate::WriteBatch::new();
        batch.put(&keyspace, "a", value).unwrap();
        batch.put(&keyspace, "b", value).unwrap();
        db.write(&batch).unwrap();
    };
    write("old");
    let (store, tree) = (keyspace.store(), keyspace.tree());
    let written = Cell::new(false);
    // Runs between taking the view and the read sequence number, the first time.
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
    assert_eq!(
        read(&view, at),
        ["new", "old"],
        "the read view of a single get is too old for two keys"
    );
    written.set(false);
    write("old");
    let (view, at) = tree.batch_read_view(visible);
    assert_eq!(read(&view, at), ["new", "new"]);
}
