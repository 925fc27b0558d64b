use std::sync::Arc;

use base::limits::PAGE_BYTES;
use base::{
    DictionaryId, ErrorKind, KeyRange, KeyspaceId, LineageId, RunId, Seqno, StoreId, TableId,
};
use base::{put_u32, put_u64, put_u128};
use media::{Access, Buf, Fault, Faulty, Holding, Medium, MemoryMedium, OpKind, Purpose, Rule};

use super::*;
use crate::header::{HEADERS_BYTES, MAGIC, VERSION, VERSION_FIRST, encode_header};

pub(crate) fn range(first: &str, end: &str) -> KeyRange {
    let bytes = |key: &str| bytes::Bytes::copy_from_slice(key.as_bytes());
    KeyRange { first: bytes(first), end: Some(bytes(end)) }
}

pub(crate) fn entry(id: u64, run: u64, first: &str, last: &str) -> Arc<TableEntry> {
    Arc::new(TableEntry {
        id: TableId(id),
        run: RunId(run),
        file_bytes: 8192,
        entries: 10,
        seqno_min: Seqno::new(3),
        seqno_max: Seqno::new(300),
        range: KeyRange::through(first.as_bytes(), last.as_bytes()),
        ..TableEntry::default()
    })
}

pub(crate) fn created(id: u32, name: &str) -> Edit {
    let kind = KeyspaceKind::Ordered;
    Edit::KeyspaceCreated { keyspace: KeyspaceId(id), kind, name: name.into() }
}

/// Edits that the first form of the manifest could hold, as they are read now.
fn first_edits() -> Vec<Edit> {
    let (one, two) = (KeyspaceId(1), KeyspaceId(2));
    vec![
        Edit::TableIdsReserved { below: TableId(1024) },
        created(1, "one"),
        created(2, "two"),
        Edit::TableAdded { keyspace: one, table: entry(5, 0, "a", "m") },
        Edit::TableAdded { keyspace: one, table: entry(6, 0, "b", "z") },
        Edit::Flushed { keyspace: one, below: Seqno::new(301) },
        Edit::TableRemoved { keyspace: one, table: TableId(5) },
        Edit::KeyspaceDropped { keyspace: two },
        Edit::DictionaryAdded { keyspace: one, dictionary: DictionaryId(9) },
        Edit::DictionaryIdsUsed { last: DictionaryId(300) },
    ]
}

fn edits() -> Vec<Edit> {
    let one = KeyspaceId(1);
    let merged = TableEntry {
        level: 2,
        deletes: 4,
        range_deletes: 2,
        latest_expiry: 1_700_000_000_000,
        seqno: Some(Seqno::new(300)),
        values: vec![(TableId(3), 70_000)],
        digest: Some(0x1122_3344_5566_7788),
        range: KeyRange { end: None, ..range("n", "") },
        ..TableEntry::clone(&entry(8, 3, "", ""))
    };
    let mut edits = first_edits();
    edits.extend([
        Edit::TableAdded { keyspace: one, table: entry(7, 2, "c", "x") },
        Edit::TableAdded { keyspace: one, table: Arc::new(merged) },
        Edit::TableCut { keyspace: one, table: TableId(7), range: range("d", "f") },
        Edit::TableCut {
            keyspace: one,
            table: TableId(8),
            range: KeyRange { end: None, ..range("p", "") },
        },
        Edit::TableMoved {
            keyspace: one,
            table: TableId(7),
            range: range("f", "z"),
            run: RunId(1),
            level: 3,
        },
    ]);
    edits
}

/// [`edits`] with the value file that one of their tables points into.
pub(crate) fn whole_edits() -> Vec<Edit> {
    let mut edits = edits();
    let values = ValuesEntry {
        id: TableId(3),
        file_bytes: 98_304,
        values: 2,
        value_bytes: 90_000,
        digest: 0x0102_0304_0506_0708,
    };
    edits.insert(3, Edit::ValuesAdded { keyspace: KeyspaceId(1), values });
    edits
}

pub(crate) fn state() -> ManifestState {
    let mut state = ManifestState::default();
    for edit in whole_edits() {
        state.apply(edit).unwrap();
    }
    state
}

fn medium() -> Arc<dyn Medium> {
    Arc::new(MemoryMedium::new())
}

fn start(medium: &Arc<dyn Medium>) -> Manifest {
    Manifest::start(Arc::clone(medium), StoreId(7), ManifestState::default(), 1).unwrap()
}

