//! Devices that fail: errors, full devices, and silent faults.
//!
//! I11: an acknowledged write is present once the device works and the store is reopened. I3: a table whose
//! manifest record may have been written is never removed. I8: data that a device silently lost or
//! misplaced is reported when it is read, and makes only the keys of the damaged page unreadable.

use std::sync::Arc;

use base::{Durability, ErrorKind, Rng};
use media::{Access, Fault, Faulty, Medium, OpKind, Purpose, Rule};
use terracedb::{Db, Keyspace, WriteOptions};

use crate::common::{Stepped, assert_tidy};

/// A store with a keyspace on a device with injectable faults.
struct World {
    device: Arc<Faulty>,
    stepped: Stepped,
    db: Option<Db>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut world =
            Self { device: Arc::new(Faulty::new(seed)), stepped: Stepped::new(seed), db: None };
        world.open();
        world
    }

    fn medium(&self) -> Arc<dyn Medium> {
        Arc::clone(&self.device) as _
    }

    fn open(&mut self) {
        self.db = None;
        self.db = Some(self.stepped.on(self.medium()).open().unwrap());
    }

    /// Cuts the power, and reopens the store.
    fn lose_power(&mut self, seed: u64) {
        let image = self.device.crash_image(seed).unwrap();
        self.db = None;
        self.device = Arc::new(Faulty::over(&image, seed).unwrap());
        self.open();
    }

    fn db(&self) -> &Db {
        self.db.as_ref().unwrap()
    }

    fn keyspace(&self) -> Keyspace {
        self.db().open_or_create_keyspace("k").unwrap()
    }

    fn put(&self, numbers: std::ops::Range<u32>) {
        let keyspace = self.keyspace();
        for number in numbers {
            keyspace.put(number.to_be_bytes(), value(number)).unwrap();
        }
    }

    /// Asserts that every key of `numbers` has its value.
    fn assert_holds(&self, numbers: std::ops::Range<u32>, why: &str) {
        let keyspace = self.keyspace();
        for number in numbers {
            let got = keyspace.get(number.to_be_bytes());
            let got = got.unwrap_or_else(|error| panic!("{why}: key {number}: {error}"));
            assert_eq!(got.as_deref(), Some(&value(number)[..]), "{why}: key {number}");
        }
    }

    fn tables(&self) -> usize {
        let listed = self.device.list().unwrap();
        listed.iter().filter(|file| file.name.ends_with(".table")).count()
    }
}

/// A value of which half does not compress.
fn value(number: u32) -> Vec<u8> {
    let mut value = vec![number as u8; 100];
    Rng::new(u64::from(number)).fill(&mut value[..50]);
    value
}

fn io(on: OpKind) -> Rule {
    Rule::new(on, Fault::Io)
}

#[test]
fn a_failed_log_sync_poisons_writes_but_not_reads() {
    for seed in 0..10 {
        let mut world = World::new(seed);
        world.put(0..50);
        world.db().flush().unwrap();
        world.put(50..100);
        world.db().sync().unwrap();
        world.put(100..110);
        world.device.inject(io(OpKind::Sync).purpose(Purpose::Log)).unwrap();
        let keyspace = world.keyspace();
        let failed = keyspace
            .put_opt("victim", "v", &WriteOptions::new().durability(Durability::Sync))
            .unwrap_err();
        assert_eq!(failed.kind(), ErrorKind::Poisoned, "{failed}");
        for durability in [Durability::None, Durability::Interval, Durability::Sync] {
            let refused = keyspace
                .put_opt("later", "v", &WriteOptions::new().durability(durability))
                .unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Poisoned, "{refused}");
            assert!(refused.to_string().contains("sync"), "the first failure: {refused}");
        }
        assert!(world.db().sync().is_err());
        assert!(world.db().flush().is_err(), "a table must not outlive the log before it");
        assert!(world.db().statistics().poisoned.is_some());
        assert_eq!(keyspace.get("later").unwrap(), None);
        drop(keyspace);
        world.assert_holds(0..110, "reads go on");
        world.open();
        assert!(world.db().statistics().poisoned.is_none());
        // The device may have dropped the data that it failed to sync.
        world.assert_holds(0..100, "opened again");
        world
            .keyspace()
            .put_opt("after", "v", &WriteOptions::new().durability(Durability::Sync))
            .unwrap();
        world.lose_power(seed);
        world.assert_holds(0..100, &format!("after a power cut, seed {seed}"));
        assert!(world.keyspace().get("after").unwrap().is_some(), "seed {seed}");
    }
}

