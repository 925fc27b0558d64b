use super::*;

/// Random versions: keys that share prefixes, many versions of some keys, values of all sizes.
pub(super) fn model(rng: &mut Rng) -> Model {
    let entries = 1 + rng.below(3000);
    let value_max = [1, 50, 400, 3000, 40_000][rng.below(5) as usize];
    let entries = entries.min(2_000_000 / value_max);
    let key_max = [3, 12, 60, 2000][rng.below(4) as usize];
    let entries = entries.min(600_000 / key_max);
    let versions = 1 + rng.below(6);
    let mut model = Model::new();
    let mut seqno = rng.below(1000);
    let mut key = vec![0];
    for _ in 0..entries {
        if rng.one_in(versions) {
            key = vec![b'a' + rng.below(4) as u8; rng.below(key_max) as usize];
            key.extend(rng.below(100_000).to_string().bytes());
        }
        if rng.one_in(2) {
            seqno += rng.below(50);
        }
        let mut value = vec![b'v'; rng.below(value_max) as usize];
        let noise = value.len() / (1 + rng.below(3) as usize);
        rng.fill(&mut value[..noise]);
        let delete = rng.one_in(5);
        let kind = if delete { EntryKind::Delete } else { EntryKind::Put };
        let value = if delete { Vec::new() } else { value };
        model.insert((key.clone(), Reverse(Trailer::new(Seqno::new(seqno), kind))), value);
    }
    model
}

fn newest<'a>(model: &'a Model, key: &[u8], at: Trailer) -> Option<(Trailer, &'a [u8])> {
    let (found, value) = model.range((key.to_vec(), Reverse(at))..).next()?;
    (found.0 == key).then_some((found.1.0, &value[..]))
}

fn some_target(rng: &mut Rng, entries: &[(&[u8], Trailer, &[u8])]) -> (Vec<u8>, Trailer) {
    let (key, trailer, _) = entries[rng.below(entries.len() as u64) as usize];
    let mut key = key.to_vec();
    match rng.below(4) {
        0 => drop(key.pop()),
        1 => key.push(b'0' + rng.below(10) as u8),
        _ => {}
    }
    let near = (trailer.seqno().get() + rng.below(3)).saturating_sub(rng.below(3));
    let at = if rng.one_in(2) { trailer } else { Trailer::seek(Seqno::new(near)) };
    (key, if rng.one_in(5) { Trailer::seek(Seqno::MAX) } else { at })
}

pub(super) fn here(cursor: &TableCursor) -> Option<(Vec<u8>, Trailer, Bytes)> {
    cursor.trailer().map(|trailer| (cursor.key().to_vec(), trailer, cursor.value()))
}

fn same(found: Option<(Vec<u8>, Trailer, Bytes)>, expected: Option<&(&[u8], Trailer, &[u8])>) {
    let found = found.as_ref().map(|(key, trailer, value)| (&key[..], *trailer, &value[..]));
    assert!(found == expected.copied(), "{found:?} instead of {expected:?}");
}

#[test]
fn reads_and_iteration_agree_with_a_map() {
    let (mut rng, seed) = Rng::from_env();
    println!("TERRACE_SEED={seed}");
    for round in 0..15 {
        let model = model(&mut rng);
        let codec = codecs()[round % codecs().len()];
        let (medium, account) = (medium(), Account::unlimited("test"));
        let summary = write(&medium, spec(codec), &model, &account).unwrap();
        assert_eq!(account.used(), 0);
        let table = open(&medium).unwrap();
        assert_eq!(table.properties(), &summary.properties);
        assert_eq!(table.file().size().unwrap(), summary.file_bytes);
        check_properties(&model, table.properties());
        agrees_with(&mut rng, &table, &model);
    }
}