fn contents(medium: &dyn Medium, name: &str) -> Vec<u8> {
    let file = medium.open(name, Access::Bytes).unwrap();
    let pages = file.size().unwrap() as usize / PAGE_BYTES;
    let (buf, result) = file.read(0, Buf::pages(pages), Purpose::Manifest);
    result.unwrap();
    buf.to_vec()
}

/// A new medium with one manifest that has these bytes.
fn medium_of(number: u64, bytes: &[u8]) -> Arc<dyn Medium> {
    let medium = medium();
    let file = medium.create(&file_name(number), Access::Bytes, bytes.len() as u64).unwrap();
    file.store(0, bytes, Purpose::Manifest).unwrap();
    medium
}

/// A manifest with one record.
fn file_of(body: &[u8]) -> Vec<u8> {
    let mut bytes = encode_header(VERSION_FIRST, StoreId(7), 1);
    let seed = frame::seed(&bytes);
    frame::encode_record(&mut bytes, seed, 0, body);
    bytes
}

pub(crate) fn golden(text: &str) -> Vec<u8> {
    let digits: String = text.split_whitespace().collect();
    let pairs = digits.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
    pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
}

#[test]
fn golden_bytes() {
    let mut body = Vec::new();
    for edit in edits() {
        edit.encode(&mut body);
    }
    let bytes = file_of(&body);
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(bytes == golden(include_str!("../golden/manifest-2.hex")), "{hex}");
    assert_eq!(Edit::decode_all(&body).unwrap(), edits());
}

/// Scenario: a store was written before tables had runs and bounds.
#[test]
fn golden_bytes_of_the_first_form_are_read() {
    let bytes = golden(include_str!("../golden/manifest.hex"));
    let seed = frame::seed(&encode_header(VERSION_FIRST, StoreId(7), 1));
    let records = frame::decode_records(&bytes, seed, 40).unwrap();
    assert_eq!(records.bodies.len(), 1);
    assert_eq!(Edit::decode_all(records.bodies[0]).unwrap(), first_edits());
}

/// Every damaged byte of a table's fields gives an error or another table, never a panic.
#[test]
fn damaged_fields_are_an_error_or_another_table() {
    let mut fields = Vec::new();
    let Edit::TableAdded { table, .. } = &edits()[11] else { panic!("a table") };
    table.encode(&mut fields);
    for at in 0..fields.len() {
        let _ = TableEntry::decode(&fields[..at]);
        for bit in 0..8 {
            let mut damaged = fields.clone();
            damaged[at] ^= 1 << bit;
            if let Ok(other) = TableEntry::decode(&damaged) {
                assert_ne!(other, **table, "byte {at} bit {bit}");
            }
        }
    }
}

#[test]
fn appended_edits_are_recovered() {
    let medium = medium();
    let manifest = start(&medium);
    for edit in whole_edits() {
        manifest.append(vec![edit]).unwrap();
    }
    let found = recover(&*medium, false).unwrap().unwrap();
    assert_eq!((found.store, found.state, found.repaired), (StoreId(7), state(), 0));
}

#[test]
fn a_contradiction_is_refused_and_changes_nothing() {
    let medium = medium();
    let manifest = start(&medium);
    manifest.append(whole_edits()).unwrap();
    let again = manifest.append(vec![created(3, "three"), created(3, "four")]).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::Corrupt);
    assert!(manifest.append(vec![created(1, "used before")]).is_err());
    assert_eq!(manifest.state(), state());
    assert!(manifest.poisoned().is_none());
    assert_eq!(recover(&*medium, false).unwrap().unwrap().state, state());
}

#[test]
fn a_full_manifest_is_continued_in_a_new_file() {
    let medium = medium();
    let manifest = start(&medium);
    manifest
        .append(vec![Edit::TableIdsReserved { below: TableId(1 << 20) }, created(1, "one")])
        .unwrap();
    let long = "k".repeat(60 << 10);
    for id in 0..40 {
        let keyspace = KeyspaceId(1);
        let table = entry(id, 1, &long, &long);
        manifest.append(vec![Edit::TableAdded { keyspace, table }]).unwrap();
        if id > 2 {
            manifest.append(vec![Edit::TableRemoved { keyspace, table: TableId(id - 1) }]).unwrap();
        }
    }
    let names: Vec<_> = medium.list().unwrap().into_iter().map(|listing| listing.name).collect();
    assert_eq!(names.len(), 1, "{names:?}");
    assert!(parse_file_name(&names[0]).unwrap() > 2);
    assert_eq!(recover(&*medium, false).unwrap().unwrap().state, manifest.state());
}