#[test]
fn a_failed_flush_is_reported_leaves_no_file_and_is_repeated() {
    let rules = [
        io(OpKind::Write).purpose(Purpose::Flush),
        io(OpKind::Sync).purpose(Purpose::Flush),
        io(OpKind::Names).name(".table"),
        io(OpKind::Names).name("directory"),
        // Once per retry of the read.
        io(OpKind::Read).name(".table").times(3),
        Rule::new(OpKind::Write, Fault::NoSpace).purpose(Purpose::Flush),
    ];
    for (number, rule) in rules.into_iter().enumerate() {
        let why = format!("{rule:?}");
        let mut world = World::new(number as u64);
        world.put(0..1000);
        world.device.inject(rule).unwrap();
        let Err(error) = world.db().flush() else { panic!("{why}: flushed") };
        assert_ne!(error.kind(), ErrorKind::Poisoned, "{why}: {error}");
        assert_eq!(world.device.struck(), if why.contains("on: Read") { 3 } else { 1 }, "{why}");
        assert_eq!(world.tables(), 0, "{why}: space is given back");
        let statistics = world.db().statistics();
        assert!(statistics.flush_failures > 0 && statistics.flush_failing.is_some(), "{why}");
        assert!(statistics.poisoned.is_none(), "{why}");
        world.put(1000..1100);
        world.assert_holds(0..1100, &why);
        world.db().flush().unwrap_or_else(|error| panic!("{why}: {error}"));
        assert_eq!(world.db().statistics().flush_failing, None, "{why}");
        world.assert_holds(0..1100, &why);
        assert_tidy(world.db(), &*world.device, &why);
        world.lose_power(number as u64);
        world.assert_holds(0..1100, &why);
        assert_tidy(world.db(), &*world.device, &why);
    }
}

/// The contents of the manifest after a failed append are unknown until it is read again: a table that it
/// may name must be kept.
#[test] // I3
fn a_failed_manifest_append_may_have_been_written() {
    for seed in 0..24 {
        let mut world = World::new(seed);
        world.put(0..1000);
        let on = if seed % 2 == 0 { OpKind::Write } else { OpKind::Sync };
        // The first append reserves table ids, the second names the table.
        world.device.inject(io(on).purpose(Purpose::Manifest).after(seed / 2 % 2)).unwrap();
        let why = format!("seed {seed}, {on:?}");
        world.db().flush().unwrap_err();
        assert_eq!(world.device.struck(), 1, "{why}");
        let tables = world.tables();
        for _ in 0..3 {
            let error = world.db().flush().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Poisoned, "{why}: {error}");
        }
        assert_eq!(world.tables(), tables, "{why}: no table that no manifest will name");
        let waited = world.db().wait_until_settled().unwrap_err();
        assert_eq!(waited.kind(), ErrorKind::Poisoned, "{why}: nothing is merged any more");
        assert!(world.db().statistics().poisoned.is_some(), "{why}");
        assert_eq!(
            world.db().open_or_create_keyspace("new").unwrap_err().kind(),
            ErrorKind::Poisoned,
            "{why}"
        );
        world.put(1000..1100);
        world.assert_holds(0..1100, &why);
        if seed % 4 < 2 {
            world.open()
        } else {
            world.lose_power(seed)
        }
        let least = if seed % 4 < 2 { 1100 } else { 1000 };
        assert!(world.db().recovery().damaged_tables.is_empty(), "{why}");
        world.assert_holds(0..least, &why);
        world.db().flush().unwrap();
        assert_tidy(world.db(), &*world.device, &why);
    }
}

