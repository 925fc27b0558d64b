//! Compact blocks of tables with bins: every kind of entry and any hash, damage, salvage, and the space that
//! they save.

use base::{ErrorKind, HashKey, KeyForm};

use super::bins::bins_spec;
use super::damage::with_content;
use super::model::{agrees_with, here, model};
use super::tail::{damages, resealed};
use super::*;

pub(super) const HASH_KEY: HashKey = HashKey::new([7; HashKey::BYTES]);

pub(super) fn stored(hash_key: &HashKey, key: &[u8]) -> Vec<u8> {
    [&hash_key.hash(key).to_be_bytes(), key].concat()
}

/// `model` under the stored keys of a hashed keyspace, with entries of every kind.
pub(super) fn hashed(rng: &mut Rng, model: &Model, hash_key: &HashKey) -> Model {
    let mut hashed = Model::new();
    for ((key, Reverse(trailer)), value) in model {
        let pointer =
            crate::Pointer { file: TableId(6), page: 3, pages: 5, bytes: 20_000, expiry: 0 };
        let (kind, value) = match (trailer.kind().unwrap(), rng.below(6)) {
            (EntryKind::Put, 0) => (EntryKind::PutPointer, pointer.encode()),
            (EntryKind::Put, 1) => (EntryKind::Merge, value.clone()),
            (EntryKind::Put, 2) => {
                (EntryKind::PutExpiring, [&5000u64.to_le_bytes()[..], value].concat())
            }
            (kind, _) => (kind, value.clone()),
        };
        let at = Trailer::new(trailer.seqno(), kind);
        hashed.insert((stored(hash_key, key), Reverse(at)), value);
    }
    hashed
}

/// The file of a table of `model` with compact blocks.
pub(super) fn compact_content(spec: Spec, model: &Model, hash_key: HashKey) -> Vec<u8> {
    let memory = Arc::new(MemoryMedium::new());
    let shared: Arc<dyn Medium> = memory.clone();
    let account = Account::unlimited("test");
    let mut writer = Writer::create(&shared, spec, &account).unwrap();
    writer.keys_are(&KeyForm::Hashed(hash_key));
    for ((key, trailer), value) in model {
        writer.add(key, trailer.0, value).unwrap();
    }
    writer.finish().unwrap();
    assert_eq!(account.used(), 0);
    memory.content(&crate::file_name(TABLE)).unwrap()
}

/// Every kind of entry, whole hashes, hashes of 8 bits and one hash for all keys, every codec, any number of
/// bins and filter bits.
#[test]
fn reads_of_tables_with_compact_blocks_agree_with_a_map() {
    let (mut rng, seed) = Rng::from_env();
    println!("TERRACE_SEED={seed}");
    for round in 0..24usize {
        let hash_key = [HASH_KEY, HashKey::weak(8), HashKey::weak(0)][round % 3];
        let plain = model(&mut rng);
        let model = hashed(&mut rng, &plain, &hash_key);
        let bits = [1, 6, 8, 12, 20, 56][rng.below(6) as usize];
        let filter_bits = [0, 1, 8, 13][rng.below(4) as usize];
        let codec = codecs()[round % codecs().len()];
        let content = compact_content(bins_spec(codec, bits, filter_bits), &model, hash_key);
        let table = open(&with_content(content.clone()));
        let table = table.unwrap_or_else(|error| panic!("round {round}: {error}"));
        let version = if table.properties().straddled_blocks > 0 { 6 } else { 5 };
        assert_eq!(table.footer().version, version);
        agrees_with(&mut rng, &table, &model);
        let mut driver = Driver::new(&table);
        let some = model.iter().step_by(1 + model.len() / 200);
        for (reads, ((key, at), value)) in (1..).zip(some) {
            let found = driver.get(key, at.0).unwrap();
            assert!(found.is_some(), "round {round}: {bits} bits, {codec:?}, {at:?}");
            assert_eq!(found.unwrap().1, value);
            assert_eq!(
                (driver.meta_spans, driver.data_spans),
                (0, reads),
                "round {round}: one read"
            );
        }
        let report = table.check(&Account::unlimited("check"), &mut |_, _| {}).unwrap();
        assert!(report.is_clean(), "round {round}: {}", report.listed[0]);
        assert_eq!(salvaged(content, None).0, model, "round {round}");
    }
}

/// The versions that a salvage finds, and the number of its lost ranges.
pub(super) fn salvaged(content: Vec<u8>, hash_key: Option<HashKey>) -> (Model, u64) {
    let (mut found, account) = (Model::new(), Account::unlimited("test"));
    let mut visit = |salvaged: Salvaged<'_>| {
        if let Salvaged::Version { key, trailer, value } = salvaged {
            found.insert((key.to_vec(), Reverse(trailer)), value.to_vec());
        }
        Ok(())
    };
    let medium = with_content(content);
    let dictionaries = &NoDictionaries;
    let report = salvage(&*medium, STORE, TABLE, dictionaries, hash_key, &account, &mut visit);
    (found, report.unwrap().lost_ranges)
}

/// Several partitions of entries of about 100 bytes.
fn sample() -> (Model, Vec<u8>) {
    let mut model = Model::new();
    for number in 0..9000u64 {
        let key = stored(&HASH_KEY, &number.to_be_bytes());
        model.insert((key, Reverse(put(1 + number % 900))), vec![number as u8; 80]);
    }
    let content = compact_content(bins_spec(Codec::None, 13, 10), &model, HASH_KEY);
    (model, content)
}

