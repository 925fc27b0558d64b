//! Merge operators: every kind of read combines operands with their base value, wherever these are stored.

use std::sync::Arc;
use std::time::Duration;

use base::{Codec, ErrorKind};
use terracedb::operators::MergeOperator;
use terracedb::operators::{Append, I64Add, I64AddSaturating, U64Max, U64Min};
use terracedb::{Db, EntryOptions, Expiry, Keyspace, KeyspaceOptions, WriteBatch};

use crate::common;

fn options(name: &str) -> KeyspaceOptions {
    KeyspaceOptions::new().merge_operator(name)
}

fn text(ks: &Keyspace, key: &str) -> Option<String> {
    let got = ks.get(key).unwrap().map(|value| String::from_utf8(value.to_vec()).unwrap());
    let many = ks.multi_get(&[key]).unwrap().remove(0).unwrap();
    assert_eq!(many.as_deref(), got.as_deref().map(str::as_bytes));
    for mut entries in [
        ks.range(key..).unwrap().collect::<Vec<_>>(),
        ks.range(..=key).unwrap().rev().collect::<Vec<_>>(),
    ] {
        let first = (!entries.is_empty()).then(|| entries.remove(0).unwrap());
        let found = first.filter(|(found, _)| found == key.as_bytes());
        assert_eq!(found.map(|(_, value)| value.to_vec()), got.clone().map(String::into_bytes));
    }
    got
}

#[test]
fn operands_are_combined_with_their_base_wherever_it_is_stored() {
    // A flush may come between any two writes.
    for flushes in 0..32 {
        let db = Db::on_medium(common::memory()).memory(common::MEMORY).open().unwrap();
        let ks = db.open_or_create_keyspace_opt("k", &options(Append::NAME)).unwrap();
        let flush = |number: u32| {
            if flushes & (1 << number) != 0 {
                db.flush().unwrap();
            }
        };
        for key in ["a", "z"] {
            ks.put(key, "?").unwrap();
        }
        ks.put("m", "old").unwrap();
        ks.delete("n").unwrap();
        flush(0);
        ks.put("m", "1").unwrap();
        let before = db.snapshot();
        flush(1);
        for key in ["m", "n", "o"] {
            ks.merge(key, "2").unwrap();
        }
        flush(2);
        let between = db.snapshot();
        let mut batch = WriteBatch::new();
        for key in ["m", "n", "o"] {
            batch.merge(&ks, key, "3").unwrap();
            batch.merge(&ks, key, "4").unwrap();
        }
        db.write(&batch).unwrap();
        flush(3);
        assert_eq!(text(&ks, "m").as_deref(), Some("1234"), "{flushes:b}");
        assert_eq!(text(&ks, "n").as_deref(), Some("234"), "{flushes:b}");
        assert_eq!(text(&ks, "o").as_deref(), Some("234"), "{flushes:b}");
        assert_eq!(ks.iter().unwrap().count(), 5);
        ks.delete("m").unwrap();
        ks.put("n", "new").unwrap();
        flush(4);
        assert_eq!(text(&ks, "m"), None);
        assert_eq!(text(&ks, "n").as_deref(), Some("new"));
        ks.merge("m", "5").unwrap();
        assert_eq!(text(&ks, "m").as_deref(), Some("5"));
        let seen = |snapshot: &terracedb::Snapshot, key| snapshot.get(&ks, key).unwrap();
        assert_eq!(seen(&before, "m").as_deref(), Some(&b"1"[..]));
        assert_eq!(seen(&before, "n"), None);
        assert_eq!(seen(&between, "m").as_deref(), Some(&b"12"[..]));
        assert_eq!(seen(&between, "o").as_deref(), Some(&b"2"[..]));
        assert_eq!(between.iter(&ks).unwrap().rev().count(), 5);
    }
}

