//! Tests: edits applied to a state, and a state rebuilt from its own edits.

use std::sync::Arc;

use base::{
    Discard, ErrorKind, HashKey, HashedPolicy, KeyRange, KeyspaceId, LaneId, SegmentId, Seqno,
    StoreId, TableId,
};
use media::{Access, Medium, MemoryMedium, Purpose};

use super::tests::{created, entry, golden, range, state, whole_edits};
use super::*;

/// The number of an ingest outlives the merge of its tables and a rewrite of the manifest.
#[test]
fn the_last_ingest_outlives_its_tables_and_a_rewrite() {
    let keyspace = KeyspaceId(1);
    let edit = Edit::Ingested { keyspace, last: Seqno::new(300) };
    let mut bytes = Vec::new();
    edit.encode(&mut bytes);
    assert_eq!(bytes, [15, 1, 0xac, 2]);
    assert_eq!(Edit::decode_all(&bytes).unwrap(), [edit]);
    let mut state = ManifestState::default();
    state.apply(Edit::TableIdsReserved { below: TableId(9) }).unwrap();
    state.apply(created(1, "one")).unwrap();
    let ingested = TableEntry {
        seqno_max: Seqno::new(300),
        seqno: Some(Seqno::new(300)),
        ..TableEntry::clone(&entry(3, 0, "a", "b"))
    };
    state.apply(Edit::TableAdded { keyspace, table: Arc::new(ingested) }).unwrap();
    state.apply(Edit::TableRemoved { keyspace, table: TableId(3) }).unwrap();
    let mut again = ManifestState::default();
    for edit in state.edits() {
        again.apply(edit).unwrap();
    }
    assert_eq!(again.keyspaces[&keyspace].ingested, Seqno::new(300));
}

/// The log start outlives a rewrite of the manifest and never moves backwards.
#[test]
fn the_log_start_outlives_a_rewrite_and_never_moves_back() {
    let begins =
        |lane, segment| Edit::LogBegins { lane: LaneId(lane), segment: SegmentId(segment) };
    let edits = [begins(0, 7), begins(300, 2)];
    let mut body = Vec::new();
    edits.iter().for_each(|edit| edit.encode(&mut body));
    assert_eq!(body, golden(include_str!("../golden/manifest_log.hex")));
    assert_eq!(Edit::decode_all(&body).unwrap(), edits);

    let mut state = state();
    assert_eq!(state.log_start, wal::Start::new(), "the default of a store without the edit");
    edits.into_iter().for_each(|edit| state.apply(edit).unwrap());
    state.apply(begins(0, 6)).unwrap();
    assert!(state.apply(begins(0, u64::MAX)).is_err());
    let mut again = ManifestState::default();
    state.edits().into_iter().for_each(|edit| again.apply(edit).unwrap());
    assert_eq!(again, state);
    assert_eq!(again.log_start.of(LaneId(0)), SegmentId(7));
    assert_eq!(again.log_start.of(LaneId(300)), SegmentId(2));
}

/// How far the log reached outlives a rewrite of the manifest and never moves backwards.
#[test]
fn the_reached_end_of_the_log_outlives_a_rewrite_and_never_moves_back() {
    let reached = |segment, sequence| Edit::LogReached {
        reached: wal::Reached {
            lane: LaneId(0),
            segment: SegmentId(segment),
            sequence,
            last: Seqno::new((sequence / 2).min(200)),
        },
    };
    let mut body = Vec::new();
    reached(7, 300).encode(&mut body);
    assert_eq!(body, golden(include_str!("../golden/manifest_reached.hex")));
    assert_eq!(Edit::decode_all(&body).unwrap(), [reached(7, 300)]);
    assert_eq!(reached(7, 300).format_version(), 5);

    let mut state = state();
    assert_eq!(state.known_log().reached, None, "the default of a store without the edit");
    state.apply(reached(7, 300)).unwrap();
    let before = state.clone();
    state.apply(reached(8, 299)).unwrap();
    assert_eq!(state, before);
    assert!(state.apply(reached(u64::MAX, 301)).is_err());
    assert!(state.apply(reached(7, u64::MAX)).is_err());
    let mut again = ManifestState::default();
    state.edits().into_iter().for_each(|edit| again.apply(edit).unwrap());
    assert_eq!(again, state);
    state.apply(reached(7, 301)).unwrap();
    assert!(state.check_successor_of(&before).is_ok());
    assert_eq!(state.known_log().reached.map(|it| it.sequence), Some(301));
}

