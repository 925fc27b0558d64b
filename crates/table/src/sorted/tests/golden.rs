use super::bins::{bins_spec, content_of, stored_key};
use super::compact::{HASH_KEY, compact_content};
use super::damage::with_content;
use super::*;

const GOLDEN: &str = include_str!("../../../golden/table.hex");
const GOLDEN_2: &str = include_str!("../../../golden/table_2.hex");
const GOLDEN_3: &str = include_str!("../../../golden/table_3.hex");
const GOLDEN_4: &str = include_str!("../../../golden/table_4.hex");
const GOLDEN_5: &str = include_str!("../../../golden/table_5.hex");
const GOLDEN_6: &str = include_str!("../../../golden/table_6.hex");
const GOLDEN_DEFLATE: &str = include_str!("../../../golden/table_deflate.hex");

/// A table with a compressed block, a run, several versions and a delete.
fn entries() -> Vec<(Vec<u8>, Trailer, Vec<u8>)> {
    let delete = Trailer::new(Seqno::new(5), EntryKind::Delete);
    let mut entries = vec![
        (b"apple".to_vec(), put(9), b"red".to_vec()),
        (b"apple".to_vec(), put(3), b"green".to_vec()),
        (b"banana".to_vec(), delete, Vec::new()),
    ];
    for number in 0..20 {
        entries.push((
            format!("cherry{number:02}").into_bytes(),
            put(10 + number),
            vec![b'x'; 250],
        ));
    }
    let mut noise = vec![0; 8200];
    Rng::new(1).fill(&mut noise);
    entries.push((b"dates".to_vec(), put(40), noise));
    entries
}

/// An entry of each kind.
fn kinds() -> Vec<(&'static str, Trailer, Vec<u8>)> {
    let of = |kind, seqno| Trailer::new(Seqno::new(seqno), kind);
    let pointer = crate::Pointer { file: TableId(6), page: 3, pages: 5, bytes: 20_000, expiry: 0 };
    vec![
        ("apple", of(EntryKind::Merge, 12), b"+1".to_vec()),
        ("apple", of(EntryKind::Put, 11), b"5".to_vec()),
        ("banana", of(EntryKind::PutExpiring, 10), [&5000u64.to_le_bytes()[..], b"soon"].concat()),
        ("cherry", of(EntryKind::PutPointer, 9), pointer.encode()),
        ("dates", of(EntryKind::Delete, 8), Vec::new()),
    ]
}

/// Writes a table of [`kinds`] with range deletes, and a filter of 12 bits.
fn write_kinds(medium: &Arc<dyn Medium>) {
    let spec = Spec { filter_bits: 12, keyspace: base::KeyspaceId(4), ..spec(Codec::None) };
    let mut writer = Writer::create(medium, spec, &Account::unlimited("test")).unwrap();
    for (key, trailer, value) in kinds() {
        writer.add(key.as_bytes(), trailer, &value).unwrap();
    }
    let (older, newer) = (Seqno::new(7), Seqno::new(20));
    writer.add_range_delete(b"a", b"az", &[older]).unwrap();
    writer.add_range_delete(b"az", b"c", &[newer, older]).unwrap();
    writer.add_range_delete(b"x", b"z", &[older]).unwrap();
    writer.finish().unwrap();
}

/// The bytes must not change: a store holds files of every build of this format version.
#[test]
fn a_table_has_exactly_the_golden_bytes() {
    let memory = Arc::new(MemoryMedium::new());
    let shared: Arc<dyn Medium> = memory.clone();
    write_kinds(&shared);
    let written = memory.content(&crate::file_name(TABLE)).unwrap();
    let golden = crate::golden::bytes(GOLDEN_3);
    assert_eq!(written.len(), golden.len());
    for (at, (written, golden)) in written.iter().zip(&golden).enumerate() {
        assert_eq!(written, golden, "byte {} of page {}", at % PAGE_BYTES, at / PAGE_BYTES);
    }
}

/// Entries in three bins, one of them of two pages.
fn in_bins() -> Model {
    let delete = Trailer::new(Seqno::new(5), EntryKind::Delete);
    Model::from([
        ((stored_key(0x0800_0000_0000_0001, b"apple"), Reverse(put(9))), b"red".to_vec()),
        ((stored_key(0x0800_0000_0000_0001, b"apple"), Reverse(put(3))), b"green".to_vec()),
        ((stored_key(0x0c00_0000_0000_0002, b"banana"), Reverse(put(7))), vec![0; 3000]),
        ((stored_key(0x0fff_0000_0000_0000, b"cherry"), Reverse(put(8))), vec![0; 3000]),
        ((stored_key(0xa123_4567_89ab_cdef, b"dates"), Reverse(delete)), Vec::new()),
    ])
}