#[test]
fn operands_outlive_an_expired_base() {
    let db = Db::on_medium(common::memory()).memory(common::MEMORY).open().unwrap();
    let ks = db.open_or_create_keyspace_opt("k", &options(Append::NAME)).unwrap();
    let at = std::time::SystemTime::now() + Duration::from_secs(3600);
    ks.put_opt("later", "a", &EntryOptions::new().expires_at(at)).unwrap();
    ks.put_opt("gone", "a", &EntryOptions::new().ttl(Duration::ZERO)).unwrap();
    ks.merge("later", "b").unwrap();
    ks.merge("gone", "b").unwrap();
    for _ in 0..2 {
        assert_eq!(text(&ks, "later").as_deref(), Some("ab"));
        assert_eq!(text(&ks, "gone").as_deref(), Some("b"));
        assert_eq!(ks.expiry("gone").unwrap(), Some(Expiry::Never));
        db.flush().unwrap();
    }
}

/// A custom operator that joins with commas, refuses the operand `bad`, and cannot combine operands without
/// their base value.
#[derive(Debug)]
struct Joined;

impl MergeOperator for Joined {
    fn name(&self) -> &str {
        "test.joined.1"
    }

    fn merge(&self, _key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Option<Vec<u8>> {
        let parts: Vec<&[u8]> = base.into_iter().chain(operands.iter().copied()).collect();
        (!operands.contains(&&b"bad"[..])).then(|| parts.join(&b","[..]))
    }
}

#[test]
fn a_keyspace_keeps_the_name_of_its_operator() {
    let medium = common::memory();
    let open = |operator: Option<Arc<dyn MergeOperator>>| {
        let builder = Db::on_medium(Arc::clone(&medium)).memory(common::MEMORY);
        match operator {
            Some(operator) => builder.merge_operator(operator).open().unwrap(),
            None => builder.open().unwrap(),
        }
    };
    {
        let db = open(Some(Arc::new(Joined)));
        let ks = db.open_or_create_keyspace_opt("k", &options("test.joined.1")).unwrap();
        ks.merge("a", "1").unwrap();
        ks.merge("a", "2").unwrap();
        ks.put("b", "3").unwrap();
        assert_eq!(text(&ks, "a").as_deref(), Some("1,2"));
        // A keyspace without an operator adopts one, once.
        let plain = db.open_or_create_keyspace("plain").unwrap();
        assert_eq!(plain.merge("a", "1").unwrap_err().kind(), ErrorKind::Invalid);
        let plain = db.open_or_create_keyspace_opt("plain", &options(I64Add::NAME)).unwrap();
        plain.merge("a", 7i64.to_le_bytes()).unwrap();
        let other = db.open_or_create_keyspace_opt("plain", &options(Append::NAME)).unwrap_err();
        assert_eq!(other.kind(), ErrorKind::Invalid);
        let unknown = db.open_or_create_keyspace_opt("new", &options("nobody's")).unwrap_err();
        assert_eq!(unknown.kind(), ErrorKind::Invalid);
        assert_eq!(db.keyspace("new").unwrap_err().kind(), ErrorKind::NotFound);
        db.flush().unwrap();
        ks.merge("a", "3").unwrap();
    }
    {
        // Everything works except merges.
        let db = open(None);
        let ks = db.open_or_create_keyspace("k").unwrap();
        assert_eq!(ks.get("b").unwrap().as_deref(), Some(&b"3"[..]));
        let error = ks.get("a").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("test.joined.1"), "{error}");
        assert_eq!(ks.merge("a", "4").unwrap_err().kind(), ErrorKind::Invalid);
        ks.put("c", "5").unwrap();
        db.flush().unwrap();
        let plain = db.open_or_create_keyspace("plain").unwrap();
        assert_eq!(plain.get("a").unwrap().as_deref(), Some(&7i64.to_le_bytes()[..]));
    }
    let db = open(Some(Arc::new(Joined)));
    let ks = db.open_or_create_keyspace("k").unwrap();
    assert_eq!(text(&ks, "a").as_deref(), Some("1,2,3"));
    assert_eq!(text(&ks, "c").as_deref(), Some("5"));
    // Invalid operands make only their key unreadable.
    ks.merge("a", "bad").unwrap();
    assert_eq!(ks.get("a").unwrap_err().kind(), ErrorKind::Invalid);
    ks.put("a", "mended").unwrap();
    assert_eq!(text(&ks, "a").as_deref(), Some("mended"));
}