/// The hash key comes from the caller, or from either copy of the properties, with the footers or without.
/// If all are lost, no key is made up.
#[test]
fn a_salvage_finds_the_hash_key() {
    let (model, content) = sample();
    let footer = *open(&with_content(content.clone())).unwrap().footer();
    let flipped = |content: &[u8], pages: &[u32]| {
        let mut content = content.to_vec();
        pages.iter().for_each(|page| content[*page as usize * PAGE_BYTES + 99] ^= 1);
        content
    };
    let footers = [footer.pages - 1, footer.pages - 2];
    let copies = [footer.properties, footer.twin(footer.properties).unwrap()];
    for lost in
        [&[][..], &footers, &copies[..1], &copies[1..], &[footers[0], footers[1], copies[0]]]
    {
        assert_eq!(salvaged(flipped(&content, lost), None), (model.clone(), 0), "{lost:?}");
    }
    let lost = flipped(&content, &copies);
    assert_eq!(salvaged(lost.clone(), Some(HASH_KEY)), (model, 0));
    let (found, ranges) = salvaged(lost, None);
    assert!(found.is_empty() && ranges > 0);
    let (found, ranges) = salvaged(content, Some(HashKey::new([8; 16])));
    assert!(found.is_empty() && ranges > 0, "a wrong hash key");
}

/// Every byte of a data page: reads of its keys fail, all others succeed, and a salvage loses no others.
#[test]
fn a_flipped_byte_of_a_compact_block_costs_the_keys_of_its_page() {
    let (model, clean) = sample();
    let table = open(&with_content(clean.clone())).unwrap();
    let on_page: Vec<_> = model
        .iter()
        .filter(|((key, at), _)| {
            let pinned = table.pinned().unwrap();
            let meta = pinned.get(0).unwrap();
            table.top().unwrap().search(key, at.0).unwrap() == 0
                && meta.block_pages(meta.search(key, at.0).unwrap()).unwrap().0 == 3
        })
        .collect();
    assert!(on_page.len() > 20, "{}", on_page.len());
    for at in (0..PAGE_BYTES).step_by(7) {
        let mut content = clean.clone();
        content[3 * PAGE_BYTES + at] ^= 1 << (at % 8);
        let table = open(&with_content(content.clone())).unwrap();
        let mut driver = Driver::new(&table);
        for ((key, at), _) in &on_page {
            assert_eq!(driver.get(key, at.0).unwrap_err().kind(), ErrorKind::Corrupt);
        }
        let ((key, newest), value) = model.last_key_value().unwrap();
        assert_eq!(driver.get(key, newest.0).unwrap().unwrap().1, value);
        if at.is_multiple_of(64) {
            assert_eq!(damages(&table), [3]);
            assert_eq!(salvaged(content, None).0.len(), model.len() - on_page.len());
        }
    }
}

/// Properties with the hash key of another keyspace: lookups and cursors fail, and a check says so.
#[test]
fn a_wrong_hash_key_is_damage() {
    let (model, mut content) = sample();
    let footer = *open(&with_content(content.clone())).unwrap().footer();
    for page in [footer.properties, footer.twin(footer.properties).unwrap()] {
        resealed(&mut content, STORE, page, |payload| {
            let mut properties = Properties::decode(payload).unwrap();
            properties.hash_key = properties::HashKeyField(Some(HashKey::new([8; 16])));
            *payload = properties.encode();
        });
    }
    let table = open(&with_content(content)).unwrap();
    assert!(!damages(&table).is_empty());
    let mut driver = Driver::new(&table);
    for ((key, at), _) in model.iter().step_by(50) {
        assert_eq!(driver.get(key, at.0).unwrap_err().kind(), ErrorKind::Corrupt);
    }
    let mut cursor = TableCursor::new(Arc::clone(&table));
    cursor.seek_first();
    assert_eq!(driver.step(&mut cursor).unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(here(&cursor), None);
}

#[test]
fn a_writer_refuses_a_key_with_another_hash() {
    let (medium, account) = (medium(), Account::unlimited("test"));
    let mut writer = Writer::create(&medium, bins_spec(Codec::Lz4, 6, 8), &account).unwrap();
    writer.keys_are(&KeyForm::Hashed(HASH_KEY));
    let mut key = stored(&HASH_KEY, b"key");
    key[3] ^= 1;
    assert_eq!(writer.add(&key, put(1), b"").unwrap_err().kind(), ErrorKind::Invalid);
    key[3] ^= 1;
    writer.add(&key, put(1), b"").unwrap();
    assert_eq!(writer.finish().unwrap().properties.entries, 1);
}

/// At 256 bytes an entry a compact table is at least two hundredths shorter than one that stores hashes.
#[test]
fn compact_blocks_save_the_stored_hashes() {
    let mut model = Model::new();
    let mut rng = Rng::new(5);
    for number in 0..30_000u64 {
        let mut value = vec![0; 200 + rng.below(80) as usize];
        rng.fill(&mut value);
        model.insert((stored(&HASH_KEY, &number.to_be_bytes()), Reverse(put(number))), value);
    }
    let spec = bins_spec(Codec::None, 17, 0);
    let compact = compact_content(spec.clone(), &model, HASH_KEY).len() as f64;
    let sorted = bins::content_of(spec, &model).len() as f64;
    println!("{compact} of {sorted}: {}", compact / sorted);
    assert!(compact < 0.982 * sorted, "{}", compact / sorted);
}
