//! Transactions from a user's view: visibility, conflicts, refusals, and their effects.
//!
//! Unit tests check the serializability of random histories, because they need the order of commits.

use base::Durability;
use terracedb::{Db, Entry, ErrorKind, Keyspace, Result, Transaction, WriteOptions};

use crate::common::{self, memory, open_one as open, text, threaded};

fn keys(entries: impl Iterator<Item = Result<Entry>>) -> String {
    let keys: Vec<_> = entries.map(|entry| text(Some(entry.unwrap().0))).collect();
    keys.join(" ")
}

fn is_conflict(result: Result<()>) -> bool {
    match result {
        Ok(()) => false,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
            assert!(error.is_conflict() && !error.is_retryable());
            true
        }
    }
}

#[test]
fn a_transaction_sees_its_snapshot_and_its_own_writes() {
    let (db, k) = open();
    for key in ["a", "b", "c", "d"] {
        k.put(key, format!("{key}1")).unwrap();
    }
    let mut txn = db.transaction();
    k.put("a", "a2").unwrap();
    k.put("e", "e2").unwrap();
    txn.put(&k, "b", "b3").unwrap();
    txn.delete(&k, "c").unwrap();
    txn.put(&k, "bb", "new").unwrap();
    txn.put(&k, "bb", "newer").unwrap();
    let before = txn.iter(&k).unwrap();
    assert_eq!(txn.len(), 3);
    txn.put(&k, "z", "z3").unwrap();

    assert_eq!(text(txn.get_untracked(&k, "a").unwrap()), "a1");
    assert_eq!(text(txn.get(&k, "b").unwrap()), "b3");
    assert!(!txn.contains_key(&k, "c").unwrap());
    assert_eq!(text(txn.get_untracked(&k, "e").unwrap()), "-");
    let many = txn.multi_get(&k, &["c", "d", "b", "x", "bb"]).unwrap();
    let many: Vec<_> = many.into_iter().map(|value| text(value.unwrap())).collect();
    assert_eq!(many, ["-", "d1", "b3", "-", "newer"]);
    assert_eq!(keys(txn.iter(&k).unwrap()), "a b bb d z");
    assert_eq!(keys(txn.iter(&k).unwrap().rev()), "z d bb b a");
    assert_eq!(keys(txn.range(&k, "b"..="d").unwrap()), "b bb d");
    assert_eq!(keys(txn.range(&k, "b".."b").unwrap()), "");
    assert_eq!(keys(txn.prefix(&k, "b").unwrap().rev()), "bb b");
    assert_eq!(keys(before), "a b bb d", "an iterator sees what was written before it was made");
    // Iterating from both ends at once: no entry is returned by both.
    let mut both = txn.iter(&k).unwrap();
    let mut met = Vec::new();
    while let Some(front) = both.next() {
        met.push(text(Some(front.unwrap().0)));
        met.extend(both.next_back().map(|back| text(Some(back.unwrap().0))));
    }
    assert_eq!(met, ["a", "z", "b", "d", "bb"]);

    // Other writes changed "a" and "e", which the iterator passed.
    assert!(is_conflict(txn.commit()));
    assert_eq!(keys(k.iter().unwrap()), "a b c d e");
}

/// An iterator owns its view of the store, so it works on after its transaction has ended.
#[test]
fn an_iterator_outlives_the_commit_of_its_transaction() {
    let (db, k) = open();
    for key in ["a", "b", "c"] {
        k.put(key, "old").unwrap();
    }
    let mut transaction = db.transaction();
    transaction.put(&k, "bb", "own").unwrap();
    let mut iter = transaction.iter(&k).unwrap();
    assert_eq!(text(iter.next().map(|entry| entry.unwrap().0)), "a");
    transaction.commit().unwrap();
    k.delete("c").unwrap();
    assert_eq!(keys(iter), "b bb c");
    k.put("d", "after").unwrap();
}

#[test]
fn commit_makes_all_writes_visible_and_rollback_none() {
    let (db, k) = open();
    let other = db.open_or_create_keyspace("other").unwrap();
    k.put("gone", "1").unwrap();
    let snapshot = db.snapshot();
    let mut txn = db.transaction();
    txn.put(&k, "a", "1").unwrap();
    txn.put(&other, "a", "2").unwrap();
    txn.delete(&k, "gone").unwrap();
    assert_eq!(text(k.get("a").unwrap()), "-");
    txn.commit_opt(&WriteOptions::new().durability(Durability::Sync)).unwrap();
    assert_eq!(
        (text(k.get("a").unwrap()), text(other.get("a").unwrap())),
        ("1".into(), "2".into())
    );
    assert_eq!(text(k.get("gone").unwrap()), "-");
    assert_eq!(text(snapshot.get(&k, "gone").unwrap()), "1");

    let mut txn = db.transaction();
    txn.put(&k, "a", "3").unwrap();
    txn.rollback();
    let mut txn = db.transaction();
    txn.put(&k, "a", "4").unwrap();
    drop(txn);
    assert_eq!(text(k.get("a").unwrap()), "1");
}

