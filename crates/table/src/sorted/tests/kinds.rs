//! Every entry kind, range deletes, bounds, and tables that read at one seqno.

use super::*;
use crate::{Bounds, Pointer, RangeDelete, RangeDeletes};
use base::KeyspaceId;

fn of(kind: EntryKind, seqno: u64) -> Trailer {
    Trailer::new(Seqno::new(seqno), kind)
}

fn expiring(expiry: u64, value: &[u8]) -> Vec<u8> {
    [&expiry.to_le_bytes()[..], value].concat()
}

fn pointer(file: u64, bytes: u64, expiry: u64) -> Vec<u8> {
    Pointer { file: TableId(file), page: 3, pages: 9, bytes, expiry }.encode()
}

fn deletes() -> RangeDeletes {
    let delete = |start: &'static str, end: &'static str, seqno| RangeDelete {
        start: start.into(),
        end: end.into(),
        seqno: Seqno::new(seqno),
    };
    RangeDeletes::build([delete("a", "c", 20), delete("b", "e", 30), delete("x", "zz", 7)])
}

fn add_all(writer: &mut Writer, deletes: &RangeDeletes) {
    for fragment in deletes.iter() {
        writer.add_range_delete(fragment.start, fragment.end, fragment.seqnos).unwrap();
    }
}

/// Writes the entries, one call each, and the range deletes. Returns the table and its summary.
fn table_of(
    entries: &[(&str, Trailer, Vec<u8>)],
    deletes: &RangeDeletes,
) -> (Arc<dyn Medium>, Summary) {
    let (medium, account) = (medium(), Account::unlimited("test"));
    let spec = Spec { keyspace: KeyspaceId(4), ..spec(Codec::Lz4) };
    let mut writer = Writer::create(&medium, spec, &account).unwrap();
    for (key, trailer, value) in entries {
        writer.add(key.as_bytes(), *trailer, value).unwrap();
    }
    add_all(&mut writer, deletes);
    assert!(!writer.is_empty());
    let summary = writer.finish().unwrap();
    assert_eq!(account.used(), 0);
    (medium, summary)
}

#[test]
fn every_kind_is_stored_and_counted() {
    let entries = [
        ("b", of(EntryKind::Merge, 12), b"+1".to_vec()),
        ("b", of(EntryKind::Put, 11), b"5".to_vec()),
        ("c", of(EntryKind::PutExpiring, 10), expiring(5000, b"soon")),
        ("d", of(EntryKind::PutPointer, 9), pointer(70, 20_000, 0)),
        ("e", of(EntryKind::PutPointer, 8), pointer(60, 30_000, 900)),
        ("f", of(EntryKind::PutPointer, 7), pointer(70, 1, 0)),
        ("g", of(EntryKind::Delete, 6), Vec::new()),
    ];
    let (medium, summary) = table_of(&entries, &deletes());
    let table = open(&medium).unwrap();
    let properties = table.properties();
    assert_eq!(*properties, summary.properties);
    assert_eq!(table.footer().version, SORTED_VERSION);
    assert_eq!((properties.merges, properties.expiring, properties.deletes), (1, 2, 1));
    assert_eq!((properties.earliest_expiry, properties.latest_expiry), (900, 0));
    assert_eq!(properties.values, [(TableId(60), 30_000), (TableId(70), 20_001)]);
    assert_eq!((properties.keyspace, properties.range_deletes), (KeyspaceId(4), 5));
    assert_eq!((&*properties.first_key, &*properties.last_key), (&b"a"[..], &b"g"[..]));
    assert_eq!(properties.end_key(), b"zz");
    assert_eq!((properties.seqno_min, properties.seqno_max), (Seqno::new(6), Seqno::new(30)));
    assert_eq!(**table.range_deletes().unwrap(), deletes());
    let mut driver = Driver::new(&table);
    for (key, trailer, value) in &entries {
        let found = driver.get(key.as_bytes(), *trailer).unwrap().unwrap();
        assert_eq!((found.0, &found.1[..]), (*trailer, &value[..]));
    }
    let report = table.check(&Account::unlimited("check"), &mut |_, _| {}).unwrap();
    assert!(report.is_clean(), "{}", report.listed[0]);
}