#[test]
fn operands_of_one_key_are_bounded() {
    let db = Db::on_medium(common::memory()).memory(common::MEMORY).open().unwrap();
    let ks = db.open_or_create_keyspace_opt("k", &options(Append::NAME)).unwrap();
    let megabyte = vec![b'x'; 1 << 20];
    // Snapshots: a flush in between may not combine the operands before each of them.
    let mut snapshots = Vec::new();
    let mut merge = || {
        ks.merge("a", &megabyte).unwrap();
        snapshots.push(db.snapshot());
    };
    (0..7).for_each(|_| merge());
    assert_eq!(ks.get("a").unwrap().unwrap().len(), 7 << 20);
    (0..2).for_each(|_| merge());
    let error = ks.get("a").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("merge operands of one key"), "{error}");
    ks.put("b", "still here").unwrap();
    assert!(ks.contains_key("b").unwrap());
    assert_eq!(ks.iter().unwrap().rev().nth(1).unwrap().unwrap_err().kind(), ErrorKind::Invalid);
    // A newer put or delete that supersedes them is found from either end, although one end meets the
    // operands first.
    ks.put("a", "x").unwrap();
    let values = |entries: Vec<(bytes::Bytes, bytes::Bytes)>| -> Vec<_> {
        entries.into_iter().map(|(_, value)| value).collect()
    };
    let backward: terracedb::Result<Vec<_>> = ks.iter().unwrap().rev().collect();
    assert_eq!(values(backward.unwrap()), ["still here", "x"]);
    ks.delete("a").unwrap();
    let backward: terracedb::Result<Vec<_>> = ks.iter().unwrap().rev().collect();
    assert_eq!(values(backward.unwrap()), ["still here"]);
}

/// A flush has 6 MiB of memory: operands that it has no room to combine are stored unchanged.
#[test]
fn a_flush_handles_operands_of_any_size() {
    for codec in [Codec::Lz4, Codec::Zstd] {
        let db = Db::on_medium(common::memory()).memory(common::MEMORY).codec(codec);
        let db = db.open().unwrap();
        let ks = db.open_or_create_keyspace_opt("k", &options(Append::NAME)).unwrap();
        let length = |key| ks.get(key).unwrap().unwrap().len();
        (0..1100).for_each(|_| ks.merge("many", [b'x'; 1000]).unwrap());
        db.flush().unwrap();
        assert_eq!(length("many"), 1_100_000, "{codec:?}");
        // A single operand over an older table stays an operand.
        ks.put("one", "base").unwrap();
        db.flush().unwrap();
        ks.merge("one", vec![b'x'; 1_000_000]).unwrap();
        db.flush().unwrap();
        assert_eq!(length("one"), 1_000_004, "{codec:?}");
    }
}

/// Many small operands do not use up a flush's memory for its table, whether the operator combines them or
/// not.
#[test]
fn a_flush_handles_any_number_of_operands() {
    for name in [I64Add::NAME, "test.joined.1"] {
        let db = Db::on_medium(common::memory()).memory(256 << 20);
        let db = db.merge_operator(Arc::new(Joined)).open().unwrap();
        let ks = db.open_or_create_keyspace_opt("k", &options(name)).unwrap();
        ks.put("a", 0i64.to_le_bytes()).unwrap();
        db.flush().unwrap();
        (0..100_000).for_each(|_| ks.merge("a", 1i64.to_le_bytes()).unwrap());
        db.flush().unwrap();
        assert!(ks.get("a").unwrap().is_some(), "{name}");
    }
}

