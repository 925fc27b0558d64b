//! Helpers shared by the integration tests.
#![allow(dead_code, unused_imports, reason = "each test binary uses its part")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

pub(crate) mod cells;
pub(crate) mod child;
mod event_recorder;
mod gate;
mod image;
mod journal;
mod machine;
mod mortal;
mod pairs;
mod record;
mod script;
mod source;
mod stepped;
mod tidy;
mod until;
mod views;

use std::collections::BTreeMap;
use std::sync::Arc;

use base::Rng;
use media::{Faulty, Medium, MemoryMedium};
use terracedb::{Builder, Bytes, Db, Entry, Keyspace, Result};

pub(crate) use cells::{Cells, Change, expiry_time};
pub(crate) use event_recorder::EventRecorder;
pub(crate) use image::{Image, used};
pub(crate) use machine::Machine;
pub(crate) use mortal::Mortal;
pub(crate) use pairs::{assert_pairs, put_pair};
pub(crate) use record::record;
pub(crate) use script::{Ended, Script, merging};
pub(crate) use source::{Source, assert_restores, assert_verifies, open};
pub(crate) use stepped::Stepped;
pub(crate) use tidy::{assert_tidy, assert_tidy_directory, assert_tidy_soon};
pub(crate) use until::until;
pub(crate) use views::Views;

/// The smallest memory limit of a store, so that flushes come early.
pub(crate) const MEMORY: u64 = 64 << 20;

/// A store on `medium`; its background work runs only while a caller waits for it.
pub(crate) fn stepped(medium: &Arc<dyn Medium>, seed: u64) -> Builder {
    Stepped::new(seed).on(Arc::clone(medium))
}

/// A store on `medium` with background threads.
pub(crate) fn threaded(medium: &Arc<dyn Medium>) -> Builder {
    Db::on_medium(Arc::clone(medium)).memory(MEMORY)
}

pub(crate) fn memory() -> Arc<dyn Medium> {
    Arc::new(MemoryMedium::new())
}

/// A device with injectable faults, also as a `Medium`.
pub(crate) fn faulty(seed: u64) -> (Arc<Faulty>, Arc<dyn Medium>) {
    let device = Arc::new(Faulty::new(seed));
    let medium = Arc::clone(&device) as Arc<dyn Medium>;
    (device, medium)
}

/// A store in memory with background threads and one keyspace.
pub(crate) fn open_one() -> (Db, Keyspace) {
    let db = threaded(&memory()).open().unwrap();
    let keyspace = db.open_or_create_keyspace("k").unwrap();
    (db, keyspace)
}

/// Makes `writes` random changes to keyspace `k` and to `model`; with `flushes`, flushes now and then.
pub(crate) fn fill(db: &Db, rng: &mut Rng, model: &mut Model, writes: u64, flushes: bool) {
    let keyspace = db.open_or_create_keyspace("k").unwrap();
    for version in 0..writes {
        let key = key(rng.below(2000));
        if rng.one_in(8) {
            keyspace.delete(&key).unwrap();
            model.remove(&key);
        } else {
            let value = value(rng, &key, version);
            keyspace.put(&key, &value).unwrap();
            model.insert(key, value);
        }
        if flushes && rng.one_in(500) {
            db.flush().unwrap();
        }
    }
}

/// Bytes that do not compress.
pub(crate) fn noise(length: usize) -> Vec<u8> {
    let mut noise = vec![0; length];
    Rng::new(length as u64).fill(&mut noise);
    noise
}

/// A value as text; `-` for none.
pub(crate) fn text(value: Option<Bytes>) -> String {
    value.map_or("-".to_owned(), |value| String::from_utf8(value.to_vec()).unwrap())
}

/// The key with this number; its length depends on the number.
pub(crate) fn key(number: u64) -> Vec<u8> {
    let mut key = format!("key{number:06}").into_bytes();
    if number.is_multiple_of(7) {
        key.extend(std::iter::repeat_n(b'x', (number % 200) as usize));
    }
    key
}

/// A value that contains `key` and `version`; its second half is random.
pub(crate) fn value(rng: &mut Rng, key: &[u8], version: u64) -> Vec<u8> {
    let mut value = format!("{version}:").into_bytes();
    value.extend_from_slice(key);
    let length = match rng.below(100) {
        0 => 9000 + rng.below(7_000) as usize,
        1 => base::limits::VALUE_APART_BYTES - 200 + rng.below(2_000) as usize,
        2..10 => 1000 + rng.below(4000) as usize,
        10..20 => 0,
        _ => rng.below(300) as usize,
    };
    let start = value.len();
    value.resize(start + length, b'.');
    rng.fill(&mut value[start + length / 2..]);
    value
}

pub(crate) type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Asserts that every kind of read of `keyspace` returns exactly the contents of `model`.
pub(crate) fn assert_same(keyspace: &Keyspace, model: &Model, why: &str) {
    compare(keyspace, model, why).unwrap_or_else(|error| panic!("{why}: {error}"));
}

/// As [`assert_same`], but returns errors of reads.
pub(crate) fn compare(keyspace: &Keyspace, model: &Model, why: &str) -> Result<()> {
    let expected: Vec<_> = model.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
    let owned = |entry: Result<Entry>| entry.map(|(k, v)| (k.to_vec(), v.to_vec()));
    let mut found: Vec<_> = keyspace.entries()?.map(owned).collect::<Result<_>>()?;
    if keyspace.hashed_policy().is_some() {
        found.sort();
    } else {
        let ordered: Vec<_> = keyspace.iter()?.map(owned).collect::<Result<_>>()?;
        assert_entries(&ordered, &expected, why);
        let mut reversed: Vec<_> = keyspace.iter()?.rev().map(owned).collect::<Result<_>>()?;
        reversed.reverse();
        assert_entries(&reversed, &expected, why);
    }
    assert_entries(&found, &expected, why);
    for (key, value) in model {
        let got = keyspace.get(key)?;
        assert_eq!(got.as_deref(), Some(value.as_slice()), "{why}: get {}", show(key));
    }
    Ok(())
}

fn assert_entries(found: &[(Vec<u8>, Vec<u8>)], expected: &[(Vec<u8>, Vec<u8>)], why: &str) {
    for (found, expected) in found.iter().zip(expected) {
        assert!(
            found == expected,
            "{why}: found {} = {}, expected {} = {}",
            show(&found.0),
            show(&found.1),
            show(&expected.0),
            show(&expected.1)
        );
    }
    assert_eq!(found.len(), expected.len(), "{why}: entries");
}

pub(crate) fn show(bytes: &[u8]) -> String {
    let short = &bytes[..bytes.len().min(40)];
    format!("\"{}\" ({} bytes)", short.escape_ascii(), bytes.len())
}