#[test] // I9
fn table_ids_are_never_used_twice() {
    let medium = medium();
    let manifest = start(&medium);
    let last = (0..3000).map(|_| manifest.next_table().unwrap()).max().unwrap();
    let found = recover(&*medium, false).unwrap().unwrap();
    assert!(found.state.tables_below > last);
    let next = Manifest::start(Arc::clone(&medium), StoreId(7), found.state, 2).unwrap();
    assert!(next.next_table().unwrap() > last);
}

/// Scenario: one byte of the file is damaged. Every record has a twin, so nothing is lost.
#[test] // I8
fn a_flipped_byte_loses_nothing() {
    let medium = medium();
    let manifest = start(&medium);
    manifest.append(whole_edits()).unwrap();
    manifest.append(vec![created(3, "three")]).unwrap();
    let good = contents(&*medium, &file_name(1));
    let used = good.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    let good = &good[..used.next_multiple_of(PAGE_BYTES)];
    for at in 0..used {
        for mask in [0x01, 0x80] {
            let mut bytes = good.to_vec();
            bytes[at] ^= mask;
            let found = recover(&*medium_of(1, &bytes), false).unwrap().unwrap();
            assert_eq!(found.state, manifest.state(), "byte {at}");
        }
    }
}

/// Scenario: the process dies at any point while it writes a new manifest or appends to one.
#[test] // I3, I11
fn a_torn_end_recovers_an_earlier_state() {
    let medium = medium();
    let manifest = start(&medium);
    let mut states = vec![manifest.state()];
    for edit in whole_edits() {
        manifest.append(vec![edit]).unwrap();
        states.push(manifest.state());
    }
    let good = contents(&*medium, &file_name(1));
    let used = good.iter().rposition(|byte| *byte != 0).unwrap() + 1;
    let good = &good[..used.next_multiple_of(PAGE_BYTES)];
    for cut in HEADERS_BYTES..used {
        let mut bytes = good.to_vec();
        bytes[cut..].fill(0);
        match recover(&*medium_of(1, &bytes), false) {
            Ok(Ok(found)) => assert!(states.contains(&found.state), "cut at {cut}"),
            Ok(Err(_)) => panic!("recovery found no store beside other files, cut at {cut}"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Corrupt, "cut at {cut}"),
        }
    }
}

#[test]
fn an_unfinished_newer_manifest_is_skipped() {
    let medium = medium();
    let manifest = start(&medium);
    manifest.append(whole_edits()).unwrap();
    medium.create(&file_name(2), Access::Bytes, 1 << 20).unwrap();
    let found = recover(&*medium, false).unwrap().unwrap();
    assert_eq!((found.state, found.number), (state(), 2));
}

/// Scenario: a new manifest is fully written, then the sync of its name fails, and the sync of its removal
/// too. The process dies, and the device is full. The store continues in the old manifest, and then the power
/// fails.
#[test] // I3
fn a_withdrawn_manifest_does_not_replace_later_records() {
    let mut reappeared = 0;
    for seed in 0..40 {
        let device = Arc::new(Faulty::new(seed));
        let medium = Arc::clone(&device) as Arc<dyn Medium>;
        let manifest = start(&medium);
        device.inject(Rule::new(OpKind::Names, Fault::Io).name("directory").times(2)).unwrap();
        while manifest.append(vec![Edit::ClockReached { unix_ms: 1 }; 500]).is_ok() {}
        assert!(manifest.poisoned().is_some());
        drop(manifest);
        reappeared +=
            usize::from(device.crash_image(seed).unwrap().content(&file_name(2)).is_some());
        let found = recover(&*medium, false).unwrap().unwrap();
        assert_eq!(found.in_force.number, 1);
        let resumed = Manifest::resume(Arc::clone(&medium), found).unwrap();
        // The last record for which the first manifest has space.
        resumed.append(vec![Edit::ClockReached { unix_ms: 7 }]).unwrap();
        let left: Arc<dyn Medium> = Arc::new(device.crash_image(seed).unwrap());
        let found = recover(&*left, false).unwrap().unwrap();
        assert_eq!((found.state.clock_ms, found.in_force.number), (7, 1), "seed {seed}");
    }
    assert!(reappeared > 0, "the faults make a withdrawn manifest reappear");
}

