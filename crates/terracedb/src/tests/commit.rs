//! Commits beside a drop of their keyspace.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use base::ErrorKind;
use media::MemoryMedium;

use base::{EntryKind, Seqno, Trailer, WriteSize};
use compact::Horizon;

use crate::Db;

/// Two writes of a memtable each are under way as their keyspace is dropped: the first fills what took
/// the memtable's place, which is never sealed.
#[test]
fn a_write_to_what_was_dropped_meanwhile_ends() {
    let db = Db::on_medium(Arc::new(MemoryMedium::new())).memory(64 << 20).open().unwrap();
    let keyspace = db.keyspace("k").unwrap();
    let (buffers, tree) = (Arc::clone(&keyspace.store().buffers), Arc::clone(keyspace.tree()));
    assert!(db.drop_keyspace("k").unwrap());
    let size = WriteSize { entries: 1, bytes: 3 << 20, ..WriteSize::default() };
    buffers.admit(&tree, size).unwrap();
    let trailer = Trailer::new(Seqno::new(1), EntryKind::Put);
    let readers = || Horizon::new(vec![Seqno::new(1)]);
    tree.view().active.insert(b"key", trailer, &vec![1; 3 << 20], readers);
    let (told, second) = mpsc::channel();
    std::thread::spawn(move || told.send(buffers.admit(&tree, size).map_err(|e| e.kind())));
    // Longer than any machine takes: only a write that never ends fails here.
    let second = second.recv_timeout(Duration::from_secs(300)).expect("a write that ends");
    assert_eq!(second, Err(ErrorKind::Closed));
}