/// Writes between a transaction's reads and its commit, and whether they conflict.
#[test]
fn writes_to_read_keys_and_ranges_are_conflicts_and_others_are_not() {
    type Read = fn(&Transaction, &Keyspace);
    let get: Read = |txn, k| drop(txn.get(k, "m").unwrap());
    let get_none: Read = |txn, k| drop(txn.get(k, "none").unwrap());
    let untracked: Read = |txn, k| drop(txn.get_untracked(k, "m").unwrap());
    let many: Read = |txn, k| drop(txn.multi_get(k, &["c", "m"]).unwrap());
    let first_two: Read = |txn, k| assert_eq!(txn.range(k, "c"..).unwrap().take(2).count(), 2);
    let last_two: Read = |txn, k| assert_eq!(txn.range(k, .."p").unwrap().rev().take(2).count(), 2);
    let all: Read = |txn, k| assert_eq!(txn.range(k, "c".."p").unwrap().count(), 7);
    let empty: Read = |txn, k| assert_eq!(txn.prefix(k, "none").unwrap().count(), 0);
    // (read, key written by another, conflict expected); the keys are a, c, e, .. y.
    let cases: [(Read, &str, bool); 24] = [
        (get, "m", true),
        (get, "l", false),
        (get, "m\0", false),
        (get_none, "none", true),
        (untracked, "m", false),
        (many, "m", true),
        (many, "e", false),
        (first_two, "c", true),
        (first_two, "d", true),
        (first_two, "e", true),
        (first_two, "e\0", false),
        (first_two, "b", false),
        (last_two, "m", true),
        (last_two, "n", true),
        (last_two, "l", false),
        (last_two, "p", false),
        (all, "c", true),
        (all, "o", true),
        (all, "k", true),
        (all, "p", false),
        (all, "b", false),
        (empty, "none at all", true),
        (empty, "nond", false),
        (empty, "nonf", false),
    ];
    for flushed in [false, true] {
        for (number, (read, written, conflict)) in cases.iter().enumerate() {
            let (db, k) = open();
            for letter in (b'a'..=b'y').step_by(2) {
                k.put([letter], "old").unwrap();
            }
            let mut txn = db.transaction();
            read(&txn, &k);
            txn.put(&k, "out", "1").unwrap();
            k.put(written, "old").unwrap();
            if flushed {
                db.flush().unwrap();
            }
            let got = is_conflict(txn.commit());
            assert_eq!(got, *conflict, "case {number}, `{written}`, flushed: {flushed}");
            assert_eq!(k.contains_key("out").unwrap(), !conflict);
        }
    }
}

#[test]
fn a_deleted_and_rewritten_value_is_a_conflict() {
    let (db, k) = open();
    k.put("a", "1").unwrap();
    let mut txn = db.transaction();
    assert_eq!(text(txn.get(&k, "a").unwrap()), "1");
    txn.put(&k, "b", "1").unwrap();
    k.delete("a").unwrap();
    k.put("a", "1").unwrap();
    db.flush().unwrap();
    assert!(is_conflict(txn.commit()));
}

/// Runs two transactions on the same snapshot and commits them in order; true if the second commit
/// succeeds.
fn second_commits(
    first: impl Fn(&mut Transaction),
    second: impl Fn(&mut Transaction),
    db: &Db,
) -> bool {
    let (mut one, mut two) = (db.transaction(), db.transaction());
    first(&mut one);
    second(&mut two);
    one.commit().unwrap();
    !is_conflict(two.commit())
}