#[test]
fn a_table_with_bins_has_exactly_the_golden_bytes() {
    let golden = crate::golden::bytes(GOLDEN_4);
    let written = content_of(bins_spec(Codec::None, 6, 0), &in_bins());
    assert_eq!(written.len(), golden.len());
    for (at, (written, golden)) in written.iter().zip(&golden).enumerate() {
        assert_eq!(written, golden, "byte {} of page {}", at % PAGE_BYTES, at / PAGE_BYTES);
    }
}

/// The keys of a hashed keyspace with [`HASH_KEY`], an entry of each kind.
fn in_compact_blocks() -> Model {
    let of = |kind, seqno| Reverse(Trailer::new(Seqno::new(seqno), kind));
    let pointer = crate::Pointer { file: TableId(6), page: 3, pages: 5, bytes: 20_000, expiry: 0 };
    let expiring = [&5000u64.to_le_bytes()[..], b"soon"].concat();
    let key = |user: &str| stored_key(HASH_KEY.hash(user.as_bytes()), user.as_bytes());
    Model::from([
        ((key("apple"), of(EntryKind::Merge, 12)), b"+1".to_vec()),
        ((key("apple"), of(EntryKind::Put, 11)), b"5".to_vec()),
        ((key("banana"), of(EntryKind::PutExpiring, 10)), expiring),
        ((key("cherry"), of(EntryKind::PutPointer, 9)), pointer.encode()),
        ((key("dates"), of(EntryKind::Delete, 8)), Vec::new()),
        ((key("elder"), of(EntryKind::Put, 300)), vec![b'e'; 3990]),
    ])
}

/// The worked example of docs/format/bins.md: a hash key of sevens, and the table's first block.
#[test]
fn a_table_with_compact_blocks_has_exactly_the_golden_bytes() {
    let golden = crate::golden::bytes(GOLDEN_5);
    let written = compact_content(bins_spec(Codec::None, 6, 0), &in_compact_blocks(), HASH_KEY);
    assert_eq!(written.len(), golden.len());
    for (at, (written, golden)) in written.iter().zip(&golden).enumerate() {
        assert_eq!(written, golden, "byte {} of page {}", at % PAGE_BYTES, at / PAGE_BYTES);
    }
    let documented = "06 02 20 636865727279 0600000000000000 03000000 05000000 \
                      204e000000000000 0000000000000000 \
                      05 34 02 6170706c65 2b31  05 21 01 6170706c65 35 \
                      77 7a 7a 0900000000000008 0380";
    let block = &golden[PAGE_BYTES + crate::HEADER_BYTES..];
    assert!(block.starts_with(&crate::golden::bytes(documented)));
    let table = open_golden(GOLDEN_5);
    assert_eq!((table.footer().version, table.layout().encode()), (5, 6));
    let report = table.check(&Account::unlimited("check"), &mut |_, _| {}).unwrap();
    assert!(report.is_clean() && report.entries == 6);
    let mut driver = Driver::new(&table);
    for ((key, trailer), value) in in_compact_blocks() {
        let (found, bytes) = driver.get(&key, trailer.0).unwrap().unwrap();
        assert!(found == trailer.0 && bytes == value);
    }
    assert_eq!((driver.meta_spans, driver.data_spans), (0, 6));
}

/// Entries of about a quarter of a page, under the keys of a hashed keyspace with [`HASH_KEY`].
fn over_pages() -> Model {
    let entries = (0..22u64).map(|number| {
        let user = format!("k{number:02}");
        let key = stored_key(HASH_KEY.hash(user.as_bytes()), user.as_bytes());
        ((key, Reverse(put(number))), vec![b'a' + number as u8; 1100])
    });
    entries.collect()
}