/// Iterations, lookups and seeks in `table` find what `model` has, and read no page more than needed.
pub(super) fn agrees_with(rng: &mut Rng, table: &Arc<Table>, model: &Model) {
    let entries: Vec<(&[u8], Trailer, &[u8])> =
        model.iter().map(|((key, trailer), value)| (&key[..], trailer.0, &value[..])).collect();
    let mut driver = Driver::new(table);
    let is_pinned = table.layout() != Layout::Sorted;

    let mut cursor = TableCursor::new(Arc::clone(table));
    cursor.seek_first();
    for expected in &entries {
        assert!(driver.step(&mut cursor).unwrap());
        same(here(&cursor), Some(expected));
        assert_eq!(cursor.value(), cursor.value_bytes());
        cursor.next();
    }
    assert!(!driver.step(&mut cursor).unwrap());
    // Each page is needed once.
    let meta_pages = if is_pinned { 0 } else { table.properties().meta_pages };
    assert_eq!(driver.meta_spans, meta_pages);
    assert_eq!(driver.data_spans, table.properties().blocks);
    cursor.seek_last();
    for expected in entries.iter().rev() {
        assert!(driver.step(&mut cursor).unwrap());
        same(here(&cursor), Some(expected));
        cursor.prev();
    }
    assert!(!driver.step(&mut cursor).unwrap());

    for _ in 0..200 {
        let (key, at) = some_target(rng, &entries);
        let (meta, data) = (driver.meta_spans, driver.data_spans);
        let found = driver.get(&key, at).unwrap();
        let found = found.as_ref().map(|(trailer, value)| (*trailer, &value[..]));
        assert!(found == newest(model, &key, at), "key {key:?} at {at:?}");
        assert!(driver.meta_spans - meta <= u64::from(!is_pinned) && driver.data_spans - data <= 1);

        let split = entries.partition_point(|(other, trailer, _)| {
            (*other, Reverse(*trailer)) < (&key[..], Reverse(at))
        });
        let after = rng.one_in(2);
        let mut expected = if after {
            cursor.seek(&key, at);
            Some(split)
        } else {
            cursor.seek_before(&key, at);
            split.checked_sub(1)
        };
        driver.step(&mut cursor).unwrap();
        for _ in 0..rng.below(6) {
            same(here(&cursor), expected.and_then(|index| entries.get(index)));
            let Some(index) = expected.filter(|index| *index < entries.len()) else { break };
            expected = if rng.one_in(2) {
                cursor.next();
                Some(index + 1)
            } else {
                cursor.prev();
                index.checked_sub(1)
            };
            driver.step(&mut cursor).unwrap();
        }
    }
}

fn check_properties(model: &Model, properties: &Properties) {
    let seqnos = || model.keys().map(|(_, trailer)| trailer.0.seqno());
    let mut keys: Vec<&Vec<u8>> = model.keys().map(|(key, _)| key).collect();
    assert_eq!(Some(&properties.first_key), keys.first().copied());
    assert_eq!(Some(&properties.last_key), keys.last().copied());
    keys.dedup();
    assert_eq!(properties.keys, keys.len() as u64);
    assert_eq!(properties.entries, model.len() as u64);
    assert_eq!(Some(properties.seqno_min), seqnos().min());
    assert_eq!(Some(properties.seqno_max), seqnos().max());
    let deletes =
        model.keys().filter(|(_, trailer)| trailer.0.kind().unwrap() == EntryKind::Delete);
    assert_eq!(properties.deletes, deletes.count() as u64);
    let raw: usize = model.iter().map(|((key, _), value)| key.len() + value.len()).sum();
    assert_eq!(properties.raw_bytes, raw as u64);
}

/// The next block's span is the one that is read next, and an iteration in either direction reads every
/// page once.
#[test]
fn the_next_block_span_is_the_one_that_iteration_then_needs() {
    let mut rng = Rng::new(5);
    for large in [false, true] {
        let mut model = Model::new();
        for number in 0..12_000 {
            let mut value = vec![0; if large && number % 500 == 7 { 10_000 } else { 40 }];
            rng.fill(&mut value);
            model.insert((format!("{number:08}").into_bytes(), Reverse(put(number))), value);
        }
        let medium = medium();
        write(&medium, spec(Codec::Lz4), &model, &Account::unlimited("test")).unwrap();
        let table = open(&medium).unwrap();
        assert!(table.properties().meta_pages > 2);
        assert_eq!(table.properties().runs > 0, large);
        for forward in [true, false] {
            let mut cursor = TableCursor::new(Arc::clone(&table));
            let mut driver = Driver::new(&table);
            let step =
                |cursor: &mut TableCursor| if forward { cursor.next() } else { cursor.prev() };
            if forward {
                cursor.seek_first()
            } else {
                cursor.seek_last()
            }
            let (mut promised, mut kept) = (None, 0);
            let mut needed = 0;
            let mut supplied = None;
            loop {
                match cursor.step(supplied.take()).unwrap() {
                    Step::Need(span) => {
                        if let Some(promised) = promised.take() {
                            assert_eq!(span, promised);
                            kept += 1;
                        }
                        needed += 1;
                        supplied = Some(driver.fetch(span).unwrap());
                    }
                    Step::Ready(false) => break,
                    Step::Ready(true) => {
                        promised = cursor.next_block_span().filter(|_| forward);
                        step(&mut cursor);
                    }
                }
            }
            let Properties { blocks, meta_pages, .. } = *table.properties();
            assert_eq!(needed, blocks + meta_pages);
            // The span is known for all but the first block of each partition.
            assert_eq!(kept, if forward { blocks - meta_pages } else { 0 });
        }
    }
}