#[test]
fn a_table_whose_entries_all_expire_records_the_latest_expiry() {
    let entries = [
        ("c", of(EntryKind::PutExpiring, 10), expiring(5000, b"soon")),
        ("d", of(EntryKind::PutExpiring, 11), expiring(7000, b"")),
        ("e", of(EntryKind::PutPointer, 8), pointer(60, 30_000, 900)),
    ];
    let (_, summary) = table_of(&entries, &RangeDeletes::default());
    let properties = summary.properties;
    assert_eq!((properties.earliest_expiry, properties.latest_expiry), (900, 7000));
    assert_eq!(properties.end_key(), b"e\0");
    // A range delete must stay while it deletes older data.
    let (_, summary) = table_of(&entries, &deletes());
    assert_eq!(summary.properties.latest_expiry, 0);
}

#[test]
fn a_short_table_is_its_overhead_and_its_entries() {
    let (_, summary) = table_of(&[("a", put(1), vec![1])], &RangeDeletes::default());
    assert_eq!(u64::from(summary.pages - 1) * PAGE_BYTES as u64, OVERHEAD_BYTES_MIN);
}

#[test]
fn a_table_may_contain_only_range_deletes() {
    let (medium, summary) = table_of(&[], &deletes());
    assert_eq!(summary.pages, 8, "range deletes, top level, properties, footer, each twice");
    let table = open(&medium).unwrap();
    assert_eq!((&*table.properties().first_key, table.properties().entries), (&b"a"[..], 0));
    assert_eq!(table.properties().end_key(), b"zz");
    assert_eq!(
        table.range_deletes().unwrap().newest_covering(b"b", Seqno::MAX),
        Some(Seqno::new(30))
    );
    assert!(table.splits().is_empty());
    assert!(table.block_splits(Purpose::Compaction).unwrap().is_empty());
    let mut driver = Driver::new(&table);
    assert_eq!(driver.get(b"b", Trailer::seek(Seqno::MAX)).unwrap(), None);
    let mut cursor = TableCursor::new(Arc::clone(&table));
    for start in [TableCursor::seek_first, TableCursor::seek_last] {
        start(&mut cursor);
        assert!(!driver.step(&mut cursor).unwrap());
    }
    cursor.seek(b"b", put(9));
    assert!(!driver.step(&mut cursor).unwrap());
    assert_eq!((driver.meta_spans, driver.data_spans), (0, 0));
    let account = Account::unlimited("check");
    assert!(table.check(&account, &mut |_, _| {}).unwrap().is_clean());
    let mut lines = Vec::new();
    let name = crate::file_name(TABLE);
    describe(&*medium, &name, &account, true, &mut |fact| lines.push(fact.to_string())).unwrap();
    let shown = lines.iter().filter(|line| line.starts_with("range delete: ")).count();
    assert_eq!(shown, deletes().len(), "{lines:?}");
}

#[test]
fn a_value_without_the_form_of_its_kind_is_refused() {
    let (medium, account) = (medium(), Account::unlimited("test"));
    let mut writer = Writer::create(&medium, spec(Codec::Lz4), &account).unwrap();
    for (kind, value) in [
        (EntryKind::Delete, b"value".to_vec()),
        (EntryKind::PutExpiring, b"short".to_vec()),
        (EntryKind::PutExpiring, expiring(0, b"never")),
        (EntryKind::PutPointer, pointer(1, 1, 1)[1..].to_vec()),
        (EntryKind::DeleteRange, b"z".to_vec()),
    ] {
        let error = writer.add(b"a", of(kind, 9), &value).unwrap_err();
        assert_eq!(error.kind(), base::ErrorKind::Invalid, "{error}");
    }
    assert!(writer.is_empty());
    add_all(&mut writer, &deletes());
    let backwards = writer.add_range_delete(b"b", b"c", &[Seqno::new(1)]);
    assert_eq!(backwards.unwrap_err().kind(), base::ErrorKind::Invalid);
    writer.add(b"a", put(1), b"").unwrap();
    assert_eq!(writer.finish().unwrap().properties.range_deletes, 5);
    let wide = Spec { filter_bits: FILTER_BITS_MAX + 1, ..spec(Codec::Lz4) };
    assert_eq!(
        Writer::create(&medium, wide, &account).unwrap_err().kind(),
        base::ErrorKind::Invalid
    );
}

