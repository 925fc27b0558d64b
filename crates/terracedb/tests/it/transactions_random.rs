//! Random transactions: of many threads, compared with a model, and with power cuts.
//!
//! I2 and I11: a transaction is visible and durable as a whole.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use base::{Durability, Rng};
use media::{Faulty, Freeze, Medium};
use terracedb::{Entry, EntryOptions, Result, Transaction, WriteBatch, WriteOptions};

use crate::common::{self, Model, key, memory, open_one as open, stepped, text, threaded, value};

/// Transfers between accounts in two keyspaces: every reader sees the same total.
#[test]
fn transfers_keep_the_total() {
    const ACCOUNTS: u64 = 20;
    const EACH: u64 = 100;
    let (mut rng, seed) = Rng::from_env();
    let db = threaded(&memory()).open().unwrap();
    let banks = ["north", "south"].map(|name| db.open_or_create_keyspace(name).unwrap());
    for bank in &banks {
        for account in 0..ACCOUNTS {
            bank.put(key(account), EACH.to_string()).unwrap();
        }
    }
    let sum = |entries: &mut dyn Iterator<Item = Result<Entry>>| -> u64 {
        entries.map(|entry| text(Some(entry.unwrap().1)).parse::<u64>().unwrap()).sum()
    };
    let (stop, moved) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let movers = (0..3).map(|_| {
            let mut rng = Rng::new(rng.next_u64());
            let (db, banks, moved) = (&db, &banks, &moved);
            scope.spawn(move || {
                for _ in 0..400 {
                    let pick = |rng: &mut Rng| (rng.below(2) as usize, rng.below(ACCOUNTS));
                    let (from, to, amount) = (pick(&mut rng), pick(&mut rng), rng.below(50));
                    let done = db.transact(|txn| {
                        let balance = |txn: &Transaction, at: (usize, u64)| {
                            let value = txn.get(&banks[at.0], key(at.1))?;
                            Ok(text(value).parse::<u64>().unwrap())
                        };
                        let have = balance(txn, from)?;
                        if have < amount {
                            return Ok(false);
                        }
                        txn.put(&banks[from.0], key(from.1), (have - amount).to_string())?;
                        let had = balance(txn, to)?;
                        txn.put(&banks[to.0], key(to.1), (had + amount).to_string())?;
                        Ok(true)
                    });
                    moved.fetch_add(u64::from(done.unwrap()), Ordering::Relaxed);
                }
            })
        });
        let movers: Vec<_> = movers.collect();
        let (db, banks, stop) = (&db, &banks, &stop);
        scope.spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let txn = db.transaction();
                let [north, south] = banks.each_ref().map(|bank| sum(&mut txn.iter(bank).unwrap()));
                assert_eq!(north + south, 2 * ACCOUNTS * EACH, "seed {seed}");
                txn.commit().unwrap();
            }
        });
        movers.into_iter().for_each(|mover| mover.join().unwrap());
        stop.store(true, Ordering::Relaxed);
    });
    assert!(moved.into_inner() > 0, "seed {seed}");
    let total: u64 = banks.iter().map(|bank| sum(&mut bank.iter().unwrap())).sum();
    assert_eq!(total, 2 * ACCOUNTS * EACH, "seed {seed}");
}

/// Iteration over own writes and the store agrees with a model, from either end, at any point.
#[test]
fn iterators_agree_with_a_model() {
    let (mut rng, seed) = Rng::from_env();
    let (db, k) = open();
    let mut model = Model::new();
    for round in 0..40 {
        for _ in 0..20 {
            let (key, value) = (key(rng.below(60)), value(&mut rng, b"s", round));
            k.put(&key, &value).unwrap();
            model.insert(key, value);
        }
        if rng.one_in(4) {
            db.flush().unwrap();
        }
        let mut txn = db.transaction();
        let mut own = model.clone();
        for _ in 0..rng.below(30) {
            let key = key(rng.below(70));
            if rng.one_in(3) {
                txn.delete(&k, &key).unwrap();
                own.remove(&key);
            } else {
                let value = value(&mut rng, b"t", round);
                txn.put(&k, &key, &value).unwrap();
                own.insert(key, value);
            }
        }
        let (mut low, mut high) = (key(rng.below(70)), key(rng.below(70)));
        if low > high {
            std::mem::swap(&mut low, &mut high);
        }
        let mut expected: VecDeque<_> = own.range(low.clone()..high.clone()).collect();
        let mut walk = txn.range(&k, low..high).unwrap();
        loop {
            let (found, expected) = match rng.one_in(2) {
                true => (walk.next(), expected.pop_front()),
                false => (walk.next_back(), expected.pop_back()),
            };
            let found = found.map(|entry| entry.unwrap());
            let found = found.as_ref().map(|(key, value)| (key.to_vec(), value.to_vec()));
            let expected = expected.map(|(key, value)| (key.clone(), value.clone()));
            assert!(found == expected, "seed {seed}, round {round}");
            if found.is_none() {
                break;
            }
        }
        if rng.one_in(2) {
            txn.commit().unwrap();
            model = own;
        }
        common::assert_same(&k, &model, &format!("seed {seed}, round {round}"));
    }
}

