//! Tests: edits applied to a state, and a state rebuilt from its own edits.

use std::sync::Arc;

use base::{Codec, ErrorKind, KeyRange, KeyspaceId, LaneId, SegmentId, Seqno, TableId};

use super::tests::{created, entry, golden, range, state, whole_edits};
use super::*;
use crate::{KeyspaceKind, TableOptions};

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

/// Golden bytes, and the least version. A copy of the state has local tables.
#[test]
fn cold_tables_are_stored() {
    let keyspace = KeyspaceId(300);
    let cold =
        |table, file: &str| Edit::TableCold { keyspace, table: TableId(table), file: file.into() };
    let all = [cold(7, "7.table.0f"), Edit::ColdOpened { number: 258 }];
    let mut body = Vec::new();
    for edit in &all {
        assert_eq!(edit.format_version(), 9);
        edit.encode(&mut body);
    }
    let hex: String = body.iter().map(|byte| format!("{byte:02x}")).collect();
    let golden = include_str!("../golden/manifest_cold.hex");
    assert_eq!(hex, golden.split_whitespace().collect::<String>());
    assert_eq!(Edit::decode_all(&body).unwrap(), all);

    let mut state = ManifestState::default();
    state.apply(Edit::TableIdsReserved { below: TableId(50) }).unwrap();
    state.apply(created(300, "k")).unwrap();
    state.apply(Edit::TableAdded { keyspace, table: entry(7, 1, "a", "c") }).unwrap();
    state.apply(Edit::TableAdded { keyspace, table: entry(8, 1, "d", "f") }).unwrap();
    for edit in all {
        state.apply(edit).unwrap();
    }
    for wrong in [cold(7, "again"), cold(8, ""), cold(9, "unknown")] {
        assert!(state.apply(wrong.clone()).is_err(), "{wrong}");
    }
    let range = KeyRange::through(b"a", b"a");
    state.apply(Edit::TableCut { keyspace, table: TableId(7), range }).unwrap();
    let mut again = ManifestState::default();
    for edit in state.edits() {
        again.apply(edit).unwrap();
    }
    assert_eq!(again, state);
    let found: Vec<_> = state.cold_tables().map(|(id, _, file)| (id.0, &**file)).collect();
    assert_eq!((found, state.cold_opened), (vec![(7, "7.table.0f")], 258));
    state.warm_all();
    assert_eq!((state.cold_tables().count(), state.cold_opened), (0, 0));
}

/// Golden bytes of every form, and the least version; a manifest written anew has the last options.
#[test]
fn table_options_of_a_keyspace_are_stored_and_replaced() {
    let edit = |keyspace, options| Edit::KeyspaceTables { keyspace: KeyspaceId(keyspace), options };
    let options = |codec, level, filter_bits| TableOptions { codec, level, filter_bits };
    let all = [
        edit(300, options(Some(Codec::Zstd), Some(19), Some(12))),
        edit(1, options(Some(Codec::Deflate), Some(-6), None)),
        edit(1, TableOptions::default()),
    ];
    let mut body = Vec::new();
    for edit in &all {
        assert_eq!(edit.format_version(), 8);
        edit.encode(&mut body);
    }
    let hex: String = body.iter().map(|byte| format!("{byte:02x}")).collect();
    let golden = include_str!("../golden/manifest_tables.hex");
    assert_eq!(hex, golden.split_whitespace().collect::<String>());
    assert_eq!(Edit::decode_all(&body).unwrap(), all);
    for wrong in [&[0x1b, 1, 8][..], &[0x1b, 1, 2, 3], &[0x1b, 1, 1, 9], &[0x1b, 1, 4]] {
        assert!(Edit::decode_all(wrong).is_err(), "{wrong:02x?}");
    }
    let (keyspace, name) = (KeyspaceId(300), "k".to_owned());
    let mut state = ManifestState::default();
    state.apply(Edit::KeyspaceCreated { keyspace, kind: KeyspaceKind::Ordered, name }).unwrap();
    state.apply(edit(300, options(Some(Codec::None), None, None))).unwrap();
    let last = options(None, None, Some(3));
    state.apply(edit(300, last)).unwrap();
    assert_eq!(state.keyspaces[&keyspace].table_options, last);
    let mut edits = Vec::new();
    state.keyspaces[&keyspace].push_edits(keyspace, &mut edits);
    assert!(edits.contains(&edit(300, last)), "{edits:?}");
    assert!(state.apply(edit(301, last)).is_err(), "an unknown keyspace");
}