/// The range deletes are charged while they are collected, and while the table is open (I10).
#[test] // I10
fn range_deletes_are_charged() {
    let budget = base::Budget::new(8 << 20);
    let (medium, account) = (medium(), budget.account("tables"));
    let mut writer = Writer::create(&medium, spec(Codec::Lz4), &account).unwrap();
    let before = budget.used();
    let bound = |number: u32| format!("a key of some length {number:08}").into_bytes();
    for number in 0..20_000 {
        writer.add_range_delete(&bound(number), &bound(number + 1), &[Seqno::new(5)]).unwrap();
    }
    assert!(budget.used() > before + 20_000 * 30);
    writer.finish().unwrap();
    assert_eq!(budget.used(), 0);
    let open = |account: &Account| {
        Table::open(&*medium, STORE, TABLE, None, None, Arc::new(NoDictionaries), account)
    };
    let table = open(&account).unwrap();
    assert!(budget.used() >= table.range_deletes().unwrap().bytes() as u64);
    assert_eq!(table.pinned_bytes(), budget.used());
    drop(table);
    assert_eq!(budget.used(), 0);
    // Enough memory for the pages as read, but not for the fragments.
    let poor = base::Budget::new(1600 << 10);
    assert!(open(&poor.account("tables")).unwrap_err().is_retryable());
    assert_eq!(poor.used(), 0);
}

/// A cursor with bounds agrees with an iteration over the entries inside, for any operations.
#[test]
fn a_cursor_never_leaves_its_bounds() {
    let (mut rng, seed) = Rng::from_env();
    println!("TERRACE_SEED={seed}");
    let mut model = Model::new();
    for number in 0..4000u64 {
        let key = format!("key{:06}", number / 3 * 2).into_bytes();
        model.insert((key, Reverse(put(1000 + number))), number.to_le_bytes().repeat(4));
    }
    let medium = medium();
    write(&medium, spec(Codec::Lz4), &model, &Account::unlimited("test")).unwrap();
    let table = open(&medium).unwrap();
    assert!(table.properties().blocks > 10);
    let some_key = |rng: &mut Rng| format!("key{:06}", rng.below(2900)).into_bytes();
    for _ in 0..300 {
        let bound = |rng: &mut Rng| match rng.below(4) {
            0 => None,
            1 => Some(Bytes::from(b"key0".to_vec())),
            _ => Some(Bytes::from(some_key(rng))),
        };
        let bounds = Bounds { first: bound(&mut rng), end: bound(&mut rng) };
        let entries: Vec<(&Vec<u8>, Trailer)> = model
            .keys()
            .filter(|(key, _)| bounds.contains(key))
            .map(|(key, trailer)| (key, trailer.0))
            .collect();
        let mut driver = Driver::new(&table);
        let mut cursor = TableCursor::with_bounds(Arc::clone(&table), bounds.clone());
        let mut at = None;
        for _ in 0..30 {
            let (key, trailer) = (some_key(&mut rng), put(1000 + rng.below(4000)));
            let target = (&key, Reverse(trailer));
            let split = entries.partition_point(|(key, at)| (*key, Reverse(*at)) < target);
            at = match rng.below(8) {
                0 => {
                    cursor.seek_first();
                    Some(0)
                }
                1 => {
                    cursor.seek_last();
                    entries.len().checked_sub(1)
                }
                2 => {
                    cursor.seek(&key, trailer);
                    Some(split)
                }
                3 => {
                    cursor.seek_before(&key, trailer);
                    split.checked_sub(1)
                }
                4 | 5 => {
                    cursor.next();
                    at.map(|at| at + 1)
                }
                _ => {
                    cursor.prev();
                    at.and_then(|at: usize| at.checked_sub(1))
                }
            };
            driver.step(&mut cursor).unwrap();
            let expected = at.and_then(|at| entries.get(at)).copied();
            let found = cursor.trailer().map(|trailer| (cursor.key(), trailer));
            let expected = expected.map(|(key, trailer)| (&key[..], trailer));
            assert_eq!(found, expected, "seed {seed} {bounds:?}");
            at = at.filter(|at| *at < entries.len());
        }
        // An iteration inside the bounds reads only the pages that contain them, and one page on either
        // side.
        let mut driver = Driver::new(&table);
        cursor.seek_first();
        let mut cursor = TableCursor::with_bounds(Arc::clone(&table), bounds.clone());
        let forward = rng.one_in(2);
        if forward {
            cursor.seek_first();
        } else {
            cursor.seek_last();
        }
        while driver.step(&mut cursor).unwrap() {
            if forward {
                cursor.next();
            } else {
                cursor.prev();
            }
        }
        let blocks = table.properties().blocks * entries.len() as u64 / model.len() as u64;
        assert!(driver.data_spans <= blocks + 4, "{} for {blocks}", driver.data_spans);
    }
}