#[test]
fn the_classic_anomalies_do_not_happen() {
    let (db, k) = open();
    for key in ["x", "y"] {
        k.put(key, "50").unwrap();
    }
    let read = |txn: &Transaction, key: &str| drop(txn.get(&k, key).unwrap());
    let write = |txn: &mut Transaction, key: &str| txn.put(&k, key, "1").unwrap();
    let count = |txn: &Transaction| txn.prefix(&k, "doctor").unwrap().count();
    // Lost update.
    let update = |txn: &mut Transaction| {
        read(txn, "x");
        write(txn, "x");
    };
    assert!(!second_commits(update, update, &db));
    // Write skew: each reads both keys and writes one.
    let skew = |out: &'static str| {
        move |txn: &mut Transaction| {
            read(txn, "x");
            read(txn, "y");
            write(txn, out);
        }
    };
    assert!(!second_commits(skew("x"), skew("y"), &db));
    // Phantoms: each counts the keys and adds one.
    let add = |key: &'static str| {
        move |txn: &mut Transaction| {
            count(txn);
            write(txn, key);
        }
    };
    assert!(!second_commits(add("doctor 1"), add("doctor 2"), &db));
    // Blind writes do not conflict; the later one wins.
    assert!(second_commits(|txn| write(txn, "x"), |txn| write(txn, "x"), &db));
    // The read-only anomaly: a reader between two writers sees a state of the serial order, because the
    // second writer, which read a key that the first wrote, cannot commit.
    let (mut deposit, mut withdraw) = (db.transaction(), db.transaction());
    read(&withdraw, "x");
    read(&withdraw, "y");
    deposit.put(&k, "y", "20").unwrap();
    deposit.commit().unwrap();
    let report = db.transaction();
    assert_eq!(text(report.get(&k, "y").unwrap()), "20");
    write(&mut withdraw, "x");
    report.commit().unwrap();
    assert!(is_conflict(withdraw.commit()));
}

#[test]
fn a_read_only_transaction_always_commits() {
    let (db, k) = open();
    k.put("a", "1").unwrap();
    let written = db.statistics().log.records;
    let txn = db.transaction();
    txn.get(&k, "a").unwrap();
    k.put("a", "2").unwrap();
    assert_eq!(text(txn.get(&k, "a").unwrap()), "1");
    txn.commit().unwrap();
    assert_eq!(db.statistics().log.records, written + 1);
}

#[test]
fn transact_repeats_a_conflict_but_no_other_error() {
    let (db, k) = open();
    let mut runs = 0;
    let answer = db.transact(|txn| {
        runs += 1;
        txn.get(&k, "a")?;
        if runs < 5 {
            k.put("a", runs.to_string())?;
        }
        txn.put(&k, "b", "done")?;
        Ok(runs)
    });
    assert_eq!((answer.unwrap(), runs), (5, 5));
    let mut runs = 0;
    let failed = db.transact(|txn| {
        runs += 1;
        txn.put(&k, "b", "undone")?;
        txn.put(&k, "", "an empty key")
    });
    assert_eq!((failed.unwrap_err().kind(), runs), (ErrorKind::Invalid, 1));
    assert_eq!(text(k.get("b").unwrap()), "done");
    let mut runs = 0;
    let hopeless = db.transact(|txn| {
        runs += 1;
        txn.get(&k, "a")?;
        k.put("a", runs.to_string())?;
        txn.put(&k, "b", "never")
    });
    assert!(hopeless.unwrap_err().is_conflict());
    assert_eq!(runs, 100);
}

#[test] // I10
fn limits_foreign_and_dropped_keyspaces_are_refused_by_name() {
    let (db, k) = open();
    let (other_db, other) = open();
    let mut txn = db.transaction();
    let foreign = |error: terracedb::Error| assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    foreign(txn.get(&other, "a").unwrap_err());
    foreign(txn.put(&other, "a", "1").unwrap_err());
    foreign(txn.iter(&other).unwrap_err());
    foreign(txn.get(&k, "").unwrap_err());
    foreign(txn.put(&k, "a", vec![0; 9 << 20]).unwrap_err());
    drop(other_db);
    // The write set is bounded, and its memory is freed.
    let memory = || db.statistics().memory.component("transactions").unwrap().used;
    let before = memory();
    let error = (0u32..).find_map(|at| txn.put(&k, at.to_le_bytes(), vec![0; 100_000]).err());
    let error = error.unwrap();
    assert_eq!((error.kind(), error.what()), (ErrorKind::Invalid, "transaction's write set"));
    assert!(memory() > before + (8 << 20));
    txn.put(&k, 0u32.to_le_bytes(), "shorter").unwrap();
    txn.rollback();
    assert_eq!(memory(), before);
    // So is the read set.
    let txn = db.transaction();
    let long = |at: u32| [vec![b'k'; 30_000], at.to_le_bytes().to_vec()].concat();
    let error = (0u32..).find_map(|at| txn.get(&k, long(at)).err()).unwrap();
    assert_eq!((error.kind(), error.what()), (ErrorKind::Invalid, "transaction's read set"));
    drop(txn);
    assert_eq!(memory(), before);
    // A keyspace is dropped during the transaction.
    for written in [true, false] {
        let gone = db.open_or_create_keyspace("gone").unwrap();
        let mut txn = db.transaction();
        txn.get(&gone, "a").unwrap();
        txn.put(if written { &gone } else { &k }, "a", "1").unwrap();
        db.drop_keyspace("gone").unwrap();
        assert_eq!(txn.commit().unwrap_err().kind(), ErrorKind::Closed);
    }
    assert_eq!(text(k.get("a").unwrap()), "-");
}

