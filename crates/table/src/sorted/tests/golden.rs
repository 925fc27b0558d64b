use super::*;

const GOLDEN: &str = include_str!("../../../golden/table.hex");

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

fn model() -> Model {
    entries().into_iter().map(|(key, trailer, value)| ((key, Reverse(trailer)), value)).collect()
}

/// The bytes may not change: a store holds files of every build of this format version.
#[test]
fn a_table_has_exactly_the_golden_bytes() {
    let memory = Arc::new(MemoryMedium::new());
    let shared: Arc<dyn Medium> = memory.clone();
    write(&shared, spec(Codec::Lz4), &model(), &Account::unlimited("test")).unwrap();
    let written = memory.content(&crate::file_name(TABLE)).unwrap();
    let golden = crate::golden::bytes(GOLDEN);
    assert_eq!(written.len(), golden.len());
    for (at, (written, golden)) in written.iter().zip(&golden).enumerate() {
        assert_eq!(written, golden, "byte {} of page {}", at % PAGE_BYTES, at / PAGE_BYTES);
    }
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

#[test]
fn the_golden_table_is_read() {
    let memory = MemoryMedium::new();
    memory.insert(&crate::file_name(TABLE), crate::golden::bytes(GOLDEN)).unwrap();
    let medium: Arc<dyn Medium> = Arc::new(memory);
    let table = open(&medium).unwrap();
    let report = table.check(&Account::unlimited("check"), &mut |_, _| {}).unwrap();
    assert!(report.is_clean() && report.entries == 24);
    let mut driver = Driver::new(&table);
    for (key, trailer, value) in entries() {
        let (found, bytes) = driver.get(&key, trailer).unwrap().unwrap();
        assert!(found == trailer && bytes == value);
    }
}
