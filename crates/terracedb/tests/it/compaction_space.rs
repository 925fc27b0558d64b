//! Compaction on a device that is nearly full.

use std::sync::Arc;

use base::Rng;
use compact::plan::Options;
use media::{Faulty, Medium};
use terracedb::Db;

use crate::common::{self, Model, assert_same, key};

/// A store with early and small merges.
fn open(medium: &Arc<dyn Medium>) -> Db {
    let tiny = Options { fanout: 3, settled_runs: 2, slice_bytes: 128 << 10, ..Options::default() };
    common::stepped(medium, 7).compaction_options(tiny).open().unwrap()
}

/// The device has less free space than a quarter of the tree's oldest level: slice by slice everything is
/// merged, and the space of a slice is freed before the next one needs it.
#[test]
fn a_tree_is_merged_in_less_space_than_a_level_takes() {
    let device = Arc::new(Faulty::new(9));
    let medium: Arc<dyn Medium> = Arc::clone(&device) as _;
    let db = open(&medium);
    let keyspace = db.open_or_create_keyspace("fruit").unwrap();
    let mut rng = Rng::new(9);
    let mut model = Model::new();
    let mut put = |numbers: &mut dyn Iterator<Item = u64>| {
        for number in numbers {
            let key = key(number);
            let mut value = vec![0; 400];
            rng.fill(&mut value);
            keyspace.put(&key, &value).unwrap();
            model.insert(key, value);
        }
        keyspace.flush().unwrap();
    };
    // Merges write short tables; the space of a flush's table is freed as a whole.
    put(&mut (0..8000));
    put(&mut (0..8000));
    db.compact().unwrap();
    for step in [7, 11, 13] {
        put(&mut (0..8000).step_by(step));
    }
    let level = |db: &Db| db.statistics().keyspaces[0].table_bytes;
    let (before, written) = (level(&db), db.statistics().compaction.bytes_written());
    let used: u64 = medium.list().unwrap().iter().map(|file| file.len).sum();
    device.set_capacity(Some(used + 8000 * 400 / 4));
    db.compact().unwrap();
    let statistics = db.statistics();
    let written = statistics.compaction.bytes_written() - written;
    assert!(written > 8000 * 400, "{written} bytes written: the oldest level was merged");
    assert_eq!(statistics.compaction.failed, 0);
    assert!(level(&db) < before, "{} of {before}", level(&db));
    common::assert_tidy(&db, &*medium, "merged in little space");
    assert_same(&keyspace, &model, "merged in little space");
}