/// If a drop of a keyspace failed with the manifest, only the next reading of the manifest shows whether
/// the keyspace is gone: until then no write to it is acknowledged.
#[test]
fn a_drop_that_failed_with_the_manifest_loses_no_acknowledged_write() {
    for on in [OpKind::Write, OpKind::Sync] {
        let mut world = World::new(3);
        world.put(0..100);
        world.db().flush().unwrap();
        let keyspace = world.db().keyspaces().remove(0);
        let name = keyspace.name().to_owned();
        world.device.inject(io(on).purpose(Purpose::Manifest)).unwrap();
        world.db().drop_keyspace(&name).unwrap_err();
        let written =
            keyspace.put_opt("key", "value", &WriteOptions::new().durability(Durability::Sync));
        let error = written.expect_err("it may be gone");
        assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
        drop(keyspace);
        world.open();
        match world.db().keyspace(&name) {
            Ok(_) => world.assert_holds(0..100, "not dropped"),
            Err(_) => assert!(world.db().keyspaces().is_empty()),
        }
    }
    // If the manifest failed before the drop, nothing happened, and the keyspace works on.
    let world = World::new(4);
    world.put(0..100);
    let name = world.db().keyspaces().remove(0).name().to_owned();
    world.device.inject(io(OpKind::Write).purpose(Purpose::Manifest)).unwrap();
    world.db().flush().unwrap_err();
    let error = world.db().drop_keyspace(&name).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Poisoned, "{error}");
    world.put(100..200);
    world.assert_holds(0..200, "a drop that was not written");
}

/// The manifest that an open begins takes effect once its name is durable: a failed sync of the removal of
/// the older one makes nothing fail.
#[test]
fn an_open_succeeds_if_the_removal_of_the_old_manifest_is_not_synced() {
    for fault in [Fault::Io, Fault::NoSpace] {
        for nth in 0..4 {
            let mut world = World::new(nth);
            world.put(0..100);
            world.db().flush().unwrap();
            world.db = None;
            let rule = Rule::new(OpKind::Names, fault.clone()).name("directory").after(nth);
            world.device.inject(rule).unwrap();
            let why = format!("{fault:?} at sync {nth}");
            match world.stepped.on(world.medium()).open() {
                Ok(db) => world.db = Some(db),
                Err(error) => {
                    let kinds = [ErrorKind::Corrupt, ErrorKind::NoSpace, ErrorKind::Poisoned];
                    assert!(kinds.contains(&error.kind()), "{why}: {error}");
                    world.device.heal();
                    world.open();
                }
            }
            world.assert_holds(0..100, &why);
            world.device.heal();
            world.open();
            world.assert_holds(0..100, &why);
            assert_tidy(world.db(), &*world.device, &why);
        }
    }
}