/// The worked example of docs/format/bins.md: the header of the first straddled page, and the index of the
/// partition.
#[test]
fn a_table_with_straddled_blocks_has_exactly_the_golden_bytes() {
    let written = compact_content(bins_spec(Codec::None, 6, 0), &over_pages(), HASH_KEY);
    if let Some(path) = std::env::var_os("TERRACE_GOLDEN") {
        std::fs::write(path, &written).unwrap();
    }
    let golden = crate::golden::bytes(GOLDEN_6);
    assert_eq!(written.len(), golden.len());
    for (at, (written, golden)) in written.iter().zip(&golden).enumerate() {
        assert_eq!(written, golden, "byte {} of page {}", at % PAGE_BYTES, at / PAGE_BYTES);
    }
    let table = open_golden(GOLDEN_6);
    assert_eq!((table.footer().version, table.layout().encode()), (6, 6));
    assert!(table.properties().straddled_blocks > 0);
    let report = table.check(&Account::unlimited("check"), &mut |_, _| {}).unwrap();
    assert!(report.is_clean() && report.entries == 22);
    let mut driver = Driver::new(&table);
    for ((key, trailer), value) in over_pages() {
        let (found, bytes) = driver.get(&key, trailer.0).unwrap().unwrap();
        assert!(found == trailer.0 && bytes == value);
    }
    assert_eq!((driver.meta_spans, driver.data_spans), (0, 22));
}

/// The worked example of docs/format/bins.md.
#[test]
fn the_golden_table_with_bins_is_read_and_its_index_is_as_documented() {
    let file = crate::golden::bytes(GOLDEN_4);
    let documented = "03 0200000000000000 48 0c 87";
    let index = &file[4 * PAGE_BYTES + crate::HEADER_BYTES + 20..];
    assert!(index.starts_with(&crate::golden::bytes(documented)), "{:02x?}", &index[..12]);
    let table = open_golden(GOLDEN_4);
    assert_eq!((table.footer().version, table.layout().encode()), (4, 6));
    let report = table.check(&Account::unlimited("check"), &mut |_, _| {}).unwrap();
    assert!(report.is_clean() && report.entries == 5);
    let mut driver = Driver::new(&table);
    for ((key, trailer), value) in in_bins() {
        let (found, bytes) = driver.get(&key, trailer.0).unwrap().unwrap();
        assert!(found == trailer.0 && bytes == value);
    }
    assert_eq!((driver.meta_spans, driver.data_spans), (0, 5));
}

/// The worked example of docs/format/table.md.
#[test]
fn the_first_block_begins_as_documented() {
    let file = crate::golden::bytes(GOLDEN);
    let account = Account::unlimited("test");
    let page = file.chunks_exact(PAGE_BYTES).take(1);
    let block = read::decode_run(page, 1, &NoDictionaries, &account).unwrap();
    let documented = "05 01 03 6170706c65 726564 50 59 05 677265656e 06 20 00 62616e616e61";
    assert!(block.starts_with(&crate::golden::bytes(documented)));
}

/// The range deletes of docs/format/table.md.
#[test]
fn the_range_deletes_are_as_documented() {
    let documented = "03000000 04000000  02 61  02 617a  01 07 \
                      00  01 63  02 14 0d  02 78  01 7a  01 07";
    let documented = crate::golden::bytes(documented);
    let file = crate::golden::bytes(GOLDEN_2);
    assert!(file[2 * PAGE_BYTES + crate::HEADER_BYTES..].starts_with(&documented));
    let file = crate::golden::bytes(GOLDEN_3);
    for page in [2, 5] {
        assert!(file[page * PAGE_BYTES + crate::HEADER_BYTES..].starts_with(&documented));
    }
    let mut charge = Account::unlimited("test").charge(0).unwrap();
    assert_eq!(range_section::decode(&documented.into(), &mut charge).unwrap().len(), 3);
}

/// The properties about superseded versions in docs/format/table.md.
#[test]
fn superseded_versions_are_stored_as_documented() {
    let medium = medium();
    let mut writer =
        Writer::create(&medium, spec(Codec::None), &Account::unlimited("test")).unwrap();
    let pointer = crate::Pointer { file: TableId(6), page: 3, pages: 5, bytes: 20_000, expiry: 0 };
    let pointer_at = |seqno| Trailer::new(Seqno::new(seqno), EntryKind::PutPointer);
    let refused = writer.add_superseded(b"apple", put(9), b"red", Seqno::new(9)).unwrap_err();
    assert_eq!(refused.kind(), base::ErrorKind::Invalid);
    writer.add(b"apple", put(300), b"red").unwrap();
    writer.add_superseded(b"apple", put(7), b"green", Seqno::new(300)).unwrap();
    writer.add_superseded(b"banana", pointer_at(9), &pointer.encode(), Seqno::new(20)).unwrap();
    let properties = writer.finish().unwrap().properties;
    let encoded = properties.encode();
    let documented = crate::golden::bytes("1f 01 02  20 03 d09c01  21 01 07  22 02 ac02");
    assert!(encoded.ends_with(&documented), "{encoded:02x?}");
    assert_eq!(Properties::decode(&encoded).unwrap(), properties);
    let table = open(&medium).unwrap();
    assert_eq!(*table.properties(), properties);
    let report = table.check(&Account::unlimited("check"), &mut |_, _| {}).unwrap();
    assert!(report.is_clean());
}