/// The place of the log outlives a rewrite of the manifest. A new place gives up the point that the log at
/// the old one had reached.
#[test]
fn the_place_of_the_log_outlives_a_rewrite_and_ends_the_old_log() {
    let device = |id, place: &str| wal::LogDevice { id, place: place.to_owned() };
    let devices = vec![
        device(0x1f1e_1d1c_1b1a_1918_1716_1514_1312_1110, "/pmem0"),
        device(0x0f0e_0d0c_0b0a_0908_0706_0504_0302_0100, "/pmem1"),
    ];
    let place = wal::LogPlace { devices, lanes_each: 2 };
    let edit = Edit::LogPlaced { place: place.clone() };
    let mut body = Vec::new();
    edit.encode(&mut body);
    assert_eq!(body, golden(include_str!("../golden/manifest_placed.hex")));
    assert_eq!(Edit::decode_all(&body).unwrap(), std::slice::from_ref(&edit));
    assert_eq!(edit.format_version(), 6);
    // A device twice, a device without lanes, too many lanes.
    for (at, byte) in [(1, 0), (1, 17), (2, 1)] {
        let mut wrong = body.clone();
        wrong[at] = byte;
        assert!(Edit::decode_all(&wrong).is_err(), "byte {at} is {byte}");
    }
    let (first, second) = (3..19, 26..42);
    body.copy_within(first, second.start);
    assert_eq!(body[second], body[3..19]);
    assert_eq!(Edit::decode_all(&body).unwrap_err().kind(), ErrorKind::Corrupt);

    let mut state = state();
    assert_eq!(state.known_log().lanes, [LaneId(0)], "the default of a store without the edit");
    let (lane, segment) = (LaneId(0), SegmentId(7));
    let reached = wal::Reached { lane, segment, sequence: 300, last: Seqno::new(150) };
    state.apply(Edit::LogReached { reached }).unwrap();
    let before = state.clone();
    state.apply(edit).unwrap();
    assert_eq!((state.log_reached, &state.log_place), (None, &place));
    assert_eq!(state.known_log().lanes, [1, 2, 17, 18].map(LaneId));
    state.check_successor_of(&before).unwrap();
    let mut again = ManifestState::default();
    state.edits().into_iter().for_each(|edit| again.apply(edit).unwrap());
    assert_eq!(again, state);
    state.apply(Edit::LogPlaced { place: wal::LogPlace::default() }).unwrap();
    assert_eq!(state.known_log().lanes, [LaneId(0)]);
    assert!(state.edits().iter().all(|edit| edit.format_version() < 6));
}

/// Quarantined tables and the scrub position outlive a rewrite of the manifest.
#[test]
fn quarantined_tables_and_the_scrub_position_outlive_a_rewrite() {
    let (keyspace, table) = (KeyspaceId(1), TableId(7));
    let position = ScrubPosition { began_ms: 1_700_000_000_000, next: table, end: TableId(1024) };
    let edits = [Edit::TableDamaged { keyspace, table }, Edit::Scrubbed(position)];
    let mut body = Vec::new();
    edits.iter().for_each(|edit| edit.encode(&mut body));
    assert_eq!(body, golden(include_str!("../golden/manifest_care.hex")));
    assert_eq!(Edit::decode_all(&body).unwrap(), edits);

    let mut state = state();
    for edit in edits {
        state.apply(edit).unwrap();
    }
    let cut = Edit::TableCut { keyspace, table, range: range("g", "h") };
    state.apply(cut).unwrap();
    let unknown = Edit::TableDamaged { keyspace, table: TableId(5) };
    assert!(state.apply(unknown).is_err());
    let mut again = ManifestState::default();
    state.edits().into_iter().for_each(|edit| again.apply(edit).unwrap());
    assert_eq!(again, state);
    assert!(again.keyspaces[&keyspace].tables[&table].damaged);
    assert_eq!(again.scrub, position);
}