/// The longest keys and values, and many versions of one key over several partitions.
#[test]
fn longest_keys_and_values_and_many_versions_are_read() {
    let mut rng = Rng::new(9);
    for codec in codecs() {
        let mut model = Model::new();
        for number in 0..6u8 {
            let mut key = vec![number / 2; base::limits::KEY_BYTES_MAX];
            // Neighbours differ only in the last byte, and so do their separators.
            *key.last_mut().unwrap() = number;
            model.insert((key, Reverse(put(1))), vec![number; 5]);
        }
        let mut huge = vec![0; 3 << 20];
        rng.fill(&mut huge[..1 << 20]);
        model.insert((b"huge".to_vec(), Reverse(put(9))), huge);
        for seqno in 0..30_000 {
            let value = rng.next_u64().to_le_bytes().repeat(3);
            model.insert((b"many".to_vec(), Reverse(put(seqno * 2))), value);
        }
        let medium = medium();
        write(&medium, spec(codec), &model, &Account::unlimited("test")).unwrap();
        let table = open(&medium).unwrap();
        assert!(table.properties().meta_pages > 3, "{:?}", table.properties());
        let mut driver = Driver::new(&table);
        for ((key, trailer), value) in model.iter().step_by(97).chain(model.iter().take(8)) {
            for at in [trailer.0, Trailer::seek(Seqno::new(trailer.0.seqno().get() + 1))] {
                let (meta, data) = (driver.meta_spans, driver.data_spans);
                let (found, bytes) = driver.get(key, at).unwrap().unwrap();
                assert!(found == trailer.0 && bytes == value);
                assert!((driver.meta_spans - meta, driver.data_spans - data) == (1, 1));
            }
        }
        assert_eq!(driver.get(b"man", put(1)).unwrap(), None);
    }
}

/// A missing key costs a metadata page, and one time in 256 a data page.
#[test]
fn a_missing_key_costs_a_metadata_page() {
    let mut model = Model::new();
    for number in 0..20_000u64 {
        model.insert((format!("{:08}", number * 2).into_bytes(), Reverse(put(1))), vec![7; 20]);
    }
    let medium = medium();
    write(&medium, spec(Codec::Lz4), &model, &Account::unlimited("test")).unwrap();
    let table = open(&medium).unwrap();
    let mut driver = Driver::new(&table);
    let (reads, newest) = (10_000, Trailer::seek(Seqno::MAX));
    for number in 0..reads {
        let key = format!("{:08}", number * 2 + 1);
        assert_eq!(driver.get(key.as_bytes(), newest).unwrap(), None);
    }
    // 39 are expected; 90 are eight standard deviations away.
    assert!((10..90).contains(&driver.data_spans), "{}", driver.data_spans);
    assert!(driver.meta_spans <= reads);
    // No page is read for keys outside the table's range.
    let before = driver.meta_spans;
    assert_eq!(driver.get(b"99999999", newest).unwrap(), None);
    assert_eq!(driver.meta_spans, before);
    // A seqno older than all versions of a key costs its data page.
    assert_eq!(driver.get(b"00000004", put(0)).unwrap(), None);
}

#[test]
fn a_writer_refuses_versions_out_of_order_and_removes_an_abandoned_file() {
    let (medium, account) = (medium(), Account::unlimited("test"));
    let mut writer = Writer::create(&medium, spec(Codec::Lz4), &account).unwrap();
    writer.add(b"b", put(5), b"1").unwrap();
    for (key, trailer) in [(&b"a"[..], put(9)), (b"b", put(5)), (b"b", put(6)), (b"", put(9))] {
        let error = writer.add(key, trailer, b"2").unwrap_err();
        assert_eq!(error.kind(), base::ErrorKind::Invalid, "{error}");
    }
    writer.add(b"b", put(4), b"3").unwrap();
    assert_eq!(writer.entries(), 2);
    assert!(Writer::create(&medium, spec(Codec::Lz4), &account).is_err(), "the name is taken");
    drop(writer);
    assert!(medium.list().unwrap().is_empty());
    let writer = Writer::create(&medium, spec(Codec::Lz4), &account).unwrap();
    assert_eq!(writer.finish().unwrap_err().kind(), base::ErrorKind::Invalid);
    Writer::create(&medium, spec(Codec::None), &account).unwrap().abort().unwrap();
    assert!(medium.list().unwrap().is_empty());
    assert_eq!(account.used(), 0);
}