/// A batch, a transaction and a single write refuse an operand that the operator refuses, so it is never
/// stored.
#[test]
fn a_malformed_operand_is_refused_by_every_kind_of_write() {
    let db = Db::on_medium(common::memory()).memory(common::MEMORY).open().unwrap();
    for name in [I64Add::NAME, I64AddSaturating::NAME, U64Max::NAME, U64Min::NAME] {
        let ks = db.open_or_create_keyspace_opt(name, &options(name)).unwrap();
        let mut batch = WriteBatch::new();
        let mut transaction = db.transaction();
        for error in [
            ks.merge("bad", "xyz").unwrap_err(),
            batch.merge(&ks, "bad", "xyz").unwrap_err(),
            transaction.merge(&ks, "bad", "xyz").unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Invalid);
            let text = error.to_string();
            assert!(text.contains("eight bytes") && text.contains(name), "{text}");
        }
        assert!(batch.is_empty() && transaction.is_empty());
        assert_eq!(ks.get("bad").unwrap(), None);
    }
}

/// What an iterator returns: a value, or `error` if the error names the key.
fn shown<E: Iterator<Item = terracedb::Result<terracedb::Entry>>>(entries: E) -> Vec<String> {
    let show = |entry: terracedb::Result<terracedb::Entry>| match entry {
        Ok((key, _)) => String::from_utf8(key.to_vec()).unwrap(),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
            let text = error.to_string();
            let key = text.split("key `").nth(1).and_then(|rest| rest.split('`').next());
            format!("!{}", key.expect(&text))
        }
    };
    entries.map(show).collect()
}

#[test]
fn an_iterator_goes_on_behind_a_key_that_cannot_be_merged() {
    // A flush may come between any two of the writes.
    for flushes in 0..8 {
        let db = Db::on_medium(common::memory()).memory(common::MEMORY).open().unwrap();
        let ks = db.open_or_create_keyspace_opt("k", &options(I64Add::NAME)).unwrap();
        let flush = |number: u32| {
            if flushes & (1 << number) != 0 {
                db.flush().unwrap();
            }
        };
        let one = 1i64.to_le_bytes();
        for key in ["b", "d", "f"] {
            ks.put(key, i64::MAX.to_le_bytes()).unwrap();
        }
        flush(0);
        for key in ["a", "b", "c", "d", "e", "f"] {
            ks.merge(key, one).unwrap();
        }
        flush(1);
        ks.merge("b", one).unwrap();
        flush(2);
        let all = ["a", "!b", "c", "!d", "e", "!f"];
        let backward: Vec<_> = all.iter().rev().copied().collect();
        let transaction = db.transaction();
        let iter = || ks.iter().unwrap();
        assert_eq!(shown(iter().continue_after_key_errors()), all, "{flushes:b}");
        assert_eq!(shown(iter().continue_after_key_errors().rev()), backward, "{flushes:b}");
        let own = || transaction.iter(&ks).unwrap().continue_after_key_errors();
        assert_eq!(shown(own()), all);
        assert_eq!(shown(own().rev()), backward);
        // Without it, the error ends the iteration.
        assert_eq!(shown(iter()), ["a", "!b"]);
        assert_eq!(shown(iter().rev()), ["!f"]);
        assert_eq!(shown(transaction.iter(&ks).unwrap()), ["a", "!b"]);
        // From both ends, every key once.
        for turns in 0..64 {
            let mut both = iter().continue_after_key_errors();
            let (mut front, mut back) = (Vec::new(), Vec::new());
            for turn in 0..6 {
                if turns & (1 << turn) == 0 {
                    front.extend(shown(both.next().into_iter()));
                } else {
                    back.extend(shown(both.next_back().into_iter()));
                }
            }
            assert!(both.next().is_none() && both.next_back().is_none());
            back.reverse();
            front.extend(back);
            assert_eq!(front, all, "{flushes:b} {turns:b}");
        }
        // A key outside the range is no error of the range.
        assert_eq!(shown(ks.range("a".."b").unwrap()), ["a"]);
        assert_eq!(shown(ks.range("c"..="c").unwrap().rev()), ["c"]);
        assert_eq!(shown(ks.prefix("e").unwrap()), ["e"]);
        // A cursor names the key, and a seek goes on.
        let mut cursor = ks.cursor().unwrap();
        assert!(cursor.seek_to_first().unwrap() && cursor.failed_key().is_none());
        assert!(cursor.next().is_err());
        assert_eq!(cursor.failed_key(), Some(&b"b"[..]));
        assert!(cursor.seek("b\0").unwrap() && cursor.failed_key().is_none());
        // An own write replaces a value that cannot be read.
        let mut transaction = db.transaction();
        transaction.put(&ks, "b", one).unwrap();
        transaction.delete(&ks, "d").unwrap();
        assert_eq!(shown(transaction.iter(&ks).unwrap()), ["a", "b", "c", "e", "!f"]);
        // Operands that bring the sum back into the range make the keys readable again.
        for key in ["b", "d", "f"] {
            ks.merge(key, (-2i64).to_le_bytes()).unwrap();
        }
        assert_eq!(shown(iter()), ["a", "b", "c", "d", "e", "f"]);
        db.compact().unwrap();
        assert_eq!(ks.get("b").unwrap().as_deref(), Some(&i64::MAX.to_le_bytes()[..]));
    }
}

