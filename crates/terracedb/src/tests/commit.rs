//! Commits that run concurrently with a drop of their keyspace.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use base::{EntryKind, ErrorKind, Seqno, Trailer, WriteSize};
use compact::Horizon;
use media::MemoryMedium;

use crate::Db;

/// Two writes, each the size of a memtable, run while their keyspace is dropped. The first fills the
/// memtable of the dropped tree, which is never sealed; the second must not wait for that.
#[test]
fn a_write_to_a_keyspace_dropped_meanwhile_fails_with_closed() {
    let db = Db::on_medium(Arc::new(MemoryMedium::new())).memory(64 << 20).open().unwrap();
    let keyspace = db.open_or_create_keyspace("k").unwrap();
    let (buffers, tree) = (Arc::clone(&keyspace.store().buffers), Arc::clone(keyspace.tree()));
    assert!(db.drop_keyspace("k").unwrap());
    let size = WriteSize { entries: 1, bytes: 3 << 20, ..WriteSize::default() };
    buffers.admit(&tree, size, false).unwrap();
    let trailer = Trailer::new(Seqno::new(1), EntryKind::Put);
    let readers = || Horizon::new(vec![Seqno::new(1)]);
    tree.view().active.insert(b"key", trailer, &vec![1; 3 << 20], readers);
    let (sender, second) = mpsc::channel();
    std::thread::spawn(move || {
        sender.send(buffers.admit(&tree, size, false).map_err(|e| e.kind()))
    });
    // A bound that only a write that never ends exceeds.
    let second = second.recv_timeout(Duration::from_secs(300)).expect("the second write ends");
    assert_eq!(second, Err(ErrorKind::Closed));
}