#[test]
fn range_deletes_conflict_with_reads_and_merges_do_not_conflict() {
    let db = threaded(&memory()).open().unwrap();
    let options = common::cells::options();
    let k = db.open_or_create_keyspace_opt("k", &options).unwrap();
    for flushed in [false, true] {
        for (from, to, conflict) in [("a", "n", true), ("m", "m\0", true), ("n", "z", false)] {
            k.put("m", "here").unwrap();
            let mut txn = db.transaction();
            assert!(txn.get(&k, "m").unwrap().is_some());
            txn.put(&k, "out", "1").unwrap();
            k.delete_range(from..to).unwrap();
            if flushed {
                db.flush().unwrap();
            }
            assert_eq!(is_conflict(txn.commit()), conflict, "{from}..{to}, flushed: {flushed}");
        }
    }
    let (mut one, mut two) = (db.transaction(), db.transaction());
    one.merge(&k, "list", "1").unwrap();
    two.merge(&k, "list", "2").unwrap();
    one.commit().unwrap();
    two.commit().unwrap();
    assert_eq!(text(k.get("list").unwrap()), "12");
    // A range delete in a transaction also deletes keys that others wrote since it began.
    let mut txn = db.transaction();
    txn.delete_range(&k, "l"..="m").unwrap();
    assert!(!txn.is_empty());
    k.put("late", "1").unwrap();
    txn.commit().unwrap();
    assert_eq!(keys(k.range("l"..="m").unwrap()), "");
}

#[test]
fn a_synced_commit_without_writes_syncs_earlier_ones() {
    let sync = WriteOptions::new().durability(Durability::Sync);
    let none = WriteOptions::new().durability(Durability::None);
    let commits: [&dyn Fn(&Db); 2] = [&|db| db.transaction().commit_opt(&sync).unwrap(), &|db| {
        db.write_opt(&terracedb::WriteBatch::new(), &sync).unwrap()
    }];
    for commit in commits {
        let (device, medium) = common::faulty(7);
        let db = Db::on_medium(medium).memory(common::MEMORY).open().unwrap();
        db.create_keyspace("k").unwrap().put_opt("a", "1", &none).unwrap();
        commit(&db);
        let image = device.crash_image(3).unwrap();
        let after =
            Db::on_medium(std::sync::Arc::new(image)).memory(common::MEMORY).open().unwrap();
        assert_eq!(text(after.keyspace("k").unwrap().get("a").unwrap()), "1");
    }
}

#[test]
fn work_with_an_error_of_its_own_runs_again_after_a_conflict_only() {
    #[derive(Debug)]
    enum Refused {
        Own(u32),
        Store(terracedb::Error),
    }
    impl From<terracedb::Error> for Refused {
        fn from(error: terracedb::Error) -> Self {
            Self::Store(error)
        }
    }
    let (db, k) = open();
    let mut runs = 0;
    let committed = db.transact_with(&WriteOptions::new(), |transaction| {
        runs += 1;
        transaction.get(&k, "a")?;
        if runs < 3 {
            k.put("a", format!("{runs}"))?;
        }
        transaction.put(&k, "a", "done")?;
        Ok::<_, Refused>(runs)
    });
    assert!(matches!(committed, Ok(3)), "{committed:?}");
    let mut runs = 0;
    let refused: Result<(), Refused> = db.transact_with(&WriteOptions::new(), |transaction| {
        runs += 1;
        transaction.put(&k, "a", "lost")?;
        Err(Refused::Own(runs))
    });
    assert!(matches!(refused, Err(Refused::Own(1))), "{refused:?}");
    let wrong: Result<(), Refused> = db.transact_with(&WriteOptions::new(), |transaction| {
        transaction.put(&k, "", "x")?;
        Ok(())
    });
    assert!(matches!(&wrong, Err(Refused::Store(error)) if error.kind() == ErrorKind::Invalid));
    assert_eq!(text(k.get("a").unwrap()), "done");
}