#[test]
fn the_clock_never_goes_back_and_the_merge_operator_never_changes() {
    let operator =
        |name: &str| Edit::KeyspaceOperator { keyspace: KeyspaceId(300), name: name.into() };
    let edits = vec![Edit::ClockReached { unix_ms: 1_700_000_000_000 }, operator("a.1")];
    let mut body = Vec::new();
    edits.iter().for_each(|edit| edit.encode(&mut body));
    assert_eq!(body, golden(include_str!("../golden/manifest_kinds.hex")));
    assert_eq!(Edit::decode_all(&body).unwrap(), edits);

    let mut state = ManifestState::default();
    assert!(state.apply(operator("a.1")).is_err());
    state.apply(created(300, "k")).unwrap();
    edits.into_iter().for_each(|edit| state.apply(edit).unwrap());
    state.apply(Edit::ClockReached { unix_ms: 5 }).unwrap();
    assert_eq!(state.clock_ms, 1_700_000_000_000);
    assert!(state.apply(operator("b.1")).is_err());
    assert!(state.apply(operator("")).is_err());
    let mut again = ManifestState::default();
    state.edits().into_iter().for_each(|edit| again.apply(edit).unwrap());
    assert_eq!(again, state);
}

fn hashed_edits() -> Vec<Edit> {
    let created = |keyspace, name: &str, hash_key, policy| Edit::KeyspaceCreated {
        keyspace: KeyspaceId(keyspace),
        kind: KeyspaceKind::Hashed {
            hash_key: HashKey::new(hash_key),
            policy,
            base_filter_bits: 0,
        },
        name: name.into(),
    };
    let discard = Discard::Priority("score".into());
    vec![
        created(1, "keep", std::array::from_fn(|at| at as u8), HashedPolicy::Keep),
        created(300, "win", [0xf0; 16], HashedPolicy::Window { bytes: 8 << 30, discard }),
    ]
}

#[test]
fn hashed_keyspaces_keep_their_hash_key_and_policy() {
    let mut body = Vec::new();
    hashed_edits().iter().for_each(|edit| edit.encode(&mut body));
    let hex: String = body.iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(body == golden(include_str!("../golden/manifest_hashed.hex")), "{hex}");
    assert_eq!(Edit::decode_all(&body).unwrap(), hashed_edits());
    for cut in 1..body.len() {
        let _ = Edit::decode_all(&body[..cut]);
        for bit in 0..8 {
            let mut damaged = body.clone();
            damaged[cut] ^= 1 << bit;
            let other = Edit::decode_all(&damaged);
            assert!(!other.is_ok_and(|other| other == hashed_edits()), "byte {cut} bit {bit}");
        }
    }

    let mut state = ManifestState::default();
    hashed_edits().into_iter().for_each(|edit| state.apply(edit).unwrap());
    let mut again = ManifestState::default();
    state.edits().into_iter().for_each(|edit| again.apply(edit).unwrap());
    assert_eq!(again, state);
    assert_eq!(state.keyspaces[&KeyspaceId(1)].kind.to_string(), "hashed keep");
    let window = state.keyspaces[&KeyspaceId(300)].kind.to_string();
    assert_eq!(window, "hashed window=8.0 GiB,priority=score");
}

/// The filter bits of a base are stored only where there are some, and only version 3 has them.
#[test]
fn filter_bits_of_a_base_are_stored_where_they_are_set() {
    let kind = |base_filter_bits| KeyspaceKind::Hashed {
        hash_key: HashKey::new(std::array::from_fn(|at| at as u8)),
        policy: HashedPolicy::Keep,
        base_filter_bits,
    };
    let created = |bits| Edit::KeyspaceCreated {
        keyspace: KeyspaceId(1),
        kind: kind(bits),
        name: "keep".into(),
    };
    let encoded = |bits| {
        let mut body = Vec::new();
        created(bits).encode(&mut body);
        body
    };
    assert_eq!((created(0).format_version(), created(1).format_version()), (2, 3));
    assert_eq!(encoded(0).len() + 1, encoded(10).len());
    assert!(
        encoded(8) == golden(include_str!("../golden/manifest_filtered.hex")),
        "{:02x?}",
        encoded(8)
    );
    for bits in 0..=BASE_FILTER_BITS_MAX {
        assert_eq!(Edit::decode_all(&encoded(bits)).unwrap(), [created(bits)]);
        assert_eq!(kind(bits).base_filter_bits(), bits);
    }
    for bits in [0, 11, 255] {
        let mut wrong = encoded(1);
        *wrong.last_mut().unwrap() = bits;
        assert_eq!(Edit::decode_all(&wrong).unwrap_err().kind(), ErrorKind::Corrupt);
    }
    assert_eq!(kind(8).to_string(), "hashed keep, base-filter-bits 8");
}

