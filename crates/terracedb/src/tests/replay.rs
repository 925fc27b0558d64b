//! Replay of the log into memtables at open.

use std::sync::Arc;

use media::{Medium, MemoryMedium};

use crate::Db;

/// Readers to come stand behind all that is flushed while a store is opened: of deletes that lie within
/// each other every fragment has the newest, and not all of them.
#[test]
fn what_is_flushed_while_opening_is_what_readers_to_come_tell_apart() {
    const COUNT: u64 = 1000;
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
    // What is flushed stays as it is.
    let options = compact::plan::Options {
        fanout: 1000,
        settled_runs: 1000,
        space_max: 1000.0,
        settled_space: 1000.0,
        deletes_share: 1000.0,
        ..compact::plan::Options::default()
    };
    let open = || {
        let builder = Db::on_medium(Arc::clone(&medium)).memory(64 << 20);
        builder.compaction_options(options.clone()).open().unwrap()
    };
    let key = |number: u64| number.to_be_bytes();
    {
        let keyspace = open().keyspace("k").unwrap();
        (0..=COUNT).for_each(|number| keyspace.put(key(number), "old").unwrap());
    }
    open().flush().unwrap();
    {
        let keyspace = open().keyspace("k").unwrap();
        for number in 1..=COUNT {
            keyspace.delete_range(..key(number)).unwrap();
            keyspace.put(key(0), "new").unwrap();
        }
    }
    let flushed = || {
        let db = open();
        let tree = db.store().trees.by_name("k").unwrap();
        let version = Arc::clone(&tree.view().version);
        let deletes: u64 = version.pieces().map(|it| it.entry().range_deletes).sum();
        let keyspace = db.keyspace("k").unwrap();
        keyspace.put(key(COUNT), "last").unwrap();
        assert_eq!(keyspace.get(key(0)).unwrap().as_deref(), Some(&b"new"[..]));
        assert_eq!(keyspace.iter().unwrap().count(), 2);
        deletes
    };
    // Each opening begins a segment of the log, until it is worth being emptied.
    let deletes = (0..20).map(|_| flushed()).find(|deletes| *deletes > 0);
    assert!(deletes.is_some_and(|deletes| deletes <= 2 * COUNT), "{deletes:?}");
}