/// Memory is charged before it is used (I10): with too little, the writer refuses, or stores a long
/// entry uncompressed.
#[test]
fn a_memory_shortage_is_refused_and_charges_are_released() {
    let medium = medium();
    let budget = base::Budget::new(2 << 20);
    let account = budget.account("tables");
    let mut writer = Writer::create(&medium, spec(Codec::Lz4), &account).unwrap();
    writer.add(b"a", put(1), b"small").unwrap();
    writer.add(b"b", put(1), &vec![1; 100 << 10]).unwrap();
    assert!(writer.file_bytes() <= 16 << 10, "compressed");
    writer.add(b"bb", put(1), &vec![1; 1000 << 10]).unwrap();
    assert!(writer.file_bytes() >= 1000 << 10, "memory is too short to compress it");
    // A value that long is streamed: it needs no memory of the budget.
    writer.add(b"c", put(1), &vec![1; 8 << 20]).unwrap();
    writer.finish().unwrap();
    assert_eq!(budget.used(), 0);
    let table = Table::open(&*medium, STORE, TABLE, None, None, Arc::new(NoDictionaries), &account)
        .unwrap();
    assert_eq!(table.pinned_bytes(), budget.used());
    let (_, value) = Driver::new(&table).get(b"b", put(1)).unwrap().unwrap();
    assert!(budget.used() >= table.pinned_bytes() + (100 << 10), "a long value is charged");
    drop(value);
    assert_eq!(budget.used(), table.pinned_bytes());
    let long = Driver::new(&table).get(b"c", put(1));
    assert!(long.unwrap_err().is_retryable(), "a read needs memory of its length");
    drop(table);
    assert_eq!(budget.used(), 0);
    let poor_budget = base::Budget::new(1000);
    let poor = poor_budget.account("tables");
    assert!(Writer::create(&medium, spec(Codec::None), &poor).unwrap_err().is_retryable());
    let refused = Table::open(&*medium, STORE, TABLE, None, None, Arc::new(NoDictionaries), &poor);
    assert!(refused.unwrap_err().is_retryable());
}

/// Pages name their dictionary, and a reader without it reports its id.
#[test]
#[cfg(feature = "zstd")]
fn tables_with_a_dictionary_are_written_and_read() {
    use crate::{Dictionaries, Dictionary};

    #[derive(Debug)]
    struct One(Arc<Dictionary>);
    impl Dictionaries for One {
        fn get(&self, id: base::DictionaryId) -> Result<Arc<Dictionary>> {
            if id == self.0.id() { Ok(Arc::clone(&self.0)) } else { NoDictionaries.get(id) }
        }
    }
    let mut rng = Rng::new(4);
    // Each value has one of fifty phrases, too many for one block to contain all of them.
    let noise = |rng: &mut Rng, bytes: usize| {
        let mut noise = vec![0; bytes];
        rng.fill(&mut noise);
        noise
    };
    let phrases: Vec<Vec<u8>> = (0..50).map(|_| noise(&mut rng, 100)).collect();
    let mut model = Model::new();
    for number in 0..2000 {
        let phrase = &phrases[rng.below(50) as usize];
        let value = [&phrase[..], &noise(&mut rng, 30)].concat();
        model.insert((format!("{number:08}").into_bytes(), Reverse(put(1))), value);
    }
    let account = Account::unlimited("test");
    let plain = medium();
    let summary = write(&plain, spec(Codec::Zstd), &model, &account).unwrap();
    let samples: Vec<Vec<u8>> = model.values().cloned().collect();
    let samples: Vec<&[u8]> = samples.iter().map(Vec::as_slice).collect();
    let bytes = crate::train(&samples, 8 << 10, &account).unwrap();
    let id = base::DictionaryId(12);
    let dictionary = Arc::new(Dictionary::new(id, &bytes, &account).unwrap());
    let with = medium();
    let spec = Spec { dictionary: Some(Arc::clone(&dictionary)), ..spec(Codec::Zstd) };
    let smaller = write(&with, spec, &model, &account).unwrap();
    let (smaller_pages, pages) = (smaller.properties.data_pages, summary.properties.data_pages);
    assert!(smaller_pages < pages, "{:?} {:?}", smaller.properties, summary.properties);
    assert_eq!(smaller.properties.dictionaries, [id]);
    let table =
        Table::open(&*with, STORE, TABLE, None, None, Arc::new(One(dictionary)), &account).unwrap();
    let mut driver = Driver::new(&table);
    for ((key, trailer), value) in model.iter().step_by(31) {
        let (_, found) = driver.get(key, trailer.0).unwrap().unwrap();
        assert_eq!(found, value);
    }
    let mut stranger = Driver::new(&open(&with).unwrap());
    let error = stranger.get(b"00000000", put(1)).unwrap_err().to_string();
    assert!(error.contains("dictionary") && error.contains("12"), "{error}");
}