/// A table made outside the store reads at the given seqno.
#[test]
fn an_opened_seqno_replaces_the_stored_seqnos() {
    let zero = |kind| Trailer::new(Seqno::ZERO, kind);
    let keys: Vec<String> = (0..3000).map(|number| format!("key{number:05}")).collect();
    let entries: Vec<(&str, Trailer, Vec<u8>)> = keys
        .iter()
        .map(|key| {
            let kind = if key.ends_with('7') { EntryKind::Delete } else { EntryKind::Put };
            let value = if kind == EntryKind::Put { vec![b'v'; 20] } else { Vec::new() };
            (key.as_str(), zero(kind), value)
        })
        .collect();
    let ranges = deletes().with_seqno(Seqno::ZERO);
    let (medium, _) = table_of(&entries, &ranges);
    let open_at = |seqno| {
        let (none, account) = (Arc::new(NoDictionaries), Account::unlimited("test"));
        Table::open(&*medium, STORE, TABLE, None, Some(Seqno::new(seqno)), none, &account)
    };
    let table = open_at(50).unwrap();
    assert_eq!(table.seqno(), Some(Seqno::new(50)));
    assert_eq!(
        table.range_deletes().unwrap().newest_covering(b"b", Seqno::new(50)),
        Some(Seqno::new(50))
    );
    assert_eq!(table.range_deletes().unwrap().newest_covering(b"b", Seqno::new(49)), None);
    assert!(table.check(&Account::unlimited("check"), &mut |_, _| {}).unwrap().is_clean());
    let mut driver = Driver::new(&table);
    let mut cursor = TableCursor::new(Arc::clone(&table));
    for (index, (key, trailer, value)) in entries.iter().enumerate().step_by(37) {
        let seen = of(trailer.kind().unwrap(), 50);
        for at in [Trailer::seek(Seqno::new(50)), Trailer::seek(Seqno::MAX), seen] {
            let found = driver.get(key.as_bytes(), at).unwrap().unwrap();
            assert_eq!((found.0, &found.1[..]), (seen, &value[..]));
            cursor.seek(key.as_bytes(), at);
            assert!(driver.step(&mut cursor).unwrap());
            assert_eq!((cursor.key(), cursor.trailer()), (key.as_bytes(), Some(seen)));
        }
        let before = Trailer::seek(Seqno::new(49));
        assert_eq!(driver.get(key.as_bytes(), before).unwrap(), None);
        cursor.seek(key.as_bytes(), before);
        driver.step(&mut cursor).unwrap();
        let next = entries.get(index + 1).map_or(&b""[..], |(key, _, _)| key.as_bytes());
        assert_eq!(cursor.key(), next, "the next key");
        cursor.seek_before(key.as_bytes(), before);
        assert!(driver.step(&mut cursor).unwrap());
        assert_eq!(cursor.key(), key.as_bytes(), "the version sorts before an older seqno");
    }
    let (numbered, _) = table_of(&[("a", put(1), Vec::new())], &RangeDeletes::default());
    let (none, account) = (Arc::new(NoDictionaries), Account::unlimited("test"));
    let refused = Table::open(&*numbered, STORE, TABLE, None, Some(Seqno::new(9)), none, &account);
    assert_eq!(refused.unwrap_err().kind(), base::ErrorKind::Corrupt);
}

/// The decoded list of value files takes four times the memory of its encoded form (I10).
#[test]
fn a_long_list_of_value_files_is_charged_while_the_table_is_open() {
    const FILES: u64 = 20_000;
    let keys: Vec<String> = (0..FILES).map(|file| format!("{file:05}")).collect();
    let entries: Vec<_> = (1..=FILES)
        .zip(&keys)
        .map(|(file, key)| (&**key, of(EntryKind::PutPointer, 1), pointer(file, 1, 0)))
        .collect();
    let (medium, _) = table_of(&entries, &RangeDeletes::default());
    let table = open(&medium).unwrap();
    assert_eq!(table.properties().values.len() as u64, FILES);
    assert!(table.pinned_bytes() >= FILES * size_of::<(TableId, u64)>() as u64);
}

