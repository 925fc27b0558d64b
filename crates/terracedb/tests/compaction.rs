//! Merges: what they keep, what they give back, and that nobody notices them.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod common;

use std::sync::Arc;

use base::Rng;
use common::{Model, assert_same, key, value};
use compact::plan::Options;
use media::Medium;
use terracedb::{Db, Keyspace};

/// Merges come early and are small.
fn tiny() -> Options {
    Options { fanout: 3, settled_runs: 2, slice_bytes: 128 << 10, ..Options::default() }
}

fn open(medium: &Arc<dyn Medium>) -> Db {
    common::stepped(medium, 7).compaction_options(tiny()).open().unwrap()
}

fn fill(keyspace: &Keyspace, model: &mut Model, rng: &mut Rng, rounds: u64) {
    for round in 0..rounds {
        for _ in 0..300 {
            let key = key(rng.below(2000));
            if rng.one_in(5) {
                keyspace.delete(&key).unwrap();
                model.remove(&key);
            } else {
                let value = value(rng, &key, round);
                keyspace.put(&key, &value).unwrap();
                model.insert(key, value);
            }
        }
        keyspace.flush().unwrap();
    }
}

#[test]
fn a_settled_tree_is_low_and_holds_what_was_written() {
    let (mut rng, seed) = Rng::from_env();
    println!("TERRACE_SEED={seed}");
    let medium = common::memory();
    let mut model = Model::new();
    for life in 0..3 {
        let db = open(&medium);
        let keyspace = db.keyspace("fruit").unwrap();
        assert_same(&keyspace, &model, "opened");
        fill(&keyspace, &mut model, &mut rng, 12);
        assert_same(&keyspace, &model, "filled");
        db.wait_until_settled().unwrap();
        assert_same(&keyspace, &model, "settled");
        let statistics = db.statistics();
        println!("life {life}: {:?} {:?}", statistics.compaction, statistics.keyspaces);
        assert!(statistics.compaction.done > 0 && statistics.compaction.failed == 0);
        db.compact().unwrap();
        assert_same(&keyspace, &model, "compacted");
        common::assert_tidy(&db, &*medium, "compacted");
        drop((keyspace, db));
        let report = terracedb::check(&medium, &mut |_, _| ()).unwrap();
        assert!(report.is_clean(), "{report:?}");
    }
}