/// A new manifest replaces one that grew long. Whatever fails meanwhile, no later record may go to a
/// manifest that the next open does not read.
#[test]
fn a_failed_change_of_manifests_loses_no_later_record() {
    let full = rounds_of_a_manifest() - 3;
    let (old, new) = ("manifest-0000000000000001", "manifest-0000000000000002");
    let named = |on, name: &str| io(on).name(name);
    let cases = [
        vec![named(OpKind::Write, new)],
        vec![named(OpKind::Sync, new)],
        vec![named(OpKind::Names, new)],
        vec![named(OpKind::Names, "directory")],
        vec![named(OpKind::Names, old)],
        vec![named(OpKind::Names, "directory").after(1)],
        // The rest of the new manifest cannot be removed.
        vec![named(OpKind::Sync, new), named(OpKind::Names, new).after(1)],
        vec![named(OpKind::Sync, new), named(OpKind::Names, "directory")],
        vec![named(OpKind::Names, "directory").times(2)],
    ];
    for number in 0..2 * cases.len() as u64 {
        let rules = &cases[number as usize / 2];
        let mut world = World::new(number);
        world.put(0..100);
        // Creates and drops keyspaces until the manifest is almost full.
        let mut round = 0;
        let manifests = || {
            let listed = world.device.list().unwrap();
            listed.into_iter().filter(|file| file.name.starts_with("manifest")).collect::<Vec<_>>()
        };
        let first = manifests();
        assert_eq!(first[0].name, old);
        while round < full {
            let name = long_name(round);
            drop(world.db().open_or_create_keyspace(&name).unwrap());
            assert!(world.db().drop_keyspace(&name).unwrap());
            round += 1;
        }
        assert_eq!(manifests(), first);
        rules.iter().for_each(|rule| world.device.inject(rule.clone()).unwrap());
        let mut kept = Vec::new();
        for extra in 0..40 {
            let name = long_name(1_000_000 + extra);
            if let Ok(keyspace) = world.db().open_or_create_keyspace(&name) {
                keyspace
                    .put_opt(
                        "k",
                        name.as_bytes(),
                        &WriteOptions::new().durability(Durability::Sync),
                    )
                    .unwrap();
                kept.push(name);
            }
        }
        assert!(world.device.struck() as usize >= rules.len(), "{rules:?}");
        world.device.heal();
        let flushed = world.db().flush().is_ok();
        let why = format!("seed {number}, flushed {flushed}, {rules:?}");
        world.lose_power(number);
        assert!(world.db().recovery().damaged_tables.is_empty(), "{why}");
        for name in &kept {
            let keyspace = world.db().keyspace(name);
            let keyspace = keyspace.unwrap_or_else(|error| panic!("{why}: {error}"));
            assert_eq!(keyspace.get("k").unwrap().as_deref(), Some(name.as_bytes()), "{why}");
        }
        if flushed {
            world.assert_holds(0..100, &why);
        }
    }
}

fn long_name(number: u32) -> String {
    format!("{number:07}{}", "x".repeat(240))
}

/// The number of creations and drops of a keyspace that fill a manifest.
fn rounds_of_a_manifest() -> u32 {
    let world = World::new(0);
    world.put(0..100);
    for round in 0.. {
        drop(world.db().open_or_create_keyspace(&long_name(round)).unwrap());
        assert!(world.db().drop_keyspace(&long_name(round)).unwrap());
        if world.device.open("manifest-0000000000000001", Access::Bytes).is_err() {
            return round;
        }
    }
    unreachable!("a manifest is bounded");
}

/// Bytes of the files on the device.
fn used(device: &Faulty) -> u64 {
    device.list().unwrap().iter().map(|file| file.len).sum()
}

#[test]
fn a_full_device_refuses_writes_until_there_is_space() {
    let mut world = World::new(1);
    let keyspace = world.keyspace();
    world.put(0..1000);
    world.device.set_capacity(Some(used(&world.device)));
    // Fills the log segment, and more than any memtable may reserve.
    let large = vec![7; 100_000];
    let (mut written, mut refused) = (0u32, 0u32);
    while refused < 300 {
        match keyspace.put(format!("large {written}"), &large) {
            Ok(()) => {
                assert_eq!(refused, 0, "space does not come back by itself");
                written += 1;
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::NoSpace, "refusal {refused}: {error}");
                refused += 1;
            }
        }
    }
    assert!(written > 5, "{written} written");
    let error = world.db().flush().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    let check = |world: &World, why: &str| {
        world.assert_holds(0..1000, why);
        for number in 0..written {
            let got = world.keyspace().get(format!("large {number}")).unwrap();
            assert!(got.as_deref() == Some(&large[..]), "{why}: large {number}");
        }
        assert_eq!(world.keyspace().get(format!("large {written}")).unwrap(), None, "{why}");
    };
    check(&world, "while full");
    assert!(world.db().statistics().poisoned.is_none());
    world.device.set_capacity(None);
    keyspace.put("resumed", "v").unwrap();
    drop(keyspace);
    world.db().flush().unwrap();
    assert!(world.db().statistics().flushes > 0);
    check(&world, "with space again");
    world.lose_power(1);
    check(&world, "after a power cut");
    assert!(world.keyspace().get("resumed").unwrap().is_some());
    assert_tidy(world.db(), &*world.device, "after a power cut");
}