/// Scenario: the sync of a record fails, the system still returns its data, and the store is opened again on
/// a full device. Then the power fails.
#[test] // I3
fn a_resumed_manifest_makes_durable_all_that_it_read() {
    for seed in 0..40 {
        let device = Arc::new(Faulty::new(seed));
        let medium = Arc::clone(&device) as Arc<dyn Medium>;
        let manifest = start(&medium);
        device.inject(Rule::new(OpKind::Sync, Fault::Io)).unwrap();
        manifest.append(vec![created(7, "seven")]).unwrap_err();
        drop(manifest);
        let found = recover(&*medium, false).unwrap().unwrap();
        let mut state = found.state.clone();
        let resumed = Manifest::resume(Arc::clone(&medium), found).unwrap();
        if seed % 2 == 0 {
            resumed.append(vec![Edit::ClockReached { unix_ms: 7 }]).unwrap();
            state.clock_ms = 7;
        }
        let left: Arc<dyn Medium> = Arc::new(device.crash_image(seed).unwrap());
        let found = recover(&*left, false).unwrap().unwrap();
        assert_eq!(found.state, state, "seed {seed}");
    }
}

/// Scenario: a new manifest is fully written, then the sync of its name fails while the store's files are
/// copied, so that no file is removed. The store continues in the old manifest, and the process dies or the
/// power fails.
#[test] // I3
fn a_manifest_withdrawn_during_a_copy_is_not_in_force() {
    for seed in 0..40 {
        let device = Arc::new(Faulty::new(seed));
        let holding = Arc::new(Holding::new(Arc::clone(&device) as _));
        let hold = holding.hold();
        let manifest = start(&(Arc::clone(&holding) as _));
        device.inject(Rule::new(OpKind::Names, Fault::Io).name("directory")).unwrap();
        while manifest.append(vec![Edit::ClockReached { unix_ms: 1 }; 500]).is_ok() {}
        assert!(manifest.poisoned().is_none(), "seed {seed}");
        manifest.append(vec![Edit::ClockReached { unix_ms: 7 }]).unwrap();
        for left in [device.process_death_image().unwrap(), device.crash_image(seed).unwrap()] {
            let left: Arc<dyn Medium> = Arc::new(left);
            let found = recover(&*left, false).unwrap().unwrap();
            assert_eq!((found.state.clock_ms, found.in_force.number), (7, 1), "seed {seed}");
        }
        drop(hold);
    }
}

/// Scenario: the process dies while it creates a store.
#[test]
fn a_lone_unfinished_manifest_is_not_a_store() {
    let medium = medium();
    medium.create(&file_name(1), Access::Bytes, 1 << 20).unwrap();
    assert_eq!(recover(&*medium, true).unwrap().unwrap_err(), 1);
    assert!(recover(&*medium, false).is_err());
}

#[test]
fn a_newer_format_version_is_refused() {
    let mut header = MAGIC.to_vec();
    put_u32(&mut header, VERSION + 1);
    put_u128(&mut header, 7);
    put_u64(&mut header, 1);
    let crc = base::crc32c(&header);
    put_u32(&mut header, crc);
    header.resize(PAGE_BYTES, 0);
    let error = recover(&*medium_of(1, &header), true).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("newer"), "{error}");
}

/// A copy's manifest has version 2 and its lineage, which outlives a rewrite and a salvage; that of any other
/// store is one that older builds read.
#[test]
fn only_a_copy_is_written_in_the_version_that_states_a_lineage() {
    let (medium, store) = (medium(), StoreId(7));
    let mut body = Vec::new();
    let began =
        Edit::LineageBegan { lineage: LineageId(0x0f0e_0d0c_0b0a_0908_0706_0504_0302_0100) };
    began.encode(&mut body);
    assert_eq!(body, golden(include_str!("../golden/manifest_lineage.hex")));
    assert_eq!(Edit::decode_all(&body).unwrap(), std::slice::from_ref(&began));

    let version = |bytes: &[u8]| u32::from_le_bytes(bytes[8..12].try_into().unwrap());
    let mut state = state();
    assert_eq!(version(&encode(store, &state, 1).unwrap().0), 1);
    assert_eq!(state.lineage_of(store), LineageId::of_origin(store));
    state.apply(began).unwrap();
    assert_eq!(version(&encode(store, &state, 1).unwrap().0), 2);
    let manifest = Manifest::start(Arc::clone(&medium), store, state.clone(), 1).unwrap();
    manifest.append(vec![created(9, "nine")]).unwrap();
    let lineage = state.lineage;
    let found = recover(&*medium, false).unwrap().unwrap();
    assert_eq!((found.state.lineage, found.state.keyspaces.len()), (lineage, 2));
    let next = Manifest::start(Arc::clone(&medium), store, found.state, 2).unwrap();
    assert_eq!(next.state().lineage, lineage);
    let salvage = salvage_state(&*medium, store).unwrap();
    assert_eq!((salvage.highest, salvage.state), (2, next.state()));
}