/// Twelve transactions over two keyspaces, each of which reads the writes of the previous one; returns the
/// number of the last one acknowledged before the power failed.
fn twelve(device: &Arc<Faulty>, seed: u64) -> u64 {
    let medium: Arc<dyn Medium> = Arc::clone(device) as _;
    let mut acknowledged = 0;
    let db = stepped(&medium, seed).open().unwrap();
    let (a, b) =
        (db.open_or_create_keyspace("a").unwrap(), db.open_or_create_keyspace("b").unwrap());
    for number in 1..=12u64 {
        let mut txn = db.transaction();
        let last = text(txn.get(&a, "last").unwrap());
        assert_eq!(last.parse().unwrap_or(0), number - 1);
        for keyspace in [&a, &b] {
            txn.put(keyspace, "last", number.to_string()).unwrap();
            txn.put(keyspace, format!("n{number}"), vec![b'v'; 700 * number as usize]).unwrap();
        }
        txn.commit_opt(&WriteOptions::new().durability(Durability::Sync)).unwrap();
        if !device.is_frozen() {
            acknowledged = number;
        }
        if number % 5 == 0 {
            db.flush().unwrap();
        }
    }
    acknowledged
}

/// A transaction over two keyspaces is present as a whole or not at all, wherever the power fails (I11).
#[test] // I11
fn a_power_cut_leaves_all_of_a_transaction_or_nothing() {
    let (mut rng, seed) = Rng::from_env();
    let whole = Arc::new(Faulty::new(seed));
    assert_eq!(twelve(&whole, seed), 12);
    let step = if std::env::var_os("TERRACE_LONG").is_some() { 1 } else { 3 };
    for change in (0..whole.changes()).step_by(step) {
        let device = Arc::new(Faulty::new(seed));
        device.freeze(Freeze::AtChange(change));
        let acknowledged = twelve(&device, seed);
        let image: Arc<dyn Medium> = Arc::new(device.crash_image(rng.next_u64()).unwrap());
        let db = stepped(&image, seed).open().unwrap();
        let [a, b] = ["a", "b"].map(|name| {
            let Ok(keyspace) = db.keyspace(name) else { return 0 };
            let last = text(keyspace.get("last").unwrap()).parse().unwrap_or(0);
            assert_eq!(keyspace.prefix("n").unwrap().count() as u64, last);
            last
        });
        let context = format!("seed {seed}, change {change}, acknowledged {acknowledged}");
        assert_eq!(a, b, "{context}");
        assert!(a >= acknowledged && acknowledged <= 12, "{context}: {a}");
    }
}

/// Stops the writers, whether a test passes or fails.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Writers of plain batches never wait for transactions, and transactions that read unwritten keys commit,
/// however fast others write.
#[test]
fn a_busy_store_lets_unrelated_transactions_commit() {
    let (db, k) = open();
    let busy = db.open_or_create_keyspace("busy").unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2u8 {
            let (db, busy, stop) = (&db, &busy, &stop);
            scope.spawn(move || {
                let mut at = 0u32;
                while !stop.load(Ordering::Relaxed) {
                    let mut batch = WriteBatch::new();
                    for _ in 0..1 + at % 40 {
                        at = at.wrapping_add(1);
                        batch.put(busy, [&[thread], &at.to_le_bytes()[..2]].concat(), "v").unwrap();
                    }
                    db.write(&batch).unwrap();
                }
            });
        }
        // Also stops them if an assertion fails: writers never end by themselves.
        let _stop = StopAtEnd(&stop);
        for at in 0..300 {
            // On a busy machine, writers may overtake one attempt again and again.
            let commit = |txn: &mut Transaction| {
                assert_eq!(txn.iter(&k)?.count(), at);
                txn.put(&k, format!("{at:04}"), "v")
            };
            db.transact(commit).unwrap();
        }
    });
}

/// Puts, deletes, merges and range deletes have the same effect in a transaction as outside; its own reads
/// see it before the commit, and all reads after it.
#[test]
fn every_kind_of_write_agrees_with_a_model() {
    let (mut rng, seed) = Rng::from_env();
    let db = threaded(&memory()).open().unwrap();
    let options = common::cells::options();
    let k = db.open_or_create_keyspace_opt("k", &options).unwrap();
    let mut model = Model::new();
    for round in 0..60 {
        let why = format!("seed {seed}, round {round}");
        let mut txn = db.transaction();
        let mut own = model.clone();
        for step in 0..rng.below(25) {
            let (at, what) = (key(rng.below(25)), format!("<{round}.{step}>").into_bytes());
            match rng.below(8) {
                0 => {
                    txn.delete(&k, &at).unwrap();
                    own.remove(&at);
                }
                1 | 2 => {
                    txn.put(&k, &at, &what).unwrap();
                    own.insert(at, what);
                }
                3 => {
                    let long = Duration::from_secs(3600);
                    txn.put_opt(&k, &at, &what, &EntryOptions::new().ttl(long)).unwrap();
                    own.insert(at, what);
                }
                4 => {
                    txn.put_opt(&k, &at, &what, &EntryOptions::new().expires_at(UNIX_EPOCH))
                        .unwrap();
                    own.remove(&at);
                }
                5 | 6 => {
                    txn.merge(&k, &at, &what).unwrap();
                    own.entry(at).or_default().extend(what);
                }
                _ => {
                    let end = key(rng.below(30));
                    txn.delete_range(&k, at.clone()..end.clone()).unwrap();
                    own.retain(|key, _| *key < at || *key >= end);
                }
            }
            let at = key(rng.below(25));
            let expected = own.get(&at).map(Vec::as_slice);
            assert_eq!(txn.get(&k, &at).unwrap().as_deref(), expected, "{why}: {step}");
        }
        let owned = |entry: Result<Entry>| entry.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap();
        assert!(txn.iter(&k).unwrap().map(owned).eq(own.clone()), "{why}: forwards");
        assert!(txn.iter(&k).unwrap().rev().map(owned).eq(own.clone().into_iter().rev()), "{why}");
        if rng.one_in(4) {
            txn.rollback();
        } else {
            txn.commit().unwrap();
            model = own;
        }
        if rng.one_in(6) {
            db.flush().unwrap();
        }
        common::assert_same(&k, &model, &why);
    }
}
