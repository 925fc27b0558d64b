#![cfg(feature = "zstd")]

use super::*;
use base::{ErrorKind, Rng};
use media::MemoryMedium;

const STORE: StoreId = StoreId(7);

fn samples(rng: &mut Rng) -> Vec<Vec<u8>> {
    let record = |rng: &mut Rng| {
        let (name, city) = (rng.below(1000), rng.below(20));
        format!("{{\"customer\":\"name-{name}\",\"city\":\"city-{city}\",\"status\":\"active\"}}\n")
    };
    (0..400).map(|_| (0..8).map(|_| record(rng)).collect::<String>().into_bytes()).collect()
}

fn trained(rng: &mut Rng, account: &Account) -> Vec<u8> {
    let samples = samples(rng);
    let samples: Vec<&[u8]> = samples.iter().map(Vec::as_slice).collect();
    train(&samples, 4096, account).unwrap()
}

#[test]
fn a_trained_dictionary_saves_space_and_its_file_round_trips() {
    let account = Account::unlimited("test");
    let mut rng = Rng::new(1);
    let bytes = trained(&mut rng, &account);
    let dictionary = Arc::new(Dictionary::new(DictionaryId(3), &bytes, &account).unwrap());
    let others = samples(&mut rng);
    let others: Vec<&[u8]> = others.iter().map(Vec::as_slice).collect();
    let gained = gain(&others, &dictionary, 3, &account).unwrap();
    assert!(gained > 0.2, "{gained}");

    let medium = MemoryMedium::new();
    dictionary.write(&medium, STORE, Purpose::Compaction).unwrap();
    let read = Dictionary::read(&medium, STORE, DictionaryId(3), &account).unwrap();
    assert_eq!(read.bytes(), bytes);
    let error = Dictionary::read(&medium, STORE, DictionaryId(4), &account).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    drop((read, dictionary));
    assert_eq!(account.used(), 0);
}

/// A dictionary file of another identity, or with any byte flipped, is refused.
#[test]
fn a_damaged_or_foreign_dictionary_file_is_refused() {
    let account = Account::unlimited("test");
    let dictionary = Dictionary::new(DictionaryId(3), b"some content", &account).unwrap();
    let mut file = dictionary.encode(STORE);
    assert_eq!(decode(&file, STORE, DictionaryId(3)).unwrap(), b"some content");
    assert!(decode(&file, STORE, DictionaryId(4)).is_err());
    assert!(decode(&file, StoreId(8), DictionaryId(3)).is_err());
    file.resize(PAGE_BYTES, 0);
    for at in 0..file.len() {
        file[at] ^= 1 << (at % 8);
        assert!(decode(&file, STORE, DictionaryId(3)).is_err(), "byte {at}");
        file[at] ^= 1 << (at % 8);
        assert!(decode(&file[..at.min(59)], STORE, DictionaryId(3)).is_err(), "cut at {at}");
    }
}

#[test]
fn requests_out_of_range_are_refused() {
    let account = Account::unlimited("test");
    assert!(Dictionary::new(DictionaryId(0), b"content", &account).is_err());
    assert!(Dictionary::new(DictionaryId(1), b"", &account).is_err());
    assert!(train(&[b"too few"], 4096, &account).is_err());
    assert!(train(&[], 0, &account).is_err());
    let name = Dictionary::file_name(DictionaryId(12));
    assert_eq!(Dictionary::parse_file_name(&name), Some(DictionaryId(12)));
    assert_eq!(Dictionary::parse_file_name("12.dictionary"), None);
}

/// The bytes must not change: see docs/format/dictionary.md.
#[test]
fn a_dictionary_file_has_exactly_the_golden_bytes() {
    let (account, medium) = (Account::unlimited("test"), MemoryMedium::new());
    let dictionary = Dictionary::new(DictionaryId(3), b"some content", &account).unwrap();
    dictionary.write(&medium, STORE, Purpose::Compaction).unwrap();
    let written = medium.content(&Dictionary::file_name(DictionaryId(3))).unwrap();
    let golden = crate::golden::bytes(include_str!("../../golden/dictionary.hex"));
    assert_eq!(written, golden);
    assert_eq!(decode(&golden, STORE, DictionaryId(3)).unwrap(), b"some content");
}

/// Writers of two levels in turn: the memory of a digest is released with its last user.
#[test]
fn a_digest_is_charged_as_long_as_it_is_used() {
    let account = Account::unlimited("test");
    let bytes = trained(&mut Rng::new(2), &account);
    let dictionary = Arc::new(Dictionary::new(DictionaryId(3), &bytes, &account).unwrap());
    let compressor = |level| {
        let with = Some(Arc::clone(&dictionary));
        zstd::Compressor::new(level, with, &Account::unlimited("context")).unwrap()
    };
    let mut used = Vec::new();
    for level in [3, 5, 3, 5, 3, 5] {
        drop(compressor(level));
        used.push(account.used());
    }
    assert_eq!((used[0], used[1]), (used[4], used[5]));
    let both = (compressor(3), compressor(5));
    assert!(account.used() > used[5]);
    drop(both);
    drop(dictionary);
    assert_eq!(account.used(), 0);
}

/// A table without its dictionary is larger but correct.
#[test]
fn a_table_is_written_without_a_dictionary_if_memory_is_short() {
    let account = Account::unlimited("test");
    let bytes = trained(&mut Rng::new(3), &account);
    let dictionary = Arc::new(Dictionary::new(DictionaryId(3), &bytes, &account).unwrap());
    account.set_cap(account.used() + (200 << 10));
    let medium: Arc<dyn Medium> = Arc::new(MemoryMedium::new());
    let spec = crate::Spec {
        store: STORE,
        table: base::TableId(1),
        keyspace: base::KeyspaceId(1),
        codec: base::Codec::Zstd,
        level: 3,
        dictionary: Some(Arc::clone(&dictionary)),
        layout: crate::Layout::Sorted,
        filter_bits: crate::FILTER_BITS_DEFAULT,
        purpose: Purpose::Flush,
        leave: crate::Leave::Nothing,
    };
    for (cap, expected) in [(200 << 10, vec![]), (8 << 20, vec![DictionaryId(3)])] {
        account.set_cap(account.used() + cap);
        let (spec, unlimited) = (spec.clone(), Account::unlimited("writer"));
        let mut writer = crate::Writer::create(&medium, spec, &unlimited).unwrap();
        let trailer = base::Trailer::new(base::Seqno::new(1), base::EntryKind::Put);
        writer.add(b"key", trailer, b"value").unwrap();
        assert_eq!(writer.finish().unwrap().properties.dictionaries, expected);
        medium.remove(&crate::file_name(base::TableId(1))).unwrap();
    }
}
