//! Replay of the log into memtables at open.

use std::sync::Arc;

use media::{Medium, MemoryMedium};

use super::without_merges;
use crate::Db;

/// While a store is opened, no reader exists yet, and later readers see everything that is flushed. So a
/// flush keeps only the newest of nested range deletes in each fragment.
#[test] // I5
fn a_flush_while_opening_keeps_only_the_newest_range_delete_of_a_fragment() {
    const COUNT: u64 = 1000;
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
    let open = || {
        let builder = Db::on_medium(Arc::clone(&medium)).memory(64 << 20);
        builder.compaction_options(without_merges()).open().unwrap()
    };
    let key = |number: u64| number.to_be_bytes();
    {
        let keyspace = open().open_or_create_keyspace("k").unwrap();
        (0..=COUNT).for_each(|number| keyspace.put(key(number), "old").unwrap());
    }
    open().flush().unwrap();
    {
        let keyspace = open().open_or_create_keyspace("k").unwrap();
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
        let keyspace = db.open_or_create_keyspace("k").unwrap();
        keyspace.put(key(COUNT), "last").unwrap();
        assert_eq!(keyspace.get(key(0)).unwrap().as_deref(), Some(&b"new"[..]));
        assert_eq!(keyspace.iter().unwrap().count(), 2);
        deletes
    };
    // Each opening begins a log segment; after some openings the log is flushed to free segments.
    let deletes = (0..20).map(|_| flushed()).find(|deletes| *deletes > 0);
    assert!(deletes.is_some_and(|deletes| deletes <= 2 * COUNT), "{deletes:?}");
}