/// A table of DEFLATE blocks. A library may compress to other bytes, so the golden file is read, and a new
/// table has its marks.
#[test]
fn a_table_of_deflate_blocks_is_read_and_marked_as_documented() {
    let golden = crate::golden::bytes(GOLDEN_DEFLATE);
    let footer = &golden[golden.len() - PAGE_BYTES + crate::HEADER_BYTES..];
    assert!(footer.starts_with(&crate::golden::bytes("544552524154424c 03010000")));
    assert_eq!((golden[8], golden[9]), (crate::PageKind::Data as u8, Codec::Deflate as u8));
    let table = open_golden(GOLDEN_DEFLATE);
    assert!(table.footer().version == 3 && table.footer().may_deflate);
    let report = table.check(&Account::unlimited("check"), &mut |_, _| {}).unwrap();
    assert!(report.is_clean() && report.entries == 24);
    let mut driver = Driver::new(&table);
    for (key, trailer, value) in entries() {
        let (found, bytes) = driver.get(&key, trailer).unwrap().unwrap();
        assert!(found == trailer && bytes == value);
    }
    let medium = medium();
    let spec = Spec { level: 6, ..spec(Codec::Deflate) };
    let mut writer = Writer::create(&medium, spec, &Account::unlimited("test")).unwrap();
    for (key, trailer, value) in entries() {
        writer.add(&key, trailer, &value).unwrap();
    }
    writer.finish().unwrap();
    let written = open(&medium).unwrap();
    assert_eq!(*written.properties(), *table.properties());
    assert!(written.footer().may_deflate);
}

fn open_golden(golden: &str) -> Arc<Table> {
    open(&with_content(crate::golden::bytes(golden))).unwrap()
}

#[test]
fn the_golden_tables_of_every_kind_are_read() {
    for (golden, version) in [(GOLDEN_2, 2), (GOLDEN_3, 3)] {
        let table = open_golden(golden);
        assert_eq!(
            (table.footer().version, table.footer().copy.is_some()),
            (version, version == 3)
        );
        assert!(table.tail_damage().is_none());
        every_kind_is_read(&table);
    }
}

fn every_kind_is_read(table: &Arc<Table>) {
    let report = table.check(&Account::unlimited("check"), &mut |_, _| {}).unwrap();
    assert!(report.is_clean() && report.entries == 5);
    let mut driver = Driver::new(table);
    for (key, trailer, value) in kinds() {
        let (found, bytes) = driver.get(key.as_bytes(), trailer).unwrap().unwrap();
        assert!(found == trailer && bytes == value);
    }
    let newest =
        |key: &[u8], at| table.range_deletes().unwrap().newest_covering(key, Seqno::new(at));
    assert_eq!(newest(b"banana", 99), Some(Seqno::new(20)));
    assert_eq!(newest(b"banana", 19), Some(Seqno::new(7)));
    assert_eq!((newest(b"c", 99), newest(b"apple", 6)), (None, None));
}

#[test]
fn the_golden_table_is_read() {
    let table = open_golden(GOLDEN);
    let report = table.check(&Account::unlimited("check"), &mut |_, _| {}).unwrap();
    assert!(report.is_clean() && report.entries == 24);
    let mut driver = Driver::new(&table);
    for (key, trailer, value) in entries() {
        let (found, bytes) = driver.get(&key, trailer).unwrap().unwrap();
        assert!(found == trailer && bytes == value);
    }
}

/// Before version 3 the tail exists once: a flip in it costs the table, and no page is taken for a copy.
#[test]
fn a_flip_in_the_tail_of_an_older_table_is_an_error() {
    for golden in [GOLDEN, GOLDEN_2] {
        let content = crate::golden::bytes(golden);
        let footer = *open_golden(golden).footer();
        assert!((0..footer.pages).all(|page| footer.twin(page).is_none()));
        for page in footer.range_deletes as usize..footer.pages as usize {
            for at in [3, 8, 24, 30, 60, 4000] {
                let mut damaged = content.clone();
                damaged[page * PAGE_BYTES + at] ^= 1;
                let error = open(&with_content(damaged)).unwrap_err();
                assert_eq!(error.kind(), base::ErrorKind::Corrupt);
                assert!(error.to_string().contains(&format!("page {page}")) || at < 32, "{error}");
            }
        }
    }
}