/// Readers from before version 7 would take the log for one whose records die when they are flushed.
#[test]
fn a_resident_keyspace_needs_version_7() {
    let kind = KeyspaceKind::Hashed {
        hash_key: HashKey::new(std::array::from_fn(|at| at as u8)),
        policy: HashedPolicy::Resident,
        base_filter_bits: 0,
    };
    assert!(kind.is_resident() && !kind.is_window());
    assert_eq!(kind.to_string(), "hashed resident");
    let (keyspace, name) = (KeyspaceId(1), "keep".into());
    let created = Edit::KeyspaceCreated { keyspace, kind, name };
    assert_eq!(created.format_version(), 7);
    let mut body = Vec::new();
    created.encode(&mut body);
    assert_eq!(body, golden(include_str!("../golden/manifest_resident.hex")), "{body:02x?}");
    assert_eq!(Edit::decode_all(&body).unwrap(), [created]);
}

/// Readers of version 3 would decode windows that retain entries, but cannot evict from them.
#[test]
fn windows_that_retain_entries_need_version_4() {
    let kind = |discard| KeyspaceKind::Hashed {
        hash_key: HashKey::new([7; 16]),
        policy: HashedPolicy::Window { bytes: 1 << 20, discard },
        base_filter_bits: 0,
    };
    let version = |discard| {
        let (keyspace, name) = (KeyspaceId(1), "win".into());
        Edit::KeyspaceCreated { keyspace, kind: kind(discard), name }.format_version()
    };
    let discards = || [Discard::Fifo, Discard::Clock, Discard::Priority("a".into())];
    assert_eq!(discards().map(version), [2, 4, 4]);
    assert_eq!(kind(Discard::Clock).window_bytes(), [0x80, 0x80, 0x40, 2]);
    // Tables state the same policies.
    for kind in discards().map(kind) {
        let bytes = kind.window_bytes();
        assert_eq!(KeyspaceKind::of_tables(kind.key_form(), &bytes), kind);
        let cut = KeyspaceKind::of_tables(kind.key_form(), &bytes[..bytes.len() - 1]);
        assert_eq!(cut.policy(), Some(&HashedPolicy::Keep));
        assert_eq!(KeyspaceKind::of_tables(base::KeyForm::Plain, &bytes), KeyspaceKind::Ordered);
    }
}

/// Scenario: the first hashed keyspace of a store is created; a binary that knows only version 1 must say
/// that the store is newer, not that it is damaged.
#[test]
fn the_first_hashed_keyspace_raises_the_format_version() {
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
    // An older binary wrote the file: the present one begins a file of the version that opens need.
    let (bytes, _) = encode(StoreId(7), &ManifestState::default(), 1).unwrap();
    let file = medium.create(&file_name(1), Access::Bytes, 1 << 20).unwrap();
    file.store(0, &bytes, Purpose::Manifest).unwrap();
    let found = recover(&*medium, false).unwrap().unwrap();
    let manifest = Manifest::resume(Arc::clone(&medium), found).unwrap();
    let version = || {
        let listed = medium.list().unwrap();
        let name = listed.iter().map(|file| file.name.clone()).max().unwrap();
        let bytes = reader::read_file(&*medium, &name).unwrap();
        (name, u32::from_le_bytes(bytes[8..12].try_into().unwrap()))
    };
    manifest.append(vec![created(9, "ordered")]).unwrap();
    assert_eq!(version(), (file_name(1), 1));
    let [_, window] = hashed_edits().try_into().unwrap();
    manifest.append(vec![window]).unwrap();
    assert_eq!(version(), (file_name(2), 5));
    manifest.append(vec![created(301, "more")]).unwrap();
    assert_eq!(version(), (file_name(2), 5));
    let state = manifest.state();
    drop(manifest);
    let found = recover(&*medium, false).unwrap().unwrap();
    assert_eq!(found.state, state);
    let resumed = Manifest::resume(Arc::clone(&medium), found).unwrap();
    resumed.append(vec![Edit::KeyspaceDropped { keyspace: KeyspaceId(300) }]).unwrap();
    assert_eq!(version(), (file_name(2), 5));
    let state = resumed.state();
    drop(resumed);
    // The headers are lost: salvage finds the version that fits the records' checksums.
    let file = medium.open(&file_name(2), Access::Bytes).unwrap();
    file.store(0, &[0xff; 1024], Purpose::Manifest).unwrap();
    let salvage = salvage_state(&*medium, StoreId(7)).unwrap();
    assert_eq!((salvage.highest, salvage.state), (2, state.clone()));
    Manifest::start(Arc::clone(&medium), StoreId(7), state, 3).unwrap();
    assert_eq!(version(), (file_name(3), 5));
}

