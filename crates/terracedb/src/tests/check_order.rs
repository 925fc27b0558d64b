//! `check` finds tables whose runs are in the wrong order (I4).

use std::collections::BTreeSet;
use std::sync::Arc;

use base::{Rng, RunId};
use media::Medium;

use super::check::{memory, rewrite_manifest, run, unmerged};
use crate::{Db, Keyspace};

/// A store with one keyspace and one table per round of writes.
fn tables(rounds: &[&dyn Fn(&Keyspace)]) -> Arc<dyn Medium> {
    let medium = memory();
    let db = unmerged(&medium);
    let keyspace = db.open_or_create_keyspace("k").unwrap();
    for round in rounds {
        round(&keyspace);
        keyspace.flush().unwrap();
    }
    drop((keyspace, db));
    medium
}

/// Rewrites the manifest: table *i*, oldest first, belongs to run `runs[i]`.
fn arrange(medium: &Arc<dyn Medium>, runs: &[u64], level: u8) {
    rewrite_manifest(medium, |state| {
        let keyspace = Arc::make_mut(state.keyspaces.values_mut().next().unwrap());
        assert_eq!(keyspace.tables.len(), runs.len());
        for (table, run) in keyspace.tables.values_mut().zip(runs) {
            for piece in &mut Arc::make_mut(table).pieces {
                (piece.run, piece.level) = (RunId(*run), level);
            }
        }
    });
}

fn complaints(medium: &Arc<dyn Medium>) -> Vec<String> {
    run(medium).problems.iter().map(ToString::to_string).collect()
}

fn put(keys: &'static [&'static str]) -> impl Fn(&Keyspace) {
    move |keyspace| keys.iter().for_each(|key| keyspace.put(key, "value").unwrap())
}

fn delete(from: &'static str, to: &'static str) -> impl Fn(&Keyspace) {
    move |keyspace| keyspace.delete_range(from..to).unwrap()
}

/// The order of runs matters, whatever their level.
#[test] // I4
fn a_swapped_pair_is_found_on_any_level() {
    for level in [0, 1, 5] {
        let medium = tables(&[&put(&["a", "m", "z"]), &put(&["c", "m", "x"])]);
        arrange(&medium, &[1, 2], level);
        assert_eq!(complaints(&medium), [""; 0]);
        arrange(&medium, &[2, 1], level);
        let found = complaints(&medium);
        assert!(found.len() == 1 && found[0].contains("keys `m` to `m`"), "{found:?}");
        assert!(found[0].contains("order of tables (I4)"), "{found:?}");
    }
}

/// Merges of slices leave such tables: their seqno and key ranges overlap, but they share no key.
#[test]
fn tables_without_a_common_key_may_be_in_any_order() {
    let medium = tables(&[&put(&["a", "m", "z"]), &put(&["b", "n", "y"])]);
    arrange(&medium, &[2, 1], 0);
    assert_eq!(complaints(&medium), [""; 0]);
}

#[test]
fn overlapping_tables_of_a_run_are_reported() {
    let medium = tables(&[&put(&["a", "m", "z"]), &put(&["b", "n", "y"])]);
    arrange(&medium, &[1, 1], 1);
    let found = complaints(&medium);
    assert!(found.len() == 1 && found[0].contains("tables of a run"), "{found:?}");
}

/// A range delete must be in a newer run than the entries it deletes, and in an older one than later writes.
#[test]
fn a_range_delete_in_a_misplaced_run_is_found() {
    let medium = tables(&[&put(&["k", "m"]), &delete("l", "p"), &put(&["a", "m", "z"])]);
    for (runs, complaint) in [
        ([1, 2, 3], None),
        // The range delete in an older run than the entries it deletes.
        ([2, 1, 3], Some("keys `m` to `m`")),
        // The range delete in a newer run than a later write.
        ([1, 3, 2], Some("keys `m` to `m`")),
    ] {
        arrange(&medium, &runs, 0);
        let found = complaints(&medium);
        assert_eq!(found.len(), complaint.iter().count(), "{runs:?}: {found:?}");
        assert!(found.iter().all(|it| it.contains(complaint.unwrap())), "{runs:?}: {found:?}");
    }
}

/// A piece answers for its keys only.
#[test]
fn entries_outside_of_a_tables_piece_do_not_count() {
    let medium = tables(&[&put(&["a", "m", "z"]), &put(&["c", "m", "x"])]);
    arrange(&medium, &[2, 1], 0);
    rewrite_manifest(&medium, |state| {
        let keyspace = Arc::make_mut(state.keyspaces.values_mut().next().unwrap());
        let table = Arc::make_mut(keyspace.tables.values_mut().next().unwrap());
        table.pieces[0].range.end = Some("m".into());
    });
    assert_eq!(complaints(&medium), [""; 0]);
}

/// Tables of random keys in a random order: each pair that is the wrong way round and has a key in
/// common is told, and no other.
#[test] // I4
fn in_any_order_exactly_the_misplaced_pairs_are_reported() {
    let (mut rng, seed) = Rng::from_env();
    for round in 0..20 {
        let medium = memory();
        let db: Db = unmerged(&medium);
        let keyspace = db.open_or_create_keyspace("k").unwrap();
        let mut keys: Vec<BTreeSet<u64>> = Vec::new();
        for _ in 0..5 {
            keys.push((0..1 + rng.below(5)).map(|_| rng.below(16)).collect());
            for key in keys.last().unwrap() {
                keyspace.put(format!("key{key:02}"), "v".repeat(rng.below(3000) as usize)).unwrap();
            }
            keyspace.flush().unwrap();
        }
        drop((keyspace, db));
        let mut runs: Vec<u64> = (1..=5).collect();
        for last in (1..5).rev() {
            runs.swap(last, rng.below(last as u64 + 1) as usize);
        }
        arrange(&medium, &runs, rng.below(3) as u8);
        let pairs = (0..5).flat_map(|older| (older + 1..5).map(move |newer| (older, newer)));
        let wrong = pairs.filter(|(older, newer)| {
            runs[*older] > runs[*newer] && !keys[*older].is_disjoint(&keys[*newer])
        });
        let (found, wrong) = (complaints(&medium), wrong.count());
        assert_eq!(found.len(), wrong, "seed {seed}, round {round}: {runs:?} {keys:?} {found:?}");
    }
}