/// A refused write reserves memory: it must give the memory back.
#[test] // I10
fn refused_writes_leave_no_memory_behind() {
    let world = World::new(2);
    let keyspace = world.keyspace();
    // One keyspace fills the current segment, then it is flushed.
    let filler = world.db().open_or_create_keyspace("filler").unwrap();
    world.device.set_capacity(Some(used(&world.device)));
    while filler.put("k", vec![1; 10_000]).is_ok() {}
    let refused = (0..4000).map(|_| keyspace.put("k", vec![1; 10_000]).unwrap_err().kind());
    assert!(refused.into_iter().all(|kind| kind == ErrorKind::NoSpace));
    world.device.set_capacity(None);
    for _ in 0..100 {
        keyspace.put("k", vec![1; 10_000]).unwrap();
    }
    world.db().flush().unwrap();
}

/// Data that a device silently lost, tore or misplaced is damage of the keys of those pages: it is reported
/// when they are read, and affects nothing else.
#[test] // I8
fn silent_faults_of_table_writes_are_reported_when_read() {
    let (mut rng, seed) = Rng::from_env();
    println!("TERRACE_SEED={seed}");
    let (mut damaged, mut whole) = (0, 0);
    for round in 0..15 {
        let mut world = World::new(rng.next_u64());
        // Pages that were cached as they were written would hide the fault.
        world.db().change_settings(|settings| settings.write_through = false).unwrap();
        world.put(0..500);
        world.db().flush().unwrap();
        world.put(500..2000);
        let other = world.db().open_or_create_keyspace("other").unwrap();
        other.put("k", "v").unwrap();
        drop(other);
        let page = 4096 * rng.below(20);
        let first = world.device.list().unwrap();
        let first = first.into_iter().find(|file| file.name.ends_with(".table")).unwrap().name;
        let fault = match round % 5 {
            0 => Fault::Lost,
            1 => Fault::Torn,
            2 => Fault::Misdirected { name: None, at: page },
            3 => Fault::Misdirected { name: Some(first), at: page % 16_384 },
            _ => Fault::Flip,
        };
        let context = format!("TERRACE_SEED={seed}, round {round}: {fault:?}");
        let rule = Rule::new(OpKind::Write, fault).purpose(Purpose::Flush).after(rng.below(3));
        world.device.inject(rule).unwrap();
        if let Err(error) = world.db().flush() {
            // The end of the table is read back: a fault there is found before the log is freed.
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{context}: {error}");
            world.device.heal();
            world.db().flush().unwrap();
        }
        world.device.heal();
        if round % 2 == 0 {
            world.open();
        }
        let keyspace = world.keyspace();
        let mut reported = 0;
        for number in 0..2000u32 {
            match keyspace.get(number.to_be_bytes()) {
                Ok(got) => {
                    assert_eq!(got.as_deref(), Some(&value(number)[..]), "{context}: {number}");
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::Corrupt, "{context}: {error}");
                    reported += 1;
                }
            }
        }
        if reported > 0 {
            damaged += 1
        } else {
            whole += 1
        }
        // One page was hit: if not in this table, then in that of the other keyspace.
        match world.db().open_or_create_keyspace("other").unwrap().get("k") {
            Ok(got) => assert_eq!(got.as_deref(), Some(&b"v"[..]), "{context}"),
            Err(error) => {
                assert!(error.kind() == ErrorKind::Corrupt && reported == 0, "{context}: {error}");
                reported += 1;
            }
        }
        if reported > 0 {
            damaged += 1
        } else {
            whole += 1
        }
        keyspace.put(0u32.to_be_bytes(), "new").unwrap();
        assert_eq!(keyspace.get(0u32.to_be_bytes()).unwrap().as_deref(), Some(&b"new"[..]));
        world.db().flush().unwrap();
        assert_eq!(keyspace.get(0u32.to_be_bytes()).unwrap().as_deref(), Some(&b"new"[..]));
    }
    assert!(damaged > 0, "{damaged} damaged, {whole} whole");
}