/// A value file exists while a table points into it, and its live bytes are counted.
#[test]
fn a_value_file_is_removed_with_the_last_table_that_points_into_it() {
    let keyspace = KeyspaceId(1);
    let edit = whole_edits().remove(3);
    let mut bytes = Vec::new();
    edit.encode(&mut bytes);
    let golden_bytes = golden("10 01 17 0300000000000000 808006 02 90bf05 0807060504030201");
    assert_eq!(bytes, golden_bytes);
    assert_eq!(Edit::decode_all(&bytes).unwrap(), [edit]);
    // Fields that a later version appends are skipped.
    let mut longer = golden_bytes.clone();
    longer[2] += 1;
    longer.push(9);
    assert_eq!(Edit::decode_all(&longer).unwrap(), Edit::decode_all(&bytes).unwrap());

    let mut state = state();
    let name = table::values_file_name(TableId(3));
    assert!(state.files().contains(&name) && state.has_values(TableId(3)));
    let live = |state: &ManifestState| state.keyspaces[&keyspace].values[&TableId(3)].live_bytes;
    assert_eq!(live(&state), 70_000);
    let second = TableEntry {
        values: vec![(TableId(3), 5_000)],
        ..TableEntry::clone(&entry(10, 9, "a", "b"))
    };
    state.apply(Edit::TableAdded { keyspace, table: Arc::new(second) }).unwrap();
    assert_eq!(live(&state), 75_000);
    let mut again = ManifestState::default();
    for edit in state.edits() {
        again.apply(edit).unwrap();
    }
    assert_eq!(again.files(), state.files());
    assert_eq!(live(&again), 75_000);
    state.apply(Edit::TableRemoved { keyspace, table: TableId(8) }).unwrap();
    assert_eq!(live(&state), 5_000);
    let range = KeyRange::all();
    state.apply(Edit::TableCut { keyspace, table: TableId(10), range }).unwrap();
    assert!(!state.files().contains(&name) && !state.has_values(TableId(3)));
    // A new table must not point into it any more, and its id stays used.
    let third = TableEntry {
        values: vec![(TableId(3), 5_000)],
        ..TableEntry::clone(&entry(11, 9, "a", "b"))
    };
    let third = Edit::TableAdded { keyspace, table: Arc::new(third) };
    assert_eq!(state.apply(third).unwrap_err().kind(), ErrorKind::Corrupt);
}