/// The plain counter refuses a sum outside 64 bits: no read answers a number that wrapped or stopped at an
/// end, whatever is flushed in between, and the sum is exact once it is back in the range.
#[test]
fn a_counter_refuses_a_sum_out_of_its_range_at_both_ends() {
    for (end, step) in [(i64::MAX, 1i64), (i64::MIN, -1)] {
        for flushes in 0..8 {
            let db = Db::on_medium(common::memory()).memory(common::MEMORY).open().unwrap();
            let ks = db.open_or_create_keyspace_opt("k", &options(I64Add::NAME)).unwrap();
            let flush = |number: u32| {
                if flushes & (1 << number) != 0 {
                    db.flush().unwrap();
                }
            };
            ks.merge("a", end.to_le_bytes()).unwrap();
            let snapshot = db.snapshot();
            flush(0);
            ks.merge("a", step.to_le_bytes()).unwrap();
            flush(1);
            let transaction = db.transaction();
            for error in [
                ks.get("a").unwrap_err(),
                ks.multi_get(&["a"]).unwrap().remove(0).unwrap_err(),
                transaction.get(&ks, "a").unwrap_err(),
            ] {
                assert_eq!(error.kind(), ErrorKind::Invalid, "{end} {flushes}: {error}");
                assert!(error.to_string().contains(I64Add::NAME), "{error}");
            }
            assert_eq!(snapshot.get(&ks, "a").unwrap().as_deref(), Some(&end.to_le_bytes()[..]));
            ks.merge("a", (-3 * step).to_le_bytes()).unwrap();
            flush(2);
            let sum = (end - 2 * step).to_le_bytes();
            assert_eq!(ks.get("a").unwrap().as_deref(), Some(&sum[..]), "{end} {flushes}");
            drop(snapshot);
            db.compact().unwrap();
            assert_eq!(ks.get("a").unwrap().as_deref(), Some(&sum[..]), "{end} {flushes}");
        }
    }
}

#[test]
fn a_saturating_counter_stops_at_the_ends_whatever_is_flushed_in_between() {
    for flushes in 0..16 {
        let db = Db::on_medium(common::memory()).memory(common::MEMORY).open().unwrap();
        let ks = db.open_or_create_keyspace_opt("k", &options(I64AddSaturating::NAME)).unwrap();
        for (number, operand) in [i64::MAX, 5, -7, i64::MIN, i64::MIN, 3].into_iter().enumerate() {
            ks.merge("a", operand.to_le_bytes()).unwrap();
            if flushes & (1 << number) != 0 {
                db.flush().unwrap();
            }
        }
        assert_eq!(ks.get("a").unwrap().as_deref(), Some(&(i64::MIN + 3).to_le_bytes()[..]));
        db.compact().unwrap();
        assert_eq!(ks.get("a").unwrap().as_deref(), Some(&(i64::MIN + 3).to_le_bytes()[..]));
    }
}
