//! Power cuts at any line of storage-class memory, with a resident keyspace beside an ordered one: every
//! acknowledged write is there, and no batch is torn (I11).
//!
//! `TERRACE_LONG=1` cuts 100,000 times on one lane and as often on four, `TERRACE_CUTS=N` N times. Both print
//! the seed and each thousandth cut (with `--nocapture`).

use std::collections::BTreeMap;
use std::sync::Arc;

use base::Rng;
use media::{Faulty, Freeze, Medium};
use terracedb::{Db, Keyspace, WriteBatch};

use crate::common::{self, Views};
use crate::resident::resident;

const KEYS: u64 = 40;

/// The power cuts of a default run.
const CUTS: u64 = 120;

/// Power cuts of one store, after which a new one begins: its log grows with each open.
const LIVES: u64 = 12;

fn open(
    devices: &Arc<Views>,
    lanes: u16,
    seed: u64,
) -> terracedb::Result<(Db, Keyspace, Keyspace)> {
    let builder = common::stepped(&devices.device, seed).log_path(["one"]).log_lanes(lanes);
    let db = builder.log_devices(Arc::clone(devices) as _).open()?;
    let keyspace = db.open_or_create_keyspace_opt("r", &resident())?;
    let ordered = db.open_or_create_keyspace("o")?;
    Ok((db, keyspace, ordered))
}

/// The values of both keyspaces by key.
type Content = [BTreeMap<u64, u64>; 2];

fn content(keyspaces: [&Keyspace; 2]) -> Content {
    keyspaces.map(|keyspace| {
        let all = (0..KEYS).filter_map(|key| {
            let value = keyspace.get(key.to_be_bytes()).unwrap()?;
            Some((key, u64::from_le_bytes(value[..8].try_into().unwrap())))
        });
        all.collect()
    })
}

fn cuts() -> u64 {
    match std::env::var("TERRACE_CUTS") {
        Ok(cuts) => cuts.parse().expect("TERRACE_CUTS is a number"),
        Err(_) if std::env::var_os("TERRACE_LONG").is_some() => 100_000,
        Err(_) => CUTS,
    }
}

fn power_cuts(lanes: u16) {
    let (mut rng, seed) = Rng::from_env();
    let cuts = cuts();
    for store in 0..cuts.div_ceil(LIVES) {
        let done = store * LIVES;
        if cuts > CUTS && done % 1000 < LIVES {
            println!("TERRACE_SEED={seed}: {done} of {cuts} cuts on {lanes} lanes passed");
        }
        let mut device = Arc::new(Faulty::new(rng.next_u64()).with_lines());
        let mut model: Content = Default::default();
        let mut version = 0u64;
        for life in 0..LIVES {
            let why = format!("TERRACE_SEED={seed}, {lanes} lanes, store {store}, life {life}");
            let devices = Views::of(Arc::clone(&device) as Arc<dyn Medium>);
            device.freeze(Freeze::AtChange(device.changes() + rng.below(150)));
            let opened = open(&devices, lanes, rng.next_u64());
            let mut doubtful = None;
            if let Ok((db, keyspace, ordered)) = &opened {
                if !device.is_frozen() {
                    assert_eq!(content([keyspace, ordered]), model, "{why}, opened");
                }
                for _ in 0..rng.below(60) {
                    if device.is_frozen() {
                        break;
                    }
                    let mut next = model.clone();
                    let mut batch = WriteBatch::new();
                    for _ in 0..1 + rng.below(4) {
                        version += 1;
                        let (key, value) = (rng.below(KEYS), vec![0; rng.below(300) as usize]);
                        let value = [&version.to_le_bytes()[..], &value].concat();
                        let sides = 1 + rng.below(3);
                        for (side, keyspace) in [(0, keyspace), (1, ordered)] {
                            if sides & (1 << side) == 0 {
                                continue;
                            }
                            if rng.one_in(5) {
                                batch.delete(keyspace, key.to_be_bytes()).unwrap();
                                next[side].remove(&key);
                            } else {
                                batch.put(keyspace, key.to_be_bytes(), &value).unwrap();
                                next[side].insert(key, version);
                            }
                        }
                    }
                    let written = db.write(&batch);
                    if written.is_err() || device.is_frozen() {
                        doubtful = Some(next);
                        break;
                    }
                    model = next;
                    if rng.one_in(20) && db.flush().is_err() {
                        break;
                    }
                }
            }
            drop(opened);
            let image = device.crash_image(rng.next_u64()).unwrap();
            device = Arc::new(Faulty::over(&image, rng.next_u64()).unwrap().with_lines());
            let devices = Views::of(Arc::new(image) as Arc<dyn Medium>);
            let (_db, keyspace, ordered) = open(&devices, lanes, 1).unwrap();
            let found = content([&keyspace, &ordered]);
            assert!(found == model || Some(&found) == doubtful.as_ref(), "{why}: {found:?}");
            model = found;
            let entries = keyspace.entries().unwrap().count();
            assert_eq!(entries, model[0].len(), "{why}");
        }
    }
}

#[test] // I11
fn a_power_cut_at_any_line_of_one_lane_loses_no_resident_entry() {
    power_cuts(1);
}

#[test] // I11
fn a_power_cut_at_any_line_of_four_lanes_loses_no_resident_entry() {
    power_cuts(4);
}