/// Salvage continues after a refused edit, so a refused table must not count in any value file.
#[test]
fn a_refused_table_keeps_no_value_file_alive() {
    let keyspace = KeyspaceId(1);
    let mut state = state();
    let refused = TableEntry {
        values: vec![(TableId(3), 5_000), (TableId(4), 1)],
        ..TableEntry::clone(&entry(10, 9, "a", "b"))
    };
    let refused = Edit::TableAdded { keyspace, table: Arc::new(refused) };
    assert_eq!(state.apply(refused).unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(state.keyspaces[&keyspace].values[&TableId(3)].live_bytes, 70_000);
    state.apply(Edit::TableRemoved { keyspace, table: TableId(8) }).unwrap();
    assert!(!state.has_values(TableId(3)));
}

/// The next table may need a run above the highest one.
#[test]
fn the_last_run_ids_are_refused() {
    let (keyspace, last) = (KeyspaceId(1), u64::MAX);
    let mut state = state();
    let added = Edit::TableAdded { keyspace, table: entry(10, last, "a", "b") };
    assert_eq!(state.apply(added).unwrap_err().kind(), ErrorKind::Corrupt);
    let range = KeyRange::all();
    let moved =
        Edit::TableMoved { keyspace, table: TableId(7), range, run: base::RunId(last), level: 1 };
    assert_eq!(state.apply(moved).unwrap_err().kind(), ErrorKind::Corrupt);
}

/// Tables without a run are placed like flushed tables: above those that they overlap.
#[test]
fn tables_of_the_first_form_are_placed_in_runs() {
    let keyspace = KeyspaceId(1);
    let mut state = ManifestState::default();
    state.apply(Edit::TableIdsReserved { below: TableId(9) }).unwrap();
    state.apply(created(1, "one")).unwrap();
    let keys = [("a", "m"), ("n", "z"), ("b", "c"), ("q", "r"), ("c", "q"), ("x", "z")];
    for (id, (first, last)) in (0..).zip(keys) {
        let table = entry(id, 0, first, last);
        state.apply(Edit::TableAdded { keyspace, table }).unwrap();
    }
    let tables = state.keyspaces[&keyspace].tables.values();
    let runs: Vec<_> = tables.map(|table| table.entry.run.0).collect();
    assert_eq!(runs, [1, 1, 2, 2, 3, 2]);
}

#[test]
fn a_table_cut_to_no_keys_is_removed() {
    let mut state = state();
    let one = KeyspaceId(1);
    let table = TableId(7);
    let pieces = |state: &ManifestState| {
        let pieces = &state.keyspaces[&one].tables[&table].pieces;
        pieces.iter().map(|it| (it.run.0, it.level, it.range.clone())).collect::<Vec<_>>()
    };
    assert_eq!(pieces(&state), [(2, 0, range("c", "d")), (1, 3, range("f", "x\0"))]);
    let cut = |range| Edit::TableCut { keyspace: one, table, range };
    let again = state.clone().apply(cut(range("d", "f"))).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::Corrupt);
    state.apply(cut(range("a", "e"))).unwrap();
    assert_eq!(pieces(&state), [(1, 3, range("f", "x\0"))]);
    state.apply(cut(KeyRange::all())).unwrap();
    assert!(!state.has_table(table));
    assert_eq!(state.floor(), Seqno::new(300));
}

/// A failed append must change nothing, so every append copies the state. The copy must stay cheap with any
/// number of tables.
#[test]
fn a_copy_of_a_large_state_shares_its_tables() {
    let keyspace = KeyspaceId(1);
    let mut state = ManifestState::default();
    state.apply(Edit::TableIdsReserved { below: TableId(5000) }).unwrap();
    state.apply(created(1, "one")).unwrap();
    for id in 0..5000 {
        let key = format!("{id:08}");
        state.apply(Edit::TableAdded { keyspace, table: entry(id, 1, &key, &key) }).unwrap();
    }
    let mut copy = state.clone();
    assert!(Arc::ptr_eq(&copy.keyspaces[&keyspace], &state.keyspaces[&keyspace]));
    copy.apply(Edit::TableRemoved { keyspace, table: TableId(17) }).unwrap();
    let (old, new) = (&state.keyspaces[&keyspace].tables, &copy.keyspaces[&keyspace].tables);
    assert_eq!((old.len(), new.len()), (5000, 4999));
    assert!(new.iter().all(|(id, table)| Arc::ptr_eq(table, &old[id])));
    let start = std::time::Instant::now();
    for _ in 0..100 {
        let mut copy = state.clone();
        copy.apply(Edit::TableRemoved { keyspace, table: TableId(17) }).unwrap();
    }
    println!("copy and change of 5,000 tables: {:?}", start.elapsed() / 100);
}

#[test]
fn a_state_is_rebuilt_from_its_own_edits() {
    let mut rebuilt = ManifestState::default();
    for edit in state().edits() {
        rebuilt.apply(edit).unwrap();
    }
    assert_eq!(rebuilt, state());
}