#[test]
fn splits_of_long_keys_take_little_memory() {
    for (key_bytes, most) in [(60_000, 0), (3000, 5)] {
        let mut model = Model::new();
        for number in 0..300u64 {
            let mut key = vec![b'k'; key_bytes];
            key.extend_from_slice(&number.to_be_bytes());
            model.insert((key, Reverse(put(1))), vec![0; 10_000]);
        }
        let medium = medium();
        write(&medium, spec(Codec::None), &model, &Account::unlimited("test")).unwrap();
        let table = open(&medium).unwrap();
        assert!(table.partition_after(0).is_some(), "several partitions");
        let splits = table.splits();
        let bytes: usize = splits.iter().map(|(key, _)| key.len()).sum();
        assert!(bytes <= 16 << 10, "{bytes} bytes of {} keys", splits.len());
        assert!(splits.len() <= most && (most == 0 || !splits.is_empty()), "{}", splits.len());
        let splits = table.block_splits(Purpose::Compaction).unwrap();
        let bytes: usize = splits.iter().map(|(key, _)| key.len()).sum();
        assert!(bytes <= 16 << 10, "{bytes} bytes of {} keys", splits.len());
        assert!(splits.is_sorted_by(|one, other| one.0 < other.0 && one.1 < other.1));
    }
}

/// The versions of the first key fill several partitions: if they began a part, the bytes before it would
/// belong to none.
#[test]
fn no_part_begins_at_the_first_key() {
    let mut model = Model::new();
    for seqno in 1..=300 {
        model.insert((b"a".to_vec(), Reverse(put(seqno))), vec![seqno as u8; 12_000]);
    }
    let one = medium();
    write(&one, spec(Codec::None), &model, &Account::unlimited("test")).unwrap();
    let table = open(&one).unwrap();
    assert!(table.partition_after(0).is_some(), "several partitions");
    assert_eq!(table.splits(), []);
    assert_eq!(table.block_splits(Purpose::Compaction).unwrap(), []);
    model.insert((b"b".to_vec(), Reverse(put(1))), vec![0; 12_000]);
    let two = medium();
    write(&two, spec(Codec::None), &model, &Account::unlimited("test")).unwrap();
    let splits = open(&two).unwrap().block_splits(Purpose::Compaction).unwrap();
    assert_eq!(splits.iter().map(|(key, _)| &**key).collect::<Vec<_>>(), [b"b"]);
}

/// A table of one partition has no splits, but its blocks have.
#[test]
fn a_short_table_is_split_between_its_blocks() {
    let mut model = Model::new();
    for number in 0..200u64 {
        // Values of one to three pages.
        let value = vec![0; 2000 + number as usize * 40];
        model.insert((format!("{number:08}").into_bytes(), Reverse(put(1))), value);
    }
    let medium = medium();
    write(&medium, spec(Codec::None), &model, &Account::unlimited("test")).unwrap();
    let table = open(&medium).unwrap();
    assert!(table.splits().len() <= 1, "{:?}", table.splits().len());
    let splits = table.block_splits(Purpose::Compaction).unwrap();
    assert!((30..=64).contains(&splits.len()), "{}", splits.len());
    assert!(splits.is_sorted_by(|one, other| one.0 < other.0 && one.1 < other.1));
    let (all, bytes): (usize, _) =
        (model.values().map(Vec::len).sum(), table.file().size().unwrap());
    for (key, before) in &splits {
        let older = model.range(..(key.clone(), Reverse(put(1)))).map(|(_, value)| value.len());
        let expected = older.sum::<usize>() as u64 * bytes / all as u64;
        assert!(expected.abs_diff(*before) < bytes / 10, "{expected} {before} of {bytes}");
    }
}

#[test]
fn splits_cut_a_table_into_parts_of_similar_size() {
    let mut rng = Rng::new(3);
    let mut model = Model::new();
    for number in 0..100_000u64 {
        let mut value = vec![0; 60];
        rng.fill(&mut value);
        model.insert((format!("{number:08}").into_bytes(), Reverse(put(1))), value);
    }
    let medium = medium();
    let spec = Spec { filter_bits: 16, ..spec(Codec::None) };
    write(&medium, spec, &model, &Account::unlimited("test")).unwrap();
    let table = open(&medium).unwrap();
    let splits = table.splits();
    assert!((20..=64).contains(&splits.len()), "{}", splits.len());
    assert!(splits.is_sorted_by(|one, other| one.0 < other.0 && one.1 < other.1));
    let bytes = table.file().size().unwrap();
    for (key, before) in &splits {
        let keys = model.range(..(key.clone(), Reverse(put(1)))).count() as u64;
        assert!((keys * bytes / 100_000).abs_diff(*before) < bytes / 100, "{keys} {before}");
    }
    let report = table.check(&Account::unlimited("check"), &mut |_, _| {}).unwrap();
    assert!(report.is_clean(), "{}", report.listed[0]);
}
